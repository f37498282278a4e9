# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spec of an NVIDIADriver from a ClusterPolicy, and from a pool's driver over it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.operator_values import declared_spec, inherited_driver

Object = dict[str, Any]

IMAGE = {"driverType": "gpu", "repository": "nvcr.io/nvidia", "image": "driver"}
INHERITED: list[tuple[Object, Object]] = [
    ({}, {}),
    ({"driver": {"version": "1", "enabled": True, "useNvidiaDriverCRD": True, "upgradePolicy": {}}}, {"version": "1"}),
    ({"driver": {"repository": "r.example.com/x", "image": "d"}}, {"repository": "r.example.com/x", "image": "d"}),
    ({"driver": {"usePrecompiled": False}}, {"usePrecompiled": False}),
    (
        {"driver": {"certConfig": {"name": ""}, "kernelModuleConfig": {"name": "k"}}},
        {"kernelModuleConfig": {"name": "k"}},
    ),
    ({"driver": {"repoConfig": {"configMapName": "repos"}}}, {"repoConfig": {"name": "repos"}}),
    ({"driver": {"virtualTopology": {"config": "v"}}}, {"virtualTopologyConfig": {"name": "v"}}),
    (
        {"driver": {"licensingConfig": {"secretName": "s", "configMapName": ""}}},
        {"licensingConfig": {"secretName": "s", "nlsEnabled": False}},
    ),
    ({"driver": {"manager": {"image": "m", "resources": {"limits": {}}, "env": []}}}, {"manager": {"image": "m"}}),
    (
        {"gds": {"enabled": True, "version": "2"}, "gdrcopy": {"enabled": False}},
        {"gds": {"enabled": True, "version": "2"}},
    ),
    ({"daemonsets": {"priorityClassName": "high"}}, {"priorityClassName": "high"}),
]


@pytest.mark.parametrize(("spec", "driver"), INHERITED)
def test_driver_of_a_policy(spec: Object, driver: Object) -> None:
    assert inherited_driver({"spec": spec}) == {**IMAGE, **driver}


BASE = {**IMAGE, "version": "1", "secretEnv": "s", "repoConfig": {"name": "r"}, "certConfig": {"name": "c"}}
DECLARED: list[tuple[Object, Object]] = [
    ({"version": "2", "kernel_module_type": "open"}, {**BASE, "version": "2", "kernelModuleType": "open"}),
    ({"precompiled": True, "version": "580"}, {**IMAGE, "version": "580", "usePrecompiled": True}),
    (
        {"type": "vgpu", "licensing_secret": "nls"},
        {**BASE, "driverType": "vgpu", "licensingConfig": {"secretName": "nls", "nlsEnabled": True}},
    ),
    (
        {"upgrade": {"automatic": False, "max_parallel": 0, "max_unavailable": 3}},
        {**BASE, "upgradePolicy": {"autoUpgrade": False, "maxParallelUpgrades": 0, "maxUnavailable": 3}},
    ),
    (
        {"repo_config": "other", "image_pull_secrets": ["a"]},
        {**BASE, "repoConfig": {"name": "other"}, "imagePullSecrets": ["a"]},
    ),
]


@pytest.mark.parametrize(("driver", "spec"), DECLARED)
def test_driver_of_a_pool(driver: Object, spec: Object) -> None:
    assert declared_spec(driver, BASE) == spec


def test_a_vgpu_pool_inherits_the_licensing_secret_of_the_policy() -> None:
    inherited = inherited_driver({"spec": {"driver": {"licensingConfig": {"secretName": "s", "nlsEnabled": True}}}})
    assert declared_spec({"type": "vgpu"}, inherited)["licensingConfig"] == {"secretName": "s", "nlsEnabled": True}
