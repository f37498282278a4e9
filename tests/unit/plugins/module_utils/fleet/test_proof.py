# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as seen, and what is said of the rest."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.fleet.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.fleet.proof import prove
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from tests.helpers.fleet import node, pool


@pytest.mark.parametrize(
    ("of_node", "of_pool"),
    [
        (node(), pool()),
        (node(gpus=8), pool(gpus_per_node=8)),
        (node(replicas=4), pool(replicas=4)),
        (node(gpus=2, replicas=4, rename=True), pool(replicas=4, rename=True)),
        # A resource that was there before stays as a key at 0, in life too.
        (node(allocatable={"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 0}), pool()),
    ],
)
def test_proven(of_node: Node, of_pool: PoolPlan) -> None:
    assert prove(of_node, of_pool) is None


@pytest.mark.parametrize(
    ("of_node", "of_pool", "words"),
    [
        (node(labels={"nvidia.com/gpu.product": None}), pool(), ["not labelled yet"]),
        (node(labels={"nvidia.com/gpu.product": "NVIDIA-A100-MIG-INVALID"}), pool(), ["MIG layout"]),
        (node(), pool(replicas=4), ["gpu.replicas is 1, 4 is", "product is Tesla-T4, Tesla-T4-SHARED", "is 1, 4 is"]),
        (node(replicas=4), pool(), ["Tesla-T4-SHARED, Tesla-T4 is", "strategy is time-slicing, none", "is 4, 1 is"]),
        (node(allocatable={}, capacity={}), pool(), ["allocatable nvidia.com/gpu is 0, 1 is expected"]),
        (node(allocatable={}), pool(), ["is 0 of a capacity of 1: no plugin is registered, 1 is"]),
        (node(gpus=8, allocatable={"nvidia.com/gpu": 7}), pool(), ["is 7 of a capacity of 8: GPUs are unhealthy"]),
        (
            node(replicas=4, rename=True, allocatable={"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 4}),
            pool(replicas=4, rename=True),
            ["nvidia.com/gpu is still 1"],
        ),
        (node(labels={"nvidia.com/gpu.replicas": None}), pool(), ["gpu.replicas is absent, 1 is expected"]),
    ],
)
def test_not_proven(of_node: Node, of_pool: PoolPlan, words: list[str]) -> None:
    finding = prove(of_node, of_pool)
    assert finding is not None
    assert [word for word in words if word not in str(finding)] == []
    assert not finding.final


def test_a_missing_card_is_not_waited_for() -> None:
    finding = prove(node(gpus=7), pool(gpus_per_node=8))
    assert finding is not None
    assert finding.final
    assert "has 7 GPU(s), gpus_per_node says 8" in str(finding)


def test_a_missing_card_of_an_unsettled_node_is_waited_for() -> None:
    finding = prove(node(gpus=7, allocatable={}), pool(gpus_per_node=8))
    assert finding is not None
    assert not finding.final
