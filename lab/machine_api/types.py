# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instance types of OpenShift's platforms (`lab/fleets/machine_types.yaml`), and the file with the nodes that machines become."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import yaml

from .. import fleet
from ..errors import LabError
from ..layout import LAB
from ..nodes import CLOUD_LABEL
from ..openshift.objects import FAILURE_DOMAINS, PLATFORMS, REGIONS
from ..openshift.releases import Release
from ..systems import SYSTEMS
from ..vsphere.inventory import MANAGER_VERSION, models

FILE = LAB / "fleets" / "machine_types.yaml"
CLOUD = "machines"
_NOT_HARDWARE = ("name", "count", "labels", "taints", "os")
# The largest number of vGPUs of a virtual machine in the lab.
_VGPUS = 8
_MEBIBYTES = {"Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}


def load(path: Path = FILE) -> dict[str, dict[str, fleet.Group]]:
    """Return the machines by platform and type; raise one LabError that lists every error in the file with its position."""
    document = yaml.safe_load(path.read_text())
    machines: dict[str, dict[str, fleet.Group]] = {}
    problems = [f"{platform}: is not a platform" for platform in document if platform not in PLATFORMS]
    for platform, types in document.items():
        for name, entry in types.items():
            problems_of_key = [f"{key}: is not a key of a machine type" for key in _NOT_HARDWARE if key in entry]
            problems_of_key = problems_of_key or fleet.validate_group({"name": name, "count": 0, **entry})
            problems += [f"{platform}.{name}.{problem}" for problem in problems_of_key]
            if not problems_of_key:
                machines.setdefault(platform, {})[name] = fleet.Group(name, 0, **entry)
    if problems:
        raise LabError("\n".join([f"{path} is invalid:", *(f"  {problem}" for problem in problems)]))
    return machines


def cloud(platform: str, release: Release, kubelet_port: int) -> dict[str, Any]:
    """Return the content of the file that the simulator reads: the node of each type, and the zones."""
    machines = virtual_machines() if platform == "VSphere" else load()[platform]
    return {
        "platform": platform,
        "region": REGIONS.get(platform, "dc1"),
        "zones": {name: domain["topology"]["resourcePool"] for name, domain in FAILURE_DOMAINS.items()},
        "types": {name: _type(group, release, kubelet_port) for name, group in machines.items()},
    }


def virtual_machines() -> dict[str, fleet.Group]:
    """Return the virtual machine without GPUs, and those with vGPUs by profile and number: `grid_a100-10cx2`."""
    size: dict[str, Any] = {"cpus": 4, "memory": "16Gi", "machine": "VMware7,1"}
    machines = {"": fleet.Group("vm", 0, **size)}
    for profile, model in models():
        vgpu = {"host_driver": MANAGER_VERSION, "profile": profile.partition("_")[2].upper()}
        for count in range(1, _VGPUS + 1):
            machines[f"{profile}x{count}"] = fleet.Group("vm", 0, model=model, gpus=count, vgpu=vgpu, **size)
    return machines


def mebibytes(memory: str) -> int:
    """Return an amount of memory such as 16Gi in MiB."""
    match = re.fullmatch(r"(\d+)(Mi|Gi|Ti)", memory)
    if match is None:
        raise LabError(f"invalid amount of memory '{memory}': use a number with Mi, Gi or Ti")
    return int(match[1]) * _MEBIBYTES[match[2]]


def _type(group: fleet.Group, release: Release, kubelet_port: int) -> dict[str, Any]:
    labels = {
        CLOUD_LABEL: CLOUD,
        "node-role.kubernetes.io/worker": "",
        # The kubelet's service sets it to the ID of os-release (openshift/machine-config-operator, templates/worker).
        "node.openshift.io/os_id": SYSTEMS[release.system].id,
    }
    machine = dataclasses.replace(group, os=release.system, labels=labels)
    return {
        "cpus": group.cpus,
        "memory_mib": mebibytes(group.memory),
        "gpus": group.gpus,
        "node": fleet.Template(machine, kubelet_port).node("machine"),
    }
