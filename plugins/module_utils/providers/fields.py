# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the format of the tables that describe the settings of node groups (pure).

Each provider has one table, from which all other code derives the settings. An entry defines the module's option, the checks, the request bodies,
the result, the differences, and whether a change replaces the group. If a pool's `nodes` has the same setting, schema/providers.py contains the type
of the setting. The settings of a MachineSet are values in an object and not fields of requests, so machineset/machineset_object.py reads and writes
these settings.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.taints import TAINT_EFFECTS
from ..nodegroups.spec import label_map, label_text, taint_list, taint_map
from ..pools.nodegroup_names import NODE_LABELS, NODE_TAINTS
from ..schema import validators
from ..schema.types import Field, ListOf, MapOf, Rule

STATES = ["present", "absent"]
_TAINT: dict[str, dict[str, t.Any]] = {
    "key": {"type": "str", "required": True, "no_log": False},
    "value": {"type": "str"},
    "effect": {"type": "str", "choices": list(TAINT_EFFECTS), "required": True},
    "state": {"type": "str", "choices": STATES, "default": "present"},
}


def _unchanged(value: t.Any) -> t.Any:
    return value


@dataclass(frozen=True)
class NodeGroupField:
    """One setting of a node group.

    name: the name of the module's option, which results and differences also use.
    api: the path in requests, with keys separated by dots, such as labels.boot_volume_type for one of Magnum's labels.
    api_answer: the path in responses, if it differs from `api`.
    request: the method and the path of the request that changes the setting, or None if a change replaces the group. The path is relative to the
    path of the group.
    type: the type of the values, with its rules. If it is None, the type of the same setting in a pool's `nodes` is used.
    since: the first API version that has this setting, if the module also supports older versions.
    default: the value that a new group gets if the setting is not declared.
    option: attributes of the option that are not derived from the type.
    check: a function that yields the problems in the option's value. It is used instead of the rules of the type.
    normalize: a function that converts the value of the option to a normalized form for comparison.
    decode: a function that converts a value from the API to the same normalized form.
    encode: a function that converts a normalized value to the form that the API expects.
    """

    name: str
    api: str
    request: tuple[str, str] | None = None
    type: Field | None = None
    default: t.Any = None
    option: t.Mapping[str, t.Any] = field(default_factory=dict)
    check: t.Callable[[t.Any], t.Iterator[str]] | None = None
    normalize: t.Callable[[t.Any], t.Any] = _unchanged
    decode: t.Callable[[t.Any], t.Any] = _unchanged
    encode: t.Callable[[t.Any], t.Any] = _unchanged
    api_answer: str = ""
    since: tuple[int, int] | None = None


def node_labels_field(
    api: str, request: tuple[str, str], *key_rules: Rule, since: tuple[int, int] | None = None
) -> NodeGroupField:
    """The setting for node labels, which is derived from the pool's `labels`. key_rules: additional rules for label keys."""
    return NodeGroupField(
        NODE_LABELS,
        api,
        request,
        MapOf(),
        check=lambda labels: node_label_problems(labels, *key_rules),
        normalize=label_map,
        decode=text_map,
        since=since,
    )


def node_taints_field(
    api: str,
    request: tuple[str, str],
    encode: t.Callable[[t.Any], t.Any] = taint_list,
    since: tuple[int, int] | None = None,
) -> NodeGroupField:
    """The setting for node taints, which is derived from the pool's `taints`. Taints are compared as a map."""
    return NodeGroupField(
        NODE_TAINTS,
        api,
        request,
        ListOf(),
        option={"elements": "dict", "options": _TAINT},
        check=node_taint_problems,
        normalize=taint_map,
        decode=taint_map,
        encode=encode,
        since=since,
    )


def text_map(entries: t.Mapping[str, t.Any] | None) -> dict[str, str]:
    """The labels or tags in a response, with keys and values as strings."""
    return {str(key): str(value) for key, value in (entries or {}).items()}


def node_label_problems(labels: t.Mapping[str, t.Any], *key_rules: Rule) -> t.Iterator[str]:
    """Yields a message for each label key or value that Kubernetes or one of the additional rules for keys does not allow."""
    for key, value in labels.items():
        problem = next((problem for rule in (validators.label_key, *key_rules) if (problem := rule(str(key)))), None)
        if problem:
            yield f"node_labels: {str(key)!r} {problem}"
        if value is not None and (problem := validators.label_value(label_text(value))):
            yield f"node_labels.{key}: {label_text(value)!r} {problem}"


def node_taint_problems(taints: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    """Yields a message for each taint key or value that Kubernetes does not allow, and for each repeated taint."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, key, value = f"node_taints[{index}]", str(taint["key"]), str(taint.get("value") or "")
        if problem := validators.label_key(key):
            yield f"{path}.key: {key!r} {problem.replace('label key', 'taint key')}"
        if problem := validators.label_value(value):
            yield f"{path}.value: {value!r} {problem.replace('label value', 'taint value')}"
        if (key, taint["effect"]) in seen:
            yield f"{path}: repeats key {key} and effect {taint['effect']}; a node can have only one taint with this key and effect, so keep only one of them"
        seen.add((key, taint["effect"]))
