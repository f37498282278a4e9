# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small inventory of a vCenter, as plain values: a data center with a cluster of two hosts."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import Item
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.inventory import Inventory

Object = dict[str, t.Any]


def gpu(name: str, gib: float) -> SimpleNamespace:
    """A GPU as HostSystem.config.graphicsInfo has it."""
    return graphics_info("0000:3b:00.0", name, memorySizeInKB=int(gib * (1 << 20)))


def graphics_info(pci_id: str, name: str, **values: t.Any) -> SimpleNamespace:
    """An entry of HostSystem.config.graphicsInfo: an NVIDIA GPU that runs with Shared Direct, unless `values` say otherwise; it has no mode."""
    common = {"vendorName": "NVIDIA Corporation", "graphicsType": "sharedDirect", "vm": ()}
    return SimpleNamespace(pciId=pci_id, deviceName=name, **{**common, **values})


# The graphics adapter of a mainboard, which vCenter lists before the GPUs.
CONSOLE = graphics_info(
    "0000:03:00.0", "Matrox G200eW3", vendorName="Matrox Electronics", graphicsType="basic", memorySizeInKB=16 << 10
)


def host(ref: str, *gpus: SimpleNamespace, profiles: t.Sequence[str] = (), **changed: t.Any) -> Item:
    """A usable host with GPUs that can place all of its profiles; `changed` has properties with _ for the dot."""
    values: Object = {
        "name": ref,
        "parent": "cluster-a",
        "runtime.connectionState": "connected",
        "runtime.powerState": "poweredOn",
        "runtime.inMaintenanceMode": False,
        "config.graphicsInfo": gpus,
        "config.graphicsConfig": SimpleNamespace(hostDefaultGraphicsType="sharedDirect"),
        "config.sharedGpuCapabilities": [SimpleNamespace(vgpu=name) for name in profiles],
        "config.sharedPassthruGpuTypes": list(profiles),
        "datastore": ["vsan-a"],
        "network": ["net-a"],
    }
    values.update({key.replace("_", ".", 1): value for key, value in changed.items()})
    return Item(ref, "HostSystem", {key: value for key, value in values.items() if value is not None})


def datacenter(name: str) -> list[Item]:
    """A data center with its folders; the references are the paths."""
    return [
        Item(f"/{name}", "Datacenter", {"name": name, "vmFolder": f"/{name}/vm"}),
        *(
            Item(f"/{name}/{child}", "Folder", {"name": child, "parent": f"/{name}"})
            for child in ("vm", "host", "datastore")
        ),
    ]


def inventory(*hosts: Item, details: t.Sequence[t.Any] | None = None, extra: t.Iterable[Item] = ()) -> Inventory:
    """The inventory of a data center DC1 with the cluster cluster-a of these hosts. details: vCenter's profiles; None if its API has none."""
    target = SimpleNamespace() if details is None else SimpleNamespace(vgpuProfileInfo=details)
    center: t.Any = SimpleNamespace(call=lambda operation, function, *args: function(*args))
    cluster: Object = {
        "name": "cluster-a",
        "parent": "/DC1/host",
        "host": [item.ref for item in hosts],
        "resourcePool": "pool-root",
        "environmentBrowser": SimpleNamespace(QueryConfigTarget=lambda host: target),
    }
    items = [
        *datacenter("DC1"),
        Item("cluster-a", "ComputeResource", cluster),
        Item("pool-root", "ResourcePool", {"name": "Resources", "parent": "cluster-a", "owner": "cluster-a"}),
        Item("pool-gpu", "ResourcePool", {"name": "gpu", "parent": "pool-root", "owner": "cluster-a"}),
        Item("vsan-a", "Datastore", {"name": "vsan-a", "parent": "/DC1/datastore"}),
        Item("net-a", "Network", {"name": "VM Network", "parent": "/DC1"}),
        *hosts,
        *extra,
    ]
    return Inventory(center, items)
