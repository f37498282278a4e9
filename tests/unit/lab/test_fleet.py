# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time factors and boot ids of the machines of a fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import fleet
from lab.errors import LabError


def time_factors(group: fleet.Group) -> list[float]:
    nodes = fleet.Fleet((group,)).nodes(1)
    return [json.loads(node["metadata"]["annotations"][fleet.HARDWARE_ANNOTATION])["time_factor"] for node in nodes]


def test_range_gives_each_machine_a_stable_value() -> None:
    group = fleet.Group("a100", 100, model="A100-SXM4-80GB", gpus=8, time_factor=[0.5, 3])
    actual = time_factors(group)
    assert actual == time_factors(group)
    assert all(0.5 <= time_factor <= 3 for time_factor in actual)
    assert len(set(actual)) > 60
    assert min(actual) < 0.75
    assert max(actual) > 2.75


@pytest.mark.parametrize("time_factor", [1, 0.5, 2.5])
def test_number_applies_to_all_machines(time_factor: float) -> None:
    assert (
        time_factors(fleet.Group("a100", 3, model="A100-SXM4-80GB", gpus=8, time_factor=time_factor))
        == [time_factor] * 3
    )


@pytest.mark.parametrize("text", ["0", "-1", "fast", "true", "null", ".inf", "[1]", "[3, 1]", "[1, x]", "[0, 1]"])
def test_invalid_time_factors_are_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"groups: [{{name: a, count: 1, time_factor: {text}}}]\n")
    with pytest.raises(LabError, match=r"groups\[0\]\.time_factor: .* is neither a positive number nor a list"):
        fleet.load(path)


def test_saved_fleet_can_be_loaded(tmp_path: Path) -> None:
    machines = fleet.Fleet((fleet.Group("a", 2, time_factor=[0.5, 3]), fleet.Group("b", 1, time_factor=2)))
    machines.save(tmp_path / "fleet.yaml")
    assert fleet.load(tmp_path / "fleet.yaml") == machines


def test_spec_changes_with_the_time_factor() -> None:
    def spec(time_factor: Any) -> list[str]:
        nodes = fleet.Fleet((fleet.Group("a", 2, model="T4", gpus=1, time_factor=time_factor),)).nodes(1)
        return [node["metadata"]["annotations"][fleet.SPEC_ANNOTATION] for node in nodes]

    assert spec([1, 2]) == spec([1, 2])
    assert spec([1, 2]) != spec([1, 3])


def test_every_machine_has_its_own_boot_id() -> None:
    nodes = fleet.Fleet((fleet.Group("a", 3),)).nodes(1)
    assert len({node["status"]["nodeInfo"]["bootID"] for node in nodes} - {""}) == 3


@pytest.mark.parametrize(
    ("vgpu", "problem"),
    [
        ("{profile: 10C}", "vgpu.profile: '10C' is not a vGPU type such as A100-10C"),
        ("{profile: A100-10X}", "vgpu.profile: 'A100-10X' is not a vGPU type such as A100-10C"),
        ("{host: 580.95.02}", "vgpu.host: unknown key; known: host_driver, host_branch, profile"),
    ],
)
def test_invalid_vgpus_are_rejected(tmp_path: Path, vgpu: str, problem: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"groups: [{{name: a, count: 1, model: T4, gpus: 1, vgpu: {vgpu}}}]\n")
    with pytest.raises(LabError) as caught:
        fleet.load(path)
    assert f"groups[0].{problem}" in str(caught.value)


@pytest.mark.parametrize("profile", ["T4-16Q", "A100-10C", "A100D-1-10C", "L40S-24Q", "T4-2B", "T4-8A"])
def test_a_guest_has_the_driver_of_its_host(profile: str) -> None:
    group = fleet.Group("a", 1, model="T4", gpus=1, driver="580.95.05", vgpu={"profile": profile})
    node = next(fleet.Fleet((group,)).nodes(1))
    hardware = json.loads(node["metadata"]["annotations"][fleet.HARDWARE_ANNOTATION])
    assert hardware["vgpu"] == {"host_driver": "580.95.05", "profile": profile}
