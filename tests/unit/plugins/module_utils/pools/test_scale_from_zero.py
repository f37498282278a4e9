# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The future node of a pool, and the annotations that describe it to OpenShift's autoscaler."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import (
    CAPACITY_CPU,
    CAPACITY_LABELS,
    CAPACITY_MEMORY,
    CPU,
    GPU,
    GPU_COUNT,
    GPU_TYPE,
    MEMORY_MB,
    autoscaler_rules,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import (
    PoolPlan,
    capacity_annotations,
    format_labels,
    future_node,
    parse_labels,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import label_value

NEWEST, BETWEEN, OLD = autoscaler_rules((5, 0)), autoscaler_rules((4, 20)), autoscaler_rules((4, 18))


def pool(**settings: t.Any) -> PoolPlan:
    declared = {"name": "train", "match": {"labels": {"team": "a"}}, **settings}
    return derive({"name": "prod"}, {}, [declared]).pools[0]


SHARED_T4 = pool(model=None, match={"model": "T4"}, gpus_per_node=1, sharing={"mode": "time-slicing", "replicas": 4})
RENAMED = pool(match={"model": "T4"}, gpus_per_node=2, sharing={"mode": "mps", "replicas": 3, "rename": True})
MIXED = pool(
    match={"model": "A100-SXM4-40GB"}, gpus_per_node=2, sharing={"mode": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
)
SINGLE = pool(match={"model": "A100-SXM4-40GB"}, gpus_per_node=2, sharing={"mode": "mig", "layout": {"1g.5gb": 7}})
DEMAND = pool(match={"model": "A100-SXM4-40GB"}, gpus_per_node=2, sharing={"mode": "mig", "demand": {"1g.5gb": 7}})
UNKNOWN_COUNT = pool(match={"model": "T4"})
UNKNOWN_MODEL = pool(gpus_per_node=1)
VIRTUAL_MACHINES = pool(gpus_per_node=1, labels={"nvidia.com/gpu.workload.config": "vm-passthrough"})


@pytest.mark.parametrize(
    ("planned", "resources", "accelerator"),
    [
        (SHARED_T4, {"nvidia.com/gpu": 4}, "Tesla-T4-SHARED"),
        (RENAMED, {"nvidia.com/gpu.shared": 6}, ""),
        (MIXED, {"nvidia.com/mig-2g.10gb": 4, "nvidia.com/mig-3g.20gb": 2}, ""),
        (SINGLE, {"nvidia.com/gpu": 14}, "NVIDIA-A100-SXM4-40GB-MIG"),
        (DEMAND, None, "NVIDIA-A100-SXM4-40GB-MIG"),
        (UNKNOWN_COUNT, None, "Tesla-T4"),
        (UNKNOWN_MODEL, {"nvidia.com/gpu": 1}, "train"),
        (VIRTUAL_MACHINES, {}, ""),
    ],
)
def test_the_future_node_of_a_pool(planned: PoolPlan, resources: dict[str, int] | None, accelerator: str) -> None:
    node = future_node(planned)
    assert (node.resources, node.accelerator) == (resources, accelerator)
    assert not label_value(node.accelerator)


@pytest.mark.parametrize(
    ("planned", "labels"),
    [
        (
            SHARED_T4,
            {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "4"},
        ),
        (SINGLE, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.count": "14"}),
        (MIXED, {"nvidia.com/mig-3g.20gb.count": "2", "nvidia.com/mig.strategy": "mixed"}),
        (UNKNOWN_MODEL, {"nvidia.com/gpu.present": "true", "feature.node.kubernetes.io/pci-10de.present": "true"}),
    ],
)
def test_the_labels_of_the_future_node(planned: PoolPlan, labels: dict[str, str]) -> None:
    assert labels.items() <= future_node(planned).labels.items()


@pytest.mark.parametrize(
    ("planned", "rules", "gpu", "count", "resource"),
    [
        (SHARED_T4, OLD, "4", "4", "nvidia.com/gpu"),
        (SHARED_T4, NEWEST, "4", "4", "nvidia.com/gpu"),
        (RENAMED, OLD, "0", "0", ""),
        (RENAMED, BETWEEN, "0", "0", ""),
        (RENAMED, NEWEST, "0", "6", "nvidia.com/gpu.shared"),
        (MIXED, NEWEST, "0", "4", "nvidia.com/mig-2g.10gb"),
        (VIRTUAL_MACHINES, NEWEST, "0", "0", ""),
    ],
)
def test_the_gpus_that_each_release_can_count(
    planned: PoolPlan, rules: t.Any, gpu: str, count: str, resource: str
) -> None:
    node = future_node(planned)
    actual = capacity_annotations(node.resources, {}, rules, {})
    assert (actual[GPU], actual[GPU_COUNT], actual[GPU_TYPE]) == (gpu, count, resource)


def test_unknown_gpus_are_not_described() -> None:
    node = future_node(UNKNOWN_COUNT)
    assert not {GPU, GPU_COUNT, GPU_TYPE} & capacity_annotations(node.resources, node.labels, NEWEST, {}).keys()


def test_cpu_and_memory_are_copied_from_the_annotations_of_the_platform() -> None:
    actual = capacity_annotations(None, {}, NEWEST, {CPU: "16", MEMORY_MB: "65536"})
    assert actual == {CAPACITY_CPU: "16", CAPACITY_MEMORY: str(64 * 1024**3)}
    assert capacity_annotations(None, {}, NEWEST, {MEMORY_MB: "64Gi"}) == {}


def test_labels_of_others_in_the_annotation_are_kept() -> None:
    actual = capacity_annotations(None, {"b": "2"}, NEWEST, {CAPACITY_LABELS: "kubernetes.io/arch=arm64,b=1"})
    assert actual == {CAPACITY_LABELS: "b=2,kubernetes.io/arch=arm64"}


_TEXT = st.text("abcdefghijklmnop-./", min_size=1, max_size=8)


@given(st.dictionaries(_TEXT, _TEXT | st.just("")))
def test_labels_survive_the_annotation(labels: dict[str, str]) -> None:
    assert parse_labels(format_labels(labels)) == labels


@given(
    st.dictionaries(
        st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"]), st.integers(0, 9)
    ),
    st.dictionaries(_TEXT, _TEXT),
    st.sampled_from([OLD, BETWEEN, NEWEST]),
)
def test_annotations_are_stable(resources: dict[str, int], labels: dict[str, str], rules: t.Any) -> None:
    """A second derivation from the object that has the annotations returns the same annotations."""
    first = capacity_annotations(resources, labels, rules, {CPU: "4", MEMORY_MB: "1024"})
    assert capacity_annotations(resources, labels, rules, {CPU: "4", MEMORY_MB: "1024", **first}) == first
