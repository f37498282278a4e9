# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pools the nodes of a live cluster are exported as, and what is reported for the others."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.export_pools import (
    ExportedPools,
    LiveConfig,
    add_drivers,
    export_pools,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ChangePlan,
    ConfigMaps,
    plan_sharing_changes,
)
from tests.helpers.fleet import node

CONFIG, PIN, ROLLOUT = "nvidia.com/device-plugin.config", "accel.gpu/pool", "accel.gpu/rollout"
MIG = "nvidia.com/mig.config"
OFF, VIRTUAL = "nvidia.com/gpu.deploy.operands", "nvidia.com/gpu.workload.config"
NONE, TIME = {"mode": "none"}, {"mode": "time-slicing", "replicas": 4}
SHARED = {
    "version": "v1",
    "sharing": {
        "timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
    },
}
POLICY = {
    "metadata": {},
    "spec": {
        "devicePlugin": {"config": {"name": "configs", "default": "whole"}},
        "migManager": {"config": {"name": "migs"}},
    },
}
PLUGIN = {"data": {"whole": "version: v1", "four": json.dumps(SHARED), "broken": "{"}}
MIGS = {
    "data": {
        "config.yaml": json.dumps({"version": "v1", "mig-configs": {"off": [{"devices": "all", "mig-enabled": False}]}})
    }
}
TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def found(*nodes: Node, live: LiveConfig | None = None) -> ExportedPools:
    live = live or LiveConfig(POLICY, PLUGIN, MIGS)
    return export_pools(nodes, live.node_sharing, live.tolerations)


def shared(name: str, **changes: t.Any) -> Node:
    return node(name, replicas=4, labels={CONFIG: "four", **changes.pop("labels", {})}, **changes)


def test_alike_nodes_without_a_pin_are_a_pool_by_their_model() -> None:
    whole, four = node("l4", "NVIDIA-L4"), shared("t4")
    assert found(
        whole, node("cpu", labels={"nvidia.com/gpu.present": None, "nvidia.com/gpu.product": None}), four
    ).pools == [
        {"name": "l4", "match": {"model": "L4"}, "sharing": NONE},
        {"name": "t4", "match": {"model": "T4"}, "sharing": TIME},
    ]


def test_a_model_that_the_catalog_lacks_is_matched_by_its_product() -> None:
    (pool,) = found(node("x", "NVIDIA-X1")).pools
    assert pool == {"name": "nvidia-x1", "match": {"labels": {"nvidia.com/gpu.product": "NVIDIA-X1"}}, "sharing": NONE}


def test_a_label_distinguishes_two_sharing_modes_of_a_model() -> None:
    zones = [{"zone": "a", CONFIG: "four"}, {"zone": "b"}]
    result = found(node("n1", replicas=4, labels=dict(zones[0])), node("n2", labels=dict(zones[1])))
    assert result.remarks == []
    assert [(pool["name"], pool["match"]) for pool in result.pools] == [
        ("t4-none", {"model": "T4", "labels": {"zone": "b"}}),
        ("t4-time-slicing", {"model": "T4", "labels": {"zone": "a"}}),
    ]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"cloud.google.com/gke-nodepool": "g-@", "a": "@"}, "cloud.google.com/gke-nodepool"),
        ({"agentpool": "p@", "alpha/id": "@"}, "agentpool"),
        ({"node.kubernetes.io/instance-type": "g4dn.@", "alpha/owner": "@"}, "node.kubernetes.io/instance-type"),
        ({"topology.kubernetes.io/zone": "z@", "team": "@"}, "team"),
        ({"topology.kubernetes.io/zone": "z@"}, "topology.kubernetes.io/zone"),
        # Values of one node only: the name with and without domain, the address, the id of the machine; and a value that changes with every update.
        ({"host": "n@.example.com"}, None),
        ({"short": "n@"}, None),
        ({"ip": "10.0.0.@"}, None),
        ({"instance": "i-0@"}, None),
        ({"kubernetes.azure.com/node-image-version": "@"}, None),
        ({"plan.upgrade.cattle.io/agent": "@"}, None),
    ],
)
def test_a_pool_is_matched_by_its_group_and_never_by_one_node(labels: dict[str, str], expected: str | None) -> None:
    def of(digit: str, **changes: t.Any) -> Node:
        own = {key: value.replace("@", digit) for key, value in labels.items()}
        base = node(f"n{digit}.example.com", labels={**own, **changes.pop("labels", {})}, **changes)
        return dataclasses.replace(base, provider_id=f"aws:///zone/i-0{digit}", addresses=(f"10.0.0.{digit}",))

    result = found(of("1", replicas=4, labels={CONFIG: "four"}), of("2"))
    matched = [list((pool.get("match") or {}).get("labels", {})) for pool in result.pools]
    assert matched == ([[expected]] * 2 if expected else [[], []])


def test_pools_without_a_distinguishing_label_are_pinned() -> None:
    result = found(shared("n1"), node("n2"))
    assert [pool.get("match") for pool in result.pools] == [None, None]
    assert "kubectl label nodes n1 accel.gpu/pool=t4-time-slicing" in " ".join(result.remarks)


def test_taints_make_pools_and_those_of_kubernetes_do_not() -> None:
    result = found(node("a", "NVIDIA-L4", taints=(TAINT, CORDON)), node("b", "NVIDIA-L4", taints=(TAINT,)))
    (pool,) = result.pools
    assert pool["taints"] == [TAINT]


def test_temporary_taints_are_no_taints_of_a_pool() -> None:
    """A run would otherwise set them again after their component has removed them, for example on a node that the autoscaler has decided to keep."""
    keys = (
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "node.cilium.io/agent-not-ready",
        "ebs.csi.aws.com/agent-not-ready",
        "UpdateInProgress",
    )
    temporary = tuple({"key": key, "effect": "NoSchedule"} for key in keys)
    result = found(node("a", "NVIDIA-L4", taints=(*temporary, TAINT)), node("b", "NVIDIA-L4", taints=(TAINT,)))
    assert [pool["taints"] for pool in result.pools] == [[TAINT]]
    # Even an earlier run's record does not make it the pool's taint, because the variables must be valid.
    record = {"accel.gpu/pool-taints": json.dumps(["karpenter.sh/disrupted:NoSchedule"])}
    assert "taints" not in found(pinned("n1", "a", taints=(temporary[1],), notes=record)).pools[0]


def pinned(name: str, pool: str, model: str = "Tesla-T4", **changes: t.Any) -> Node:
    """As a run leaves a node of a pool: what the pool put there is noted."""
    labels = {PIN: pool, CONFIG: "whole", **changes.pop("labels", {})}
    owned = [key for key in labels if key in (CONFIG, MIG) or not key.startswith("nvidia.com/")]
    notes = {"accel.gpu/pool-labels": json.dumps(sorted(owned)), **changes.pop("notes", {})}
    return node(name, model, labels=labels, annotations=notes, **changes)


def test_a_pool_is_what_its_label_names_with_what_it_has_put_there() -> None:
    notes = {"accel.gpu/pool-taints": json.dumps(["team=x:NoSchedule"])}
    theirs = {"key": "maintenance", "effect": "NoSchedule"}
    result = found(pinned("n1", "a", labels={"team": "x"}, taints=(TAINT, theirs), notes=notes))
    assert result == ExportedPools(
        [{"name": "a", "match": {"model": "T4"}, "labels": {"team": "x"}, "taints": [TAINT], "sharing": NONE}], []
    )


def test_a_taint_that_was_there_before_is_the_pool_s_where_the_policy_tolerates_it_for_us() -> None:
    managed = {"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
    policy = {**POLICY, "metadata": {"annotations": {"accel.gpu/tolerations": json.dumps([managed])}}}
    (pool,) = found(pinned("n1", "a", taints=(TAINT,)), live=LiveConfig(policy, PLUGIN, MIGS)).pools
    assert pool["taints"] == [TAINT]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([pinned("n1", "a"), pinned("n2", "b")], ["pool a: without match", "pool b: without match"]),
        ([pinned("n1", "a"), pinned("n2", "a", "NVIDIA-L4")], ["pool a: without match"]),
        # A node of the same model that belongs to no pool would be matched too.
        ([pinned("n1", "a"), node("n2")], ["pool a: without match", "pool t4: only a pool label"]),
        ([pinned("n1", "a", labels={"x": "y"}), pinned("n2", "a")], ["pool a: labels that only some of its nodes have are not exported: x"]),
        (
            [pinned("n1", "a"), pinned("n2", "a", labels={CONFIG: "four"}), pinned("n3", "a")],
            [
                "pool a: without sharing, because its nodes are shared in 2 different ways: n1, n3 have sharing: {mode: none}; "
                "n2 has sharing: {mode: time-slicing, replicas: 4}"
            ],
        ),
        (
            [pinned("n1", "a"), pinned("n2", "a", labels={CONFIG: "gone"})],
            [
                "pool a: without sharing, because the sharing of some of its nodes is not known: n1 has sharing: {mode: none}; "
                "n2 cannot be described, because its label selects the configuration gone"
            ],
        ),
        # Only the user has labeled these nodes, so that a run does not release them.
        (
            [node("n1", labels={PIN: "a"}), shared("n2", labels={PIN: "a"})],
            ["pool a: not exported, because its nodes are shared in 2 different ways"],
        ),
        (
            [pinned("n1", "a", labels={"nvidia.com/gpu.product": None})],
            [
                "pool a: without sharing, because the sharing of some of its nodes is not known: n1 cannot be described, because "
                "gpu-feature-discovery has not labeled it",
                "pool a: without match",
            ],
        ),
        # The other nodes of a pool describe it.
        ([pinned("n1", "a"), pinned("n2", "a", labels={"nvidia.com/gpu.product": None})], []),
        (
            [pinned("n1", "a", notes={ROLLOUT: '{"max_unavailable": 2}'}), pinned("n2", "a")],
            ["pool a: without rollout, because its nodes have different records of it"],
        ),
        ([pinned("n1", "A.b")], ["pool A.b: not exported, because its name is not a DNS label"]),
        ([node("n1", labels={CONFIG: "gone"})], ["n1: not exported, because its label selects the configuration gone"]),
        ([node("n1", labels={CONFIG: "broken"})], ["n1: not exported, because its device plugin configuration, or a part of it, is not a map"]),
        ([node("n1", labels={"nvidia.com/mig.config": "gone"})], ["n1: not exported, because its label selects the MIG configuration gone"]),
        ([node("n1", "NVIDIA-A30-MIG-1g.6gb", gpus=4)], ["n1: not exported, because its GPUs are partitioned, but not by its label"]),
        ([node("n1", labels={"nvidia.com/gpu.product": None})], ["n1: not exported, because gpu-feature-discovery has not labeled it"]),
        (
            [node("n1", labels={"nvidia.com/gpu.product": None, OFF: "false"})],
            [
                f"n1: not exported, because label {OFF}=false stops all operands of the GPU operator there, so its GPUs are unknown. To include it, "
                f"remove the label (kubectl label node NODE {OFF}-)"
            ],
        ),
        (
            [node("n1", labels={"nvidia.com/gpu.product": None, VIRTUAL: "vm-vgpu"})],
            [f"label {VIRTUAL}=vm-vgpu assigns its GPUs to virtual machines. To include it, remove the label (kubectl label node NODE {VIRTUAL}-)"],
        ),
        (
            [node("n1", labels={"nvidia.com/gpu.product": None, "nvidia.com/gpu.deploy.sandbox-validator": "true"})],
            ["n1: not exported, because the GPU operator prepares its GPUs for virtual machines"],
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_said(nodes: list[Node], words: list[str]) -> None:
    remarks = found(*nodes).remarks
    assert len(remarks) == len(words), remarks
    assert [word for word in words if not any(word in remark for remark in remarks)] == []


def test_without_a_configmap_in_the_policy_labels_have_no_effect() -> None:
    (pool,) = found(node("n1", labels={CONFIG: "four"}), live=LiveConfig()).pools
    assert pool["sharing"] == NONE


def test_a_node_cut_by_nvidia_s_own_entry_is_a_pool_with_that_layout() -> None:
    labels = {"nvidia.com/mig.config": "all-1g.6gb", "nvidia.com/gpu.product": "NVIDIA-A30-MIG-1g.6gb"}
    policy = {**POLICY, "spec": {**POLICY["spec"], "mig": {"strategy": "single"}}}
    (pool,) = found(node("n1", gpus=4, labels=labels), live=LiveConfig(policy, PLUGIN, None)).pools
    assert pool == {
        "name": "a30",
        "match": {"model": "A30"},
        "sharing": {"mode": "mig", "layout": {"1g.6gb": 4}, "strategy": "single"},
    }


STARTUP_TOLERATION = {
    "key": "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu",
    "operator": "Exists",
    "effect": "NoSchedule",
}
TOLERANT = {**POLICY, "metadata": {"annotations": {"accel.gpu/tolerations": json.dumps([STARTUP_TOLERATION])}}}


def test_pools_declare_the_startup_taint_that_the_policy_tolerates_for_us() -> None:
    live = LiveConfig({**TOLERANT, "spec": {**POLICY["spec"], "mig": {"strategy": "single"}}}, PLUGIN, None)

    def cut(name: str, pool: str) -> Node:
        labels = {"nvidia.com/mig.config": "all-1g.6gb", "nvidia.com/gpu.product": "NVIDIA-A30-MIG-1g.6gb", PIN: pool}
        taint = {key: value for key, value in STARTUP_TOLERATION.items() if key != "operator"}
        return node(name, gpus=4, labels=labels, taints=(taint,))

    one, two = found(cut("n1", "a"), shared("n2"), live=live), found(cut("n1", "a"), cut("n2", "b"), live=live)
    assert [(pool.get("startup_taint"), pool.get("taints")) for pool in one.pools] == [(True, None), (None, None)]
    assert [pool["startup_taint"] for pool in two.pools] == [True, True]
    assert not [remark for remark in one.remarks if "startup_taint" in remark]
    assert [remark for remark in two.remarks if "startup_taint" in remark] == [
        "startup_taint: it is unknown which of the pools a, b declare it, so it is exported for all of them"
    ]


def test_a_pool_without_sharing_does_not_get_the_startup_taint() -> None:
    result = found(pinned("n1", "a", labels={CONFIG: "gone"}), live=LiveConfig(TOLERANT, PLUGIN, None))
    assert "startup_taint" not in result.pools[0]
    assert "startup_taint: it is unknown whether the pools without sharing declare it: a" in result.remarks


def test_pools_get_the_driver_that_they_declared_and_foreign_objects_are_remarked() -> None:
    exported = ExportedPools([{"name": "a"}, {"name": "b"}])
    managed = {"app.kubernetes.io/managed-by": "accel.gpu"}
    add_drivers(
        exported,
        [
            {
                "metadata": {
                    "name": "accel-gpu-a",
                    "labels": managed,
                    "annotations": {"accel.gpu/driver": '{"version": "1"}'},
                },
                "spec": {"nodeSelector": {"accel.gpu/pool": "a"}},
            },
            {"metadata": {"name": "accel-gpu-b", "labels": managed}, "spec": {"nodeSelector": {"accel.gpu/pool": "b"}}},
            {"metadata": {"name": "default"}, "spec": {}},
        ],
    )
    assert exported.pools == [{"name": "a", "driver": {"version": "1"}}, {"name": "b"}]
    assert exported.remarks == [
        "NVIDIADriver default: not exported, because this collection did not create it; it is not changed"
    ]


def test_what_comes_out_has_every_node_in_its_pool_and_is_sound() -> None:
    nodes = [pinned("n1", "a"), pinned("n2", "b"), node("l4", "NVIDIA-L4"), node("x", "NVIDIA-X1", taints=(TAINT,))]
    plan = derive({"name": "lab"}, {}, found(*nodes).pools)
    membership = assign_pools(plan.pools, nodes)
    assert membership.by_pool == {"a": ["n1"], "b": ["n2"], "l4": ["l4"], "nvidia-x1": ["x"]}
    changes = plan_sharing_changes(plan, nodes, membership, ConfigMaps())
    assert all(set(edit.labels) <= {PIN, CONFIG} for edit in changes.edits)


def changes_with_export(*nodes: Node, live: LiveConfig | None = None) -> ChangePlan:
    """The changes of a run with the exported variables."""
    plan = derive({"name": "lab"}, {}, found(*nodes, live=live).pools)
    return plan_sharing_changes(plan, nodes, assign_pools(plan.pools, nodes), ConfigMaps())


def test_the_settings_of_the_rolling_update_are_exported_as_they_are_recorded() -> None:
    record = {"drain": "all", "max_unavailable": "50%"}
    nodes = [pinned(name, "a", notes={ROLLOUT: json.dumps(record)}) for name in ("n1", "n2")]
    (pool,) = found(*nodes).pools
    assert pool["rollout"] == record
    assert ROLLOUT not in str([edit.patch for edit in changes_with_export(*nodes).edits])


@pytest.mark.parametrize("record", ["{", '{"max_unavailable": 0}', '{"reboot": {"command": ["reboot", "{node}"]}}'])
def test_an_invalid_record_of_the_rolling_update_is_not_exported(record: str) -> None:
    (pool,) = found(pinned("n1", "a", notes={ROLLOUT: record})).pools
    assert "rollout" not in pool


MIG_LIVE = LiveConfig({**POLICY, "spec": {**POLICY["spec"], "mig": {"strategy": "single"}}}, PLUGIN, None)


def partitioned(name: str, pool: str, profile: str, devices: int) -> Node:
    labels = {
        MIG: f"all-{profile}",
        "nvidia.com/mig.config.state": "success",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/gpu.product": f"NVIDIA-A30-MIG-{profile}",
        PIN: pool,
    }
    return pinned(name, pool, gpus=devices, labels=labels)


@pytest.mark.parametrize(
    ("nodes", "live"),
    [
        # A rolling update that has reached the first node only.
        ([partitioned("n1", "a", "2g.12gb", 2), *[partitioned(f"n{n}", "a", "1g.6gb", 4) for n in (2, 3, 4)]], MIG_LIVE),
        ([pinned("n1", "a"), pinned("n2", "a", replicas=4, labels={CONFIG: "four"})], None),
        # Another pool stays, so that a release of this one would need no permission.
        ([pinned("l4", "b", "NVIDIA-L4"), pinned("n1", "a", replicas=4, labels={CONFIG: "gone"})], None),
        # The configuration shares nothing, but it is not the collection's.
        ([pinned("l4", "b", "NVIDIA-L4"), pinned("n1", "a", labels={CONFIG: "gone"})], None),
        # Only the node that is not discovered has a record of the pool.
        ([shared("n1", labels={PIN: "a"}), node("n2", labels={PIN: "a", CONFIG: "gone"}), pinned("n3", "a", labels={"nvidia.com/gpu.product": None})], None),
    ],
)  # fmt: skip
def test_a_run_refuses_a_pool_whose_nodes_are_shared_differently(nodes: list[Node], live: LiveConfig | None) -> None:
    changes = changes_with_export(*nodes, live=live)
    assert changes.releases.nodes == {}
    assert "(a: " in changes.releases.refusal(())


@pytest.mark.parametrize("hidden", ["nvidia.com/gpu.product", "nvidia.com/gpu.present"])
def test_no_node_is_released_that_does_not_look_like_a_gpu_node_now(hidden: str) -> None:
    labels = {"nvidia.com/gpu.product": None, hidden: "false" if hidden.endswith("present") else None}
    changes = changes_with_export(pinned("l4", "b", "NVIDIA-L4"), pinned("n1", "a", labels=labels))
    assert changes.releases.nodes == {}


def test_the_node_that_lost_its_pool_s_label_is_the_only_one_that_a_run_releases() -> None:
    """The module refuses this export."""
    nodes = [pinned("n1", "a"), pinned("n2", "a")]
    lost = dataclasses.replace(nodes[1], labels={key: value for key, value in nodes[1].labels.items() if key != PIN})
    assert [*changes_with_export(nodes[0], lost).releases.nodes] == ["n2"]
