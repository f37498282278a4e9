# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm values that follow from gpu_cluster.operator, and what NVIDIA's and NFD's charts make of them."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import release_of
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.operator_values import mirrored_image
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import KERNEL
from tests.helpers.variables import CLUSTER, Document, leaves

REGISTRY = "registry.example.com:5000/mirror"
PROXY = {"https": "http://proxy:3128", "no_proxy": ["10.0.0.0/8", ".svc"]}


def planned(**operator: t.Any) -> Plan:
    return derive({**CLUSTER, "operator": operator}, {}, [])


def added(**operator: t.Any) -> Document:
    """The values that are there because of these fields."""
    usual = planned().operator.values
    return {key: value for key, value in planned(**operator).operator.values.items() if value != usual.get(key)}


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ({}, {}),
        ({"driver": {}, "proxy": {}, "image_pull_secrets": [], "registry": None}, {}),
        ({"driver": {"enabled": True, "precompiled": False}}, {}),
        ({"driver": {"enabled": False}}, {"driver": {"enabled": False}}),
        ({"driver": {"version": "580.95.05"}}, {"driver": {"version": "580.95.05"}}),
        (
            {"driver": {"version": "580", "precompiled": True}},
            {"driver": {"version": "580", "usePrecompiled": True}},
        ),
        (
            {"driver": {"kernel_module_type": "open", "secret_env": "s"}},
            {"driver": {"kernelModuleType": "open", "secretEnv": "s"}},
        ),
        ({"repo_config": "repos"}, {"driver": {"repoConfig": {"configMapName": "repos"}}}),
        ({"cert_config": "ca"}, {"driver": {"certConfig": {"name": "ca"}}}),
        (
            {"proxy": PROXY},
            {
                "driver": {
                    "env": [
                        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
                        {"name": "https_proxy", "value": "http://proxy:3128"},
                        {"name": "NO_PROXY", "value": "10.0.0.0/8,.svc"},
                        {"name": "no_proxy", "value": "10.0.0.0/8,.svc"},
                    ]
                }
            },
        ),
    ],
)
def test_values(operator: Document, values: Document) -> None:
    assert added(**operator) == values


def test_the_users_values_lie_on_top() -> None:
    theirs = {
        "driver": {
            "version": "1.2",
            "env": [{"name": "HTTPS_PROXY", "value": "mine"}, {"name": "OTHER", "value": "x"}],
        },
        "toolkit": {"repository": "elsewhere.example.com/nvidia", "imagePullSecrets": ["theirs"]},
    }
    driver = {"version": "580.95.05", "kernel_module_type": "open"}
    values = planned(
        registry=REGISTRY, image_pull_secrets=["managed"], proxy=PROXY, driver=driver, values=theirs
    ).operator.values
    assert values["driver"]["version"] == "1.2"
    assert values["driver"]["kernelModuleType"] == "open"
    assert values["toolkit"] == theirs["toolkit"]
    assert values["validator"] == {"repository": f"{REGISTRY}/nvidia", "imagePullSecrets": ["managed"]}
    assert {entry["name"]: entry["value"] for entry in values["driver"]["env"]} == {
        "HTTPS_PROXY": "mine",
        "https_proxy": "http://proxy:3128",
        "NO_PROXY": "10.0.0.0/8,.svc",
        "no_proxy": "10.0.0.0/8,.svc",
        "OTHER": "x",
    }


def test_an_empty_list_of_the_users_variables_keeps_the_proxy() -> None:
    plan = planned(proxy=PROXY, values={"driver": {"env": []}})
    assert plan.operator.values["driver"]["env"] == planned(proxy=PROXY).operator.values["driver"]["env"]


def test_nfd_comes_from_the_registry_too_and_with_its_secrets() -> None:
    plan = planned(registry=REGISTRY, image_pull_secrets=["one"])
    assert plan.nfd.values["image"] == {"repository": f"{REGISTRY}/nfd/node-feature-discovery"}
    assert plan.nfd.values["imagePullSecrets"] == [{"name": "one"}]
    # The secrets of NVIDIA's registry are not for NFD's.
    assert not {"image", "imagePullSecrets"} & planned(image_pull_secrets=["one"]).nfd.values.keys()


def test_the_secrets_in_each_namespace() -> None:
    cluster = {"name": "lab", "operator": {"image_pull_secrets": "one, two"}}
    driver = {"version": "580.95.05"}
    pools = [
        {"name": "a", "match": {"labels": {"a": "b"}}, "driver": {**driver, "image_pull_secrets": ["three", "one"]}},
        {"name": "b", "match": {"labels": {"a": "c"}}, "driver": driver},
        {"name": "c", "match": {"labels": {"a": "d"}}},
    ]
    plan = derive(cluster, {}, pools)
    assert plan.operator.image_pull_secrets == ("one", "two", "three")
    assert plan.nfd.image_pull_secrets == plan.validation.image_pull_secrets == ("one", "two")
    plain = derive({"name": "lab"}, {}, [])
    assert (
        plain.operator.image_pull_secrets == plain.nfd.image_pull_secrets == plain.validation.image_pull_secrets == ()
    )


@pytest.mark.parametrize(
    ("cluster", "images"),
    [
        ({}, KERNEL.public_images),
        ({"validation": {"images": {}}}, KERNEL.public_images),
        (
            {"operator": {"registry": REGISTRY}},
            {version: image.replace("nvcr.io", REGISTRY) for version, image in KERNEL.public_images.items()},
        ),
        (
            {"operator": {"registry": REGISTRY}, "validation": {"image": "x.example.com/k:1"}},
            {"0.0": "x.example.com/k:1"},
        ),
        ({"validation": {"images": {"13.0": "x.example.com/k:13"}}}, {"13.0": "x.example.com/k:13"}),
    ],
)
def test_images_of_the_validation_pods(cluster: Document, images: dict[str, str]) -> None:
    assert derive({**CLUSTER, **cluster}, {}, []).validation.images["image"] == images
    assert all(mirrored_image(image, None) == image for image in images.values())


def test_images_of_optional_programs_come_from_the_mirror_too() -> None:
    plan = derive({**CLUSTER, "operator": {"registry": REGISTRY}}, {}, []).validation
    assert all(
        image.startswith(f"{REGISTRY}/nvidia/") for by_version in plan.images.values() for image in by_version.values()
    )
    declared = {"load_image": "x.example.com/nbody:1", "nccl_image": "x.example.com/nccl:1"}
    plan = derive({**CLUSTER, "validation": declared}, {}, []).validation
    assert {key: plan.images[key] for key in declared} == {key: {"0.0": image} for key, image in declared.items()}


@pytest.mark.parametrize(
    ("version", "component", "folder"),
    [
        ("v23.9.2", "validator", "nvidia/cloud-native"),
        ("v25.3.4", "nodeStatusExporter", "nvidia/cloud-native"),
        ("v25.10.1", "validator", "nvidia"),
        ("25.10.1", "vfioManager", "nvidia"),
        ("v26.3.0", "vfioManager", "nvidia/cloud-native"),
    ],
)
def test_images_moved_between_releases(version: str, component: str, folder: str) -> None:
    values = planned(version=version, registry=REGISTRY).operator.values
    assert values[component]["repository"] == f"{REGISTRY}/{folder}"


@pytest.mark.parametrize(("version", "existing"), [("v25.10.1", True), ("v26.3.0", False)])
def test_what_a_release_no_longer_has_gets_no_values(version: str, existing: bool) -> None:
    values = planned(version=version, registry=REGISTRY, image_pull_secrets=["s"]).operator.values
    assert ("initContainer" in values["operator"]) is existing
    assert ("kataManager" in values) is existing


@pytest.mark.parametrize(("version", "release"), [("v25.10.1", (25, 10)), ("26.3.0", (26, 3)), ("nightly", (98, 0))])
def test_release(version: str, release: tuple[int, int]) -> None:
    assert release_of(version) == release


@given(st.lists(st.sampled_from(["ngc", "mirror", "third"]), unique=True), st.sampled_from([None, REGISTRY]))
def test_pull_secrets_are_the_same_everywhere(secrets: list[str], registry: str | None) -> None:
    values = planned(image_pull_secrets=secrets, registry=registry).operator.values
    actual = [secret for key, secret in leaves(values, "imagePullSecrets")]
    assert all(secret == secrets for secret in actual)
    assert bool(actual) is bool(secrets)
