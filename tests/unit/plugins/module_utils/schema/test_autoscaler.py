# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_cluster.autoscaler and autoscale.priority: the messages for invalid values, and the derived fields."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import AUTOSCALER_FIELDS_SINCE
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import SPEC_PATHS, newer_key_problems
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

CLUSTER: dict[str, t.Any] = {"name": "c", "cloud": {"machineset": {}}}


def pool(**scale: t.Any) -> dict[str, t.Any]:
    return {"name": "p", "nodes": {"flavor": "g4dn.xlarge"}, "autoscale": {"min": 0, "max": 3, **scale}}


@pytest.mark.parametrize(
    ("autoscaler", "message"),
    [
        ({"max_nodes_total": 0}, "max_nodes_total: 0 is not allowed: a cluster has at least one node"),
        ({"expanders": ["random"]}, 'expanders[0]: "random" is not a valid value; did you mean Random?'),
        (
            {"max_node_provision_time": "15"},
            'max_node_provision_time: "15" is not a duration; use numbers with units',
        ),
        *(
            ({"max_node_provision_time": text}, f'max_node_provision_time: "{text}" is not a duration')
            for text in ("0", "1.h", ".5h", "٣h")
        ),
        ({"expanders": ["Priority", "Priority"]}, "expanders: contains Priority more than once"),
        ({"pod_priority_threshold": 2**31}, "pod_priority_threshold: 2147483648 is not allowed"),
        ({"values": {"extra": {"password": "hunter2-hunter2"}}}, "values.extra.password: contains a secret"),
        ({"scale_down": {"unneeded_time": "5 m"}}, 'unneeded_time: "5 m" is not a duration'),
        ({"scale_down": {"utilization_threshold": "40%"}}, 'utilization_threshold: "40%" is not a fraction of a node'),
        ({"unneeded_time": "5m"}, "unneeded_time: is not a known key; it belongs under scale_down"),
        (
            {"values": {"resourceLimits": {"gpus": []}}},
            "resourceLimits.gpus: cannot be set, because it is derived from autoscale.max",
        ),
        ({"values": {"scaleDown": {"enabled": False}}}, "set gpu_cluster.autoscaler.scale_down.enabled instead"),
        ({"values": {"expanders": ["Random"]}}, "set gpu_cluster.autoscaler.expanders instead"),
        ({"values": {"scaleDown": "on"}}, "values.scaleDown: is a string, not a map"),
    ],
)
def test_mistakes_are_named_with_a_remedy(autoscaler: dict[str, t.Any], message: str) -> None:
    (problem,) = validate({**CLUSTER, "autoscaler": autoscaler}, {}, [pool()])
    assert problem.startswith("gpu_cluster.autoscaler")
    assert message in problem


@pytest.mark.parametrize(
    ("cloud", "message"),
    [
        (None, "has no effect without node groups; add cloud: {machineset: {}} to gpu_cluster"),
        ({"magnum": {}}, "configures OpenShift's autoscaler, but gpu_cluster.cloud is magnum"),
    ],
)
def test_only_openshifts_autoscaler_is_configured(cloud: t.Any, message: str) -> None:
    (problem,) = validate({"name": "c", "cloud": cloud, "autoscaler": {"max_nodes_total": 9}}, {}, [])
    assert problem.startswith("gpu_cluster.autoscaler: ")
    assert message in problem


@pytest.mark.parametrize(
    ("cluster", "priority", "message"),
    [
        ({"cloud": {"magnum": {}}}, 5, "is read only by OpenShift's autoscaler, but gpu_cluster.cloud is magnum"),
        (
            {"autoscaler": {"expanders": ["LeastWaste"]}},
            5,
            "5 has no effect, because gpu_cluster.autoscaler.expanders is LeastWaste",
        ),
        ({}, -1, "-1 is not allowed: the autoscaler ignores node groups with a negative priority"),
    ],
)
def test_a_priority_that_nothing_reads_is_refused(cluster: dict[str, t.Any], priority: int, message: str) -> None:
    (problem,) = validate({**CLUSTER, **cluster}, {}, [pool(priority=priority)])
    assert problem.startswith("gpu_pools[0].autoscale.priority: ")
    assert message in problem


def test_keys_become_fields_of_the_spec() -> None:
    declared = {
        "max_nodes_total": 40,
        "expanders": ["Priority"],
        "scale_down": {"enabled": False, "delay_after_add": "20m"},
        "values": {"logVerbosity": 4, "scaleDown": {"cordonNodeBeforeTerminating": "Enabled"}},
    }
    plan = derive({**CLUSTER, "autoscaler": declared}, {}, [pool(priority=7)])
    assert plan.autoscaler is not None
    assert plan.autoscaler.namespace == "openshift-machine-api"
    assert plan.autoscaler.spec == {
        "logVerbosity": 4,
        "resourceLimits": {"maxNodesTotal": 40},
        "expanders": ["Priority"],
        "scaleDown": {"enabled": False, "delayAfterAdd": "20m", "cordonNodeBeforeTerminating": "Enabled"},
    }
    assert plan.pools[0].nodegroup is not None
    assert plan.pools[0].nodegroup.priority == 7


def test_other_clouds_have_no_plan_for_it() -> None:
    assert derive({"name": "c"}, {}, []).autoscaler is None
    magnum = {"name": "c", "cloud": {"magnum": {"cloud": "x"}}}
    assert derive(magnum, {}, [pool()]).autoscaler is None


def test_a_field_without_a_value_declares_nothing() -> None:
    values = {"resourceLimits": None, "scaleDown": None, "logVerbosity": 4, "other": {"a": None, "b": [None]}}
    declared = {"max_nodes_total": 20, "scale_down": {"enabled": True}, "values": values}
    plan = derive({**CLUSTER, "autoscaler": declared}, {}, [pool()]).autoscaler
    assert plan is not None
    assert plan.spec == {
        "resourceLimits": {"maxNodesTotal": 20},
        "scaleDown": {"enabled": True},
        "logVerbosity": 4,
        "other": {"b": [None]},
    }


def test_the_path_of_a_field_follows_from_its_key() -> None:
    assert SPEC_PATHS["scale_down", "delay_after_add"] == ("scaleDown", "delayAfterAdd")
    assert SPEC_PATHS["expanders",] == ("expanders",)
    assert SPEC_PATHS["max_nodes_total",] == ("resourceLimits", "maxNodesTotal")


def test_releases_are_those_of_keys() -> None:
    assert AUTOSCALER_FIELDS_SINCE.keys() <= SPEC_PATHS.keys()


@pytest.mark.parametrize("value", [False, "10m"])
def test_a_field_below_another_is_named_by_its_key(value: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AUTOSCALER_FIELDS_SINCE, ("scale_down", "unneeded_time"), (4, 21))
    (problem,) = newer_key_problems({"scaleDown": {"unneededTime": value}}, "4.20.8")
    assert problem == (
        "gpu_cluster.autoscaler.scale_down.unneeded_time: is not supported by OpenShift 4.20.8; it was added in 4.21; remove it, or upgrade OpenShift"
    )
