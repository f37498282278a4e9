# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects of Helm on a ClusterPolicy, and the changes that restart the driver, as tables."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.values import apply_merge_patch, merge_patch
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import (
    DriverRollout,
    UpgradePolicy,
    driver_fields,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.upgrade import (
    UpgradePreview,
    _refusal_message,
    operator_deployments,
    preview_upgrade,
)
from ansible_collections.accel.gpu.plugins.module_utils.helm.release import Chart

Object = dict[str, Any]
OLD, NEW = (Chart("gpu-operator", version, version) for version in ("v25.3.2", "v25.10.1"))
# Shares of what the charts of both releases render with their default values.
BEFORE: Object = {
    "daemonsets": {"labels": {"helm.sh/chart": OLD.label}, "tolerations": [{"key": "nvidia.com/gpu"}]},
    "driver": {
        "enabled": True,
        "version": "570.148.08",
        "env": [],
        "upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "25%"},
    },
    "dcgmExporter": {"version": "4.2.3", "env": [{"name": "DCGM_EXPORTER_LISTEN", "value": ":9400"}]},
    "toolkit": {"version": "v1.17.8"},
    "gds": {"enabled": False, "version": "2.20.5"},
}
AFTER: Object = {
    "daemonsets": {"labels": {"helm.sh/chart": NEW.label}, "tolerations": [{"key": "nvidia.com/gpu"}]},
    "driver": {
        "enabled": True,
        "version": "580.105.08",
        "upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "25%"},
    },
    "dcgmExporter": {"version": "4.4.2"},
    "toolkit": {"version": "v1.18.1"},
    "gds": {"enabled": False, "version": "2.26.6"},
}


def manifest(spec: Object, name: str = "cluster-policy") -> str:
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "gpu-operator"},
        "spec": {"template": {"metadata": {"labels": {"app": "gpu-operator"}}}},
    }
    policy = {"kind": "ClusterPolicy", "metadata": {"name": name}, "spec": spec}
    return "---\n".join(["# a chart's notes\n", yaml.safe_dump(deployment), yaml.safe_dump(policy)])


def look(live: Object, after: Object | None = None, text: Object | None = None, chart: Chart = NEW) -> UpgradePreview:
    policy = {"metadata": {"name": "cluster-policy"}, "spec": live}
    return preview_upgrade((OLD, manifest(BEFORE)), (chart, manifest(after or AFTER)), policy, text or {})


def edited(**parts: Object) -> Object:
    return {**copy.deepcopy(BEFORE), **{part: {**BEFORE[part], **change} for part, change in parts.items()}}


def test_another_chart_rolls_the_driver_and_says_what_of_it_changes() -> None:
    actual = look(edited())
    assert actual.reasons == (
        "chart gpu-operator-v25.3.2 becomes gpu-operator-v25.10.1",
        "driver.version 570.148.08 becomes 580.105.08",
    )
    assert (actual.manual, actual.by_values) == ((), False)
    assert actual.spec["driver"]["version"] == "580.105.08"


KEPT = [
    {"toolkit": {"env": [{"name": "CONTAINERD_SOCKET", "value": "/run/k3s"}]}},
    {"driver": {"upgradePolicy": {**BEFORE["driver"]["upgradePolicy"], "maxParallelUpgrades": 4}}},
    {"daemonsets": {"tolerations": [{"key": "nvidia.com/gpu"}, {"key": "theirs"}]}},
    {"driver": {"repoConfig": {"configMapName": "mirrors"}}},
    # Already in the desired state.
    {"driver": {"version": "580.105.08"}},
]


@pytest.mark.parametrize("change", KEPT, ids=lambda change: json.dumps(change)[:40])
def test_fields_about_which_the_charts_agree_stay(change: Object) -> None:
    actual = look(edited(**change))
    assert actual.manual == ()
    for part, fields in change.items():
        for key, value in fields.items():
            assert actual.spec[part][key] == value


LOST = [
    ({"driver": {"version": "570.1"}}, "spec.driver.version"),
    # The new chart no longer renders it, so Helm removes it.
    ({"dcgmExporter": {"env": [{"name": "X", "value": "y"}]}}, "spec.dcgmExporter.env"),
    ({"daemonsets": {"labels": {"helm.sh/chart": "mine"}}}, "spec.daemonsets.labels.helm.sh/chart"),
]


@pytest.mark.parametrize(("change", "path"), LOST, ids=[path for dummy, path in LOST])
def test_fields_that_helm_overwrites_are_reported(change: Object, path: str) -> None:
    assert [".".join(("spec", *field.path)) for field in look(edited(**change)).manual] == [path]


def test_what_the_user_says_outright_is_meant_so() -> None:
    live = edited(driver={"version": "570.1"})
    after = {**AFTER, "driver": {**AFTER["driver"], "version": "570.2"}}
    assert look(live, after, {"driver": {"version": "570.2"}}).manual == ()


def test_values_alone_roll_the_driver_too() -> None:
    after = {**BEFORE, "driver": {**BEFORE["driver"], "version": "570.172.08", "env": [{"name": "A", "value": "b"}]}}
    actual = look(edited(), after, chart=OLD)
    assert actual.by_values
    # The value of a variable is not shown.
    assert actual.reasons == ("driver.env", "driver.version 570.148.08 becomes 570.172.08")


def test_removing_the_driver_is_reported_in_yaml_notation() -> None:
    after = {**BEFORE, "driver": {**BEFORE["driver"], "enabled": False, "usePrecompiled": True}}
    assert look(edited(), after, chart=OLD).reasons == (
        "driver.enabled true becomes false",
        "driver.usePrecompiled (not set) becomes true",
    )


def test_values_that_do_not_reach_the_driver_cost_nothing() -> None:
    after = {**BEFORE, "toolkit": {"version": "v2"}, "gds": {"enabled": False, "version": "3"}}
    actual = look(edited(), after, chart=OLD)
    assert (actual.reasons, actual.by_values) == ((), False)


def test_a_release_that_is_no_operator_is_no_concern() -> None:
    assert operator_deployments("kind: ConfigMap\n") == []
    assert operator_deployments(manifest(AFTER)) == ["gpu-operator"]


def test_a_policy_of_another_name_is_not_what_helm_writes() -> None:
    policy = {"metadata": {"name": "gpu-cluster-policy"}, "spec": edited(driver={"version": "570.1"})}
    actual = preview_upgrade((OLD, manifest(BEFORE)), (NEW, manifest(AFTER)), policy, {})
    assert (actual.manual, actual.spec["driver"]["version"]) == ((), "570.1")
    assert actual.reasons == ("chart gpu-operator-v25.3.2 becomes gpu-operator-v25.10.1",)


REACHING = [
    ({"driver": {"upgradePolicy": {"autoUpgrade": False}}}, []),
    ({"daemonsets": {"updateStrategy": "OnDelete", "rollingUpdate": {"maxUnavailable": "5"}}}, []),
    ({"driver": {"licensingConfig": {"configMapName": "", "secretName": ""}, "args": []}}, []),
    ({"driver": {"rdma": {"enabled": True}}}, [("driver", "rdma", "enabled")]),
    ({"daemonsets": {"priorityClassName": "x"}}, [("daemonsets", "priorityClassName")]),
    ({"gds": {"enabled": False, "version": "1"}}, []),
    ({"gdrcopy": {"enabled": True}}, [("gdrcopy", "enabled")]),
    ({"hostPaths": {"rootFS": "/host"}}, [("hostPaths", "rootFS")]),
    ({"hostPaths": {"kubeletRootDir": "/mnt/kubelet"}}, []),
    ({"toolkit": {"version": "1"}}, []),
]


@pytest.mark.parametrize(("spec", "paths"), REACHING)
def test_what_reaches_the_drivers_template(spec: Object, paths: list[tuple[str, ...]]) -> None:
    assert driver_fields({}, spec) == paths
    assert driver_fields(spec, {}) == paths


PACES = [
    ({"autoUpgrade": True}, 20, 1),
    ({"autoUpgrade": True, "maxParallelUpgrades": 4}, 20, 4),
    ({"autoUpgrade": True, "maxParallelUpgrades": 4}, 5, 2),
    ({"autoUpgrade": True, "maxParallelUpgrades": 0}, 20, 5),
    ({"autoUpgrade": True, "maxParallelUpgrades": 0, "maxUnavailable": "100%"}, 20, 20),
    ({"autoUpgrade": True, "maxParallelUpgrades": 0, "maxUnavailable": 3}, 20, 3),
    ({"autoUpgrade": True, "maxParallelUpgrades": 8, "maxUnavailable": None}, 3, 1),
]


@pytest.mark.parametrize(("policy", "nodes", "max_parallel"), PACES)
def test_how_many_nodes_are_at_work_at_a_time(policy: Object, nodes: int, max_parallel: int) -> None:
    pacing = UpgradePolicy.from_spec({"driver": {"upgradePolicy": policy}})
    assert pacing.automatic
    assert pacing.max_parallel(nodes) == max_parallel


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"driver": {"upgradePolicy": {"autoUpgrade": False}}},
        {"driver": {"upgradePolicy": {"autoUpgrade": True}}, "sandboxWorkloads": {"enabled": True}},
    ],
)
def test_without_the_upgrade_controller_the_user_has_to_delete_pods(spec: Object) -> None:
    roll = DriverRollout(3, UpgradePolicy.from_spec(spec), ("a reason",))
    assert roll.as_dict() == {"nodes": 3, "max_parallel": 0, "reasons": ["a reason"], "in_place": False}
    assert "until its driver pod is deleted" in str(roll)


TREES = st.recursive(
    st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2),
    lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(MAPS, MAPS)
def test_a_merge_patch_leads_from_one_document_to_the_other(before: Object, after: Object) -> None:
    assert apply_merge_patch(before, merge_patch(before, after)) == after
    assert merge_patch(before, before) == {}


def test_an_older_chart_is_a_downgrade_before_any_advice() -> None:
    installed, older = (Chart("gpu-operator", version, version) for version in ("v25.10.1", "v25.3.2"))
    rollout = DriverRollout(3, UpgradePolicy(automatic=True), ())
    text = _refusal_message(rollout, (), installed, older)
    assert "this is a downgrade" in text
    assert text.index("operator.version: v25.10.1") < text.index("gpu_operator_allow_driver_rollout")
    assert "downgrade" not in _refusal_message(rollout, (), older, installed)
    assert "downgrade" not in _refusal_message(rollout, (), older, older)
