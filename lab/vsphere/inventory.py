# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default inventory and the users of the simulated vCenter, in the format that `lab/vcsim` reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ADMINISTRATOR = "administrator@vsphere.local"
# A user whose privileges tests change.
LIMITED = "limited@vsphere.local"
VCENTER = "127.0.0.1"
DATACENTER = "DC1"
# The folder of the machines, and one outside of it for templates.
MACHINES_FOLDER = f"/{DATACENTER}/vm/openshift"
TEMPLATES_FOLDER = f"/{DATACENTER}/vm/gpu-templates"
# The datastore that the hosts of all clusters share.
SHARED_DATASTORE = "templates"
NETWORK = "VM Network"
# The vGPU manager of the hosts.
MANAGER_VERSION = "580.95.02"
# What the limited user may do by default: read, and what module vgpu_template needs (docs/vsphere.md, "Rights in vCenter").
TEMPLATE_PRIVILEGES = (
    "Datastore.AllocateSpace",
    "Folder.Create",
    "Network.Assign",
    "Resource.AssignVMToPool",
    "System.Anonymous",
    "System.Read",
    "System.View",
    "VApp.Import",
    "VirtualMachine.Config.AddNewDisk",
    "VirtualMachine.Config.AddRemoveDevice",
    "VirtualMachine.Config.AdvancedConfig",
    "VirtualMachine.Config.Resource",
    "VirtualMachine.Config.Settings",
    "VirtualMachine.Inventory.Create",
    "VirtualMachine.Inventory.Delete",
    "VirtualMachine.Provisioning.MarkAsTemplate",
)
# Profiles by GPU: name, memory in GB, class, largest number on a GPU, MIG-backed. Source: docs.nvidia.com/vgpu, "Virtual GPU Types".
_Profile = tuple[str, int, str, int, bool]
_A100: tuple[_Profile, ...] = (
    ("grid_a100-4c", 4, "compute", 10, False),
    ("grid_a100-5c", 5, "compute", 8, False),
    ("grid_a100-8c", 8, "compute", 5, False),
    ("grid_a100-10c", 10, "compute", 4, False),
    ("grid_a100-20c", 20, "compute", 2, False),
    ("grid_a100-40c", 40, "compute", 1, False),
    ("grid_a100-1-5c", 5, "compute", 7, True),
    ("grid_a100-2-10c", 10, "compute", 3, True),
    ("grid_a100-3-20c", 20, "compute", 2, True),
    ("grid_a100-7-40c", 40, "compute", 1, True),
)
_L40S: tuple[_Profile, ...] = (
    ("nvidia_l40s-12c", 12, "compute", 4, False),
    ("nvidia_l40s-24c", 24, "compute", 2, False),
    ("nvidia_l40s-48c", 48, "compute", 1, False),
    ("nvidia_l40s-24q", 24, "quadro", 2, False),
    ("nvidia_l40s-48q", 48, "quadro", 1, False),
)
# GPU models by a short name: the name that the vCenter shows, the memory in GB, the lab's model (lab/hardware.py), and the profiles.
GPUS: dict[str, tuple[str, int, str, tuple[_Profile, ...]]] = {
    "a100": ("NVIDIA A100-PCIE-40GB", 40, "A100-PCIE-40GB", _A100),
    "l40s": ("NVIDIA L40S", 48, "L40S", _L40S),
}


def host(
    name: str,
    gpu: str,
    *,
    graphics: str = "sharedDirect",
    mode: str = "sameSize",
    count: int = 2,
    manager: str | None = MANAGER_VERSION,
) -> dict[str, Any]:
    """Return a host with `count` GPUs of a model of GPUS, and with this version of the vGPU manager."""
    shown, memory, _model, profiles = GPUS[gpu]
    offered = [
        {"name": name, "fb_gb": size, "class": kind, "max": most, "mig": mig}
        for name, size, kind, most, mig in profiles
    ]
    card = {"name": shown, "memory_gb": memory, "profiles": offered, "mode": mode}
    package = {
        "name": "NVD-VMware_ESXi_8.0.0_Driver",
        "version": f"{manager}-1OEM.800.1.0.20613240",
        "vendor": "NVIDIA",
    }
    return {
        "name": name,
        "default_graphics": graphics,
        "vibs": [package] if manager else [],
        "gpus": [card] * count,
    }


def inventory() -> dict[str, Any]:
    """Return the datacenter with a cluster for each failure domain.

    The third host of each cluster differs: that of cluster-a divides its GPUs with MIG, and the GPUs of cluster-b's are not configured for vGPUs.
    """
    clusters = {
        "cluster-a": [host("esx-a1", "a100"), host("esx-a2", "a100"), host("esx-a3", "a100", mode="multiInstanceGpu")],
        "cluster-b": [host("esx-b1", "l40s"), host("esx-b2", "l40s"), host("esx-b3", "l40s", graphics="shared")],
    }
    for hosts in clusters.values():
        for one in hosts:
            one["name"] += ".example.com"
    return {
        "datacenters": [
            {
                "name": DATACENTER,
                "folders": [
                    folder.removeprefix(f"/{DATACENTER}/vm/") for folder in (MACHINES_FOLDER, TEMPLATES_FOLDER)
                ],
                "clusters": [
                    {
                        "name": name,
                        "datastores": [f"vsan-{name[-1]}", SHARED_DATASTORE],
                        "resource_pools": ["gpu"],
                        "hosts": hosts,
                    }
                    for name, hosts in clusters.items()
                ],
            }
        ]
    }


def models() -> Iterator[tuple[str, str]]:
    """Yield each profile and the lab's model of its GPU."""
    for _shown, _memory, model, profiles in GPUS.values():
        for name, *_more in profiles:
            yield name, model


def users(administrator: str, limited: str) -> dict[str, Any]:
    """Return the users with these passwords; the limited one has its privileges everywhere."""
    return {
        ADMINISTRATOR: {"password": administrator},
        LIMITED: {"password": limited, "permissions": {"/": sorted(TEMPLATE_PRIVILEGES)}},
    }
