# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every molecule scenario, on the lab of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.labs import Lab
from tests.programs import REPO, run

# The default scenario is the lab itself, which the fixture has brought up.
SCENARIOS = sorted(path.parent.name for path in (REPO / "molecule").glob("*/molecule.yml"))
SCENARIOS.remove("default")


@pytest.mark.usual(60)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(lab: Lab, scenario: str, tmp_path: Path) -> None:
    lab.reset()
    # The lab outlives the scenario, molecule's memory of what it has prepared there must not.
    env = {**lab.env, "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path)}
    run("molecule", "test", "--destroy", "never", "--scenario-name", scenario, env=env)
