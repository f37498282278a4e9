# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of discovered clusters: unique names, variables, groups."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.clouds.kubeconfig_file import (
    DiscoveredCluster,
    DiscoveredNodeGroup,
)
from ansible_collections.accel.gpu.plugins.plugin_utils.clusters.model import (
    groups_of,
    host_names,
    host_vars,
)


def cluster(name: str = "prod", **more: Any) -> DiscoveredCluster:
    usual: dict[str, Any] = {
        "provider": "magnum",
        "cloud": "cern",
        "region": "RegionOne",
        "id": "0b5c1d2e-3f40-4a51-8b62-9c7d8e9f0a1b",
        "status": "CREATE_COMPLETE",
        "version": "v1.30.1",
        "server": "https://192.0.2.1:6443",
        "ready": True,
        "settings": {"cloud": "cern", "region_name": "RegionOne", "cluster": name},
    }
    return DiscoveredCluster(name=name, **{**usual, **more})


@pytest.mark.parametrize(
    ("clusters", "names"),
    [
        ([cluster("a"), cluster("b")], ["a", "b"]),
        ([cluster(), cluster(region="RegionTwo")], ["prod-RegionOne", "prod-RegionTwo"]),
        # Two clouds may have regions of the same name.
        ([cluster(), cluster(cloud="other")], ["prod-cern-RegionOne", "prod-other-RegionOne"]),
        # Magnum allows two clusters of one name in a project.
        ([cluster(id="aaaaaaaa-1"), cluster(id="bbbbbbbb-2")], ["prod-aaaaaaaa", "prod-bbbbbbbb"]),
        ([cluster(id="k8s-aaaaaaaa-1"), cluster(id="k8s-aaaaaaaa-2")], ["prod-k8s-aaaaaaaa-1", "prod-k8s-aaaaaaaa-2"]),
        # A cluster keeps its own name.
        (
            [cluster(), cluster(region="RegionTwo"), cluster("prod-RegionOne", region="RegionThree")],
            ["prod-cern-RegionOne", "prod-RegionTwo", "prod-RegionOne"],
        ),
        ([cluster(region=""), cluster(region="", cloud="other")], ["prod-cern", "prod-other"]),
    ],
)
def test_names_are_unique(clusters: list[DiscoveredCluster], names: list[str]) -> None:
    assert host_names(clusters) == names


actual = st.builds(
    lambda name, cloud, region, number: cluster(name, cloud=cloud, region=region, id=f"{number:08d}-{number}"),
    st.sampled_from(["a", "b", "a-r", "a-x-r"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["r", "s", ""]),
    st.integers(1, 10**6),
)


@given(st.lists(actual, unique_by=lambda one: one.id, max_size=8), st.integers())
def test_names_do_not_depend_on_the_order(clusters: list[DiscoveredCluster], seed: int) -> None:
    names = host_names(clusters)
    assert len(set(names)) == len(names)
    assert all(name.startswith(one.name) for name, one in zip(names, clusters, strict=True))
    shuffled = list(clusters)
    random.Random(seed).shuffle(shuffled)
    assert dict(zip([one.id for one in shuffled], host_names(shuffled), strict=True)) == dict(
        zip([one.id for one in clusters], names, strict=True)
    )


GPUS = DiscoveredNodeGroup("gpu", "CREATE_COMPLETE", 3, "g4", 2, ("Tesla-T4",))
VAGUE = DiscoveredNodeGroup("big", "CREATE_COMPLETE", 1, "g5", 4, ("A100-SXM4-40GB", "A100-SXM4-80GB"))
UNKNOWN = DiscoveredNodeGroup("cpu", "CREATE_COMPLETE", 5, "m2")


def test_variables_of_a_host() -> None:
    one = cluster(groups=(GPUS, VAGUE, UNKNOWN))
    variables = host_vars(one, "prod", "/k/prod.kubeconfig", "prod")
    assert variables["gpu_cluster"] == {
        "name": "prod",
        "kubeconfig": "/k/prod.kubeconfig",
        "cloud": {"magnum": {"cloud": "cern", "region_name": "RegionOne", "cluster": "prod"}},
    }
    assert (variables["gpu_discovered"]["gpus"], variables["gpu_discovered"]["models"]) == (
        10,
        ["A100-SXM4", "Tesla-T4"],
    )
    assert [(group["name"], group["gpus"], group["model"]) for group in variables["gpu_discovered"]["node_groups"]] == [
        ("gpu", 2, "Tesla-T4"),
        ("big", 4, None),
        ("cpu", None, None),
    ]
    assert host_vars(one, "prod", "", "prod")["gpu_cluster"].get("kube_name") is None
    assert host_vars(one, "prod", "", "kubernetes-admin@prod")["gpu_cluster"]["kube_name"] == "kubernetes-admin@prod"
    # Of two clusters of one name each records the name of its host.
    twin = host_vars(one, "prod-RegionOne", "", "prod")["gpu_cluster"]
    assert (twin["name"], twin["kube_name"]) == ("prod-RegionOne", "prod")


@pytest.mark.parametrize(
    ("models", "common"),
    [
        ((), ""),
        (("Tesla-T4",), "Tesla-T4"),
        (("H100-PCIe", "H100-80GB-HBM3"), "H100"),
        (("A100-SXM4-40GB", "A100-SXM4-80GB"), "A100-SXM4"),
        (("L40S", "Tesla-T4"), ""),
    ],
)
def test_the_common_beginning_of_models(models: tuple[str, ...], common: str) -> None:
    assert DiscoveredNodeGroup("g", "", 1, "f", 1, models).common_model == common


def test_groups() -> None:
    actual = groups_of(cluster(groups=(GPUS, VAGUE)))
    assert actual == ["magnum", "cloud_cern", "region_RegionOne", "model_A100-SXM4", "model_Tesla-T4"]
    assert groups_of(cluster(region="", provider="vks", cloud="vks")) == ["vks", "cloud_vks"]


def test_the_cache_keeps_everything() -> None:
    one = cluster(groups=(GPUS, UNKNOWN))
    assert DiscoveredCluster.from_cache(one.to_cache()) == one
