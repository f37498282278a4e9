# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation beside another run, which changes the Secret or the nodes before this run holds the lease."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.licensing.driver_pods import CONFIG_PATH, TOKEN_PATH
from tests.helpers.license_nodes import Container, Containers, initial_files, lost_connection
from tests.helpers.license_tokens import make_token
from tests.helpers.rotation_module import RotationLease, RotationModule

OLD, NEW, NEWER = (make_token(hosts=[f"{name}.example.com"]) for name in ("old", "new", "newer"))
CONFIG = "FeatureType=1\n"


def module(count: int = 2, **options: object) -> RotationModule:
    containers = Containers({f"n{index}": Container(initial_files(OLD, CONFIG)) for index in range(count)})
    return RotationModule(containers, NEW, CONFIG, **options)  # type: ignore[arg-type]


def reads(found: RotationModule) -> int:
    """How often the state of the first node was read before its first change."""
    commands = [command for node, command in found.containers.commands if node == "n0"]
    first = next((index for index, command in enumerate(commands) if command[0] == "cp"), len(commands))
    return [command[0] for command in commands[:first]].count("curl")


def test_a_run_that_does_not_wait_reads_once() -> None:
    found = module()
    result = found.work()
    assert result["changed"]
    assert result["license_rotation"]["rotated"] == ["n0", "n1"]
    assert reads(found) == 1


def test_a_token_that_another_run_wrote_meanwhile_is_the_one_that_nodes_get() -> None:
    found = module()

    def write() -> None:
        found.token = NEWER

    found.lease_of_run = RotationLease(write)
    result = found.work()
    assert result["license_rotation"]["rotated"] == ["n0", "n1"]
    assert {each.loaded[TOKEN_PATH] for each in found.containers.by_node.values()} == {NEWER.encode()}
    assert reads(found) == 2


def test_nodes_that_another_run_changed_meanwhile_are_read_again() -> None:
    found = module(3)
    by_node = found.containers.by_node
    by_node["n1"] = Container(initial_files(NEW, CONFIG))

    def rotate() -> None:
        by_node["n0"] = Container(initial_files(NEW, CONFIG))
        by_node["n1"] = Container(initial_files(OLD, CONFIG))

    found.lease_of_run = RotationLease(rotate)
    result = found.work()
    assert result["license_rotation"]["rotated"] == ["n1", "n2"]
    assert result["license_rotation"]["unchanged_count"] == 1
    assert [each.started for each in by_node.values()] == [0, 1, 1]
    assert sorted(result["diff"]["after"]) == ["n1", "n2"]
    assert by_node["n0"].files[CONFIG_PATH] == CONFIG.encode()


def test_another_run_has_rotated_every_node_meanwhile() -> None:
    found = module()

    def rotate() -> None:
        found.containers.by_node.update(
            {name: Container(initial_files(NEW, CONFIG)) for name in found.containers.by_node}
        )

    found.lease_of_run = RotationLease(rotate)
    result = found.work()
    assert not result["changed"]
    assert result["license_rotation"]["unchanged_count"] == 2
    assert found.containers.mutations() == []


def test_a_token_that_is_not_valid_any_more_is_refused() -> None:
    found = module()

    def write() -> None:
        found.token = make_token(hosts=["new.example.com"], expires=-60)

    found.lease_of_run = RotationLease(write)
    with pytest.raises(InvalidOptions, match="expired at"):
        found.work()
    assert found.containers.mutations() == []


def test_each_warning_is_shown_once() -> None:
    found = module()

    def fail(node: str, command: tuple[str, ...]) -> None:
        if node == "n1":
            raise lost_connection()

    found.containers.before = fail
    found.lease_of_run = RotationLease(lambda: None)
    result = found.work()
    assert result["license_rotation"]["skipped"] == ["n1"]
    assert found.warnings == ["Not rotated: node n1. The license state could not be read: connection reset."]
