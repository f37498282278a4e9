# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specs of node groups from the module's options."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.machine_api import autoscaler_rules
from ansible_collections.accel.gpu.plugins.module_utils.common.nested import get_nested
from ansible_collections.accel.gpu.plugins.module_utils.providers.machineset.machineset_object import (
    copy_of,
    provider_spec_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.providers.machineset.specs import (
    Cluster,
    option_problems,
    spec_of,
)
from tests.helpers.machine_api import Object, worker_machineset

RULES = autoscaler_rules((4, 18))


def options(**more: t.Any) -> dict[str, t.Any]:
    return {"name": "train", "state": "present", "recreate": False, **more}


def cluster(*machinesets: Object) -> Cluster:
    return Cluster(machinesets or (worker_machineset(),), RULES, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "Train"}, "name is not a DNS label"),
        ({"name": "x" * 58}, "name has 58 characters; the name of a MachineSet can have at most 57"),
        ({"node_count": -1}, "node_count is -1; it must not be negative"),
        ({"min_node_count": 1}, "min_node_count and max_node_count must be set together"),
        ({"min_node_count": 3, "max_node_count": 2}, "min_node_count (3) must not exceed max_node_count (2)"),
        ({"min_node_count": 0, "max_node_count": 0}, "max_node_count is 0, but an autoscaler needs 1 or more"),
        (
            {"min_node_count": 1, "max_node_count": 2, "node_count": 3},
            "node_count (3) is not between min_node_count (1)",
        ),
        ({"flavor": "a", "template": "b"}, "flavor and template are mutually exclusive"),
        (
            {"capacity": {"resources": {"nvidia.com/gpu": "many"}}},
            "capacity.resources.nvidia.com/gpu: 'many' is not an amount",
        ),
        ({"node_labels": {"a b": "c"}}, "node_labels: 'a b' is not a label key"),
        ({"accelerators": {"type": "t", "count": 0}}, "accelerators.count: 0 is not allowed"),
    ],
)
def test_mistakes_in_the_options(given: dict[str, t.Any], message: str) -> None:
    (actual,) = option_problems(options(**given))
    assert message in actual


def test_the_options_of_a_group_to_delete_are_not_checked() -> None:
    assert list(option_problems(options(state="absent", node_count=-1))) == []
    spec, problems, dummy = spec_of(options(state="absent"), None, Cluster((), RULES, None))
    assert (spec.present, problems) == (False, [])


@pytest.mark.parametrize(
    ("platform", "given", "message"),
    [
        (
            "vSphere",
            {"flavor": "g4dn.xlarge"},
            "flavor: vSphere machines are clones of a virtual machine; set template instead",
        ),
        ("AWS", {"template": "t"}, "template: AWS machines have a machine type; set flavor instead"),
        ("Azure", {"accelerators": {"type": "t", "count": 1}}, "accelerators: only GCP machines have them"),
    ],
)
def test_settings_that_the_platform_does_not_have(platform: str, given: dict[str, t.Any], message: str) -> None:
    dummy, (problem,), dummy2 = spec_of(options(**given), None, cluster(worker_machineset(platform=platform)))
    assert problem.startswith(f"Node group train: {message}")


def test_a_new_group_is_shown_with_the_machineset_that_it_is_copied_from() -> None:
    spec, problems, reason = spec_of(options(flavor="g4dn.xlarge", node_count=2), None, cluster())
    assert (problems, spec.fields["like"], spec.fields["flavor"]) == ([], "prod-worker-a", "g4dn.xlarge")
    assert reason == "it is the only worker MachineSet"
    created = spec.created("train", 2, RULES)
    assert (created["spec"]["replicas"], provider_spec_of(created)["instanceType"]) == (2, "g4dn.xlarge")
    assert spec.differences(created, RULES) == {}, "nothing is left to change"


def test_machines_with_gpus_of_google_cloud_are_not_migrated() -> None:
    google = worker_machineset(platform="GCP")
    spec, dummy, dummy2 = spec_of(options(flavor="a2-highgpu-1g"), None, cluster(google))
    assert provider_spec_of(spec.created("train", 1, RULES))["onHostMaintenance"] == "Terminate"
    declared = options(provider_spec={"onHostMaintenance": "Other"})
    spec, dummy, dummy2 = spec_of(declared, None, cluster(google))
    assert provider_spec_of(spec.created("train", 1, RULES))["onHostMaintenance"] == "Other"


def test_a_group_with_a_range_keeps_the_number_of_nodes_that_the_autoscaler_has_chosen() -> None:
    live = copy_of(worker_machineset(), "train", "train")
    for replicas, expected in ((0, 1), (3, 3), (9, 4)):
        live["spec"]["replicas"] = replicas
        spec, dummy, dummy2 = spec_of(options(min_node_count=1, max_node_count=4, node_count=2), live, cluster(live))
        differences = spec.differences(live, RULES)
        assert differences.get("node_count", (replicas, replicas))[1] == expected
        assert not {"min_node_count", "max_node_count"} & set(differences)


def test_a_replacement_keeps_the_fields_of_the_group_that_it_replaces() -> None:
    live = copy_of(worker_machineset(), "train", "train")
    provider_spec_of(live)["spotMarketOptions"] = {}
    get_nested(live, "spec", "template", "metadata", "labels")["tuned"] = "yes"
    spec, dummy, dummy2 = spec_of(options(flavor="p4d.24xlarge", like="gone", recreate=True), live, cluster(live))
    created = spec.created("train-ab12", 2, RULES)
    assert provider_spec_of(created)["spotMarketOptions"] == {}
    assert get_nested(created, "spec", "template", "metadata", "labels")["tuned"] == "yes"
    assert created["metadata"]["labels"]["accel.gpu/nodegroup"] == "train"
    assert created["metadata"]["name"] == "train-ab12"


def test_a_machineset_of_others_is_marked_when_it_is_adopted() -> None:
    spec, dummy, dummy2 = spec_of(options(), worker_machineset("train"), cluster())
    assert spec.fields["managed"] is True


def test_labels_and_amounts_of_a_future_node_may_be_of_any_type() -> None:
    capacity = {"resources": {"nvidia.com/gpu": "4"}, "labels": {"a": 1, "b": True, "gone": None}}
    spec, dummy, dummy2 = spec_of(options(capacity=capacity), None, cluster())
    assert spec.capacity is not None
    assert spec.capacity.resources == {"nvidia.com/gpu": 4}
    assert spec.capacity.labels == {"a": "1", "b": "true"}
