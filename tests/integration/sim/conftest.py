# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with the real NFD and GPU operator, installed with Helm: the simulator is tested without the collection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.sim.sim_cluster import SimCluster, install
from tests.labs import Lab


@pytest.fixture(scope="package")
def installed(lab: Lab) -> SimCluster:
    """The default fleet with both charts, every operand ready, and ConfigMaps for device plugin and MIG manager."""
    lab.reset()
    return install(lab)


@pytest.fixture
def cluster(installed: SimCluster) -> Iterator[SimCluster]:
    """The same cluster for every test; changes of a test to nodes are undone after it."""
    yield installed
    installed.undo()
