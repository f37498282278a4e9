# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollouts that a plan can predict without the chart: the restarting operands, including the driver, and the reasons."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import operands
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import (
    DesiredPolicy,
    PolicyChange,
    UpgradePolicy,
    plan_change,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.detect import adopt_installed
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.driver_objects import DriverObjects
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.restart_preview import (
    RestartPreview,
    predict_restarts,
    restarted_operands,
    with_driver_objects,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import OperandRestart
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]

READERS = {operands.PLUGIN, operands.DISCOVERY, operands.MPS_DAEMON}


@pytest.mark.parametrize(
    ("before", "after", "apps"),
    [
        ({}, {}, set()),
        ({"devicePlugin": {"config": {"name": "a"}}}, {"devicePlugin": {"config": {"name": "b"}}}, READERS),
        ({}, {"migManager": {"config": {"name": "b"}}}, {operands.MIG_MANAGER}),
        ({"devicePlugin": {"enabled": True}}, {"devicePlugin": {"enabled": False}}, {*READERS, operands.VALIDATOR}),
        ({"mig": {"strategy": "single"}}, {}, {*READERS, operands.VALIDATOR}),
        ({"mig": {"strategy": "single"}}, {"migManager": {}}, {*READERS, operands.VALIDATOR, operands.MIG_MANAGER}),
        ({}, {"daemonsets": {"tolerations": []}}, operands.APPS),
        ({"driver": {"version": "1"}}, {"driver": {"version": "2"}}, {operands.DRIVER}),
        ({"devicePlugin": {"config": {"name": "a"}}}, {"devicePlugin": {"config": {"name": "a"}}}, set()),
        ({}, {"gds": {"enabled": True}}, {operands.DRIVER, operands.PLUGIN, operands.VALIDATOR}),
        ({}, {"gdrcopy": {"version": "2"}}, {operands.DRIVER}),
        ({}, {"gfd": {"version": "2"}}, {operands.DISCOVERY}),
        ({}, {"dcgm": {"version": "2"}}, {operands.DCGM}),
        ({}, {"dcgm": {"enabled": False}}, {operands.DCGM, operands.DCGM_EXPORTER}),
        ({}, {"dcgmExporter": {"serviceMonitor": {"enabled": True}}}, set()),
        ({}, {"dcgmExporter": {"version": "2", "serviceMonitor": {"enabled": True}}}, {operands.DCGM_EXPORTER}),
        ({}, {"driver": {"upgradePolicy": {"autoUpgrade": True}}, "psa": {"enabled": True}}, set()),
        ({}, {"daemonsets": {"updateStrategy": "OnDelete"}}, set()),
        ({}, {"toolkit": {"version": "2"}}, {operands.TOOLKIT}),
        ({}, {"toolkit": {"enabled": False}}, {operands.TOOLKIT, operands.PLUGIN, operands.MIG_MANAGER}),
        ({}, {"vgpuManager": {"version": "2"}}, set()),
        ({}, {"validator": {"version": "2"}}, operands.APPS),
        ({}, {"hostPaths": {"kubeletRootDir": "/data"}}, operands.APPS - {operands.DRIVER}),
        ({}, {"cdi": {"enabled": True}}, operands.APPS),
    ],
)
def test_a_part_of_the_policy_reaches_those_who_read_it(
    before: dict[str, Any], after: dict[str, Any], apps: set[str]
) -> None:
    assert restarted_operands(PolicyChange({}, {"spec": before}, {"spec": after})) == apps


def test_an_upgrade_replaces_drivers_by_the_policies_that_the_new_release_follows() -> None:
    live = {"metadata": {"name": "c"}, "spec": {"driver": {"upgradePolicy": {"autoUpgrade": True}}}}
    drivers = ({"metadata": {"name": "a"}, "spec": {}}, {"metadata": {"name": "b"}, "spec": {}})
    objects = DriverObjects(live=drivers, owners={"n-1": "a", "n-2": "b"})
    plan = derive({"name": "c"}, {}, [])
    for release, parts in (("v26.3.3", 0), ("v26.7.0", 2)):
        preview = RestartPreview(OperandRestart(every=True), versions=("v25.10.1", release))
        assert len(with_driver_objects(preview, live, plan, objects).parts) == parts


def test_report_of_driver_restarts() -> None:
    none = {
        "max_parallel": 0,
        "at_once": False,
        "reasons": [],
        "in_place": False,
        "held_back": False,
        "allowed": False,
        "disabled": [],
        "release": None,
    }
    actual = RestartPreview(reasons=("driver.version",), upgrade_policy=UpgradePolicy(automatic=True))
    assert actual.as_dict({"driver_restarts": 0, "pods": 0}) == {"driver_restarts": 0, "pods": 0, **none}
    reported = {**none, "driver_restarts": 8, "max_parallel": 1, "reasons": ["driver.version"], "held_back": True}
    assert actual.as_dict({"driver_restarts": 8}) == reported
    assert actual._replace(upgrade_policy=UpgradePolicy(automatic=False)).as_dict({"driver_restarts": 8}) == {
        **reported,
        "max_parallel": 0,
    }
    assert actual.as_dict({"driver_restarts": 8}, allowed=True) == {**reported, "held_back": False, "allowed": True}
    in_place = actual._replace(restart=OperandRestart(in_place=True))
    assert in_place.as_dict({"driver_restarts": 8}) == {**reported, "held_back": False, "in_place": True}
    # An upgrade is rejected as a whole, and nothing is held back.
    release = {"installed": "v1", "desired": "v2"}
    assert actual._replace(versions=("v1", "v2")).as_dict({"driver_restarts": 8}) == {
        **reported,
        "held_back": False,
        "release": release,
    }


EXISTS = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TAINT = {"key": "restricted", "value": "yes", "effect": "NoSchedule"}
EVERY, DRIVER = OperandRestart(every=True), OperandRestart(frozenset({operands.DRIVER}))


def policy(**annotations: str) -> Object:
    marks = {"meta.helm.sh/release-name": "gpu-operator", "meta.helm.sh/release-namespace": "gpu-operator"}
    return {
        "metadata": {
            "name": "cluster-policy",
            "resourceVersion": "1",
            "labels": {"app.kubernetes.io/version": "v25.10.1"},
            "annotations": {**marks, **annotations},
        },
        "spec": {
            "daemonsets": {"tolerations": [EXISTS]},
            "driver": {"version": "580.105.08", "upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": 2}},
        },
    }


def foreseen(
    live: Object, taints: list[Object] | None = None, adopted: bool = False, **operator: Any
) -> RestartPreview:
    cluster = {"name": "lab", "operator": {"version": "v25.10.1", **operator}}
    plan = derive(cluster, {}, [{"name": "t4", "match": {"model": "Tesla-T4"}, "taints": taints or []}])
    if adopted:
        plan = adopt_installed(plan, "v25.10.1")
    expected = DesiredPolicy.derive(plan, live)
    # What the pools ask of other agents is another matter.
    quiet = expected.__class__({}, expected.tolerations)
    return predict_restarts(live, plan, plan_change(live, quiet, seeded=True))


CASES: list[tuple[Object, OperandRestart, list[str]]] = [
    ({}, OperandRestart(), []),
    ({"version": "v25.10.0"}, EVERY, ["operator v25.10.1 becomes v25.10.0"]),
    ({"version": "25.10.1"}, OperandRestart(), []),
    ({"driver": {"version": "580.105.08"}}, OperandRestart(), []),
    ({"driver": {"version": "580.82.07"}}, DRIVER, ["driver.version 580.105.08 becomes 580.82.07"]),
    ({"values": {"driver": {"upgradePolicy": {"maxParallelUpgrades": 4}}}}, OperandRestart(), []),
    (
        {"values": {"driver": {"nvidiaDriverCRD": {"enabled": False}}, "toolkit": {"version": "v9"}}},
        OperandRestart(),
        [],
    ),
    (
        {"values": {"hostPaths": {"rootFS": "/mnt"}}},
        OperandRestart(operands.APPS),
        ["hostPaths.rootFS"],
    ),
    ({"proxy": {"https": "http://10.0.0.1:3128"}}, DRIVER, ["driver.env"]),
]


@pytest.mark.parametrize(("operator", "roll", "reasons"), CASES)
def test_what_the_release_changes(operator: Object, roll: OperandRestart, reasons: list[str]) -> None:
    actual = foreseen(policy(), **operator)
    assert (actual.restart, list(actual.reasons)) == (roll, reasons)
    assert bool(actual.driver_paths) == (actual.restart.driver and not roll.every)
    assert actual.restart.driver == bool(reasons)
    assert actual.versions == (("v25.10.1", "v25.10.0") if roll.every else None)


def test_the_pace_is_that_of_the_policy_as_it_will_be() -> None:
    assert foreseen(policy()).upgrade_policy == UpgradePolicy(automatic=True, parallel=2)
    faster = {"driver": {"upgradePolicy": {"maxParallelUpgrades": 4}}}
    assert foreseen(policy(), values=faster).upgrade_policy == UpgradePolicy(automatic=True, parallel=4)


def test_a_taint_that_is_new_to_the_cluster() -> None:
    actual = foreseen(policy(), taints=[TAINT])
    assert actual.restart.driver
    assert (actual.reasons, actual.versions) == (("daemonsets.tolerations",), None)


@pytest.mark.parametrize(
    ("live", "adopted"),
    [(policy(**{"meta.helm.sh/release-namespace": "elsewhere"}), False), (policy(), True)],
    ids=["another release", "a foreign release of that name"],
)
def test_a_foreign_operator_is_neither_upgraded_nor_given_values(live: Object, adopted: bool) -> None:
    actual = foreseen(live, [TAINT], adopted, version="v25.10.1", driver={"version": "580.82.07"})
    assert (actual.reasons, actual.versions) == (("daemonsets.tolerations",), None)


def test_operands_that_the_values_disable_are_named() -> None:
    values = {"dcgmExporter": {"enabled": False}}
    actual = foreseen(policy(), values=values)
    assert actual.disabled == ("dcgmExporter",)
    (disabled,) = actual.as_dict({"driver_restarts": 0})["disabled"]
    assert disabled == {"field": "spec.dcgmExporter.enabled", "effect": "metrics of the GPUs are no longer collected"}
    foreign = policy(**{"meta.helm.sh/release-namespace": "elsewhere"})
    assert foreseen(foreign, values=values).disabled == ()
    off = policy()
    off["spec"] |= values
    assert foreseen(off, values=values).disabled == ()
