# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All objects of a cluster, so that a test can explain each difference."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.labs import Lab
from tests.programs import run

Objects = dict[str, dict[str, Any]]

# Recreated continuously by Kubernetes or by the lab itself.
_PASSING = {"Event", "EndpointSlice", "Exec", "Logs", "ControllerRevision"}
_SYSTEM_LEASE = re.compile(r"^Lease (kube-node-lease/|kube-system/(kube-|apiserver-))")
# Fields of the server, and fields that change continuously.
_MOVING = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")

# The simulator stores the loaded driver of a machine's kernel here, which is no object of the cluster.
_LOADED = ("lab.accel.gpu/driver", "lab.accel.gpu/driver-config")


def snapshot(lab: Lab) -> Objects:
    """Every object by kind, namespace and name, without its status and without fields that change continuously."""
    listed_kinds = kinds(lab)
    listed = json.loads(run("kubectl", "get", ",".join(listed_kinds), "-A", "-o", "json", env=lab.env))["items"]
    actual = {_label(item): _still(item) for item in listed if item["kind"] not in _PASSING}
    return {label: item for label, item in actual.items() if not _SYSTEM_LEASE.match(label)}


def differences(before: Objects, after: Objects) -> dict[str, Any]:
    """Every changed object, with its old and its new state (None: missing)."""
    return {
        label: (before.get(label), after.get(label))
        for label in sorted({*before, *after})
        if before.get(label) != after.get(label)
    }


def written_by(lab: Lab, manager: str) -> list[str]:
    """The objects that a field manager has written, according to their managedFields."""
    listed_kinds = kinds(lab)
    text = run("kubectl", "get", ",".join(listed_kinds), "-A", "-o", "json", "--show-managed-fields", env=lab.env)
    return sorted(
        _label(item)
        for item in json.loads(text)["items"]
        if any(entry.get("manager") == manager for entry in item["metadata"].get("managedFields") or [])
    )


def kinds(lab: Lab) -> list[str]:
    """Every kind that can be listed, except those that the API server warns are deprecated."""
    listed = run("kubectl", "api-resources", "--verbs=list", "-o", "name", env=lab.env).split()
    return [kind for kind in listed if kind not in ("endpoints", "componentstatuses")]


def _label(item: dict[str, Any]) -> str:
    metadata = item["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{item['kind']} {place}{metadata['name']}"


def _still(item: dict[str, Any]) -> dict[str, Any]:
    # The holder of a Lease renews it continuously.
    moving = ("status", "spec") if item["kind"] == "Lease" else ("status",)
    kept = {key: value for key, value in item.items() if key not in moving}
    kept["metadata"] = {key: value for key, value in item["metadata"].items() if key not in _MOVING}
    if annotations := kept["metadata"].get("annotations"):
        kept["metadata"]["annotations"] = {key: value for key, value in annotations.items() if key not in _LOADED}
    return kept
