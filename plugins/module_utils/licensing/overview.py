# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summarizes the licensing state of a cluster for results and reports (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, fields

from ..schema.messages import abbreviate_nodes
from .diagnosis import LicenseObject, expiry_warning, object_problem, problem
from .driver_pods import CONFIG_PATH, TOKEN_PATH, LicenseNode, Reading
from .status import UNKNOWN
from .targets import NO_OBJECT
from .token import format_time

if t.TYPE_CHECKING:
    import datetime

    from ..common.module import ArgumentSpec

# The maximum number of different node problems that a result lists.
_MAX_PROBLEMS = 5


@dataclass(frozen=True)
class LicenseLimits:
    """The limits that determine what counts as a problem. Each limit is an option of license_info, and a number.

    min_days: a token that expires in fewer days is a problem.
    """

    min_days: int = 30

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> LicenseLimits:
        """Create the limits from the module's options."""
        return cls(**{item.name: params[item.name] for item in fields(cls)})


LIMIT_OPTIONS: ArgumentSpec = {item.name: {"type": "int", "default": item.default} for item in fields(LicenseLimits)}


@dataclass(frozen=True)
class NodeState:
    """One node with its reading; `problem` is empty if there is none."""

    node: LicenseNode
    reading: Reading
    expected: LicenseObject | None
    problem: str

    @property
    def is_missing(self) -> bool:
        """Whether the node should have a license now, but has none."""
        return not self.reading.is_licensed and not self.node.not_required

    @property
    def token_matches(self) -> bool | None:
        """Whether the node has the token of its Secret; None if this is not known."""
        return self.expected.matches(self.reading, TOKEN_PATH) if self.expected is not None else None

    def as_dict(self, now: datetime.datetime) -> dict[str, t.Any]:
        """The node in the format that the module returns."""
        token = self.expected.token if self.expected is not None and self.token_matches else None
        node, reading, status = self.node, self.reading, self.reading.status
        return {
            "name": node.name,
            "pool": node.pool,
            "vgpu_type": (status.vgpu_type if status is not None else "") or node.vgpu_type,
            "state": status.state if status is not None else UNKNOWN,
            "status": status.text if status is not None else "",
            "product": status.product if status is not None else "",
            "expires": format_time(status.expires) if status is not None else None,
            "pod": node.pod.name if node.pod is not None else None,
            "driver_started": node.pod.started if node.pod is not None else None,
            "token_matches": self.token_matches,
            "token_days_left": token.days_left(now) if token is not None else None,
            "config_matches": self.expected.matches(reading, CONFIG_PATH) if self.expected is not None else None,
            "clock_skew": reading.clock_skew,
            "services": [check.as_dict() for check in reading.services],
            "problem": self.problem,
        }


def node_states(
    nodes: t.Iterable[LicenseNode],
    readings: t.Mapping[str, Reading],
    expected_of: t.Callable[[LicenseNode], LicenseObject | None],
    now: datetime.datetime,
) -> list[NodeState]:
    """The states of the nodes; nodes with a problem come first."""
    states = []
    for node in nodes:
        expected, reading = expected_of(node), readings[node.name]
        text = problem(node, reading, expected, now)
        if node.not_required and not reading.is_licensed:
            text = f"Not verified: {node.not_required}."
        states.append(NodeState(node, reading, expected, text))
    return sorted(states, key=lambda state: (not state.problem, state.node.name))


def _object_result(expected: LicenseObject, now: datetime.datetime) -> dict[str, t.Any]:
    """The result for an object. The values of the token are null if there is no valid token, or if the user is not allowed to read the object."""
    token = expected.token
    names = ("fingerprint", "expires", "not_before", "days_left", "server_type", "services", "valid")
    values = token.as_dict(now) if token is not None else dict.fromkeys(names)
    return {
        "kind": expected.target.kind,
        "name": expected.target.name,
        "namespace": expected.namespace,
        "pools": list(expected.target.pools),
        "readable": expected.readable,
        "complete": expected.files.is_complete,
        **{name: values[name] for name in names},
        "problem": object_problem(expected, now),
    }


def overview(
    states: t.Sequence[NodeState],
    objects: t.Sequence[LicenseObject],
    now: datetime.datetime,
    limits: LicenseLimits,
    *,
    mount_problems: t.Sequence[str] = (),
    no_object_text: str = NO_OBJECT,
    limit: int,
) -> dict[str, t.Any]:
    """The result of license_info. `mount_problems` comes from LicenseCluster.mount_problems(); `limit` is the maximum number of nodes in the result."""
    results = [_object_result(expected, now) for expected in objects]
    days_left = [item["days_left"] for item in results if item["days_left"] is not None]
    outdated = sum(state.token_matches is False for state in states)
    of_objects = [*_object_problems(objects, no_object_text if states else "", now, limits), *mount_problems]
    return {
        "counts": {
            **_counts([state.reading for state in states]),
            "outdated": outdated,
            "not_required": sum(not state.reading.is_licensed and not state.is_missing for state in states),
        },
        "nodes": [state.as_dict(now) for state in states[:limit]],
        "objects": results,
        "days_left": min(days_left, default=None),
        "summary": _summary(states, outdated, min(days_left, default=None)),
        "problems": [*_node_problems(sum(state.is_missing for state in states), outdated, len(states)), *of_objects],
        "warnings": [*of_objects, *problem_lines(states)],
    }


def _summary(states: t.Sequence[NodeState], outdated: int, days_left: int | None) -> str:
    """The state of all nodes and the token that expires first, as one line; empty for a cluster without vGPU nodes."""
    if not states:
        return ""
    licensed = sum(state.reading.is_licensed for state in states)
    parts = [f"{licensed} of {len(states)} vGPU nodes have a license"]
    if outdated:
        parts.append(f"{outdated} {'has' if outdated == 1 else 'have'} a token other than the one in the Secret")
    if days_left is not None:
        parts.append(f"the token expires in {days_left} {'day' if days_left == 1 else 'days'}")
    return "; ".join(parts)


def _counts(readings: t.Collection[Reading]) -> dict[str, int]:
    """The number of all nodes, and the number of nodes in each state."""
    licensed = sum(reading.is_licensed for reading in readings)
    unknown = sum(reading.status is None or reading.status.state == UNKNOWN for reading in readings)
    return {
        "nodes": len(readings),
        "licensed": licensed,
        "unlicensed": len(readings) - licensed - unknown,
        "unknown": unknown,
    }


def missing_text(missing: int, nodes: int) -> str:
    """A sentence with the number of nodes that need a license now, but have none."""
    return f"{missing} of {nodes} nodes have no verified license."


def _node_problems(missing: int, outdated: int, nodes: int) -> t.Iterator[str]:
    """Sentences that contain the number of nodes without a verified license, and the number of nodes with an outdated token."""
    if missing:
        yield missing_text(missing, nodes)
    if outdated:
        subject, whose = ("node has", "its") if outdated == 1 else ("nodes have", "their")
        yield f"{outdated} {subject} a token that differs from the one in {whose} Secret. Run the playbook license_rotate."


def _object_problems(
    objects: t.Sequence[LicenseObject], no_object_text: str, now: datetime.datetime, limits: LicenseLimits
) -> list[str]:
    """Sentences about objects with problems and about tokens that expire soon, each with the remedy; without objects, `no_object_text` if it is not empty."""
    if no_object_text and not objects:
        return [no_object_text]
    texts = [object_problem(expected, now) or expiry_warning(expected, now, limits.min_days) for expected in objects]
    return [text for text in texts if text]


def problem_lines(states: t.Iterable[NodeState], limit: int = _MAX_PROBLEMS) -> list[str]:
    """One line for each different problem, with the affected nodes. The most frequent problems come first."""
    by_text: dict[str, list[str]] = {}
    for state in states:
        if state.problem:
            by_text.setdefault(state.problem, []).append(state.node.name)
    ordered = Counter({text: len(names) for text, names in by_text.items()}).most_common(limit)
    lines = [f"{_capital(abbreviate_nodes(by_text[text]))}: {text}" for text, dummy in ordered]
    rest = len(by_text) - len(ordered)
    return [*lines, f"More problems: {rest}. The result of license_info lists the nodes."] if rest > 0 else lines


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
