# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels, taints and annotations of a MachineSet, and the removal of those that are no longer declared."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import NODEGROUP_MARK
from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import autoscaler_rules
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import (
    LABELS,
    RECORD_ANNOTATION,
    TAINTS,
    FutureNodeOption,
    annotations_of,
    complete_registration,
    configured,
    copy_of,
    decode,
)
from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    NodeGroupSpec,
    NodeGroupState,
    field_differences,
)
from tests.helpers.machine_api import Object, worker_machineset

OLD, NEW = "machine.openshift.io/", "capacity.cluster-autoscaler.kubernetes.io/"
ZONE = {"topology.kubernetes.io/zone": "us-east-2a"}


def applied(
    machineset: Object,
    labels: dict[str, t.Any],
    taints: dict[str, t.Any],
    capacity: FutureNodeOption | None = None,
    release: tuple[int, int] = (4, 18),
) -> Object:
    """The MachineSet after a run that declares these."""
    fields = complete_registration(
        {"node_labels": labels, "node_taints": taints}, ZONE, capacity, machineset, autoscaler_rules(release)
    )
    count = machineset["spec"]["replicas"]
    state = NodeGroupState("x", "x", "", settled=True, failed=False, count=count, fields=decode(machineset, {}))
    return configured(machineset, field_differences(NodeGroupSpec("x", fields=fields), state), {}, "x")


def copied(platform: str = "AWS") -> Object:
    return copy_of(worker_machineset(platform=platform), "train", "train")


SHARED = FutureNodeOption({"nvidia.com/gpu": 4}, {"nvidia.com/gpu.product": "Tesla-T4-SHARED"})


def test_labels_of_the_zone_are_added_and_a_second_run_changes_nothing() -> None:
    first = applied(copied(), {"team": "a", "mig": None}, {"k:NoSchedule": "v"}, SHARED)
    assert get_nested(first, *LABELS) == {"team": "a", **ZONE}
    assert get_nested(first, *TAINTS) == [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    assert applied(first, {"team": "a", "mig": None}, {"k:NoSchedule": "v"}, SHARED) == first


def test_only_recorded_entries_are_removed_when_they_are_no_longer_declared() -> None:
    first = applied(copied(), {"team": "a", "old": "b"}, {"k:NoSchedule": "v", "old:NoExecute": ""}, SHARED)
    get_nested(first, *LABELS)["theirs"] = "stays"
    first["spec"]["template"]["spec"]["taints"].append({"key": "theirs", "effect": "NoSchedule"})
    first["metadata"]["annotations"]["theirs"] = "stays"
    second = applied(first, {"team": "a"}, {"k:NoSchedule": "v"}, SHARED)
    assert get_nested(second, *LABELS) == {"team": "a", "theirs": "stays", **ZONE}
    assert [taint["key"] for taint in get_nested(second, *TAINTS)] == ["k", "theirs"]
    assert annotations_of(second)["theirs"] == "stays"


@pytest.mark.parametrize(
    ("platform", "measured", "gpu"),
    [("AWS", "1", "1"), ("AWS", None, "4"), ("Azure", "1", "1"), ("GCP", "1", "1"), ("vSphere", "1", "4")],
)
def test_what_the_platform_measures_is_left_to_it(platform: str, measured: str | None, gpu: str) -> None:
    """The controllers of the clouds set the physical number of GPUs again and again; that of vSphere does not know it."""
    machineset = copied(platform)
    if measured is not None:
        machineset["metadata"]["annotations"] = {f"{OLD}GPU": measured}
    actual = annotations_of(applied(machineset, {}, {}, SHARED))
    assert actual[f"{OLD}GPU"] == gpu
    assert (actual[f"{NEW}gpu-count"], actual[f"{NEW}gpu-type"]) == ("4", "nvidia.com/gpu")


def test_a_value_that_the_platform_has_set_meanwhile_is_not_removed() -> None:
    first = applied(copied(), {}, {}, SHARED)
    first["metadata"]["annotations"].update({f"{OLD}GPU": "1", f"{OLD}vCPU": "4", f"{OLD}memoryMb": "16384"})
    second = applied(first, {}, {}, SHARED)
    actual = annotations_of(second)
    assert (actual[f"{OLD}GPU"], actual[f"{NEW}cpu"], actual[f"{NEW}memory"]) == ("1", "4", str(16 * 1024**3))
    assert applied(second, {}, {}, SHARED) == second


def test_values_follow_the_release() -> None:
    renamed = FutureNodeOption({"nvidia.com/gpu.shared": 4}, {})
    first = applied(copied("vSphere"), {}, {}, renamed, (4, 20))
    assert annotations_of(first)[f"{NEW}gpu-count"] == "0"
    second = annotations_of(applied(first, {}, {}, renamed, (5, 0)))
    assert (second[f"{NEW}gpu-count"], second[f"{NEW}gpu-type"]) == ("4", "nvidia.com/gpu.shared")


def test_annotations_that_are_no_longer_known_are_removed() -> None:
    first = applied(copied("vSphere"), {}, {}, SHARED)
    second = annotations_of(applied(first, {}, {}, FutureNodeOption(None, {"a": "b"})))
    assert second.keys() - {RECORD_ANNOTATION, NODEGROUP_MARK} == {f"{NEW}labels"}


def test_labels_of_a_future_node_replace_their_former_ones_and_keep_those_of_others() -> None:
    machineset = copied()
    machineset["metadata"]["annotations"] = {f"{NEW}labels": "kubernetes.io/arch=amd64"}
    first = applied(machineset, {}, {}, SHARED)
    second = applied(first, {}, {}, FutureNodeOption({}, {"nvidia.com/mig.strategy": "mixed"}))
    zone = "topology.kubernetes.io/zone=us-east-2a"
    assert annotations_of(second)[f"{NEW}labels"] == f"kubernetes.io/arch=amd64,nvidia.com/mig.strategy=mixed,{zone}"


def test_the_annotation_has_the_labels_of_the_template_which_openshift_5_does_not_read() -> None:
    first = applied(copied(), {"team": "a", "mig": None}, {}, SHARED)
    labels = annotations_of(first)[f"{NEW}labels"].split(",")
    assert labels == ["nvidia.com/gpu.product=Tesla-T4-SHARED", "team=a", "topology.kubernetes.io/zone=us-east-2a"]
    second = applied(first, {}, {}, SHARED)
    assert annotations_of(second)[f"{NEW}labels"].split(",") == [labels[0], labels[2]]


def test_without_declared_labels_and_taints_nothing_is_recorded() -> None:
    assert complete_registration({}, ZONE, None, copied(), autoscaler_rules((4, 18))) == {}
