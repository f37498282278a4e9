# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The annotations that the autoscaler of each OpenShift release reads, and the platforms of MachineSets."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import openshift
from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import (
    CAPACITY_CPU,
    CPU,
    GPU,
    GPU_COUNT,
    autoscaler_rules,
    openshift_release,
    platform_of,
)

ZONE = openshift.ZONE_LABEL


@pytest.mark.parametrize(
    ("version", "cpu", "gpu_count", "counts_gpu_type"),
    [
        ("4.16.21", (CPU,), (GPU,), False),
        ("4.18.0-rc.1", (CPU,), (GPU,), False),
        ("4.19.0", (CAPACITY_CPU, CPU), (GPU_COUNT, GPU), False),
        ("4.23.1", (CAPACITY_CPU, CPU), (GPU_COUNT, GPU), False),
        ("5.0.0", (CAPACITY_CPU,), (GPU_COUNT,), True),
        ("5.1", (CAPACITY_CPU,), (GPU_COUNT,), True),
    ],
)
def test_the_annotations_that_a_release_reads(
    version: str, cpu: tuple[str, ...], gpu_count: tuple[str, ...], counts_gpu_type: bool
) -> None:
    rules = autoscaler_rules(openshift_release(version))
    assert (rules.cpu, rules.gpu_count, rules.counts_gpu_type) == (cpu, gpu_count, counts_gpu_type)


@pytest.mark.parametrize("version", ["", "four", "4", "v4.18.1"])
def test_other_text_is_not_a_version(version: str) -> None:
    with pytest.raises(ValueError, match="is not a version of OpenShift"):
        openshift_release(version)


@pytest.mark.parametrize(
    ("release", "resources", "countable"),
    [
        ((4, 18), {"nvidia.com/gpu": 4}, ("nvidia.com/gpu", 4)),
        ((4, 23), {"nvidia.com/gpu.shared": 4}, ("nvidia.com/gpu", 0)),
        ((5, 0), {"nvidia.com/gpu.shared": 4}, ("nvidia.com/gpu.shared", 4)),
        ((5, 0), {"nvidia.com/mig-3g.20gb": 2, "nvidia.com/gpu": 1}, ("nvidia.com/gpu", 1)),
        ((5, 0), {"nvidia.com/mig-3g.20gb": 2, "nvidia.com/gpu": 0}, ("nvidia.com/mig-3g.20gb", 2)),
        ((5, 0), {}, ("nvidia.com/gpu", 0)),
    ],
)
def test_the_resource_that_a_release_can_count(
    release: tuple[int, int], resources: dict[str, int], countable: tuple[str, int]
) -> None:
    assert autoscaler_rules(release).countable(resources) == countable


@pytest.mark.parametrize(
    ("kind", "platform"),
    [
        ("AWSMachineProviderConfig", "AWS"),
        ("AzureMachineProviderSpec", "Azure"),
        ("GCPMachineProviderSpec", "GCP"),
        ("VSphereMachineProviderSpec", "vSphere"),
    ],
)
def test_the_platform_of_a_provider_spec(kind: str, platform: str) -> None:
    actual = platform_of({"kind": kind})
    assert actual is not None
    assert actual.name == platform
    assert len({"flavor", "template"} & actual.settings.keys()) == 1


def test_an_unknown_provider_spec_has_no_platform() -> None:
    assert platform_of({"kind": "NutanixMachineProviderConfig"}) is None
    assert platform_of({}) is None


def test_the_controllers_set_only_known_annotations() -> None:
    assert all(platform.controller_annotations <= set(openshift.CAPACITY_KEYS) for platform in openshift.PLATFORMS)


@pytest.mark.parametrize(
    ("release", "all_labels", "fixed_size"),
    [((4, 16), True, False), ((4, 17), True, True), ((4, 23), True, True), ((5, 0), False, True)],
)
def test_labels_and_bounds_by_release(release: tuple[int, int], all_labels: bool, fixed_size: bool) -> None:
    rules = autoscaler_rules(release)
    assert (rules.all_labels, rules.fixed_size) == (all_labels, fixed_size)


@pytest.mark.parametrize(
    ("key", "managed"),
    [
        ("node-role.kubernetes.io/gpu", True),
        ("node-restriction.kubernetes.io/x", True),
        ("a.node-restriction.kubernetes.io/x", True),
        ("node.cluster.x-k8s.io/x", True),
        ("accel.gpu/pool", False),
        ("topology.kubernetes.io/zone", False),
        ("cluster-api/accelerator", False),
        ("xnode.cluster.x-k8s.io/x", False),
    ],
)
def test_labels_that_every_release_reads(key: str, managed: bool) -> None:
    assert openshift.is_managed_label(key) is managed


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        (
            {"kind": "AWSMachineProviderConfig", "placement": {"availabilityZone": "eu-1a", "region": "eu-1"}},
            {ZONE: "eu-1a", "topology.ebs.csi.aws.com/zone": "eu-1a"},
        ),
        (
            {"kind": "AzureMachineProviderSpec", "zone": "2", "location": "westEurope"},
            {ZONE: "westeurope-2", "topology.disk.csi.azure.com/zone": "westeurope-2"},
        ),
        ({"kind": "GCPMachineProviderSpec", "zone": "a"}, {ZONE: "a", "topology.gke.io/zone": "a"}),
        ({"kind": "GCPMachineProviderSpec", "region": "r"}, {}),
        # The cluster's failure domains have the zones of vSphere.
        ({"kind": "VSphereMachineProviderSpec", "zone": "a"}, {}),
        ({"kind": "NutanixMachineProviderConfig", "zone": "a"}, {}),
    ],
)
def test_the_labels_of_the_zone_in_a_provider_spec(spec: dict[str, Any], labels: dict[str, str]) -> None:
    assert openshift.provider_zone_labels(spec) == labels
