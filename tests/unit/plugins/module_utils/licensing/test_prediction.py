# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode: nodes are compared with the files that a run would write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import ExecResult
from ansible_collections.accel.gpu.plugins.module_utils.licensing.cluster import LicenseCluster, LicenseObjectChange
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import LicenseContainers
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import (
    CONFIG_MAP,
    SECRET,
    DesiredFiles,
    LicenseFiles,
    LicenseTarget,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import LicenseObject
from ansible_collections.accel.gpu.plugins.module_utils.licensing.rotation import plan_rotation
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import are_unreachable, parse_token, utc_now
from tests.helpers.license_nodes import NAMESPACE, Container, Containers, initial_files, license_node
from tests.helpers.license_tokens import make_token

OLD, NEW = make_token(hosts=["old.example.com"]), make_token(hosts=["new.example.com"])
CONFIG = "FeatureType=1\n"
TARGET = LicenseTarget(SECRET, "licensing-config")


def provided(
    config: str = CONFIG, *, policy: str = "cluster-policy", held_back: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The result of the module license that would write the new token."""
    files = LicenseFiles(NEW.encode(), config.encode())
    change = LicenseObjectChange(TARGET, None, LicenseFiles(), DesiredFiles(files, parse_token(NEW), ()), {})
    return {"objects": [change.summary(NAMESPACE, utc_now())], "policy": policy, "held_back": list(held_back)}


def predicted(mounted: list[LicenseTarget], result: dict[str, Any]) -> LicenseCluster:
    """A cluster whose mounted objects have the old token."""
    plan = SimpleNamespace(operator=SimpleNamespace(namespace=NAMESPACE))
    cluster = LicenseCluster(cast(Any, None), cast(Any, plan), None)
    cluster.mounted = mounted
    files = LicenseFiles(OLD.encode(), CONFIG.encode())
    cluster.expected = {target: LicenseObject(target, NAMESPACE, files, parse_token(OLD)) for target in mounted}
    cluster.predict(result)
    return cluster


@pytest.mark.parametrize("mounted", [[TARGET], [], [LicenseTarget(CONFIG_MAP, "by-hand")]])
def test_nodes_are_compared_with_the_new_files(mounted: list[LicenseTarget]) -> None:
    cluster = predicted(mounted, provided())
    containers = Containers({"n0": Container(initial_files(OLD, CONFIG)), "n1": Container(initial_files(NEW, CONFIG))})
    access = LicenseContainers(cast(Any, containers))
    nodes = [license_node(name) for name in containers.by_node]
    readings = access.read_all(nodes)
    assert [
        each.node.name for each in plan_rotation(nodes, readings, cluster.expected_of, {}, restart_drivers=False)
    ] == ["n0"]
    assert NEW not in str(provided())


@pytest.mark.parametrize(
    ("config", "way"),
    [
        (CONFIG, ("--noproxy", "*")),
        ("ProxyServerAddress=proxy\nProxyServerPort=3128\n", ("--proxy", "http://proxy:3128")),
    ],
)
def test_the_license_servers_of_the_new_token_are_checked(config: str, way: tuple[str, ...]) -> None:
    cluster = predicted([TARGET], provided(config))
    containers = Containers({"n0": Container(initial_files(OLD, CONFIG))})
    containers.by_node["n0"].connection = ExecResult(6, "0 0 0", "curl: (6) Could not resolve host: new.example.com")
    access = LicenseContainers(cast(Any, containers))
    checks = access.check_all([license_node("n0")], cluster.expected_of)["n0"]
    assert [check.address for check in checks] == ["new.example.com:443"]
    assert are_unreachable(checks)
    assert containers.commands[-1][1][-3:] == (*way, "https://new.example.com:443/")


def test_a_change_that_is_held_back_mounts_nothing_else() -> None:
    target = LicenseTarget(CONFIG_MAP, "by-hand")
    cluster = predicted([target], provided(held_back=("spec.driver.licensingConfig.secretName",)))
    assert cluster.mounted == [target]
    assert cluster.expected[target].token == parse_token(OLD)
    assert predicted([], provided(policy="")).mounted == []
