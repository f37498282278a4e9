# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of the MachineSet to copy, and the zones of MachineSets."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import NoSource, select_source, zone_of
from tests.helpers.machine_api import FAILURE_DOMAINS, Object, worker_machineset


def in_zone(letter: str, name: str = "") -> Object:
    placement = {"availabilityZone": f"us-east-2{letter}", "region": "us-east-2"}
    return worker_machineset(name or f"prod-worker-us-east-2{letter}", placement=placement)


def managed(name: str) -> Object:
    machineset = in_zone("a", name)
    machineset["metadata"]["labels"]["accel.gpu/nodegroup"] = name
    return machineset


A, B, C = in_zone("a"), in_zone("b"), in_zone("c")
TAINTED = in_zone("a", "prod-infra-us-east-2a")
TAINTED["spec"]["template"]["spec"]["taints"] = [{"key": "infra", "effect": "NoSchedule"}]
ARM = in_zone("b", "prod-arm-us-east-2b")
MASTER = worker_machineset("prod-master", role="master")
CLONES = worker_machineset("clones", "vSphere")
MASTER_OF = {
    kind: worker_machineset("master", kind=kind, role="master")
    for kind in (
        "OpenstackProviderSpec",
        "NutanixMachineProviderConfig",
        "BareMetalMachineProviderSpec",
        "PowerVSMachineProviderConfig",
    )
}
BARE_METAL = worker_machineset("metal", kind="BareMetalMachineProviderSpec")


HOSTED = {"status": {"controlPlaneTopology": "External", "platformStatus": {"type": "AWS"}}}


@pytest.mark.parametrize(
    ("kind", "platform"),
    [
        ("OpenstackProviderSpec", "OpenStack"),
        ("NutanixMachineProviderConfig", "Nutanix"),
        ("BareMetalMachineProviderSpec", "bare metal"),
        ("PowerVSMachineProviderConfig", "IBM Power Virtual Server"),
    ],
)
@pytest.mark.parametrize("like", [None, "workers"])
def test_an_unsupported_platform_is_named_with_what_works(kind: str, platform: str, like: str | None) -> None:
    with pytest.raises(NoSource) as error:
        select_source([worker_machineset("workers", kind=kind), MASTER_OF[kind]], like, None, None)
    message = str(error.value)
    assert f"{platform} machines" in message
    assert "only AWS, Azure, GCP and vSphere are supported" in message
    assert "create the GPU nodes yourself" in message
    assert "select the nodes with the pools' match" in message


@pytest.mark.parametrize(
    ("infrastructure", "text"),
    [
        (HOSTED, "has a hosted control plane (HyperShift), so its nodes come from NodePools"),
        ({"status": {"platformStatus": {"type": "None"}}}, "no cloud (platform None) machines"),
        ({"status": {"platformStatus": {"type": "BareMetal"}}}, "bare metal machines"),
        ({"status": {"platformStatus": {"type": "AWS"}}}, "there is no worker MachineSet for AWS"),
        (None, "there is no worker MachineSet for AWS"),
    ],
)
def test_a_cluster_without_machinesets_is_explained(infrastructure: Object | None, text: str) -> None:
    with pytest.raises(NoSource) as error:
        select_source([], None, None, infrastructure)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("machinesets", "like", "zone", "chosen", "reason"),
    [
        ([A, B], "prod-worker-us-east-2b", None, "prod-worker-us-east-2b", ""),
        ([A, B], "prod-worker-us-east-2b", "us-east-2b", "prod-worker-us-east-2b", ""),
        ([A, B, ARM], "prod-worker-us-east-2a", "us-east-2b", "prod-worker-us-east-2b", "in a different zone"),
        ([A, ARM], "prod-worker-us-east-2a", "us-east-2b", "prod-arm-us-east-2b", "in a different zone"),
        ([A, MASTER, managed("gpu"), BARE_METAL], None, None, "prod-worker-us-east-2a", "the only worker MachineSet"),
        (
            [B, A, C],
            None,
            None,
            "prod-worker-us-east-2a",
            "the first by name of prod-worker-us-east-2a, prod-worker-us",
        ),
        ([TAINTED, B], None, None, "prod-worker-us-east-2b", "it is the only one without taints"),
        (
            [TAINTED, C, B],
            None,
            None,
            "prod-worker-us-east-2b",
            "the first by name of prod-worker-us-east-2b, prod-worker-us",
        ),
        ([A, B], None, "us-east-2b", "prod-worker-us-east-2b", "the only worker MachineSet in zone us-east-2b"),
        ([managed("gpu"), A], "gpu", None, "gpu", ""),
        ([MASTER], "prod-master", None, "prod-master", ""),
    ],
)
def test_the_machineset_to_copy(
    machinesets: list[Object], like: str | None, zone: str | None, chosen: str, reason: str
) -> None:
    source = select_source(machinesets, like, zone, None)
    assert source.machineset["metadata"]["name"] == chosen
    assert reason in source.reason
    assert bool(reason) == bool(source.reason)


@pytest.mark.parametrize(
    ("platform", "like", "zone", "placement", "chosen"),
    [
        # The infrastructure id and the region contain the digit of the zone.
        ("Azure", "ocp-a1b2c-worker-eastus21", "2", {"zone": "1"}, "ocp-a1b2c-worker-eastus22"),
        ("Azure", "ocp-a1b2c-worker-eastus22", "eastus2-1", {"zone": "2"}, "ocp-a1b2c-worker-eastus21"),
        ("GCP", "ocp-a1b2c-worker-a", "us-central1-b", {"zone": "us-central1-a"}, "ocp-a1b2c-worker-b"),
    ],
)
def test_names_differ_only_in_what_the_installer_appends_for_the_zone(
    platform: str, like: str, zone: str, placement: Object, chosen: str
) -> None:
    region = {"location": "eastus2"} if platform == "Azure" else {"region": "us-central1"}
    target = zone.rpartition("-")[2] if platform == "Azure" else zone
    elsewhere = chosen.replace("worker", "infra")
    machinesets = [
        worker_machineset(like, platform, **placement, **region),
        worker_machineset(elsewhere, platform, zone=target, **region),
        worker_machineset(chosen, platform, zone=target, **region),
    ]
    assert select_source(machinesets, like, zone, None).machineset["metadata"]["name"] == chosen


@pytest.mark.parametrize(
    ("machinesets", "like", "zone", "message"),
    [
        (
            [A],
            "prod-worker-us-east-2",
            None,
            "like: MachineSet prod-worker-us-east-2 does not exist. Existing MachineSets: prod-worker-us-east-2a.",
        ),
        ([], "x", None, "There are no MachineSets."),
        (
            [BARE_METAL],
            "metal",
            None,
            "like: MachineSet metal creates bare metal machines (BareMetalMachineProviderSpec); only AWS",
        ),
        (
            [MASTER, managed("gpu")],
            None,
            None,
            "like: there is no worker MachineSet for AWS, Azure, GCP or vSphere to copy.",
        ),
        (
            [A, CLONES],
            None,
            None,
            "like: there are MachineSets for AWS and vSphere; set the MachineSet to copy: clones, prod-worker-us-east-2a.",
        ),
        (
            [A, B],
            None,
            "us-east-2z",
            'zone: no worker MachineSet is in "us-east-2z"; zones with worker MachineSets: us-east-2a and us-east-2b.',
        ),
        (
            [A, ARM, in_zone("b", "prod-other-b")],
            "prod-worker-us-east-2a",
            "us-east-2b",
            'like: prod-worker-us-east-2a is not in zone "us-east-2b", which has the MachineSets prod-arm-us-east-2b, prod-other-b.',
        ),
        ([CLONES], None, "x", "zones with worker MachineSets: none"),
    ],
)
def test_when_it_is_not_clear_which_one_to_copy(
    machinesets: list[Object], like: str | None, zone: str | None, message: str
) -> None:
    with pytest.raises(NoSource) as error:
        select_source(machinesets, like, zone, None)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("machineset", "names", "labels"),
    [
        (
            A,
            {"us-east-2a"},
            {
                "topology.kubernetes.io/zone": "us-east-2a",
                "topology.kubernetes.io/region": "us-east-2",
                "topology.ebs.csi.aws.com/zone": "us-east-2a",
            },
        ),
        (
            worker_machineset(platform="Azure"),
            {"1", "eastus-1"},
            {
                "topology.kubernetes.io/zone": "eastus-1",
                "topology.kubernetes.io/region": "eastus",
                "topology.disk.csi.azure.com/zone": "eastus-1",
            },
        ),
        (worker_machineset(platform="Azure", zone=""), set(), {}),
        (
            worker_machineset(platform="GCP"),
            {"us-central1-a"},
            {
                "topology.kubernetes.io/zone": "us-central1-a",
                "topology.kubernetes.io/region": "us-central1",
                "topology.gke.io/zone": "us-central1-a",
            },
        ),
        (
            CLONES,
            {"east-1", "fd-east"},
            {
                "topology.kubernetes.io/zone": "east-1",
                "topology.kubernetes.io/region": "east",
                "topology.csi.vmware.com/openshift-zone": "east-1",
                "topology.csi.vmware.com/openshift-region": "east",
            },
        ),
        (worker_machineset(platform="vSphere", workspace={"server": "other"}), set(), {}),
        (BARE_METAL, set(), {}),
    ],
)
def test_the_zone_of_a_machineset(machineset: Object, names: set[str], labels: dict[str, str]) -> None:
    zone = zone_of(machineset, FAILURE_DOMAINS)
    assert (set(zone.names), dict(zone.labels)) == (names, labels)


def test_without_failure_domains_a_clone_has_no_zone() -> None:
    assert zone_of(CLONES, {"spec": {"platformSpec": {"type": "VSphere"}}}).names == frozenset()
    assert zone_of(CLONES, None).names == frozenset()
