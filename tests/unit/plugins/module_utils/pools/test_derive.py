# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that are derived from the variables."""

from __future__ import annotations

import copy
import json
import random
import re
import time
import typing as t

import pytest
from hypothesis import given

from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import MODELS
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import POOL_KEYS, REPORTED_POOL_KEYS, Plan, PoolPlan
from ansible_collections.accel.gpu.plugins.module_utils.report.data import declared_pool
from ansible_collections.accel.gpu.plugins.module_utils.schema.pool import POOL
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import InvalidVariables
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import modes
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import Sharing
from tests.helpers.variables import CLUSTER, LAB_POOLS, Document, pool_lists

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
CONTROL_PLANE = ["node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"]


def planned(pools: list[Document], cluster: Document | None = None, defaults: Document | None = None) -> Plan:
    return derive(cluster or CLUSTER, defaults, pools)


def one(**pool: t.Any) -> PoolPlan:
    return planned([{"name": "p", "match": {"model": "T4"}, **pool}]).pools[0]


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        (
            {"mode": "none"},
            {
                "resource": "nvidia.com/gpu",
                "shares_per_gpu": 1,
                "memory_mib_per_share": 15360,
                "resources": ("nvidia.com/gpu",),
                "quota_keys": ("requests.nvidia.com/gpu",),
                "accelerator": "Tesla-T4",
                "mig_key": "",
            },
        ),
        (
            {"mode": "time-slicing", "replicas": 4},
            {
                "resource": "nvidia.com/gpu",
                "shares_per_gpu": 4,
                "memory_mib_per_share": 3840,
                "sharing": Sharing("time-slicing", 4),
            },
        ),
        (
            {"mode": "time-slicing", "replicas": 3, "rename": True},
            {
                "resource": "nvidia.com/gpu.shared",
                "memory_mib_per_share": 5120,
                "quota_keys": ("requests.nvidia.com/gpu.shared",),
                "accelerator": "Tesla-T4-SHARED",
            },
        ),
        (
            {"mode": "mps", "replicas": 4},
            {"resource": "nvidia.com/gpu", "shares_per_gpu": 4, "sharing": Sharing("mps", 4)},
        ),
    ],
)
def test_sharing(sharing: Document, expected: Document) -> None:
    pool = one(sharing=sharing)
    assert {name: getattr(pool, name) for name in expected} == expected


@pytest.mark.parametrize("sharing", [{"mode": "none"}, {"mode": "time-slicing", "replicas": 2}])
@pytest.mark.parametrize("model", [model.key for model in MODELS])
def test_every_accelerator_is_a_legal_label_value(model: str, sharing: Document) -> None:
    accelerator = one(match={"model": model}, sharing=sharing).accelerator or ""
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", accelerator)


A100X8: Document = {"match": {"model": "A100-SXM4-40GB"}, "gpus_per_node": 8}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ({"1g.5gb": 7}, {"resource": "nvidia.com/gpu", "shares_per_gpu": 7}),
        (["3g.20gb", "3g.20gb"], {"resource": "nvidia.com/gpu", "shares_per_gpu": 2}),
        (
            ["2g.10gb", "3g.20gb"],
            {
                "resources": ("nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"),
                "quota_keys": ("requests.nvidia.com/mig-2g.10gb", "requests.nvidia.com/mig-3g.20gb"),
                "accelerator": "NVIDIA-A100-SXM4-40GB-MIG",
                "shares_per_gpu": 2,
            },
        ),
        (
            {"0": {"3g.20gb": 2}, 1: None},
            {"resources": ("nvidia.com/mig-3g.20gb", "nvidia.com/gpu"), "shares_per_gpu": None},
        ),
    ],
)
def test_mig(layout: t.Any, expected: Document) -> None:
    plan = planned([{"name": "p", **A100X8, "sharing": {"mode": "mig", "layout": layout}}])
    (pool,) = plan.pools
    assert {name: getattr(pool, name) for name in expected} == expected
    assert pool.node_labels["nvidia.com/mig.config"] == pool.mig_key
    assert set(plan.mig.entries) == {pool.mig_key}
    assert plan.policy.spec["migManager"] == {"config": {"name": plan.mig.name}}
    assert plan.policy.mig_by_node
    assert plan.policy.mig_strategies == {pool.sharing.strategy}
    mps = {"name": "m", "match": {"model": "H200"}, "sharing": {"mode": "mps", "replicas": 4}}
    with_mps = planned([{"name": "p", **A100X8, "sharing": {"mode": "mig", "layout": layout}}, mps])
    assert with_mps.policy.mig_strategies == {pool.sharing.strategy, "none"}
    assert {"all-disabled", "all-enabled", "all-1g.5gb", "all-1g.5gb.me"} <= set(plan.mig.default_entries)


def test_a_key_of_a_pool_with_a_field_of_the_plan_is_copied() -> None:
    assert set(REPORTED_POOL_KEYS) < set(POOL_KEYS) < POOL.fields.keys()
    pool = one(gpus_per_node=4, labels={"team": "a"})
    declared = declared_pool(pool)
    assert (pool.gpus_per_node, declared["gpus_per_node"], pool.driver, declared["driver"]) == (4, 4, None, None)
    assert (pool.labels, one().labels, "labels" in declared) == ({"team": "a"}, {}, False)


def test_pool_says_all_labels_of_its_nodes() -> None:
    pool = one(labels={"team": "research"})
    assert pool.node_labels == {
        "team": "research",
        "accel.gpu/pool": "p",
        "nvidia.com/device-plugin.config": pool.config_key,
    }


def test_pool_without_model_promises_no_memory() -> None:
    pool = planned([{"name": "p", "match": {"labels": {"zone": "a"}}}]).pools[0]
    assert (pool.memory_mib_per_share, pool.match.product, pool.match.pins_only) == (None, None, False)
    assert planned([{"name": "p"}]).pools[0].match.pins_only


def test_model_may_be_said_by_gfds_label() -> None:
    listed, unlisted = planned(
        [
            {"name": name, "match": {"labels": {"nvidia.com/gpu.product": product}}}
            for name, product in (("a", "NVIDIA-L40S-SHARED"), ("b", "NVIDIA-TITAN-V"))
        ]
    ).pools
    assert (listed.match.model, listed.match.labels, listed.memory_mib_per_share) == ("L40S", {}, 46068)
    assert (unlisted.match.model, unlisted.match.products) == (None, ("NVIDIA-TITAN-V",))


def test_taint_reaches_everything_that_must_tolerate_it() -> None:
    plan = planned([{"name": "p", "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}, {"name": "q"}])
    expected = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}
    assert plan.policy.tolerations == (GPU_TOLERATION, expected)
    assert plan.nfd.values["worker"]["tolerations"][-2:] == [GPU_TOLERATION, expected]
    assert [entry["key"] for entry in plan.nfd.values["worker"]["tolerations"][:2]] == CONTROL_PLANE
    assert plan.pools[0].tolerations == (GPU_TOLERATION, expected)
    assert plan.pools[1].tolerations == (GPU_TOLERATION,)


def test_taint_without_value_is_tolerated_by_its_key() -> None:
    plan = planned([{"name": "p", "taints": [{"key": "k", "effect": "NoSchedule"}]}])
    assert plan.policy.tolerations[1] == {"key": "k", "operator": "Exists", "effect": "NoSchedule"}


def test_gpu_taint_needs_no_second_toleration() -> None:
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert planned([{"name": "p", "taints": taints}]).policy.tolerations == (GPU_TOLERATION,)
    taints[0]["effect"] = "NoExecute"
    assert len(planned([{"name": "p", "taints": taints}]).policy.tolerations) == 2


def test_no_pools_come_to_a_clear_nothing() -> None:
    plan = planned([])
    assert (plan.pools, plan.config.data, plan.policy.spec) == ((), {}, {})


def test_defaults_lie_under_every_pool() -> None:
    defaults = {"sharing": {"mode": "time-slicing", "replicas": 8}, "labels": {"x": "1"}}
    shared, alone = planned(
        [{"name": "a", "labels": {"y": "2"}}, {"name": "b", "sharing": {"mode": "none"}}], defaults=defaults
    ).pools
    assert (shared.shares_per_gpu, shared.labels) == (8, {"x": "1", "y": "2"})
    assert (alone.mode, alone.shares_per_gpu, alone.resource) == ("none", 1, "nvidia.com/gpu")


def test_releases_by_default() -> None:
    plan = planned([])
    assert (plan.operator.version, plan.operator.namespace, plan.operator.name) == ("v25.10.1", *["gpu-operator"] * 2)
    assert plan.operator.chart_repo == "https://helm.ngc.nvidia.com/nvidia"
    assert plan.operator.values == {
        "nfd": {"enabled": False},
        "operator": {"upgradeCRD": False},
        "mig": {"strategy": ""},
    }
    assert plan.nfd.chart_repo == ""
    assert plan.nfd.namespace_labels == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert plan.provides.namespaces == ("node-feature-discovery", "gpu-operator")
    assert {"api_version": "nvidia.com/v1", "kind": "ClusterPolicy"} in plan.provides.kinds


def test_chart_by_path_needs_no_repository() -> None:
    cluster = {**CLUSTER, "operator": {"chart": "./charts/gpu-operator", "namespace": "kube-system"}}
    operator = planned([], cluster).operator
    assert (operator.chart_repo, operator.namespace_labels) == ("", {})


def test_helm_values_of_the_user_override_but_no_pool_loses_its_toleration() -> None:
    extra = {"key": "theirs", "operator": "Exists"}
    cluster = {
        **CLUSTER,
        "operator": {"values": {"driver": {"enabled": False}}},
        "nfd": {"values": {"worker": {"tolerations": [extra, GPU_TOLERATION]}, "master": {"replicaCount": 2}}},
    }
    plan = planned([{"name": "p", "taints": [{"key": "k", "effect": "NoSchedule"}]}], cluster)
    assert plan.operator.values["driver"] == {"enabled": False}
    assert plan.nfd.values["master"] == {"extraLabelNs": ["nvidia.com"], "replicaCount": 2}
    tolerations = plan.nfd.values["worker"]["tolerations"]
    assert [entry["key"] for entry in tolerations] == [*CONTROL_PLANE, "nvidia.com/gpu", "k", "theirs"]


def test_invalid_documents_are_refused_with_every_mistake() -> None:
    with pytest.raises(InvalidVariables) as raised:
        derive({}, {}, [{"name": "A"}])
    assert len(raised.value.problems) == 2
    assert str(raised.value).startswith("2 errors in ")


@given(pool_lists())
def test_order_of_pools_changes_no_shared_value(pools: list[Document]) -> None:
    turned = planned(pools[::-1])
    plan = planned(pools)
    assert (plan.policy, plan.config, plan.nfd, plan.provides) == (
        turned.policy,
        turned.config,
        turned.nfd,
        turned.provides,
    )
    assert plan.pools == turned.pools[::-1]


@given(pool_lists())
def test_plan_is_pure_and_plain(pools: list[Document]) -> None:
    before = copy.deepcopy(pools)
    plan = planned(pools).as_dict()
    assert pools == before
    assert json.loads(json.dumps(plan)) == plan == planned(pools).as_dict()
    assert {pool["config_key"] for pool in plan["pools"]} == set(plan["config"]["data"])


@given(pool_lists())
def test_equal_sharing_shares_an_entry(pools: list[Document]) -> None:
    entries: dict[str, Document] = {}
    for pool in planned(pools).pools:
        content = modes.device_plugin_config(pool.sharing)
        assert entries.setdefault(pool.config_key, content) == content


def test_hundreds_of_pools_take_milliseconds(rng: random.Random) -> None:
    pools = [
        {
            **rng.choice(LAB_POOLS),
            "name": f"p{number}",
            "match": {"model": "T4", "labels": {"rack": f"r{number}"}},
        }
        for number in range(400)
    ]
    started = time.process_time()
    plan = planned(pools)
    spent = time.process_time() - started
    assert len(plan.pools) == 400
    assert spent < 1, f"400 pools took {spent:.2f} s"


@pytest.mark.parametrize(
    ("version", "resources"),
    [
        ("v25.10.1", ("nvidia.com/mig-1g.5gb",)),
        ("v26.3.3", ("nvidia.com/mig-1g.5gb",)),
        ("v26.7.0", ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.me")),
    ],
)
def test_the_operators_device_plugin_decides_how_devices_with_extras_are_called(
    version: str, resources: tuple[str, ...]
) -> None:
    sharing = {"mode": "mig", "layout": ["1g.5gb", "1g.5gb+me"]}
    document = {"name": "train", "match": {"model": "A100-SXM4-40GB"}, "sharing": sharing}
    plan = derive({"name": "lab", "operator": {"version": version}}, {}, [document])
    assert plan.pools[0].resources == resources
    assert plan.pools[0].quota_keys == tuple(f"requests.{name}" for name in resources)


@pytest.mark.parametrize("component", ["operator", "nfd"])
@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ({}, False),
        ({"olm": {}}, False),
        ({"olm": {"channel": "", "source": None, "catalog_image": " "}}, False),
        ({"olm": {"source": [], "package": ""}, "namespace": ""}, False),
        ({"olm": {"channel": "stable"}}, True),
        ({"olm": {"channel": "", "approval": "Manual"}}, True),
        ({"namespace": "gpu-operator-x"}, True),
    ],
)
def test_only_a_key_with_a_value_names_an_installation(component: str, declared: Document, named: bool) -> None:
    """An installation that is named is taken over, which an unanswered survey must never do."""
    plan = planned([], {**CLUSTER, "distribution": "openshift", component: declared})
    assert {"operator": plan.operator, "nfd": plan.nfd}[component].named is named


@pytest.mark.parametrize(
    ("defaults", "driver", "expected"),
    [
        ({}, {"version": ""}, None),
        ({}, {"version": None, "upgrade": {"automatic": ""}, "image_pull_secrets": []}, None),
        ({}, {}, {}),
        ({"driver": {"version": "  "}}, None, None),
        ({"driver": {"version": ""}}, {}, {}),
        ({"driver": {"version": "580.105.08"}}, {"version": ""}, {"version": "580.105.08"}),
        ({}, {"version": "", "precompiled": False}, {"precompiled": False}),
    ],
)
def test_a_driver_with_only_empty_keys_is_not_declared(defaults: Document, driver: t.Any, expected: t.Any) -> None:
    """A declared driver switches the whole cluster to NVIDIADriver objects, which restarts every driver."""
    plan = planned([{"name": "p", "match": {"model": "A100-SXM4-40GB"}, "driver": driver}], defaults=defaults)
    assert plan.pools[0].driver == expected
    assert ("driver" in plan.policy.spec) is (expected is not None)


def test_an_unknown_key_of_a_driver_is_reported_even_if_it_is_empty() -> None:
    with pytest.raises(InvalidVariables, match=r"driver\.versoin: is not a known key"):
        one(driver={"versoin": None})
