# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats numbers and properties of pools as plain text (pure)."""

from __future__ import annotations

import re
import typing as t

from ..sharing_modes.modes import MODES
from ..validation_programs.programs import PROGRAMS

Document = t.Mapping[str, t.Any]

_MODES = {"undiscovered": "not discovered", **{mode.name: mode.page_name for mode in MODES.values() if mode.page_name}}
DOT = " \u00b7 "
# The keys of changes to labels, annotations and taints in the result of gpu_info, with their names on the terminal and on the page.
NODE_CHANGES = (
    ("labels", "labels", "labels to set"),
    ("removed_labels", "without labels", "labels to remove"),
    ("annotations", "annotations", "annotations to set"),
    ("removed_annotations", "without annotations", "annotations to remove"),
    ("taints", "taints", "taints to set"),
    ("removed_taints", "without taints", "taints to remove"),
)
_TIMES = "\u00d7"
_NEGATIVE_CHECKS = {"one_more": "one more waited", "two_shares": "a request for two was rejected"}


def number(count: int) -> str:
    """A number with a thin space between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def plural(count: int, noun: str) -> str:
    """A number with a noun, such as 1 node or 2 nodes."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def memory(mib: int | None) -> str:
    """An amount of memory in GiB."""
    return f"{mib / 1024:.1f}\u00a0GiB" if mib else "?"


def short_model(model: t.Any) -> str:
    """A GPU model without the vendor."""
    return str(model).removeprefix("NVIDIA-")


def short_resource(resource: t.Any) -> str:
    """A resource without NVIDIA's prefix."""
    return str(resource or "?").removeprefix("nvidia.com/")


def sharing_mode(mode: t.Any, replicas: t.Any) -> str:
    """The sharing mode, with the replicas if there are several."""
    name = str(mode or "?")
    name = _MODES.get(name, name)
    return f"{name} {_TIMES}{replicas}" if isinstance(replicas, int) and replicas > 1 else name


def device_counts(devices: t.Iterable[tuple[t.Any, t.Any]], default: str = "") -> str:
    """The number of MIG devices of each profile."""
    return ", ".join(f"{count} {_TIMES} {profile}" for profile, count in devices) or default


def mig_layout(pool: Document) -> str:
    """The MIG devices that a pool declares for each GPU, or for all GPUs together."""
    demand = device_counts((pool.get("demand") or {}).items())
    parts = [f"{demand} in total"] if demand else []
    for part in pool.get("layout") or ():
        profiles = device_counts((part.get("profiles") or {}).items(), "not partitioned")
        devices = ", ".join(map(str, part.get("devices") or ()))
        parts.append(f"GPU {devices}: {profiles}" if devices else profiles)
    return "; ".join(parts)


def verification(pool: Document) -> str:
    """The result of the last validation with workloads."""
    validation = pool.get("validation")
    if not validation:
        return "Not verified by workloads yet."
    if validation.get("status") == "failed":
        when = "" if validation.get("current") else " before the last change"
        return f"Validation failed{when}, {validation_failure(validation)}"
    when = "Verified" if validation.get("current") else "Verified before the last change"
    return f"{when}: {validation_result(validation)}."


def has_failed_validation(pool: Document) -> bool:
    """Whether the last validation failed and the pool has not been changed since."""
    validation = pool.get("validation") or {}
    return validation.get("status") == "failed" and bool(validation.get("current"))


def validation_failure(validation: Document) -> str:
    """The time, the node and the problems of a failed validation."""
    where = f" on {validation['node']}" if validation.get("node") else ""
    return f"{validation.get('time')}{where}: {'; '.join(map(str, validation.get('problems') or ()))}"


def validation_result(validation: Document) -> str:
    """The pods of a validation, the results of the programs, and the results of the negative checks that were run."""
    devices = validation.get("devices") or {}
    pods = plural(sum(devices.values()), "pod")
    programs = [program.describe(validation.get(program.name)) for program in PROGRAMS]
    return ", ".join(
        [
            f"{pods} on {validation.get('node')} ran at the same time on {plural(len(devices), 'device')}",
            *(text for text in programs if text),
            *(text for key, text in _NEGATIVE_CHECKS.items() if validation.get(key)),
        ]
    )


def pending_changes(pool: Document) -> list[str]:
    """The changes that a run would make on the nodes of a pool."""
    changes: Document = pool.get("changes") or {}
    if not changes:
        return []
    desired = sharing_mode(pool.get("mode"), pool.get("replicas"))
    lines = []
    for mode, count in (changes.get("switched_from") or {}).items():
        previous = _previous_mode(mode)
        switch = (
            f"to a different configuration of {desired}" if previous == desired else f"from {previous} to {desired}"
        )
        lines.append(f"{plural(count, 'node')} to switch {switch}")
    if changes.get("joining"):
        lines.append(f"{plural(changes['joining'], 'node')} to add to the pool")
    lines += [
        f"{prefix}: {', '.join(map(str, changes[key]))}" for key, dummy, prefix in NODE_CHANGES if changes.get(key)
    ]
    return lines or [only_records(changes.get("nodes") or 0)]


def only_records(nodes: int) -> str:
    """The text for changes that affect only the collection's own annotations on nodes."""
    return f"{plural(nodes, 'node')} with outdated annotations that the collection has set"


def _previous_mode(mode: t.Any) -> str:
    return _MODES.get(mode) or re.sub(r" x([0-9]+)$", rf" {_TIMES}\1", str(mode))
