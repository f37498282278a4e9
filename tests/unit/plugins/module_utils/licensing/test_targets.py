# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which object has the token of which pool, and how the ClusterPolicy names it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import (
    CONFIG_MAP,
    SECRET,
    LicenseTarget,
    desired_targets,
    has_secret_name,
    live_target,
    mounted_targets,
    plan_licensing_config,
    target_of_pool,
    vgpu_pools,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from tests.helpers.license_api import vgpu_pool

NEWER, OLDER = "v25.10.1", "v25.3.4"


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
    pools = [vgpu_pool("a", "one"), vgpu_pool("b", "two"), vgpu_pool("c", "one"), vgpu_pool("d")]
    actual = desired_targets(plan(*pools), policy(secretName="three", nlsEnabled=True), NEWER, "option")
    assert actual == [
        LicenseTarget(SECRET, "one", ("a", "c")),
        LicenseTarget(SECRET, "two", ("b",)),
        LicenseTarget(SECRET, "three", ("d",)),
    ]
    assert target_of_pool(actual, "c") == actual[0]
    assert target_of_pool(actual, None) is None
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


def driver_object(secret: str | None, *, pool: str | None = None, kind: str = "vgpu", **fields: str) -> dict[str, Any]:
    config = {**fields, **({"secretName": secret} if secret else {})}
    selector = {"accel.gpu/pool": pool} if pool else {}
    return {"spec": {"driverType": kind, "licensingConfig": config, "nodeSelector": selector}}


def test_foreign_driver_objects() -> None:
    drivers = [driver_object("theirs"), driver_object(None), driver_object("unused", kind="gpu")]
    assert desired_targets(plan(), policy(crd=True), NEWER, "mine", drivers) == [LicenseTarget(SECRET, "theirs")]


def test_a_pool_inherits_the_name_in_the_policy() -> None:
    pools = plan(vgpu_pool("a"), vgpu_pool("b", "own"))
    inherited = LicenseTarget(SECRET, "theirs", ("a",))
    own = LicenseTarget(SECRET, "own", ("b",))
    # The option is the name in the ClusterPolicy, which the module does not write if pools declare the driver.
    for live in (
        policy(secretName="theirs", nlsEnabled=True),
        policy(crd=True, secretName="theirs", configMapName="unused", nlsEnabled=True),
    ):
        assert desired_targets(pools, live, NEWER, "mine") == [inherited, own]
    assert desired_targets(pools, policy(configMapName="old", nlsEnabled=True), NEWER, None)[0] == LicenseTarget(
        CONFIG_MAP, "old", ("a",)
    )
    declared = derive(
        {
            "name": "prod",
            "operator": {"values": {"driver": {"licensingConfig": {"secretName": "theirs", "nlsEnabled": True}}}},
        },
        {},
        [vgpu_pool("a")],
    )
    assert desired_targets(declared, None, NEWER, None) == [inherited]


@pytest.mark.parametrize("option", [None, "mine"])
@pytest.mark.parametrize("live", [None, policy(), policy(crd=True), policy(secretName="off", nlsEnabled=False)])
def test_a_pool_without_a_name_is_refused(live: dict[str, Any] | None, option: str | None) -> None:
    with pytest.raises(
        InvalidOptions, match=r"Pool b names no licensing Secret.* Set driver\.licensing_secret of the pool"
    ):
        desired_targets(plan(vgpu_pool("a", "own"), vgpu_pool("b")), live, NEWER, option)


def test_a_secret_that_no_object_would_name_is_refused() -> None:
    disabled = {"metadata": {}, "spec": {"driver": {"enabled": False}}}
    for live, drivers in ((policy(crd=True), [driver_object(None)]), (disabled, [])):
        with pytest.raises(InvalidOptions, match=r"Set driver\.type and driver\.licensing_secret of the pool"):
            desired_targets(plan(), live, NEWER, "mine", drivers)


def test_the_mounted_objects_are_those_that_driver_objects_and_the_policy_name() -> None:
    drivers = [
        driver_object("two", pool="b"),
        driver_object("one", pool="a"),
        driver_object("one", pool="c"),
        driver_object(None, name="by-hand"),
        driver_object("unused", kind="gpu"),
    ]
    assert mounted_targets(policy(crd=True, secretName="policy"), drivers) == [
        LicenseTarget(CONFIG_MAP, "by-hand"),
        LicenseTarget(SECRET, "one", ("a", "c")),
        LicenseTarget(SECRET, "two", ("b",)),
    ]
    assert mounted_targets(policy(secretName="policy"), drivers) == [LicenseTarget(SECRET, "policy")]
    assert mounted_targets(policy(), drivers) == mounted_targets(None) == []


def test_the_name_in_the_policy() -> None:
    target = LicenseTarget(SECRET, "licensing-config")
    diff = plan_licensing_config(plan(), policy(), target)
    assert diff is not None
    assert diff.changed
    assert diff.after == {"secretName": "licensing-config", "nlsEnabled": True}
    assert diff.paths == [("driver", "licensingConfig", "nlsEnabled"), ("driver", "licensingConfig", "secretName")]
    done = plan_licensing_config(plan(), policy(**diff.after, configMapName=""), target)
    assert done is not None
    assert not done.changed


def test_a_config_map_made_manually() -> None:
    live = policy(configMapName="by-hand", nlsEnabled=True)
    diff = plan_licensing_config(plan(), live, LicenseTarget(SECRET, "by-hand"))
    assert diff is not None
    assert diff.after == {"secretName": "by-hand", "nlsEnabled": True, "configMapName": ""}
    assert [path[-1] for path in diff.paths] == ["configMapName", "secretName"]
    old = plan_licensing_config(plan(), live, LicenseTarget(CONFIG_MAP, "by-hand"))
    assert old is not None
    assert not old.changed


def test_the_policy_names_no_secret_where_other_objects_describe_the_driver() -> None:
    pool = vgpu_pool("a", "one")
    assert plan_licensing_config(plan(pool), policy(), LicenseTarget(SECRET, "one", ("a",))) is None
    assert plan_licensing_config(plan(), policy(crd=True), LicenseTarget(SECRET, "one")) is None
    assert plan_licensing_config(plan(), None, LicenseTarget(SECRET, "one")) is None
    disabled = {"metadata": {}, "spec": {"driver": {"enabled": False}}}
    assert plan_licensing_config(plan(), disabled, LicenseTarget(SECRET, "one")) is None
