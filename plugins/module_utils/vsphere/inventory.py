# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vCenter offers: data centers, clusters, hosts with their GPUs, vGPU profiles, datastores and networks; finds objects by name or path.

All objects are read with one request, and the profiles with one for each cluster. The version of the vGPU manager needs one request for each host.
"""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass

from ..catalog.vgpu import COMPUTE, vgpu_type
from ..core.errors import InvalidOptions
from ..core.messages import nearest, quote
from ..core.waits import run_bounded
from .client import Item, VCenter, VSphereError

_PROPERTIES: dict[str, tuple[str, ...]] = {
    "Datacenter": ("name", "parent", "vmFolder"),
    "ComputeResource": ("name", "parent", "host", "environmentBrowser", "resourcePool"),
    "HostSystem": (
        "name",
        "parent",
        "runtime.connectionState",
        "runtime.powerState",
        "runtime.inMaintenanceMode",
        "config.graphicsInfo",
        "config.graphicsConfig",
        "config.sharedGpuCapabilities",
        "config.sharedPassthruGpuTypes",
        "configManager.imageConfigManager",
        "datastore",
        "network",
        "vm",
    ),
    "ResourcePool": ("name", "parent", "owner"),
    "Datastore": ("name", "parent"),
    "Network": ("name", "parent"),
    "Folder": ("name", "parent"),
}
# The default graphics type that a host needs to run virtual machines with a vGPU.
SHARED_DIRECT = "sharedDirect"
# Who sets it, as a part of a sentence.
SHARED_DIRECT_BY = "with the playbook vsphere_hosts or the module host_graphics"
# How a GPU is shared (Profile.sharing), and the modes of a GPU that decide which vGPUs can be on it (HostGraphicsInfo.vgpuMode). Without a mode, as before
# vSphere 8.0.3, a GPU is in the first one.
TIME_SLICED, MIG = "time-sliced", "mig"
SAME_SIZE, MIXED_SIZE, MULTI_INSTANCE = "sameSize", "mixedSize", "multiInstanceGpu"
# The values of Gpu.mode from which it does not follow whether a GPU has MIG instances.
_UNKNOWN_MODES = ("", "none")
# The compute slices of a GPU with MIG.
MIG_SLICES = 7
# The package of the vGPU manager on ESXi, such as NVD-VMware_ESXi_8.0.0_Driver.
_MANAGER_PACKAGE = re.compile(r"^(?:NVD|NVIDIA)[-_].*(?:Driver|VMware_ESXi)", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """A physical NVIDIA GPU of a host.

    memory_gib is rounded to whole GiB, as in the name of the product; 0 if vCenter does not know it. mode: which vGPUs can share it; empty if the API does
    not say so. graphics_type: the active one. machines: the references of the virtual machines that use it.
    """

    name: str
    memory_gib: int
    mode: str = ""
    graphics_type: str = ""
    machines: tuple[t.Any, ...] = ()
    pci_id: str = ""

    def runs(self, sharing: str | None) -> bool:
        """Whether vGPUs that are shared in this way can be on it: whether Shared Direct is active, and MIG only for those that need it."""
        return self.graphics_type in ("", SHARED_DIRECT) and (
            self.mode in _UNKNOWN_MODES or (self.mode == MULTI_INSTANCE) == (sharing == MIG)
        )


@dataclass(frozen=True)
class Host:
    """An ESXi host. known: the profiles that its GPUs support. placeable: those that can be placed now; a GPU in use may allow only one profile."""

    item: Item
    gpus: tuple[Gpu, ...]
    known: tuple[str, ...]
    placeable: tuple[str, ...]
    graphics_type: str

    @property
    def name(self) -> str:
        """Its name in vCenter."""
        return self.item.name

    @property
    def reachable(self) -> bool:
        """Whether it is connected and powered on."""
        return is_reachable(self.item)

    @property
    def usable(self) -> bool:
        """Whether it is connected, powered on, and not in maintenance mode."""
        return self.reachable and not self.item.get("runtime.inMaintenanceMode")


@dataclass(frozen=True)
class Profile:
    """A vGPU profile of a cluster.

    frame_buffer_gib, profile_class, sharing (time-sliced or mig): from the API, or from the name if the API is older than 7.0.3.
    gpu_memory_gib: the memory of the physical GPU. max_per_gpu: computed, because the API has no such field; None if the sizes are unknown.
    """

    name: str
    frame_buffer_gib: float | None
    profile_class: str | None
    sharing: str | None
    gpu_memory_gib: int | None
    max_per_gpu: int | None
    hosts: tuple[str, ...]
    placeable_hosts: tuple[str, ...]

    def to_result(self) -> dict[str, t.Any]:
        """The profile as a module returns it."""
        return {
            "name": self.name,
            "frame_buffer_gib": self.frame_buffer_gib,
            "class": self.profile_class,
            "sharing": self.sharing,
            "gpu_memory_gib": self.gpu_memory_gib,
            "max_per_gpu": self.max_per_gpu,
            "max_per_gpu_is_computed": True,
            "hosts": list(self.hosts),
            "placeable_hosts": list(self.placeable_hosts),
        }


class Inventory:
    """The objects of a vCenter at one point in time."""

    def __init__(self, center: VCenter, items: t.Iterable[Item]) -> None:
        """Index the objects."""
        self.center = center
        self.items = {item.ref: item for item in items}

    @classmethod
    def read(cls, center: VCenter) -> Inventory:
        """Read all objects, except virtual machines."""
        kinds = " ".join(_PROPERTIES)
        return cls(center, center.read([(center.content.rootFolder, kinds)], _PROPERTIES))

    def of_kind(self, kind: str) -> list[Item]:
        """All objects of a kind, sorted by path."""
        return sorted((item for item in self.items.values() if item.kind == kind), key=self.path)

    def path(self, item: Item) -> str:
        """The inventory path, such as /DC1/host/cluster-a or /DC1/vm/gpu-templates."""
        parts = [item.name]
        parent = self.items.get(item.get("parent"))
        while parent is not None:
            # The hidden root of the resource pools is part of the path (Resources), the root folder is not.
            parts.append(parent.name)
            parent = self.items.get(parent.get("parent"))
        return "/" + "/".join(reversed(parts))

    def datacenter_of(self, item: Item) -> Item | None:
        """The data center that contains an object."""
        current: Item | None = item
        while current is not None and current.kind != "Datacenter":
            current = self.items.get(current.get("parent"))
        return current

    def find(self, kind: str, value: str, option: str, datacenter: Item | None = None) -> Item:
        """The object with this name or inventory path. Raises InvalidOptions if there is none, or more than one."""
        candidates = [
            item
            for item in self.of_kind(kind)
            if datacenter is None or kind == "Datacenter" or self.datacenter_of(item) is datacenter
        ]
        sought = value.rstrip("/")
        matching = [item for item in candidates if sought in (item.name, self.path(item))]
        if len(matching) == 1:
            return matching[0]
        where = f" in data center {datacenter.name}" if datacenter else ""
        if matching:
            paths = ", ".join(self.path(item) for item in matching)
            raise InvalidOptions(
                [f"{option}: {quote(value)} is the name of several objects{where} ({paths}); set the path"]
            )
        names = [item.name for item in candidates]
        similar = nearest(value, names)
        question = f"did you mean {similar}? " if similar else ""
        known = ", ".join(names[:10]) or "none, or the user may not see them"
        raise InvalidOptions([f"{option}: {quote(value)} does not exist{where}; {question}known: {known}"])

    @functools.cached_property
    def hosts(self) -> dict[t.Any, Host]:
        """The hosts by their reference."""
        return {item.ref: _host(item) for item in self.of_kind("HostSystem")}

    def hosts_of(self, cluster: Item) -> list[Host]:
        """The hosts of a cluster, sorted by name."""
        hosts = (self.hosts[ref] for ref in cluster.get("host", ()) if ref in self.hosts)
        return sorted(hosts, key=lambda host: host.name)

    def resource_pool(self, cluster: Item, value: str | None, option: str) -> t.Any:
        """The reference of a resource pool of a cluster; without a value, the cluster's root pool."""
        if not value:
            return cluster.get("resourcePool")
        own = [item for item in self.of_kind("ResourcePool") if item.get("owner") == cluster.ref]
        matching = [item for item in own if value.rstrip("/") in (item.name, self.path(item))]
        if not matching:
            known = ", ".join(self.path(item) for item in own) or "none"
            raise InvalidOptions([f"{option}: {quote(value)} is no resource pool of {cluster.name}; known: {known}"])
        return min(matching, key=self.path).ref

    def profiles(self, cluster: Item) -> list[Profile]:
        """The vGPU profiles of a cluster's hosts, sorted by name."""
        browser = cluster.get("environmentBrowser")
        target = self.center.call("QueryConfigTarget", browser.QueryConfigTarget, None) if browser else None
        details = {each.profileName: each for each in getattr(target, "vgpuProfileInfo", None) or ()}
        hosts = self.hosts_of(cluster)
        names = {*details, *(name for host in hosts for name in (*host.known, *host.placeable))}
        return [_profile(name, details.get(name), hosts) for name in sorted(names)]

    def manager_versions(self, hosts: t.Iterable[Host]) -> dict[str, str | None]:
        """The version of the vGPU manager on each host, such as 550.163.02; empty if it is not installed, None if the user or vCenter cannot read it."""

        def read(host: Host) -> str | None:
            manager = host.item.get("configManager.imageConfigManager")
            if manager is None or not host.reachable:
                return None
            packages = self.center.call("FetchSoftwarePackages", manager.FetchSoftwarePackages) or ()
            versions = [each.version for each in packages if _MANAGER_PACKAGE.match(each.name or "")]
            return versions[0].partition("-")[0] if versions else ""

        calls = [(host.name, functools.partial(read, host)) for host in hosts]
        outcomes = run_bounded(calls, fatal=lambda error: not isinstance(error, VSphereError))
        for outcome in outcomes:
            if outcome.error is not None and not isinstance(outcome.error, VSphereError):
                raise outcome.error
        return {outcome.name: outcome.value for outcome in outcomes}


def is_reachable(host: Item) -> bool:
    """Whether a host is connected and powered on."""
    return (
        str(host.get("runtime.connectionState")) == "connected"
        and str(host.get("runtime.powerState", "poweredOn")) == "poweredOn"
    )


def _host(item: Item) -> Host:
    gpus = tuple(gpu for gpu in read_gpus(item) if gpu.memory_gib)
    config = item.get("config.graphicsConfig")
    known = tuple(each.vgpu for each in item.get("config.sharedGpuCapabilities", ()) if each.vgpu)
    placeable = tuple(item.get("config.sharedPassthruGpuTypes", ()))
    return Host(item, gpus, known, placeable, str(getattr(config, "hostDefaultGraphicsType", "") or ""))


def read_gpus(host: Item) -> list[Gpu]:
    """The NVIDIA GPUs of a host. vCenter's list also has the graphics adapter of the mainboard."""
    return [
        Gpu(
            str(info.deviceName),
            round((info.memorySizeInKB or 0) / (1 << 20)),
            # Older APIs have no mode.
            str(getattr(info, "vgpuMode", None) or ""),
            str(info.graphicsType or ""),
            tuple(info.vm or ()),
            str(info.pciId),
        )
        for info in host.get("config.graphicsInfo", ())
        if "nvidia" in str(info.vendorName or "").lower()
    ]


def _profile(name: str, detail: t.Any, hosts: t.Sequence[Host]) -> Profile:
    having = [host for host in hosts if name in host.known or name in host.placeable]
    known = vgpu_type(name)
    size = float(known.size_gib) if known else None
    sharing = (MIG if known.slices else TIME_SLICED) if known else None
    profile_class = ("compute" if known.series == COMPUTE else "quadro") if known else None
    if detail is not None:
        size = float(detail.fbSizeInGib) if detail.fbSizeInGib else size
        sharing = {"mig": MIG, "timeSliced": TIME_SLICED}.get(str(detail.profileSharing), sharing)
        profile_class = str(detail.profileClass or "") or profile_class
    memory = _gpu_memory(known.gpu if known else "", having)
    maximum = None
    if sharing == MIG and known and known.slices:
        maximum = 1 if known.media else MIG_SLICES // known.slices
        if size and memory:
            # Instances also share the memory (A100-1-10c, A30); names contain the size without its fraction.
            maximum = min(maximum, max(1, round(memory / size)))
    elif size and memory:
        maximum = max(1, int(memory // size))
    return Profile(
        name,
        size,
        profile_class,
        sharing,
        memory,
        maximum,
        tuple(host.name for host in having),
        tuple(host.name for host in having if host.usable and name in host.placeable),
    )


def _gpu_memory(model: str, hosts: t.Iterable[Host]) -> int | None:
    """The memory of the largest GPU that a profile can be on; a host with several models is narrowed by the model in the name of the profile."""
    return max((gpu.memory_gib for gpu in _of_model(model, [gpu for host in hosts for gpu in host.gpus])), default=None)


def gpus_for(profile: Profile, host: Host) -> list[Gpu]:
    """The GPUs of a host whose model and memory are those of a profile, whatever mode they are in."""
    return [gpu for gpu in _of_profile(profile.name, host) if gpu.memory_gib == profile.gpu_memory_gib]


def runs_profile(name: str, host: Host) -> bool:
    """Whether vGPUs of a profile that a host offers can be on one of its GPUs as they are configured now, whatever is on them."""
    known = vgpu_type(name)
    return any(gpu.runs(MIG if known and known.slices else None) for gpu in _of_profile(name, host))


def _of_profile(name: str, host: Host) -> t.Sequence[Gpu]:
    known = vgpu_type(name)
    return _of_model(known.gpu if known else "", host.gpus)


def _of_model(model: str, gpus: t.Sequence[Gpu]) -> t.Sequence[Gpu]:
    """The GPUs of the model in the name of a profile; all of them if none has such a name."""
    # The suffixes of a100d, h100l and h200x are not part of the product's name, which may have spaces (RTX A6000). An L4 is no L40.
    words = r"\s?".join(map(re.escape, model.lower().rstrip("dlx")))
    pattern = re.compile(rf"{words}(?![0-9])", re.IGNORECASE)
    return [gpu for gpu in gpus if words and pattern.search(gpu.name)] or gpus


def mmio_gib(gpu_memory_gib: int, count: int) -> int:
    """The size of a virtual machine's 64-bit MMIO space in GiB: twice the memory of the physical GPUs, rounded up to a power of two, for each device.

    Source: frankdenneman.nl, "vSphere ML Accelerator Spectrum Deep Dive - ESXi Host BIOS, VM, and vCenter Settings" (2023-05-30).
    """
    power = 1
    while power < gpu_memory_gib:
        power *= 2
    return 2 * power * count


def connected_hosts(hosts: t.Iterable[Host], datastore: t.Any, network: t.Any) -> list[Host]:
    """The hosts that have both the datastore and the network: usable ones can receive an import, and machines can run on them."""
    return [
        host
        for host in hosts
        if datastore in host.item.get("datastore", ()) and network in host.item.get("network", ())
    ]
