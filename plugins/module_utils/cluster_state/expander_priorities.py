# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and merges the collection's expressions in the ConfigMap of the Priority expander (pure).

The value of the key `priorities` is YAML: lists of regular expressions by priority (kubernetes/autoscaler, expander/priority/priority.go). In block
YAML, foreign lines keep their text and order. Any other notation is replaced with block YAML that has the same content.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog.cluster_autoscaler import PRIORITY_KEY, group_id
from ..catalog.names import PRIORITIES_ANNOTATION
from ..common.nested import get_nested, parse_json
from ..nvidia_config import yaml_text

Document = t.Mapping[str, t.Any]
# The expressions by priority, as the autoscaler reads them.
Priorities = dict[int, list[str]]
# This collection's expressions, each with its priority.
Record = dict[str, int]


@dataclass(frozen=True)
class PriorityChanges:
    """The text and the record after a merge. If the text cannot be merged, `problem` contains the reason."""

    text: str
    record: Record
    problem: str = ""


def expression_of(namespace: str, machine_set: str) -> str:
    """The expression that matches only the node group of this MachineSet."""
    return f"^{re.escape(group_id(namespace, machine_set)).replace(re.escape('/'), '/').replace(re.escape('-'), '-')}$"


def text_of(configmap: Document | None) -> str:
    """The text of the ConfigMap; empty if there is none."""
    return str(get_nested(dict(configmap or {}), "data", PRIORITY_KEY) or "")


def priorities_of(configmap: Document | None) -> Priorities | None:
    """The expressions by priority; None if the ConfigMap has no text, or if the autoscaler cannot read the text."""
    text = text_of(configmap)
    return parse(text) if text else None


def record_of(configmap: Document | None) -> Record:
    """This collection's recorded expressions, with their priorities."""
    text = get_nested(dict(configmap or {}), "metadata", "annotations", PRIORITIES_ANNOTATION)
    record = parse_json(text, dict) or {}
    return {str(key): value for key, value in record.items() if isinstance(value, int)}


def parse(text: str) -> Priorities | None:
    """The expressions by priority; None if the autoscaler cannot read the text."""
    is_empty = all(line.strip().startswith("#") for line in text.splitlines() if line.strip())
    document = {} if is_empty else yaml_text.parse(text)
    if not isinstance(document, dict):
        return None
    for key, expressions in document.items():
        is_list = isinstance(expressions, list) and all(isinstance(item, str) for item in expressions)
        if not isinstance(key, int) or isinstance(key, bool) or not is_list:
            return None
    return document


def merge_priorities(
    text: str, record: Record, desired: t.Mapping[str, int], kept: t.Collection[str] = ()
) -> PriorityChanges:
    """Replace the recorded expressions, except those in `kept`, with the desired ones. Identical foreign expressions are reused."""
    present = parse(text)
    if present is None:
        return PriorityChanges(
            text, record, "is not a map from numbers to lists of expressions, so the autoscaler ignores it"
        )
    merged = {**{expression: record[expression] for expression in kept if expression in record}, **desired}
    removed = {expression: priority for expression, priority in record.items() if merged.get(expression) != priority}
    foreign = {
        (priority, expression)
        for priority, expressions in present.items()
        for expression in expressions
        if record.get(expression) != priority
    }
    added = {
        expression: priority
        for expression, priority in sorted(merged.items())
        if (priority, expression) not in foreign and record.get(expression) != priority
    }
    # If a recorded expression is no longer in the ConfigMap, it is added again.
    missing = {
        expression: priority
        for expression, priority in merged.items()
        if record.get(expression) == priority and expression not in present.get(priority, [])
    }
    own = {expression: priority for expression, priority in merged.items() if (priority, expression) not in foreign}
    content = _changed(present, removed, {**added, **missing})
    if content == present:
        return PriorityChanges(text, own)
    edited = _edited(text, removed, {**added, **missing})
    if parse(edited) != content:
        edited = yaml_text.render(content) if content else ""  # type: ignore[arg-type]
    return PriorityChanges(edited, own)


def _changed(present: Priorities, removed: Record, added: Record) -> Priorities:
    content: Priorities = {}
    for priority, expressions in present.items():
        rest = [expression for expression in expressions if removed.get(expression) != priority]
        if rest or not expressions:
            content[priority] = rest
    for expression, priority in sorted(added.items()):
        content[priority] = [*content.get(priority, []), expression]
    return content


def _edited(text: str, removed: Record, added: Record) -> str:
    """Edit the lines of the text; the result is correct only if each priority is a block with one line for each expression."""
    blocks: list[tuple[int | None, list[str]]] = [(None, [])]
    for line in text.splitlines():
        key = re.fullmatch(r"(\d+):\s*", line)
        if key:
            blocks.append((int(key[1]), [line]))
        else:
            blocks[-1][1].append(line)
    edited: list[str] = []
    remaining = dict(sorted(added.items()))
    for priority, lines in blocks:
        gone = [expression for expression, old in removed.items() if old == priority]
        rest = [line for line in lines if not any(_is_line_of(line, expression) for expression in gone)]
        new = [expression for expression, desired_priority in remaining.items() if desired_priority == priority]
        for expression in new:
            del remaining[expression]
        indent = next((match[1] for line in lines if (match := re.match(r"(\s*)- ", line))), "  ")
        rest += [f"{indent}- {_quoted(expression)}" for expression in new]
        if priority is None or len(rest) > 1 or len(lines) == len(rest):
            edited += rest
    for expression, priority in remaining.items():
        header = f"{priority}:"
        if header not in edited:
            edited.append(header)
        edited.insert(edited.index(header) + 1, f"  - {_quoted(expression)}")
    return "".join(f"{line}\n" for line in edited)


def _is_line_of(line: str, expression: str) -> bool:
    match = re.fullmatch(r"\s*- (.*?)\s*", line)
    return match is not None and match[1] in (expression, _quoted(expression), f'"{expression}"')


def _quoted(expression: str) -> str:
    quoted = expression.replace("'", "''")
    return f"'{quoted}'"
