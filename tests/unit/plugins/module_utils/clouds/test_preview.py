# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preview has the MachineSets that a run writes, and leaves those that it refuses."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import autoscaler_rules
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machineset_groups import (
    Cluster,
    machine_sets_after,
    spec_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import LABELS
from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from tests.helpers.machine_api import FAILURE_DOMAINS, Object, worker_machineset

RULES = autoscaler_rules((4, 18))
GROUP: Object = {
    "name": "train",
    "min_node_count": 1,
    "max_node_count": 3,
    "node_labels": {"accel.gpu/pool": "train"},
    "capacity": {"resources": {"nvidia.com/gpu": 1}, "labels": {}},
}


def after(groups: list[Object], *machinesets: Object) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in machine_sets_after(groups, machinesets, RULES)}


@pytest.mark.parametrize("platform", ["AWS", "Azure", "GCP", "vSphere"])
def test_a_new_group_is_the_created_machineset(platform: str) -> None:
    source = worker_machineset(platform=platform)
    spec, problems, dummy = spec_of({"state": "present", **GROUP}, None, Cluster((source,), RULES, None))
    assert problems == []
    assert after([GROUP], source) == {"prod-worker-a": source, "train": spec.created("train", 1, RULES)}


def test_a_second_run_changes_nothing() -> None:
    first = after([GROUP], worker_machineset())
    assert after([GROUP], *first.values()) == first


def test_other_fields_of_an_existing_group_stay() -> None:
    first = after([GROUP], worker_machineset())
    live = copy.deepcopy(first["train"])
    live["metadata"]["annotations"]["example.com/team"] = "a"
    live["spec"]["replicas"] = 9
    changed = after([{**GROUP, "node_labels": {"new": "yes"}}], worker_machineset(), live)["train"]
    assert changed["metadata"]["annotations"]["example.com/team"] == "a"
    assert changed["spec"]["replicas"] == 3
    labels = get_nested(changed, *LABELS)
    assert (labels.get("new"), labels.get("accel.gpu/pool")) == ("yes", None)


@pytest.mark.parametrize(
    "group", [{**GROUP, "name": "prod-worker-a"}, {**GROUP, "like": "gone"}, {**GROUP, "template": "vm"}]
)
def test_a_group_that_the_run_refuses_is_left(group: Object) -> None:
    source = worker_machineset()
    assert after([group], source) == {"prod-worker-a": source}


def test_a_group_is_adopted_only_on_request() -> None:
    adopted = after([{**GROUP, "name": "prod-worker-a", "adopt": True}], worker_machineset())["prod-worker-a"]
    assert adopted["metadata"]["labels"]["accel.gpu/nodegroup"] == "prod-worker-a"


def test_without_the_infrastructure_a_zone_of_vsphere_is_trusted_and_its_labels_stay() -> None:
    source = worker_machineset(platform="vSphere")
    zoned = {**GROUP, "zone": "fd-east"}
    labels = get_nested(after([zoned], source)["train"], *LABELS)
    assert labels["topology.kubernetes.io/zone"] == "fd-east"
    spec, problems, dummy = spec_of({"state": "present", **zoned}, None, Cluster((source,), RULES, FAILURE_DOMAINS))
    assert problems == []
    live = spec.created("train", 1, RULES)
    assert get_nested(live, *LABELS)["topology.kubernetes.io/zone"] == "east-1"
    assert get_nested(after([zoned], source, live)["train"], *LABELS) == get_nested(live, *LABELS)
