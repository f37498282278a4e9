# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identity of taints and tolerations, and the merge of a node's taints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import (
    is_covered,
    is_temporary,
    merge_taints,
    temporary_reason,
    toleration_identity,
    toleration_of,
    untolerated_taints,
)

Object = dict[str, Any]

OWNED = {"key": "owned", "effect": "NoSchedule"}
FOREIGN = {"key": "foreign", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "a"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "a"}, False),
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_is_tolerated_by_the_rules_of_the_scheduler(toleration: Object, tolerated: bool) -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    assert untolerated_taints([toleration], [taint]) == ([] if tolerated else [taint])


def test_prefer_no_schedule_keeps_no_pod_away() -> None:
    assert untolerated_taints([], [{"key": "team", "effect": "PreferNoSchedule"}]) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists", "value": ""}, True),
        ({"key": "a", "value": "x"}, {"key": "a", "operator": "Equal", "value": "x", "effect": ""}, True),
        ({"key": "a", "value": "x"}, {"key": "a", "operator": "Exists"}, False),
        ({"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists", "tolerationSeconds": 3}, False),
    ],
)
def test_defaults_do_not_make_tolerations_differ(one: Object, other: Object, same: bool) -> None:
    assert (toleration_identity(one) == toleration_identity(other)) is same


@pytest.mark.parametrize("taint", [OWNED, FOREIGN, {"key": "a", "value": "", "effect": "NoSchedule"}])
def test_a_taint_is_tolerated_by_its_own_toleration(taint: Object) -> None:
    assert untolerated_taints([toleration_of(taint)], [taint]) == []


@pytest.mark.parametrize(
    ("live", "recorded", "desired", "merged", "owned"),
    [
        ([FOREIGN], [], [], None, []),
        ([FOREIGN], [], [OWNED], [FOREIGN, OWNED], ["owned:NoSchedule"]),
        ([FOREIGN, OWNED], ["owned:NoSchedule"], [], [FOREIGN], []),
        ([OWNED], [], [OWNED], None, []),
        ([{**OWNED, "value": "x"}], [], [OWNED], [OWNED], ["owned:NoSchedule"]),
    ],
    ids=["nothing", "added", "removed", "set by others", "another value"],
)
def test_merge(
    live: list[Object], recorded: list[str], desired: list[Object], merged: list[Object] | None, owned: list[str]
) -> None:
    assert merge_taints(live, recorded, desired, lambda dummy: True) == (merged, owned)


def test_a_recorded_taint_stays_unless_it_is_to_be_removed() -> None:
    assert merge_taints([OWNED], ["owned:NoSchedule"], [], lambda dummy: False) == (None, ["owned:NoSchedule"])


@pytest.mark.parametrize(
    ("wider", "covered"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "x"}, True),
        ({"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "y"}, False),
        ({"key": "team", "operator": "Gt", "value": "x"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists", "tolerationSeconds": 300}, False),
        ({}, False),
    ],
)
def test_a_toleration_covers_another(wider: dict[str, Any], covered: bool) -> None:
    narrow = {"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
    assert is_covered(narrow, [wider]) is covered
    assert not is_covered({"key": "team", "operator": "Exists", "effect": "NoSchedule"}, [narrow])


@given(st.dictionaries(st.sampled_from(["key", "value", "effect"]), st.sampled_from(["", "NoSchedule", "a"])))
def test_a_covered_toleration_tolerates_nothing_more(other: dict[str, str]) -> None:
    for narrow in (
        {"operator": "Exists", "effect": "NoSchedule"},
        {"key": "a", "value": "a"},
        {"key": "a", "operator": "Exists"},
    ):
        taints = [
            {"key": "a", "value": value, "effect": effect}
            for value in ("", "a")
            for effect in ("NoSchedule", "NoExecute")
        ]
        if is_covered(narrow, [other]):
            remaining = untolerated_taints([other], taints)
            assert all(taint in untolerated_taints([narrow], taints) for taint in remaining)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ToBeDeletedByClusterAutoscaler", True),
        ("DeletionCandidateOfClusterAutoscaler", True),
        ("ignore-taint.cluster-autoscaler.kubernetes.io/gpu", True),
        ("karpenter.sh/disrupted", True),
        ("karpenter.sh/unregistered", True),
        ("node.cluster.x-k8s.io/uninitialized", True),
        ("node.cluster.x-k8s.io/outdated-revision", True),
        ("node.cloudprovider.kubernetes.io/shutdown", True),
        ("node.kubernetes.io/out-of-service", True),
        ("node.cilium.io/agent-not-ready", True),
        ("ebs.csi.aws.com/agent-not-ready", True),
        ("file.csi.azure.com/agent-not-ready", True),
        ("UpdateInProgress", True),
        ("medik8s.io/drain", True),
        ("kubernetes.azure.com/scalesetpriority", False),
        ("cloud.google.com/gke-spot", False),
        ("karpenter.sh", False),
        ("karpenter.sh/disruption", True),
        ("karpenter.sh/capacity-type", False),
        ("node.cluster.x-k8s.io/team", False),
        ("aws-node-termination-handler/rebalance-recommendation", True),
        ("cloud.google.com/impending-node-termination", True),
        ("s3.csi.scality.com/agent-not-ready", True),
        ("example.com/agent-not-ready", False),
        ("node-role.kubernetes.io/gpu", False),
        ("nvidia.com/gpu", False),
        ("sku", False),
    ],
)
def test_taints_that_a_component_sets_and_removes_are_temporary(key: str, expected: bool) -> None:
    assert is_temporary({"key": key, "effect": "NoSchedule"}) is expected


def test_the_taints_of_ciliums_agents_are_not_those_of_csi_drivers() -> None:
    assert temporary_reason("node.cilium.io/agent-not-ready").startswith("Cilium ")
    assert temporary_reason("efs.csi.aws.com/agent-not-ready").startswith("the CSI driver ")
