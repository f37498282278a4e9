# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warnings about the nodes that a pool's node group has created."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state import warnings
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.pool_assignment import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

GROUP, PRODUCT = "magnum.openstack.org/nodegroup", "nvidia.com/gpu.product"


def test_a_flavor_with_another_model_than_the_pool_says() -> None:
    pool = {"name": "train", "model": "T4", "nodes": {"flavor": "f", "count": 2}}
    pools = derive({"name": "lab", "cloud": {"magnum": {}}}, {}, [pool]).pools
    nodes = [
        Node(name, {GROUP: "train", PRODUCT: product, "nvidia.com/gpu.present": "true"}, ready=True)
        for name, product in (("a", "Tesla-T4"), ("b", "NVIDIA-L40S"))
    ]
    assert warnings.all_warnings(nodes, assign_pools(pools, nodes), ()) == [
        "b: another GPU model than pool train declares (model). Correct the flavor or model."
    ]
