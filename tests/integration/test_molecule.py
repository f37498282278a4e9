# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every molecule scenario, in the lab of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.awx.server import PASSWORD, USER
from tests.helpers.awx import stand_in
from tests.labs import Lab, own_lab
from tests.programs import REPO, environment, run

# The default scenario needs only the lab, which the fixture has started.
SCENARIOS = sorted(path.parent.name for path in (REPO / "molecule").glob("*/molecule.yml"))
SCENARIOS.remove("default")
# The scenario that needs no lab.
SCENARIOS.remove("awx")


# Scenarios in a lab with other parts, or with OpenShift, which is another lab: a lab keeps its parts. The arguments of own_lab().
OTHER_LABS: dict[str, dict[str, Any]] = {
    "nodegroups": {"parts": ("openstack",)},
    "autoscaling": {"options": ("--openshift",)},
    "driver_image": {"parts": ("registry",)},
    "licensing": {"options": ("--fleet", str(REPO / "tests" / "integration" / "licensing" / "small_fleet.yaml"))},
    "mirror": {"parts": ("registry",)},
    "vsphere_hosts": {"options": ("--openshift", "--platform", "VSphere")},
    "vsphere_templates": {"options": ("--openshift", "--platform", "VSphere")},
}


def play(lab: Lab, scenario: str, tmp_path: Path) -> None:
    # The lab outlives the scenario, but molecule's record of what it has prepared there must not.
    env = {**lab.env, "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path)}
    run("molecule", "test", "--destroy", "never", "--scenario-name", scenario, env=env)


@pytest.mark.usual(100)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in OTHER_LABS])
def test_scenario(lab: Lab, scenario: str, tmp_path: Path) -> None:
    lab.reset()
    play(lab, scenario, tmp_path)


@pytest.mark.usual(150)
@pytest.mark.soak
def test_scenario_with_a_stand_in_for_awx(tmp_path: Path) -> None:
    with stand_in(tmp_path) as running:
        login = {"CONTROLLER_HOST": running.url, "CONTROLLER_USERNAME": USER, "CONTROLLER_PASSWORD": PASSWORD}
        run(
            "molecule",
            "test",
            "--destroy",
            "never",
            "--scenario-name",
            "awx",
            env=environment(**login, MOLECULE_EPHEMERAL_DIRECTORY=str(tmp_path / "molecule")),
        )


@pytest.mark.usual(150)
@pytest.mark.soak
@pytest.mark.parametrize("scenario", OTHER_LABS)
def test_scenario_in_a_lab_of_its_own(scenario: str, tmp_path: Path) -> None:
    needed = OTHER_LABS[scenario]
    with own_lab("molecule", *needed.get("parts", ()), options=needed.get("options", ())) as lab:
        play(lab, scenario, tmp_path)
