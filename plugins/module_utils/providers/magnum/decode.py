# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node group's values are said by a module's options and by Magnum, and which ones it cannot have (pure)."""

from __future__ import annotations

import json
import re
import typing as t

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# A group's name becomes the value of a label of its nodes (drivers of Heat, and the cluster autoscaler).
LONGEST_NAME = 63

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_ID = re.compile(r"\d+|[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

# What a kubelet may say of its own node; Magnum 23 refuses the rest (magnum/api/controllers/v1/nodegroup.py), and with older
# releases such a node never comes up (Kubernetes, "NodeRestriction").
_OWN_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)


def label_value(value: t.Any) -> str:
    """A label of Magnum as it is compared and sent: text; a boolean as `true`, which Magnum itself would turn into `True`."""
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def labels(given: t.Mapping[str, t.Any] | None) -> dict[str, str | None]:
    """Magnum's labels, all values text; one of None is to be absent."""
    return {str(key): None if value is None else label_value(value) for key, value in (given or {}).items()}


def taint_map(taints: t.Iterable[t.Mapping[str, t.Any]] | None) -> dict[str, str | None]:
    """Taints from `key:Effect` to the value; None for one that is to be absent."""
    return {
        f"{taint['key']}:{taint['effect']}": None if taint.get("state") == "absent" else str(taint.get("value") or "")
        for taint in taints or ()
    }


def taint_list(taints: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    """The same as Magnum and Kubernetes write it."""
    split = [(key.rpartition(":"), value) for key, value in sorted(taints.items()) if value is not None]
    return [
        {"key": key, **({"value": value} if value else {}), "effect": effect} for (key, dummy, effect), value in split
    ]


def patch_text(value: t.Any) -> str:
    """What stands in a patch for a map or a list: Magnum takes a text only, and reads it as a literal of Python.

    JSON of maps, lists and texts is such a literal, except for its way of writing characters beyond Unicode's first plane.
    """
    return json.dumps(value, ensure_ascii=False)


def name_problem(name: str) -> str | None:
    """Why no group can be made with this name; None when it can."""
    if not name:
        return "a node group needs a name: Magnum answers 500 without one"
    if len(name) > LONGEST_NAME:
        return f"{len(name)} characters are too many; it becomes a label of the nodes, which has {LONGEST_NAME} at most"
    if _NAME.fullmatch(name) is None:
        return "it becomes a label of the nodes, so it has letters, digits, '-', '_' and '.', and a letter or digit at both ends"
    if _ID.fullmatch(name):
        return "Magnum takes a number, or what looks like a UUID, for an id, and never finds the group by it; put a letter before it"
    return None


def node_label_problems(given: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """What is wrong with labels for nodes, a line each, with the key in it."""
    for key, value in given.items():
        prefix, slash, rest = key.rpartition("/")
        if not _is_name(rest) or (slash and (len(prefix) > 253 or _PREFIX.fullmatch(prefix) is None)):
            yield f"node_labels.{key}: this is no key of a Kubernetes label"
        elif prefix and not kubelet_may(key):
            yield (
                f"node_labels.{key}: a kubelet may not give its own node a label of the namespace {prefix}, and would not start; "
                f"use another prefix, or one of {', '.join(_OWN_PREFIXES)}"
            )
        if value is not None and str(value) and not _is_name(str(value)):
            yield f"node_labels.{key}: {value!r} is no value of a Kubernetes label"


def taint_problems(taints: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    """What is wrong with taints for nodes, a line each, with the place in it."""
    seen: set[str] = set()
    for index, taint in enumerate(taints):
        place, key, value = f"node_taints[{index}]", str(taint["key"]), str(taint.get("value") or "")
        prefix, slash, rest = key.rpartition("/")
        if not _is_name(rest) or (slash and (len(prefix) > 253 or _PREFIX.fullmatch(prefix) is None)):
            yield f"{place}.key: {key!r} is no key of a taint"
        if value and not _is_name(value):
            yield f"{place}.value: {value!r} is no value of a taint"
        if f"{key}:{taint['effect']}" in seen:
            yield f"{place}: {key} with effect {taint['effect']} is there twice"
        seen.add(f"{key}:{taint['effect']}")


def kubelet_may(key: str) -> bool:
    """Whether a kubelet may give its own node this label."""
    prefix, dummy, dummy_rest = key.rpartition("/")
    reserved = prefix in ("kubernetes.io", "k8s.io") or prefix.endswith((".kubernetes.io", ".k8s.io"))
    return not reserved or prefix in _OWN_PREFIXES or key in _OWN_LABELS


def _is_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None
