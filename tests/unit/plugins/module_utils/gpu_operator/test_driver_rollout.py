# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which changes leave the digest of the driver's configuration as it is, and what a rollout in place costs."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import (
    NO_ROLLOUT,
    SWITCH,
    DriverRollout,
    Path,
    UpgradePolicies,
    UpgradePolicy,
    changed_fields,
    driver_fields,
    held_back_warning,
    is_in_place,
    keeps_digest,
    may_show,
)

Object = dict[str, Any]

# The cases of TestDriverConfigDigest in gpu-operator v26.7.0, controllers/transforms_test.go, as fields of the ClusterPolicy.
DIGESTS: list[tuple[str, bool]] = [
    ("daemonsets.tolerations", True),
    ("daemonsets.labels.x", True),
    ("daemonsets.annotations", True),
    ("daemonsets.priorityClassName", True),
    ("daemonsets.podSecurityContext.runAsUser", True),
    ("driver.resources.limits.cpu", True),
    ("driver.startupProbe.initialDelaySeconds", True),
    ("driver.imagePullPolicy", True),
    ("driver.imagePullSecrets", True),
    ("driver.manager.imagePullPolicy", True),
    ("gds.imagePullSecrets", True),
    ("driver.hostNetwork", True),
    ("driver.version", False),
    ("driver.image", False),
    ("driver.repository", False),
    ("driver.manager.version", False),
    ("driver.manager.env", False),
    ("driver.kernelModuleType", False),
    ("driver.env", False),
    ("driver.secretEnv", False),
    ("driver.args", False),
    ("driver.rdma.enabled", False),
    ("driver.licensingConfig.secretName", False),
    ("driver.kernelModuleConfig.name", False),
    ("gds.enabled", False),
    ("gdrcopy.version", False),
    ("hostPaths.rootFS", False),
    ("hostPaths.driverInstallDir", False),
    # Whatever the table does not know.
    ("driver.newField", False),
]


def path(text: str) -> Path:
    return tuple(text.split("."))


@pytest.mark.parametrize(("text", "kept"), DIGESTS)
def test_what_enters_the_digest(text: str, kept: bool) -> None:
    assert keeps_digest([path(text)]) == kept
    assert not keeps_digest([path(text), path("driver.version")])
    assert keeps_digest([path(text), path("daemonsets.tolerations")]) == kept


def daemonset(
    digest: str | None = "1234", updated: int = 2, place: str = "initContainers", manager: str = "v0.12.0", **more: str
) -> Object:
    values = {"OTHER": "x", **({} if digest is None else {"DRIVER_CONFIG_DIGEST": digest}), **more}
    env = [{"name": name, "value": value} for name, value in values.items()]
    image = manager if "/" in manager else f"registry.example.com:5000/nvidia/k8s-driver-manager:{manager}"
    containers = [{"name": "other"}, {"name": "k8s-driver-manager", "image": image, "env": env}]
    return {
        "metadata": {"name": "nvidia-driver-daemonset"},
        "spec": {"template": {"spec": {place: containers}}},
        "status": {"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": updated},
    }


AUTOMATIC, BY_HAND = UpgradePolicy(automatic=True), UpgradePolicy(automatic=False)
TOLERATIONS, VERSION = path("daemonsets.tolerations"), path("driver.version")


@pytest.mark.parametrize(
    ("changed", "version", "policy", "drivers", "expected"),
    [
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset()], True),
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(place="containers")], True),
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(), daemonset("5678")], True),
        (VERSION, "v26.7.0", AUTOMATIC, [daemonset()], False),
        (TOLERATIONS, "v26.3.3", AUTOMATIC, [daemonset()], False),
        (TOLERATIONS, "v25.10.1", AUTOMATIC, [daemonset(None)], False),
        # Another operator, or a version that nothing says.
        (TOLERATIONS, "", AUTOMATIC, [daemonset()], False),
        (TOLERATIONS, "v26.7.0", BY_HAND, [daemonset()], False),
        # An older operator has written the template, or pods of an older template remain.
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(), daemonset(None)], False),
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset("")], False),
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(updated=1)], False),
        # The driver manager would unload the driver.
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(manager="v0.9.1")], False),
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(manager="v0.10.0")], True),
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(FORCE_REINSTALL="true")], False),
        (TOLERATIONS, "v26.7.0", AUTOMATIC, [daemonset(FORCE_REINSTALL="false")], True),
    ],
)
def test_when_driver_pods_restart_in_place(
    changed: Path, version: str, policy: UpgradePolicy, drivers: list[Object], expected: bool
) -> None:
    assert is_in_place([changed], version, policy, drivers) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        # Bundles of OLM, and users, name images by their digests only: the release is unknown, and may be older than v0.10.
        (f"nvcr.io/nvidia/cloud-native/k8s-driver-manager@sha256:{'1' * 64}", False),
        (f"nvcr.io/nvidia/cloud-native/k8s-driver-manager@sha256:10.10.{'1' * 58}", False),
        ("nvcr.io/nvidia/cloud-native/k8s-driver-manager:latest", False),
        ("registry.example.com:5000/k8s-driver-manager", False),
        ("registry.example.com:5000/10.10.10/k8s-driver-manager", False),
        (f"nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.9.1@sha256:{'1' * 64}", False),
        (f"nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.10.0@sha256:{'1' * 64}", True),
    ],
)
def test_a_driver_manager_of_unknown_release_does_not_count_as_one_that_compares_digests(
    image: str, expected: bool
) -> None:
    assert is_in_place([TOLERATIONS], "v26.7.0", AUTOMATIC, [daemonset(manager=image)]) == expected


def test_without_a_driver_manager_no_restart_counts_as_in_place() -> None:
    driver = daemonset()
    for container in driver["spec"]["template"]["spec"]["initContainers"]:
        container["name"] = "other"
    assert not is_in_place([TOLERATIONS], "v26.7.0", AUTOMATIC, [driver])


def test_a_roll_out_in_place_evicts_no_pod() -> None:
    rollout = DriverRollout(
        20, UpgradePolicy(automatic=True, parallel=2), ("spec.daemonsets.tolerations changes",), in_place=True
    )
    assert rollout.announcement == (
        "The driver pods of 20 nodes restart in place, at most 2 at a time: spec.daemonsets.tolerations changes. Each node is cordoned "
        "while its driver pod restarts, and no GPU pod is evicted."
    )
    assert set(rollout.as_dict()) == set(NO_ROLLOUT)
    assert rollout.as_dict()["in_place"]


def test_any_other_rollout_evicts_gpu_pods() -> None:
    rollout = DriverRollout(20, UpgradePolicy(automatic=True), ("driver.version 1 becomes 2",))
    assert rollout.announcement.endswith("driver.version 1 becomes 2. GPU pods are evicted from each node first.")
    assert not rollout.as_dict()["in_place"]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["spec.daemonsets.tolerations"], "spec.daemonsets.tolerations of the ClusterPolicy was held back, because it"),
        (["NVIDIADriver accel-gpu-a"], "NVIDIADriver accel-gpu-a was held back, because it"),
        (
            ["spec.hostPaths.rootFS", "NVIDIADriver accel-gpu-a"],
            "spec.hostPaths.rootFS of the ClusterPolicy, NVIDIADriver accel-gpu-a were held back, because they",
        ),
    ],
)
def test_what_is_held_back(parts: list[str], text: str) -> None:
    rollout = DriverRollout(20, UpgradePolicy(automatic=True), ("a reason",))
    warning = held_back_warning(parts, rollout)
    assert warning.startswith(
        f"{text} would restart the driver on 20 nodes, at most 1 at a time: a reason. GPU pods would be evicted from each node first."
    )
    assert warning.endswith(
        "Set gpu_operator_allow_driver_rollout (option allow_driver_rollout of the module) to allow it."
    )


def test_the_warning_does_not_repeat_the_change_that_it_holds_back() -> None:
    (reason,) = changed_fields(["spec.driver.env"])
    warning = held_back_warning(["spec.driver.env"], DriverRollout(20, UpgradePolicy(automatic=True), (reason,)))
    assert "would restart the driver on 20 nodes, at most 1 at a time. GPU pods would be evicted" in warning
    manual = held_back_warning(["spec.driver.env"], DriverRollout(20, UpgradePolicy(automatic=False), (reason,)))
    assert "would be out of date on 20 nodes. " in manual


def test_a_change_is_held_back_with_the_pace_of_its_rollout() -> None:
    at_once = DriverRollout(20, UpgradePolicy(automatic=True, at_once=True), ("the switch",))
    assert at_once.at_once
    warning = held_back_warning(["spec.driver.useNvidiaDriverCRD"], at_once)
    assert (
        "it would restart the driver on 20 nodes, at the same time: the switch. GPU pods would be evicted there."
        in warning
    )
    of_values = held_back_warning(["driver.version", "driver.image"], at_once, "the Helm values")
    assert of_values.startswith(
        "driver.version of the Helm values, driver.image of the Helm values were held back, because they"
    )
    manual = held_back_warning(["spec.a"], DriverRollout(20, UpgradePolicy(automatic=False), ("a reason",)))
    assert "because the driver would be out of date on 20 nodes: a reason." in manual


@pytest.mark.parametrize(
    ("path", "values", "shown"),
    [
        (("driver", "version"), ("1", "2"), True),
        (("driver", "version"), (None, "2"), True),
        (("driver", "rdma", "enabled"), (False, True), True),
        (("driver", "startupProbe", "periodSeconds"), (10, 20), True),
        (("driver", "secretEnv"), ("a", "b"), False),
        (("driver", "env"), ([], [{"name": "a", "value": "secret"}]), False),
        (("driver", "name"), ({"a": "secret"}, "b"), False),
        (("driver", "imagePullSecrets"), (None, ["registry"]), True),
        (("driver", "args"), (["a"], ["b"]), False),
    ],
)
def test_values_in_messages(path: Path, values: tuple[Any, ...], shown: bool) -> None:
    assert may_show(path, *values) is shown


ON, OFF = {"driver": {"useNvidiaDriverCRD": True}}, {"driver": {"useNvidiaDriverCRD": False}}
FIELDS: list[tuple[Object, Object, list[Path]]] = [
    (OFF, ON, [SWITCH]),
    (ON, OFF, [SWITCH]),
    (ON, {"driver": {**ON["driver"], "version": "2"}, "daemonsets": {"tolerations": [{"key": "a"}]}}, []),
    (ON, {**ON, "hostPaths": {"rootFS": "/mnt", "driverInstallDir": "/x"}}, [("hostPaths", "rootFS")]),
]


@pytest.mark.parametrize(("before", "after", "paths"), FIELDS)
def test_fields_that_reach_the_driver(before: Object, after: Object, paths: list[Path]) -> None:
    assert driver_fields(before, after) == paths


SPEC: Object = {"driver": {"upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": 2}}}


def driver(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def test_before_v26_7_the_policy_of_the_cluster_limits_all_objects_together() -> None:
    policies = UpgradePolicies.read(
        SPEC, [driver("a"), driver("b", upgradePolicy={"maxParallelUpgrades": 5})], own=False
    )
    roll = policies.rollout({"a": 10, "b": 10}, ["a reason"])
    assert roll.as_dict() == {"nodes": 20, "max_parallel": 2, "reasons": ["a reason"], "in_place": False}


def test_since_v26_7_each_object_has_its_own_policy() -> None:
    objects = [
        driver("a", default=False),
        driver("b", default=False, upgradePolicy={"maxParallelUpgrades": 5, "maxUnavailable": "50%"}),
        driver("c", default=True, upgradePolicy={"autoUpgrade": False}),
    ]
    roll = UpgradePolicies.read(SPEC, objects, own=True).rollout({"a": 10, "b": 10, "c": 4}, ["a reason"])
    assert roll.max_parallel == 6
    assert str(roll) == (
        "the driver restarts on 20 nodes, at most 6 at a time: a reason; the driver is out of date on 4 nodes. The upgradePolicy.autoUpgrade of "
        "NVIDIADriver c is off, so each node keeps its driver until its driver pod is deleted"
    )
