# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIADriver objects of a Helm release, and the nodes on which an upgrade of it restarts the driver."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import SWITCH, Path
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.driver_objects import (
    changed_objects,
    rolled_nodes,
    value_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.upgrade import preview_upgrade
from ansible_collections.accel.gpu.plugins.module_utils.helm.release import Chart
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]


def manifest(**spec: Any) -> str:
    driver = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": "default"},
        "spec": spec,
    }
    return "---\n" + yaml.safe_dump(driver, sort_keys=False)


def live(name: str = "default", **spec: Any) -> Object:
    marks = {"meta.helm.sh/release-name": "gpu-operator", "meta.helm.sh/release-namespace": "gpu-operator"}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    return {"metadata": {"name": name, "annotations": marks, "labels": labels}, "spec": spec}


CHANGES: list[tuple[str, str, list[Object], dict[str, list[str]]]] = [
    (manifest(version="1"), manifest(version="1"), [live(version="1")], {}),
    (
        manifest(version="1"),
        manifest(version="2"),
        [live(version="1"), live("other", version="1")],
        {"default": ["version 1 becomes 2 in NVIDIADriver default"]},
    ),
    # A field that was changed manually stays where both manifests agree.
    (manifest(version="1"), manifest(version="1"), [live(version="9")], {}),
    (manifest(version="1"), manifest(version="1", upgradePolicy={"autoUpgrade": True}), [live(version="1")], {}),
    (manifest(version="1"), "", [live(version="1")], {"default": ["NVIDIADriver default is deleted"]}),
    ("", manifest(version="1"), [], {}),
]


@pytest.mark.parametrize(("before", "after", "objects", "reasons"), CHANGES)
def test_objects_that_helm_changes(
    before: str, after: str, objects: list[Object], reasons: dict[str, list[str]]
) -> None:
    assert changed_objects(before, after, objects) == reasons


NODES = {"": 4, "a100": 2, "b200": 3}
ROLLED: list[tuple[list[Path], set[str], bool, dict[str, int]]] = [
    ([], set(), False, {}),
    ([], set(), True, NODES),
    ([], {"a100"}, False, {"a100": 2}),
    ([("daemonsets", "tolerations")], set(), False, {"": 4}),
    ([("hostPaths", "rootFS")], set(), False, NODES),
    ([SWITCH], set(), False, NODES),
]


@pytest.mark.parametrize(("paths", "changed", "replaced", "rolled"), ROLLED)
def test_nodes_on_which_the_driver_rolls(
    paths: list[Path], changed: set[str], replaced: bool, rolled: dict[str, int]
) -> None:
    assert rolled_nodes(NODES, paths, changed, replaced=replaced) == rolled


def test_planned_values_reach_the_object_of_the_release_only() -> None:
    plan = derive({"name": "lab", "operator": {"driver": {"version": "590.10.01"}}}, {}, [{"name": "a"}])
    foreign = {"metadata": {"name": "a100"}, "spec": {"version": "570.148.08"}}
    reasons = {"default": ["version 580.105.08 becomes 590.10.01 in NVIDIADriver default"]}
    assert value_changes(plan, [live(version="580.105.08"), foreign]) == reasons


def policy(**driver: Any) -> Object:
    return {"metadata": {"name": "cluster-policy"}, "spec": {"driver": driver}}


def chart_manifest(driver: Object) -> str:
    return "---\n" + yaml.safe_dump({"kind": "ClusterPolicy", **policy(**driver)}, sort_keys=False)


def test_values_of_a_driver_that_objects_describe_change_only_the_objects() -> None:
    chart = Chart("gpu-operator", "v25.10.1", "v25.10.1")
    on = {"useNvidiaDriverCRD": True}
    old = (chart, chart_manifest({**on, "version": "1"}) + manifest(version="1"))
    new = (chart, chart_manifest({**on, "version": "2"}) + manifest(version="2"))
    preview = preview_upgrade(old, new, policy(**on, version="1"), {}, drivers=[live(version="1")])
    assert preview.reasons == ("version 1 becomes 2 in NVIDIADriver default",)
    assert (preview.driver_paths, preview.drivers, preview.by_values) == ((), frozenset({"default"}), True)
