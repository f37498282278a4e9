# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan reports only what a run of site does not correct."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling import ClusterObjects
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.scaling_state import ScalingExplanation
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from ansible_collections.accel.gpu.plugins.module_utils.report.facts import scaling_summaries
from tests.helpers.machine_sets import ACCELERATOR, MAX_SIZE, cluster_autoscaler, machine_autoscaler, machine_set
from tests.helpers.scaling_cases import MISTAKES, VERSIONS, explained, with_mistake

SOURCE = "prod-worker-us-east-2a"
# What a run of site does not change: limits and priorities that someone has set, taints and GPUs of others, and what the cluster's size allows.
KEPT = {"foreign taint", "node limit reached", "pod priority", "all nodes exist", "GPU limit reached"}


def pools(autoscaler: dict[str, Any] | None = None, **pool: Any) -> Plan:
    declared = {
        "name": "t4",
        "model": "T4",
        "gpus_per_node": 1,
        "nodes": {"like": SOURCE, "flavor": "g4dn.xlarge"},
        "autoscale": {"min": 0, "max": 4},
        "labels": {"example.com/team": "a"},
        "taints": [{"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}],
        "sharing": {"mode": "time-slicing", "replicas": 4},
        **pool,
    }
    declared = {key: value for key, value in declared.items() if value is not None}
    return derive({"name": "lab", "cloud": {"machineset": {}}, "autoscaler": autoscaler or {}}, {}, [declared])


def owned(name: str, **more: Any) -> dict[str, Any]:
    """A MachineSet that the collection has created."""
    raw = machine_set(name, **more)
    raw["metadata"]["labels"] = {"accel.gpu/nodegroup": name}
    return raw


def fresh(version: str) -> ClusterObjects:
    """A cluster with the installer's MachineSets and without an autoscaler."""
    return ClusterObjects(version, (machine_set(SOURCE, bounds=None),))


def blocking(actual: ScalingExplanation) -> list[str]:
    return [finding.code for finding in actual.after_run if finding.effect != "note"]


@pytest.mark.parametrize("version", [*VERSIONS, ""])
def test_a_first_plan_does_not_report_what_the_run_creates(version: str) -> None:
    (actual,) = explained(pools(), fresh(version))
    assert [finding.code for finding in actual.findings] == ["machine_set"]
    assert (actual.exists, actual.scales, blocking(actual)) == (False, False, [])
    assert (actual.bounds, actual.accelerator) == ((0, 4), "Tesla-T4-SHARED")
    shown = actual.as_dict()
    assert (shown["scales"], shown["scales_after_run"]) == (False, True if version else None)
    assert [finding["after_run"] for finding in shown["findings"] if finding["effect"] == "no_pod"] == [False]


def test_the_number_of_gpus_that_the_cloud_measures_is_noted() -> None:
    """Before 4.19, the autoscaler reads only the annotation in which the cloud's controller counts whole GPUs."""
    (actual,) = explained(pools(), fresh("4.18.14"))
    assert [(finding.code, finding.effect) for finding in actual.after_run] == [("gpu_amount", "note")]
    (actual,) = explained(pools(), fresh("4.20.3"))
    assert actual.after_run == ()


@pytest.mark.parametrize(
    ("pool", "version", "codes"),
    [
        ({"sharing": {"mode": "time-slicing", "replicas": 4, "rename": True}}, "4.20.3", ["resource"]),
        ({"sharing": {"mode": "time-slicing", "replicas": 4, "rename": True}}, "5.0.0", []),
        ({"autoscale": {"min": 2, "max": 2}}, "4.16.20", ["fixed_size"]),
        ({"autoscale": {"min": 2, "max": 2}}, "4.18.14", []),
        (
            {"autoscale": None, "nodes": {"like": SOURCE, "flavor": "g4dn.xlarge", "count": 1}},
            "4.20.3",
            ["cluster_autoscaler", "machine_autoscaler"],
        ),
    ],
)
def test_a_first_plan_reports_what_stays(pool: dict[str, Any], version: str, codes: list[str]) -> None:
    (actual,) = explained(pools(**pool), fresh(version))
    expected = ["maximum"] if pool.get("autoscale", {}) == {"min": 2, "max": 2} and not codes else codes
    assert blocking(actual) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_run_corrects_all_other_mistakes(mistake: str, version: str) -> None:
    scene = with_mistake("t4", version, mistake)
    (actual,) = explained(pools(), scene.objects())
    expected = MISTAKES[mistake]
    if mistake in KEPT:
        assert expected.code in blocking(actual)
    elif mistake in ("only new keys", "unreadable memory") and version in expected.versions:
        assert blocking(actual), "only the controller of the platform writes them"
    elif mistake == "only old keys":
        assert blocking(actual) == []
    else:
        assert blocking(actual) == [], actual


def test_a_pool_in_several_zones_has_an_explanation_for_each_machine_set() -> None:
    state = fresh("4.20.3")
    other_zone = machine_set("prod-worker-us-east-2b", bounds=None, zone="us-east-2b")
    state = dataclasses.replace(state, machine_sets=(*state.machine_sets, other_zone))
    existing = owned("t4-us-east-2a", labels={"accel.gpu/pool": "t4"})
    state = dataclasses.replace(state, machine_sets=(*state.machine_sets, existing))
    declared = pools(nodes={"like": SOURCE, "flavor": "g4dn.xlarge", "zones": ["us-east-2a", "us-east-2b"]})
    actual = {item.machine_set: item for item in explained(declared, state)}
    assert {name: item.exists for name, item in actual.items()} == {"t4-us-east-2a": True, "t4-us-east-2b": False}
    assert [blocking(item) for item in actual.values()] == [[], []]


def test_the_bounds_of_a_foreign_machine_autoscaler_stay() -> None:
    state = with_mistake("t4", "4.20.3", "maximum 0").objects()
    state = dataclasses.replace(state, machine_autoscalers=(machine_autoscaler("theirs", "t4"),))
    (actual,) = explained(pools(), state)
    assert blocking(actual) == ["bounds"]


def test_a_new_machine_set_gets_the_bounds_of_the_machine_autoscaler_that_waits_for_it() -> None:
    waiting = machine_autoscaler("t4", low=1, high=2)
    state = dataclasses.replace(
        fresh("4.20.3"), machine_autoscalers=(waiting,), cluster_autoscaler=cluster_autoscaler()
    )
    (actual,) = explained(pools(), state)
    assert blocking(actual) == []
    assert actual.bounds == (1, 2), "those of others are not changed"


def test_limits_and_delays_of_a_run() -> None:
    scene = with_mistake("t4", "4.20.3", "GPU limit reached")
    assert scene.autoscaler is not None
    scene.autoscaler["spec"]["maxNodeProvisionTime"] = "5m"
    scene.nodes.clear()
    kind = scene.pool.accelerator
    scene.limits["gpus"] = [{"type": kind, "min": 0, "max": 1}]
    (actual,) = explained(pools(), scene.objects())
    assert [finding.code for finding in actual.findings] == ["gpu_limit", "provision_time"]
    assert actual.after_run == actual.findings, "what others have set stays"
    assert "only with gpu_autoscaling_force: true" in actual.findings[0].remedy
    assert "raise autoscale.max" not in actual.findings[0].remedy, "a run would keep the limit of others"
    scene.autoscaler["metadata"]["annotations"] = {"accel.gpu/gpu-limits": json.dumps({kind: {"max": 1}})}
    written: dict[str, Any] = {"f:spec": {"f:maxNodeProvisionTime": {}}}
    scene.autoscaler["metadata"]["managedFields"] = [{"manager": "accel.gpu", "fieldsV1": written}]
    (actual,) = explained(pools(), scene.objects())
    assert [finding.code for finding in actual.after_run] == ["provision_time"], "an existing delay is kept"
    assert actual.findings[0].remedy.startswith("raise autoscale.max of the pool"), "a run raises its own limit"
    (actual,) = explained(pools({"max_node_provision_time": "40m"}), scene.objects())
    assert actual.after_run == ()


def test_a_plan_shows_the_limit_and_the_range_that_the_run_sets() -> None:
    scene = with_mistake("t4", "4.20.3", "no MachineAutoscaler")
    scene.limits.pop("gpus", None)
    scene.nodes.clear()
    (actual,) = explained(pools(), scene.objects())
    assert (actual.limit, actual.bounds) == (None, None)
    assert actual.limit_after_run is not None
    assert actual.bounds_after_run == (0, 4)
    result = actual.as_dict()
    assert (result["gpu_limit"], result["gpu_limit_after_run"]["max"]) == (None, 16)
    info = {"autoscaling": {"machine_sets": [result]}}
    (summary,) = scaling_summaries(info, "plan")
    assert "0 of at most 16 in use" in summary.text
    assert "0 to 4 nodes" in summary.text


def test_a_label_that_the_pool_must_not_have_is_removed() -> None:
    declared = pools(sharing={"mode": "time-slicing", "replicas": 4, "rename": True}, labels=None, taints=None)
    raw = owned("t4", labels={"accel.gpu/pool": "t4", ACCELERATOR: "Tesla-T4-SHARED"})
    state = ClusterObjects("5.0.0", (raw,), cluster_autoscaler=cluster_autoscaler())
    (actual,) = explained(declared, state)
    assert "accelerator_unready" in [finding.code for finding in actual.findings]
    assert actual.after_run == ()


def test_nothing_that_could_not_be_read_counts_as_missing() -> None:
    state = dataclasses.replace(fresh("4.20.3"), unread=frozenset({"ClusterAutoscaler", "MachineAutoscaler"}))
    raw = owned("t4", labels={"accel.gpu/pool": "t4"}, bounds=None)
    state = dataclasses.replace(state, machine_sets=(*state.machine_sets, raw))
    (actual,) = explained(pools(), state)
    codes = {finding.code: finding for finding in actual.findings}
    assert "cluster_autoscaler" not in codes
    assert "its size is not in its annotations" in codes["machine_autoscaler"].message
    raw["metadata"]["annotations"] |= {MAX_SIZE: "4"}
    state = dataclasses.replace(state, machine_sets=(*state.machine_sets[:1], raw))
    (actual,) = explained(pools(), state)
    assert actual.as_dict()["scales_after_run"] is None
