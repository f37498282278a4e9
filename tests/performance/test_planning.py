# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processor time and memory of the MIG planner."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.programs import REPO, run

# Seconds of CPU time, and MiB.
LIMITS = {"enumeration": 1, "packing": 1, "planning": 2, "MiB": 150}


@pytest.mark.usual(5)
def test_limits_of_enumeration_packing_and_planning() -> None:
    path = os.pathsep.join([str(REPO / "build"), str(REPO)])
    output = run(sys.executable, "-m", "tests.performance.planning", cwd=REPO, env={**os.environ, "PYTHONPATH": path})
    actual = json.loads(output)
    assert actual.keys() == LIMITS.keys()
    assert {name: value for name, value in actual.items() if value > LIMITS[name]} == {}
