# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All objects of a cluster, so that a test can say of each difference why it is there."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.labs import Lab
from tests.programs import run

Objects = dict[str, dict[str, Any]]

# Made anew by Kubernetes all the time, or by the lab itself.
_PASSING = {"Event", "EndpointSlice", "Logs", "ControllerRevision"}
_SYSTEM_LEASE = re.compile(r"^Lease (kube-node-lease/|kube-system/(kube-|apiserver-))")
# What the server keeps for itself, and what moves by itself.
_MOVING = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")

# Where the simulator keeps which driver a machine's kernel has loaded: nothing that is on a cluster.
_LOADED = "lab.accel.gpu/driver"


def snapshot(lab: Lab) -> Objects:
    """Every object by kind, namespace and name, without its status and without what moves by itself."""
    listed_kinds = kinds(lab)
    listed = json.loads(run("kubectl", "get", ",".join(listed_kinds), "-A", "-o", "json", env=lab.env))["items"]
    found = {_label(item): _still(item) for item in listed if item["kind"] not in _PASSING}
    return {label: item for label, item in found.items() if not _SYSTEM_LEASE.match(label)}


def differences(before: Objects, after: Objects) -> dict[str, Any]:
    """Every object that is not as it was, as it was and as it is (None: not there)."""
    return {
        label: (before.get(label), after.get(label))
        for label in sorted({*before, *after})
        if before.get(label) != after.get(label)
    }


def written_by(lab: Lab, manager: str) -> list[str]:
    """The objects of which the server notes that a field manager has written them."""
    listed_kinds = kinds(lab)
    text = run("kubectl", "get", ",".join(listed_kinds), "-A", "-o", "json", "--show-managed-fields", env=lab.env)
    return sorted(
        _label(item)
        for item in json.loads(text)["items"]
        if any(entry.get("manager") == manager for entry in item["metadata"].get("managedFields") or [])
    )


def kinds(lab: Lab) -> list[str]:
    """Every kind that can be listed, but those of which the API server warns that they are of yesterday."""
    listed = run("kubectl", "api-resources", "--verbs=list", "-o", "name", env=lab.env).split()
    return [kind for kind in listed if kind not in ("endpoints", "componentstatuses")]


def _label(item: dict[str, Any]) -> str:
    metadata = item["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{item['kind']} {place}{metadata['name']}"


def _still(item: dict[str, Any]) -> dict[str, Any]:
    # Whoever holds a Lease renews it all the time.
    moving = ("status", "spec") if item["kind"] == "Lease" else ("status",)
    kept = {key: value for key, value in item.items() if key not in moving}
    kept["metadata"] = {key: value for key, value in item["metadata"].items() if key not in _MOVING}
    if _LOADED in (kept["metadata"].get("annotations") or {}):
        kept["metadata"]["annotations"] = {
            key: value for key, value in kept["metadata"]["annotations"].items() if key != _LOADED
        }
    return kept
