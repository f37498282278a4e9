# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vCenter offers: profiles by their names and by the API, hosts with GPUs, MMIO sizes, and objects by name or path."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest
from pyVmomi import vim

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import Item, VSphereError
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.inventory import (
    Inventory,
    Profile,
    connected_hosts,
    mmio_gib,
)

from .objects import Object, datacenter, gpu, host, inventory

A100 = gpu("NVIDIA A100-PCIE-40GB", 40)
A100_80 = gpu("NVIDIA A100 80GB PCIe", 80)
H200 = gpu("NVIDIA H200", 140.4)


def detail(name: str, **fields: t.Any) -> t.Any:
    return vim.vm.VgpuProfileInfo(profileName=name, **fields)


def profiles(*hosts: Item, details: t.Sequence[t.Any] | None = None) -> dict[str, Profile]:
    """The profiles of a cluster with these hosts."""
    site = inventory(*hosts, details=details)
    return {profile.name: profile for profile in site.profiles(site.items["cluster-a"])}


@pytest.mark.parametrize(
    ("name", "card", "size", "kind", "sharing", "maximum"),
    [
        # Names of NVIDIA's documentation ("Virtual GPU Types for Supported GPUs"), with the prefixes of vCenter.
        ("grid_a100-40c", A100, 40, "compute", "time-sliced", 1),
        ("grid_a100-10c", A100, 10, "compute", "time-sliced", 4),
        ("grid_a100-4c", A100, 4, "compute", "time-sliced", 10),
        ("grid_a100-7-40c", A100, 40, "compute", "mig", 1),
        ("grid_a100-4-20c", A100, 20, "compute", "mig", 1),
        ("grid_a100-3-20c", A100, 20, "compute", "mig", 2),
        ("grid_a100-2-10c", A100, 10, "compute", "mig", 3),
        ("grid_a100-1-5c", A100, 5, "compute", "mig", 7),
        # One slice of compute with two of memory.
        ("grid_a100-1-10c", A100, 10, "compute", "mig", 4),
        ("grid_a100-1-5cme", A100, 5, "compute", "mig", 1),
        ("grid_a100d-80c", A100_80, 80, "compute", "time-sliced", 1),
        ("grid_a100d-1-10c", A100_80, 10, "compute", "mig", 7),
        ("nvidia_l40s-48q", gpu("NVIDIA L40S", 48), 48, "quadro", "time-sliced", 1),
        ("nvidia_l40s-1b", gpu("NVIDIA L40S", 48), 1, "quadro", "time-sliced", 48),
        ("nvidia_l4-24c", gpu("NVIDIA L4", 24), 24, "compute", "time-sliced", 1),
        ("H200X-1-18CME", H200, 18, "compute", "mig", 1),
        ("h200x-1-18c", H200, 18, "compute", "mig", 7),
        ("nvidia_h200x-3-71c", H200, 71, "compute", "mig", 2),
        ("nvidia_h200x-141c", H200, 141, "compute", "time-sliced", 1),
        ("H100-80C", gpu("NVIDIA H100 PCIe", 79.6), 80, "compute", "time-sliced", 1),
        ("nvidia_h100l-1-24c", gpu("NVIDIA H100 NVL", 93.6), 24, "compute", "mig", 4),
        # An A30 has four slices.
        ("grid_a30-1-6c", gpu("NVIDIA A30", 24), 6, "compute", "mig", 4),
        ("grid_a30-2-12c", gpu("NVIDIA A30", 24), 12, "compute", "mig", 2),
        ("grid_a30-4-24c", gpu("NVIDIA A30", 24), 24, "compute", "mig", 1),
        # 0b has half a GiB, and vCenter writes no space behind the maker of older GPUs.
        ("grid_t4-0b", gpu("NVIDIATesla T4", 15.9), 0.5, "quadro", "time-sliced", 32),
        ("grid_t4-2b4", gpu("Tesla T4", 16), 2, "quadro", "time-sliced", 8),
        ("grid_t4-16a", gpu("Tesla T4", 16), 16, "quadro", "time-sliced", 1),
        ("grid_rtx8000p-48q", gpu("Quadro RTX 8000", 48), 48, "quadro", "time-sliced", 1),
        ("nvidia_rtxa6000-12q", gpu("NVIDIA RTX A6000", 48), 12, "quadro", "time-sliced", 4),
        # What is no name of a profile.
        ("grid_a100", A100, None, None, None, None),
        ("grid_a100-10", A100, None, None, None, None),
        ("grid_a100-10x", A100, None, None, None, None),
        ("grid_a100-0-10c", A100, None, None, None, None),
        ("grid_a100-8-10c", A100, None, None, None, None),
        ("grid_a100-" + "9" * 5000 + "c", A100, None, None, None, None),
        ("", A100, None, None, None, None),
        ("Nvidia:4@grid_a100-40c", A100, None, None, None, None),
    ],
)
def test_a_name_contains_what_an_old_api_does_not_say(
    name: str, card: SimpleNamespace, size: float | None, kind: str | None, sharing: str | None, maximum: int | None
) -> None:
    actual = profiles(host("esx-1", card, config_sharedPassthruGpuTypes=[name]))[name]
    assert (actual.frame_buffer_gib, actual.profile_class, actual.sharing) == (size, kind, sharing)
    assert actual.max_per_gpu == maximum
    assert actual.gpu_memory_gib == round(card.memorySizeInKB / (1 << 20))


@pytest.mark.parametrize(
    ("fields", "size", "kind", "sharing", "maximum"),
    [
        ({}, 10, "compute", "time-sliced", 4),
        ({"fbSizeInGib": 20}, 20, "compute", "time-sliced", 2),
        # A size of less than one GiB is zero in the API.
        ({"fbSizeInGib": 0, "profileSharing": "timeSliced"}, 10, "compute", "time-sliced", 4),
        ({"profileClass": "quadro"}, 10, "quadro", "time-sliced", 4),
        ({"profileSharing": "mig"}, 10, "compute", "mig", 4),
        ({"profileSharing": "something new", "profileClass": ""}, 10, "compute", "time-sliced", 4),
    ],
)
def test_the_api_counts_more_than_the_name(fields: Object, size: float, kind: str, sharing: str, maximum: int) -> None:
    name = "grid_a100-10c"
    actual = profiles(host("esx-1", A100, profiles=[name]), details=[detail(name, **fields)])[name]
    assert (actual.frame_buffer_gib, actual.profile_class, actual.sharing) == (size, kind, sharing)
    assert actual.max_per_gpu == maximum


def test_a_profile_with_an_unknown_name_is_described_by_the_api() -> None:
    details = [detail("future", fbSizeInGib=8, profileSharing="timeSliced", profileClass="compute")]
    actual = profiles(host("esx-1", A100, profiles=["future"]), details=details)["future"]
    assert (actual.frame_buffer_gib, actual.sharing, actual.max_per_gpu) == (8, "time-sliced", 5)


@pytest.mark.parametrize("details", [None, [], [detail("grid_a100-40c")]])
def test_profiles_are_those_of_the_api_and_of_the_hosts(details: list[t.Any] | None) -> None:
    full = host(
        "esx-1", A100, profiles=["grid_a100-40c", "grid_a100-20c"], config_sharedPassthruGpuTypes=["grid_a100-20c"]
    )
    idle = host("esx-2", A100, profiles=["grid_a100-40c"])
    actual = profiles(full, idle, details=details)
    assert list(actual) == ["grid_a100-20c", "grid_a100-40c"]
    assert (actual["grid_a100-40c"].hosts, actual["grid_a100-40c"].placeable_hosts) == (("esx-1", "esx-2"), ("esx-2",))
    assert (actual["grid_a100-20c"].hosts, actual["grid_a100-20c"].placeable_hosts) == (("esx-1",), ("esx-1",))


def test_a_profile_that_no_host_has() -> None:
    (actual,) = profiles(details=[detail("grid_a100-40c")]).values()
    assert actual.to_result() == {
        "name": "grid_a100-40c",
        "frame_buffer_gib": 40,
        "class": "compute",
        "sharing": "time-sliced",
        "gpu_memory_gib": None,
        "max_per_gpu": None,
        "max_per_gpu_is_computed": True,
        "hosts": [],
        "placeable_hosts": [],
    }


def test_a_cluster_that_does_not_say_what_it_can_place() -> None:
    site = inventory(host("esx-1", A100, profiles=["grid_a100-40c"]))
    cluster = site.items["cluster-a"]
    bare = Item(cluster.ref, cluster.kind, {**cluster.values, "environmentBrowser": None})
    assert [profile.name for profile in site.profiles(bare)] == ["grid_a100-40c"]


@pytest.mark.parametrize(
    ("profile", "cards", "memory"),
    [
        ("grid_t4-4q", [gpu("Tesla T4", 16), A100], 16),
        ("grid_a100-4c", [gpu("Tesla T4", 16), A100], 40),
        # A model whose name begins with that of another.
        ("nvidia_l4-24q", [gpu("NVIDIA L4", 24), gpu("NVIDIA L40S", 48)], 24),
        ("nvidia_l40s-24q", [gpu("NVIDIA L4", 24), gpu("NVIDIA L40S", 48)], 48),
        ("nvidia_a10-24q", [gpu("NVIDIA A10", 24), A100_80], 24),
        ("grid_a100d-20c", [gpu("NVIDIA A10", 24), A100_80], 80),
        # The larger of two GPUs of a model, and of all GPUs if the model is unknown.
        ("grid_a100-4c", [A100, A100_80], 80),
        ("nvidia_x9-4c", [gpu("NVIDIA A10", 24), A100], 40),
        ("unknown", [gpu("NVIDIA A10", 24), A100], 40),
        # A host does not report the memory of a GPU that it does not use for graphics.
        ("grid_a100-4c", [gpu("NVIDIA A100-PCIE-40GB", 0)], None),
        ("grid_a100-4c", [], None),
    ],
)
def test_the_memory_is_that_of_the_model_in_the_name(
    profile: str, cards: list[SimpleNamespace], memory: int | None
) -> None:
    actual = profiles(host("esx-1", *cards, profiles=[profile]))[profile]
    assert actual.gpu_memory_gib == memory
    assert actual.max_per_gpu is None or memory is not None


@pytest.mark.parametrize(
    ("memory", "count", "size"),
    [
        # The table of the source of the formula: V100, A30, A100, A100 80 GB, H100 with one and two devices.
        (32, 1, 64),
        (32, 2, 128),
        (24, 1, 64),
        (24, 2, 128),
        (40, 1, 128),
        (40, 2, 256),
        (80, 1, 256),
        (80, 2, 512),
        # By the formula.
        (16, 1, 32),
        (48, 1, 128),
        (141, 1, 512),
        (141, 8, 4096),
        (1, 1, 2),
    ],
)
def test_mmio_size(memory: int, count: int, size: int) -> None:
    assert mmio_gib(memory, count) == size


@pytest.mark.parametrize(
    ("changed", "usable"),
    [
        ({}, True),
        # The property cannot be read, or is not set.
        ({"runtime_powerState": None}, True),
        ({"runtime_inMaintenanceMode": None}, True),
        ({"runtime_inMaintenanceMode": True}, False),
        ({"runtime_powerState": "standBy"}, False),
        ({"runtime_connectionState": "notResponding"}, False),
        ({"runtime_connectionState": "disconnected"}, False),
        ({"runtime_connectionState": None}, False),
    ],
)
def test_a_host_that_machines_can_start_on(changed: Object, usable: bool) -> None:
    name = "grid_a100-40c"
    site = inventory(host("esx-1", A100, profiles=[name], **changed))
    (actual,) = site.hosts_of(site.items["cluster-a"])
    assert actual.usable is usable
    assert site.profiles(site.items["cluster-a"])[0].placeable_hosts == (("esx-1",) if usable else ())


@pytest.mark.parametrize(
    ("changed", "receives"),
    [
        ({"datastore": ["vsan-b"]}, False),
        ({"network": []}, False),
        ({"datastore": None}, False),
        ({"network": ["net-b", "net-a"]}, True),
    ],
)
def test_an_import_needs_the_datastore_and_the_network_on_one_host(changed: Object, receives: bool) -> None:
    site = inventory(host("esx-1", **changed), host("esx-2", datastore=["vsan-b"], network=["net-b"]))
    hosts = connected_hosts(site.hosts_of(site.items["cluster-a"]), "vsan-a", "net-a")
    assert [each.name for each in hosts] == (["esx-1"] if receives else [])


def test_a_host_without_readable_configuration_has_no_gpus() -> None:
    item = Item("esx-1", "HostSystem", {"name": "esx-1", "parent": "cluster-a"})
    site = inventory(item)
    (actual,) = site.hosts_of(site.items["cluster-a"])
    assert (actual.gpus, actual.known, actual.placeable, actual.graphics_type) == ((), (), (), "")


def packages(*actual: tuple[str, str]) -> SimpleNamespace:
    listed = [SimpleNamespace(name=name, version=version) for name, version in actual]
    return SimpleNamespace(FetchSoftwarePackages=lambda: listed)


def refused() -> t.NoReturn:
    raise VSphereError("denied", status=403)


@pytest.mark.parametrize(
    ("manager", "version"),
    [
        (packages(("NVD-VMware_ESXi_8.0.0_Driver", "550.163.02-1OEM.800.1.0.20613240")), "550.163.02"),
        (packages(("esx-base", "8.0.3"), ("NVIDIA-VMware_ESXi_7.0.2_Driver", "525.60.12-1OEM")), "525.60.12"),
        # The daemon of the same vendor, and other packages, are no manager.
        (packages(("nvdgpumgmtdaemon", "550.1-1OEM"), ("NVD-GPU-Daemon", "1.0"), ("", "1")), ""),
        (packages(), ""),
        (SimpleNamespace(FetchSoftwarePackages=lambda: None), ""),
        # It cannot be read.
        (None, None),
        (SimpleNamespace(FetchSoftwarePackages=refused), None),
    ],
)
def test_the_version_of_the_manager(manager: t.Any, version: str | None) -> None:
    item = host("esx-1", A100)
    ready = Item(item.ref, item.kind, {**item.values, "configManager.imageConfigManager": manager})
    site = inventory(ready)
    assert site.manager_versions(site.hosts_of(site.items["cluster-a"])) == {"esx-1": version}


def two_datacenters() -> Inventory:
    """Two data centers with a datastore of one name, and hosts and pools of their own."""
    other = Item("vsan-b", "Datastore", {"name": "vsan-a", "parent": "/DC2/datastore"})
    pool = Item("pool-b", "ResourcePool", {"name": "gpu", "parent": "pool-gpu", "owner": "cluster-a"})
    foreign = Item("pool-c", "ResourcePool", {"name": "theirs", "parent": None, "owner": "cluster-z"})
    return inventory(host("esx-1"), extra=[*datacenter("DC2"), other, pool, foreign])


@pytest.mark.parametrize(
    ("kind", "value", "datacenter_ref", "ref"),
    [
        ("Datacenter", "DC1", None, "/DC1"),
        ("Datacenter", "/DC1", None, "/DC1"),
        ("Datacenter", "DC2/", None, "/DC2"),
        # Data centers are never inside another one.
        ("Datacenter", "DC2", "/DC1", "/DC2"),
        ("Datastore", "vsan-a", "/DC1", "vsan-a"),
        ("Datastore", "vsan-a", "/DC2", "vsan-b"),
        ("Datastore", "/DC2/datastore/vsan-a", None, "vsan-b"),
        ("ComputeResource", "/DC1/host/cluster-a/", "/DC1", "cluster-a"),
        ("Network", "/DC1/VM Network", None, "net-a"),
    ],
)
def test_an_object_is_found_by_name_or_path(kind: str, value: str, datacenter_ref: str | None, ref: str) -> None:
    site = two_datacenters()
    assert site.find(kind, value, "option", site.items.get(datacenter_ref)).ref == ref


@pytest.mark.parametrize(
    ("kind", "value", "datacenter_ref", "message"),
    [
        (
            "Datastore",
            "vsan-a",
            None,
            'place: "vsan-a" is the name of several objects (/DC1/datastore/vsan-a, /DC2/datastore/vsan-a); set the path',
        ),
        (
            "Datastore",
            "vsan-b",
            "/DC1",
            '"vsan-b" does not exist in data center DC1; did you mean vsan-a? known: vsan-a',
        ),
        ("Datacenter", "Berlin", None, '"Berlin" does not exist; known: DC1, DC2'),
        (
            "Network",
            "VM Network",
            "/DC2",
            "does not exist in data center DC2; known: none, or the user may not see them",
        ),
        ("Datastore", "/DC2/datastore/vsan-a", "/DC1", "does not exist in data center DC1"),
        ("Datastore", "", None, '"" does not exist'),
    ],
)
def test_an_object_that_is_not_found(kind: str, value: str, datacenter_ref: str | None, message: str) -> None:
    site = two_datacenters()
    with pytest.raises(InvalidOptions) as raised:
        site.find(kind, value, "place", site.items.get(datacenter_ref))
    (problem,) = raised.value.problems
    assert problem.startswith("place: ")
    assert message in problem


@pytest.mark.parametrize(
    ("value", "ref"),
    [
        (None, "pool-root"),
        ("", "pool-root"),
        ("Resources", "pool-root"),
        # The highest of several.
        ("gpu", "pool-gpu"),
        ("/DC1/host/cluster-a/Resources/gpu/gpu", "pool-b"),
    ],
)
def test_resource_pool(value: str | None, ref: str) -> None:
    site = two_datacenters()
    assert site.resource_pool(site.items["cluster-a"], value, "resource_pool") == ref


def test_a_resource_pool_of_another_cluster() -> None:
    site = two_datacenters()
    with pytest.raises(
        InvalidOptions, match='resource_pool: "theirs" is no resource pool of cluster-a; known: /DC1/host'
    ):
        site.resource_pool(site.items["cluster-a"], "theirs", "resource_pool")
