# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which object has the token of which pool, and how the ClusterPolicy names it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.licensing.targets import (
    CONFIG_MAP,
    SECRET,
    LicenseTarget,
    desired_targets,
    has_secret_name,
    live_target,
    plan_wiring,
    target_of_pool,
    vgpu_pools,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan

NEWER, OLDER = "v25.10.1", "v25.3.4"


def vgpu(name: str, secret: str | None = None) -> dict[str, Any]:
    driver = {"type": "vgpu", "version": "580.95.05", "repository": "registry.example.com/nvidia"}
    licensing = {"licensing_secret": secret} if secret else {}
    return {
        "name": name,
        "match": {"labels": {"pool": name}},
        "sharing": {"mode": "none"},
        "driver": {**driver, **licensing},
    }


def plan(*pools: dict[str, Any], **values: Any) -> Plan:
    operator = {"operator": {"values": {"driver": values}}} if values else {}
    return derive({"name": "prod", **operator}, {}, list(pools))


def policy(*, crd: bool = False, **licensing: Any) -> dict[str, Any]:
    driver = {"licensingConfig": licensing, **({"useNvidiaDriverCRD": True} if crd else {})}
    return {"metadata": {"name": "cluster-policy"}, "spec": {"driver": driver}}


@pytest.mark.parametrize(("version", "expected"), [(NEWER, True), ("v26.7.0", True), (OLDER, False), ("", True)])
def test_the_releases_with_secret_name(version: str, expected: bool) -> None:
    assert has_secret_name(version) == expected


@pytest.mark.parametrize(
    ("licensing", "expected"),
    [
        ({}, None),
        ({"secretName": "a", "configMapName": "b"}, LicenseTarget(SECRET, "a")),
        ({"secretName": "", "configMapName": "b"}, LicenseTarget(CONFIG_MAP, "b")),
        ({"secretName": "", "nlsEnabled": True}, None),
    ],
)
def test_the_object_that_a_policy_names(licensing: dict[str, Any], expected: LicenseTarget | None) -> None:
    assert live_target(policy(**licensing)) == expected
    assert live_target(None) is None


def test_pools_name_their_secrets() -> None:
    pools = [vgpu("a", "one"), vgpu("b", "two"), vgpu("c", "one"), vgpu("d")]
    found = desired_targets(plan(*pools), policy(secretName="three"), NEWER, "option")
    assert found == [
        LicenseTarget(SECRET, "one", ("a", "c")),
        LicenseTarget(SECRET, "two", ("b",)),
        LicenseTarget(SECRET, "three", ("d",)),
    ]
    assert target_of_pool(found, "c") == found[0]
    assert target_of_pool(found, None) is None
    assert [pool.name for pool in vgpu_pools(plan(*pools))] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("live", "option", "version", "expected"),
    [
        ({}, None, NEWER, LicenseTarget(SECRET, "licensing-config")),
        ({}, "mine", NEWER, LicenseTarget(SECRET, "mine")),
        ({"secretName": "theirs"}, None, NEWER, LicenseTarget(SECRET, "theirs")),
        ({"secretName": "theirs"}, "mine", NEWER, LicenseTarget(SECRET, "mine")),
        ({"configMapName": "by-hand"}, None, NEWER, LicenseTarget(SECRET, "by-hand")),
        ({"configMapName": "by-hand"}, None, OLDER, LicenseTarget(CONFIG_MAP, "by-hand")),
        ({}, None, OLDER, LicenseTarget(CONFIG_MAP, "licensing-config")),
    ],
)
def test_without_vgpu_pools_the_policy_names_it(
    live: dict[str, Any], option: str | None, version: str, expected: LicenseTarget
) -> None:
    assert desired_targets(plan(), policy(**live), version, option) == [expected]
    assert target_of_pool([expected], "any") == expected


def test_the_name_in_the_values_of_the_release() -> None:
    declared = plan(licensingConfig={"secretName": "from-values"})
    assert desired_targets(declared, None, NEWER, None) == [LicenseTarget(SECRET, "from-values")]


def test_foreign_driver_objects() -> None:
    drivers: list[dict[str, Any]] = [
        {"spec": {"driverType": "vgpu", "licensingConfig": {"secretName": "theirs"}}},
        {"spec": {"driverType": "vgpu"}},
        {"spec": {"driverType": "gpu", "licensingConfig": {"secretName": "unused"}}},
    ]
    assert desired_targets(plan(), policy(crd=True), NEWER, None, drivers) == [LicenseTarget(SECRET, "theirs")]


def test_the_wiring_of_the_policy() -> None:
    target = LicenseTarget(SECRET, "licensing-config")
    wiring = plan_wiring(plan(), policy(), target)
    assert wiring is not None
    assert wiring.changed
    assert wiring.after == {"secretName": "licensing-config", "nlsEnabled": True}
    assert wiring.paths == [("driver", "licensingConfig", "nlsEnabled"), ("driver", "licensingConfig", "secretName")]
    done = plan_wiring(plan(), policy(**wiring.after, configMapName=""), target)
    assert done is not None
    assert not done.changed


def test_the_wiring_of_a_config_map_made_by_hand() -> None:
    live = policy(configMapName="by-hand", nlsEnabled=True)
    wiring = plan_wiring(plan(), live, LicenseTarget(SECRET, "by-hand"))
    assert wiring is not None
    assert wiring.after == {"secretName": "by-hand", "nlsEnabled": True, "configMapName": ""}
    assert [path[-1] for path in wiring.paths] == ["configMapName", "secretName"]
    old = plan_wiring(plan(), live, LicenseTarget(CONFIG_MAP, "by-hand"))
    assert old is not None
    assert not old.changed


def test_the_policy_is_not_wired_where_other_objects_describe_the_driver() -> None:
    pool = vgpu("a", "one")
    assert plan_wiring(plan(pool), policy(), LicenseTarget(SECRET, "one", ("a",))) is None
    assert plan_wiring(plan(), policy(crd=True), LicenseTarget(SECRET, "one")) is None
    assert plan_wiring(plan(), None, LicenseTarget(SECRET, "one")) is None
    disabled = {"metadata": {}, "spec": {"driver": {"enabled": False}}}
    assert plan_wiring(plan(), disabled, LicenseTarget(SECRET, "one")) is None
