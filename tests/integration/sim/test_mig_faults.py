# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG managers that say nothing, or success, of a change that is none; each on a node of its own, all at once."""

from __future__ import annotations

import pytest

from tests.integration.sim.cluster import MIG_MANAGER, Cluster

DEAF, PARTIAL, PAUSED = "a100-2", "a100-3", "a100-4"
HALVES = "nvidia.com/mig-3g.40gb"


@pytest.mark.soak
@pytest.mark.usual(40)
def test_mig_faults_that_no_failure_tells(cluster: Cluster) -> None:
    cluster.configs({"mixed": "version: v1\nflags: {migStrategy: mixed}\n"})
    cluster.wait(lambda: cluster.mig(DEAF) == ("success", "true"), what="the operator's default to be applied")
    for name, fault in {DEAF: "mig-watch-hung", PARTIAL: "mig-partial", PAUSED: "mig-paused"}.items():
        cluster.fault(name, fault)
        cluster.use(name, "mixed")
        cluster.partition(name, "halves")
    cluster.wait(lambda: cluster.mig(PAUSED) == ("success", "paused-for-mig-change"), what="operands that stay paused")
    cluster.wait(lambda: cluster.mig(PARTIAL) == ("success", "true"), what="a success that is none")
    cluster.wait(lambda: cluster.gpus(PARTIAL) == {HALVES: 8}, what="one half of each GPU")
    # The others had the same way to go.
    assert cluster.mig(DEAF) == ("", "true")
    assert cluster.gpus(PAUSED) == {}
    for name in (DEAF, PAUSED):
        cluster.restart(name, MIG_MANAGER)
    cluster.fault(PARTIAL, None)
    cluster.restart(PARTIAL, MIG_MANAGER)
    for name in (DEAF, PARTIAL, PAUSED):
        cluster.wait(lambda name=name: cluster.mig(name) == ("success", "true"), what=f"{name} to be mended")  # type: ignore[misc]
        cluster.wait(lambda name=name: cluster.gpus(name) == {HALVES: 16}, what=f"all halves of {name}")  # type: ignore[misc]
