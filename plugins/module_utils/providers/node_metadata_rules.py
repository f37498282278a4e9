# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for the labels and taints of node groups that all providers share (pure)."""

from __future__ import annotations

import typing as t

from ..nodegroups.spec import label_text
from ..schema import validators
from ..schema.types import Rule


def node_label_problems(labels: t.Mapping[str, t.Any], *key_rules: Rule) -> t.Iterator[str]:
    """A line for each label that Kubernetes, or one of the further rules for keys, does not allow."""
    for key, value in labels.items():
        problem = next((problem for rule in (validators.label_key, *key_rules) if (problem := rule(str(key)))), None)
        if problem:
            yield f"node_labels: {str(key)!r} {problem}"
        if value is not None and (problem := validators.label_value(label_text(value))):
            yield f"node_labels.{key}: {label_text(value)!r} {problem}"


def node_taint_problems(taints: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    """A line for each taint that Kubernetes does not allow, or that is there twice."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, key, value = f"node_taints[{index}]", str(taint["key"]), str(taint.get("value") or "")
        if problem := validators.label_key(key):
            yield f"{path}.key: {key!r} {problem.replace('label key', 'taint key')}"
        if problem := validators.label_value(value):
            yield f"{path}.value: {value!r} {problem.replace('label value', 'taint value')}"
        if (key, taint["effect"]) in seen:
            yield f"{path}: repeats key {key} and effect {taint['effect']}; a node has one taint for both, so keep one"
        seen.add((key, taint["effect"]))
