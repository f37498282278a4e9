# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of kinds, and which CRDs are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import Kind
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import (
    crd_name,
    custom_kind,
    is_agent_feature,
    keep_reason,
)

Object = dict[str, Any]


def written(*entries: tuple[str, Object], **metadata: Any) -> Object:
    """An object with managedFields."""
    fields = [{"manager": name, "operation": "Apply", "fieldsV1": tree} for name, tree in entries]
    return {"metadata": {"name": "x", "resourceVersion": "7", "managedFields": fields, **metadata}}


FEATURE = custom_kind("nfd.k8s-sigs.io/v1alpha1", "NodeFeature")
SPEC: Object = {"f:spec": {"f:names": {}}}


def feature(name: str, node: str | None = None, namespace: str = "nfd") -> Object:
    labels = {"nfd.node.kubernetes.io/node-name": node} if node else {}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        (FEATURE, "nodefeatures.nfd.k8s-sigs.io", "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"),
        (
            custom_kind("nvidia.com/v1", "ClusterPolicy"),
            "clusterpolicies.nvidia.com",
            "/apis/nvidia.com/v1/clusterpolicies",
        ),
        (
            custom_kind("nvidia.com/v1alpha1", "NVIDIADriver"),
            "nvidiadrivers.nvidia.com",
            "/apis/nvidia.com/v1alpha1/nvidiadrivers",
        ),
        (
            custom_kind("resource.nvidia.com/v1beta1", "ComputeDomainClique"),
            "computedomaincliques.resource.nvidia.com",
            "/apis/resource.nvidia.com/v1beta1/computedomaincliques",
        ),
    ],
)
def test_names_of_a_custom_kind(kind: Kind, name: str, path: str) -> None:
    assert (crd_name(kind), kind.collection()) == (name, path)


@pytest.mark.parametrize(
    ("actual", "agent"),
    [
        (feature("t4-1", "t4-1"), True),
        (feature("nvidia-features-for-t4-1", "t4-1"), True),
        (feature("my-fpga", "t4-1"), False),
        (feature("t4-1"), False),
    ],
)
def test_is_agent_feature(actual: Object, agent: bool) -> None:
    assert is_agent_feature(FEATURE.full_name, actual) is agent


CASES: list[tuple[Object, list[Object], str]] = [
    (written(("accel.gpu", SPEC)), [], ""),
    (
        written(("accel.gpu", SPEC)),
        [feature("my-fpga", "t4-1", "fpga")],
        "foreign objects need it: NodeFeature fpga/my-fpga",
    ),
    (
        written(("accel.gpu", SPEC)),
        [feature(f"f{number}", namespace="f") for number in range(7)],
        "foreign objects need it: " + ", ".join(f"NodeFeature f/f{number}" for number in range(5)) + " and 2 more",
    ),
    (written(("accel.gpu", SPEC), ("helm", SPEC)), [], "helm has also written it"),
    (
        written(("accel.gpu", SPEC), labels={"operators.coreos.com/nfd.ns": ""}),
        [],
        "OLM manages it (label operators",
    ),
]


@pytest.mark.parametrize(("live", "foreign", "reason"), CASES)
def test_keep_reason(live: Object, foreign: list[Object], reason: str) -> None:
    actual = keep_reason(FEATURE, live, foreign)
    assert actual.startswith(reason)
    assert bool(actual) is bool(reason)
