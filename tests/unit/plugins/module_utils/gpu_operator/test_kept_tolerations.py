# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A toleration that no pool needs stays in the ClusterPolicy as long as a GPU node would lose its operands without it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import DesiredPolicy, plan_change
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.readiness import (
    keep_needed_tolerations,
    obsolete_tolerations,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TEAM = {"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
ALL = {"operator": "Exists"}
TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}
OTHER = {"key": "team", "value": "z", "effect": "NoSchedule"}


def policy(*tolerations: Object, recorded: list[Object]) -> Object:
    return {
        "metadata": {
            "name": "cluster-policy",
            "resourceVersion": "1",
            "annotations": {"accel.gpu/tolerations": json.dumps(recorded)},
        },
        "spec": {"daemonsets": {"tolerations": list(tolerations)}},
    }


def node(*taints: Object, gpu: bool = True) -> Object:
    labels = {"feature.node.kubernetes.io/pci-10de.present": "true"} if gpu else {}
    return {"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": list(taints)}}


@pytest.mark.parametrize(
    ("tolerations", "nodes", "pools", "kept"),
    [
        ([GPU, TEAM], [node(TAINT)], [{"name": "a"}], [TEAM]),
        ([GPU, TEAM], [node(TAINT)], [{"name": "a", "taints": [OTHER]}], [TEAM]),
        ([GPU, TEAM], [node()], [{"name": "a"}], []),
        ([GPU, TEAM], [node(OTHER)], [{"name": "a"}], []),
        ([GPU, TEAM], [node({**TAINT, "effect": "PreferNoSchedule"})], [{"name": "a"}], []),
        ([GPU, TEAM], [node(TAINT, gpu=False)], [{"name": "a"}], []),
        # Kubernetes sets this taint while a node is cordoned.
        ([GPU, ALL], [node({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})], [{"name": "a"}], []),
        # Another entry, which is not the collection's, tolerates the taint.
        ([GPU, TEAM, ALL], [node(TAINT)], [{"name": "a"}], []),
        # A pool still needs it.
        ([GPU, TEAM], [node(TAINT)], [{"name": "a", "taints": [TAINT]}], []),
        # It has been removed from the policy.
        ([GPU], [node(TAINT)], [{"name": "a"}], []),
    ],
)
def test_a_toleration_is_kept_while_a_gpu_node_has_its_taint(
    tolerations: list[Object], nodes: list[Object], pools: list[Object], kept: list[Object]
) -> None:
    live, plan = (
        policy(*tolerations, recorded=[GPU, TEAM, ALL] if tolerations == [GPU, ALL] else [GPU, TEAM]),
        derive({"name": "lab"}, {}, pools),
    )
    actual = keep_needed_tolerations(live, plan, nodes)
    assert list(actual.policy.kept_tolerations) == kept
    assert not kept or obsolete_tolerations(live, plan) == kept
    is_needed = pools[0].get("taints") == [TAINT]
    change = plan_change(live, DesiredPolicy.derive(actual, live), seeded=False)
    # Without a change of the list, the apply does not contain it.
    spec = {**live["spec"], **(change.body or live)["spec"]}
    assert (TEAM in spec["daemonsets"]["tolerations"]) == (TEAM in tolerations and (bool(kept) or is_needed))
    # The entry stays recorded, so that a later run removes it.
    if kept:
        annotations = (change.body or live)["metadata"]["annotations"]
        assert TEAM in json.loads(annotations["accel.gpu/tolerations"])
        assert obsolete_tolerations(live, actual) == []
