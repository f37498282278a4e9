# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleet files: the machines of a cluster as YAML, and the Node objects that the lab creates from them."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from plugins.module_utils.catalog import models

from . import hardware
from .api import Object
from .errors import LabError
from .systems import CONDITIONS, CUDA_OF_BRANCH, DISTRIBUTIONS, KUBELET, SYSTEMS

GROUP_LABEL = "lab.accel.gpu/group"
HARDWARE_ANNOTATION = "lab.accel.gpu/hardware"
OS_ANNOTATION = "lab.accel.gpu/os"
CONTAINERD_ANNOTATION = "lab.accel.gpu/containerd"
SPEC_ANNOTATION = "lab.accel.gpu/spec"
_VGPU_KEYS = ("host_driver", "host_branch", "profile")
_VGPU_PROFILE = re.compile(r"[A-Z0-9][A-Za-z0-9-]*-\d+[QCBA]")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class Group:
    """Identical machines; their nodes are named `<name>-1` to `<name>-<count>`."""

    name: str
    count: int
    model: str | None = None
    gpus: int = 0
    driver: str = "580.95.05"
    os: str = "ubuntu-24.04"
    vgpu: dict[str, str] | None = None
    machine: str = "unknown"
    cpus: int = 32
    memory: str = "256Gi"
    time_factor: float | list[float] = 1
    passthrough: bool = False
    distribution: str | None = None
    modules: list[str] = field(default_factory=list)
    services: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Fleet:
    """All groups of a fleet file."""

    groups: tuple[Group, ...]

    @property
    def gpus(self) -> int:
        """Total number of GPUs."""
        return sum(group.count * group.gpus for group in self.groups)

    def scaled(self, name: str, count: int) -> Fleet:
        """Return the fleet with a new machine count for one group."""
        if count < 0:
            raise LabError(f"invalid number of nodes {count}: it must not be negative")
        if name not in {group.name for group in self.groups}:
            raise LabError(f"unknown group '{name}'; known: {', '.join(group.name for group in self.groups)}")
        return Fleet(
            tuple(dataclasses.replace(group, count=count) if group.name == name else group for group in self.groups)
        )

    def nodes(self, kubelet_port: int) -> Iterator[Object]:
        """Yield a Node object for every machine; the port is that of its kubelet, which kwok simulates."""
        for group in self.groups:
            template = Template(group, kubelet_port)
            for number in range(1, group.count + 1):
                yield template.fleet_node(f"{group.name}-{number}")

    def save(self, path: Path) -> None:
        """Write the fleet as a fleet file."""
        path.write_text(
            yaml.safe_dump({"groups": [dataclasses.asdict(group) for group in self.groups]}, sort_keys=False)
        )


def load(path: Path) -> Fleet:
    """Read a fleet file; raise one LabError that lists every error in it with its position."""
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise LabError(f"fleet file {path} does not exist") from None
    except yaml.YAMLError as error:
        raise LabError(f"{path} is not YAML: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("groups"), list):
        raise LabError(f"{path} is not a fleet file: it has no list 'groups'")
    defaults = document.get("defaults") or {}
    groups, problems = [], []
    for index, entry in enumerate(document["groups"]):
        merged = {**defaults, **entry} if isinstance(entry, dict) and isinstance(defaults, dict) else {}
        group_problems = validate_group(merged)
        problems += [f"groups[{index}].{problem}" for problem in group_problems]
        if not group_problems:
            groups.append(Group(**merged))
    names = [group.name for group in groups]
    problems += [
        f"groups: duplicate name '{name}'" for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if problems:
        raise LabError("\n".join([f"{path} is invalid:", *(f"  {problem}" for problem in problems)]))
    return Fleet(tuple(groups))


_KINDS: dict[str, type] = {
    "name": str,
    "count": int,
    "model": str,
    "gpus": int,
    "driver": str,
    "os": str,
    "vgpu": dict,
    "machine": str,
    "cpus": int,
    "memory": str,
    "time_factor": object,
    "passthrough": bool,
    "distribution": str,
    "modules": list,
    "services": list,
    "labels": dict,
    "taints": list,
}
_OPTIONAL = ("model", "vgpu", "distribution")


def validate_group(entry: dict[str, Any]) -> list[str]:
    """Return the errors in one group of a fleet file, each with its key; an empty list if it is valid."""
    problems = [f"{key}: unknown key; known: {', '.join(_KINDS)}" for key in entry if key not in _KINDS]
    for key, kind in _KINDS.items():
        value = entry.get(key)
        if key in ("name", "count") and value is None:
            problems.append(f"{key}: is missing")
        elif key in entry and not isinstance(value, kind) and not (value is None and key in _OPTIONAL):
            problems.append(f"{key}: {value!r} is not a {kind.__name__}")
    if problems:
        return problems
    model, gpus = entry.get("model"), entry.get("gpus", 0)
    if model and models.find(model) is None:
        near = ", ".join(models.nearest(model)) or "see plugins/module_utils/catalog/models.py"
        problems.append(f"model: '{model}' is not in the catalog; nearest: {near}")
    if bool(model) != bool(gpus):
        problems.append("gpus: a model needs at least one GPU, and GPUs need a model")
    if entry.get("os", Group.os) not in SYSTEMS:
        problems.append(f"os: unknown system '{entry['os']}'; known: {', '.join(SYSTEMS)}")
    if entry.get("distribution") and entry["distribution"] not in DISTRIBUTIONS:
        problems.append(f"distribution: unknown '{entry['distribution']}'; known: {', '.join(DISTRIBUTIONS)}")
    if not _is_time_factor(entry.get("time_factor", 1)):
        problems.append(
            f"time_factor: {entry['time_factor']!r} is neither a positive number nor a list [low, high] of two positive numbers"
        )
    branch = entry.get("driver", Group.driver).partition(".")[0]
    if branch not in CUDA_OF_BRANCH:
        problems.append(f"driver: unknown branch {branch}; known: {', '.join(CUDA_OF_BRANCH)}")
    problems += _vgpu_problems(entry.get("vgpu") or {})
    for taint in entry.get("taints", []):
        if not isinstance(taint, dict) or "key" not in taint or taint.get("effect") not in _EFFECTS:
            problems.append(f"taints: {taint!r} needs a key and an effect ({', '.join(_EFFECTS)})")
    return problems


def _vgpu_problems(vgpu: dict[str, Any]) -> list[str]:
    problems = [f"vgpu.{key}: unknown key; known: {', '.join(_VGPU_KEYS)}" for key in vgpu if key not in _VGPU_KEYS]
    if (profile := vgpu.get("profile")) and not _VGPU_PROFILE.fullmatch(str(profile)):
        problems.append(f"vgpu.profile: '{profile}' is not a vGPU type such as A100-10C")
    return problems


def _is_time_factor(value: object) -> bool:
    numbers: list[Any] = value if isinstance(value, list) else [value, value]
    known = all(isinstance(n, (int, float)) and not isinstance(n, bool) and 0 < n < math.inf for n in numbers)
    return known and len(numbers) == 2 and numbers[0] <= numbers[1]


def time_factor(group: Group, name: str) -> float:
    """Return the factor by which operations on this machine take longer; in a range, a constant that follows from the name."""
    if not isinstance(group.time_factor, list):
        return group.time_factor
    low, high = group.time_factor
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
    return round(low + (high - low) * share, 2)


class Template:
    """Creates the Node objects of one group."""

    def __init__(self, group: Group, kubelet_port: int) -> None:
        self._group, self._port = group, kubelet_port
        self._now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._system = SYSTEMS[group.os]
        self._hardware = hardware.describe(
            models.find(group.model) if group.model else None,
            group.gpus,
            group.driver,
            vgpu=group.vgpu,
            machine=group.machine,
            passthrough=group.passthrough,
        )
        self._distribution = DISTRIBUTIONS.get(group.distribution or "")
        operating_system: Object = {
            "id": self._system.id,
            "version_id": self._system.version_id,
            "kernel": self._system.kernel,
        }
        if self._system.ostree:
            operating_system["ostree_version"] = self._system.ostree
        for key, names in (("modules", group.modules), ("services", group.services)):
            if names:
                operating_system[key] = ",".join(names)
        self._annotations = {
            "kwok.x-k8s.io/node": "fake",
            "node.alpha.kubernetes.io/ttl": "0",
            OS_ANNOTATION: json.dumps(operating_system),
        }
        if self._distribution:
            containerd = {key: getattr(self._distribution, key) for key in ("socket", "config", "imports")}
            self._annotations |= {CONTAINERD_ANNOTATION: json.dumps(containerd), **self._distribution.annotations}
        content = json.dumps(
            [self._annotations, self._hardware, dataclasses.asdict(dataclasses.replace(group, count=0))], sort_keys=True
        )
        # Distinguishes a machine that changed in the fleet file from one that was only labeled later.
        self._spec = hashlib.sha256(content.encode()).hexdigest()[:12]

    def fleet_node(self, name: str) -> Object:
        """Return the Node of a machine from a fleet file, with the annotation by which `nodes apply` recognizes it."""
        node = self.node(name)
        node["metadata"]["annotations"][SPEC_ANNOTATION] = self._spec
        node["metadata"]["labels"] = {GROUP_LABEL: self._group.name, **node["metadata"]["labels"]}
        return node

    def node(self, name: str) -> Object:
        """Return a Node with this hardware."""
        group, system, distribution = self._group, self._system, self._distribution
        resources = {"cpu": str(group.cpus), "memory": group.memory, "pods": "110", "ephemeral-storage": "500Gi"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": self._annotations
                | {HARDWARE_ANNOTATION: json.dumps(self._hardware | {"time_factor": time_factor(group, name)})},
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux",
                    "beta.kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    # OpenShift's machine config operator sets it on each node.
                    **({"node.openshift.io/os_id": system.id} if system.ostree else {}),
                    **(distribution.labels if distribution else {}),
                    **group.labels,
                },
            },
            "spec": {"taints": group.taints},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "addresses": [
                    {"type": "InternalIP", "address": "127.0.0.1"},
                    {"type": "Hostname", "address": name},
                ],
                # Ready from the start: kwok would set this too, but only for about 50 nodes per second.
                "conditions": [
                    {**condition, "lastHeartbeatTime": self._now, "lastTransitionTime": self._now}
                    for condition in CONDITIONS
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
                "nodeInfo": {
                    "architecture": "amd64",
                    "bootID": str(uuid.uuid4()),
                    "containerRuntimeVersion": (distribution and distribution.runtime) or system.runtime,
                    "kernelVersion": system.kernel,
                    "kubeProxyVersion": "",
                    "kubeletVersion": f"{KUBELET}{distribution.suffix if distribution else ''}",
                    "machineID": hashlib.sha256(name.encode()).hexdigest()[:32],
                    "operatingSystem": "linux",
                    "osImage": system.image,
                    "systemUUID": "",
                },
            },
        }
