# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleet files: which machines a cluster has, as YAML that people write, and the Node objects that follow from it."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
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
from .systems import CONDITIONS, CUDA_OF_BRANCH, KUBELET, SYSTEMS

GROUP_LABEL = "lab.accel.gpu/group"
HARDWARE_ANNOTATION = "lab.accel.gpu/hardware"
OS_ANNOTATION = "lab.accel.gpu/os"
SPEC_ANNOTATION = "lab.accel.gpu/spec"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class Group:
    """Machines that are alike; the nodes are called `<name>-1` to `<name>-<count>`."""

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
    pace: float | list[float] = 1
    passthrough: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Fleet:
    """All groups of a fleet file."""

    groups: tuple[Group, ...]

    @property
    def gpus(self) -> int:
        """Number of GPUs in all machines together."""
        return sum(group.count * group.gpus for group in self.groups)

    def scaled(self, name: str, count: int) -> Fleet:
        """Return the fleet with another number of machines in one group."""
        if count < 0:
            raise LabError(f"a group cannot have {count} nodes")
        if name not in {group.name for group in self.groups}:
            raise LabError(f"there is no group '{name}': known are {', '.join(group.name for group in self.groups)}")
        return Fleet(
            tuple(dataclasses.replace(group, count=count) if group.name == name else group for group in self.groups)
        )

    def nodes(self, kubelet_port: int) -> Iterator[Object]:
        """Yield a Node object for every machine; the port is where its kubelet, which kwok plays, answers."""
        for group in self.groups:
            template = Template(group, kubelet_port)
            for number in range(1, group.count + 1):
                yield template.of_fleet(f"{group.name}-{number}")

    def save(self, path: Path) -> None:
        """Write the fleet as a fleet file."""
        path.write_text(
            yaml.safe_dump({"groups": [dataclasses.asdict(group) for group in self.groups]}, sort_keys=False)
        )


def load(path: Path) -> Fleet:
    """Read a fleet file; every mistake in it is told at once, each with its place."""
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise LabError(f"there is no fleet file {path}") from None
    except yaml.YAMLError as error:
        raise LabError(f"{path} is not YAML: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("groups"), list):
        raise LabError(f"{path} is not a fleet file: it needs a list 'groups'")
    defaults = document.get("defaults") or {}
    groups, problems = [], []
    for index, entry in enumerate(document["groups"]):
        merged = {**defaults, **entry} if isinstance(entry, dict) and isinstance(defaults, dict) else {}
        found = problems_of(merged)
        problems += [f"groups[{index}].{problem}" for problem in found]
        if not found:
            groups.append(Group(**merged))
    names = [group.name for group in groups]
    problems += [
        f"groups: '{name}' is there twice" for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if problems:
        raise LabError("\n".join([f"{path} cannot be used:", *(f"  {problem}" for problem in problems)]))
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
    "pace": object,
    "passthrough": bool,
    "labels": dict,
    "taints": list,
}
_OPTIONAL = ("model", "vgpu")


def problems_of(entry: dict[str, Any]) -> list[str]:
    """Say what is wrong with one group of a fleet file, each with its key; an empty list when it can be used."""
    problems = [f"{key}: is not known; known are {', '.join(_KINDS)}" for key in entry if key not in _KINDS]
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
        problems.append(f"os: '{entry['os']}' is not known; known are {', '.join(SYSTEMS)}")
    if not _is_pace(entry.get("pace", 1)):
        problems.append(f"pace: {entry['pace']!r} is neither a number above 0 nor a list [low, high] of two such")
    branch = entry.get("driver", Group.driver).partition(".")[0]
    if branch not in CUDA_OF_BRANCH:
        problems.append(f"driver: branch {branch} is not known; known are {', '.join(CUDA_OF_BRANCH)}")
    for taint in entry.get("taints", []):
        if not isinstance(taint, dict) or "key" not in taint or taint.get("effect") not in _EFFECTS:
            problems.append(f"taints: {taint!r} needs a key and an effect ({', '.join(_EFFECTS)})")
    return problems


def _is_pace(value: object) -> bool:
    numbers: list[Any] = value if isinstance(value, list) else [value, value]
    known = all(isinstance(n, (int, float)) and not isinstance(n, bool) and 0 < n < math.inf for n in numbers)
    return known and len(numbers) == 2 and numbers[0] <= numbers[1]


def pace(group: Group, name: str) -> float:
    """How many times the usual time things take on this machine; of a range each name has its own for ever."""
    if not isinstance(group.pace, list):
        return group.pace
    low, high = group.pace
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
    return round(low + (high - low) * share, 2)


class Template:
    """What all nodes of one group share."""

    def __init__(self, group: Group, kubelet_port: int) -> None:
        self._group, self._port = group, kubelet_port
        self._now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._system = SYSTEMS[group.os]
        self._hardware = hardware.described(
            models.find(group.model) if group.model else None,
            group.gpus,
            group.driver,
            vgpu=group.vgpu,
            machine=group.machine,
            passthrough=group.passthrough,
        )
        self._annotations = {
            "kwok.x-k8s.io/node": "fake",
            "node.alpha.kubernetes.io/ttl": "0",
            OS_ANNOTATION: json.dumps(
                {"id": self._system.id, "version_id": self._system.version_id, "kernel": self._system.kernel}
            ),
        }
        content = json.dumps(
            [self._annotations, self._hardware, dataclasses.asdict(dataclasses.replace(group, count=0))], sort_keys=True
        )
        # Tells a machine that was changed in the fleet file from one that somebody labelled since.
        self._spec = hashlib.sha256(content.encode()).hexdigest()[:12]

    def of_fleet(self, name: str) -> Object:
        """Return the Node of a machine that a fleet file asks for, by whose annotation `nodes apply` knows it again."""
        node = self.node(name)
        node["metadata"]["annotations"][SPEC_ANNOTATION] = self._spec
        node["metadata"]["labels"] = {GROUP_LABEL: self._group.name, **node["metadata"]["labels"]}
        return node

    def node(self, name: str) -> Object:
        """Return the Node of a machine with this hardware, whoever made it."""
        group, system = self._group, self._system
        resources = {"cpu": str(group.cpus), "memory": group.memory, "pods": "110", "ephemeral-storage": "500Gi"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": self._annotations
                | {HARDWARE_ANNOTATION: json.dumps(self._hardware | {"pace": pace(group, name)})},
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux",
                    "beta.kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
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
                # Ready at once: kwok would get there too, at some 50 nodes a second.
                "conditions": [
                    {**condition, "lastHeartbeatTime": self._now, "lastTransitionTime": self._now}
                    for condition in CONDITIONS
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
                "nodeInfo": {
                    "architecture": "amd64",
                    "bootID": str(uuid.uuid4()),
                    "containerRuntimeVersion": system.runtime,
                    "kernelVersion": system.kernel,
                    "kubeProxyVersion": "",
                    "kubeletVersion": KUBELET,
                    "machineID": hashlib.sha256(name.encode()).hexdigest()[:32],
                    "operatingSystem": "linux",
                    "osImage": system.image,
                    "systemUUID": "",
                },
            },
        }
