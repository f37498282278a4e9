# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults in which the MIG manager reports no state or a wrong success; each on its own node, all at the same time."""

from __future__ import annotations

import pytest

from tests.integration.sim.sim_cluster import MIG_MANAGER, SimCluster

HUNG, PARTIAL, PAUSED = "a100-2", "a100-3", "a100-4"
HALVES = "nvidia.com/mig-3g.40gb"


@pytest.mark.soak
@pytest.mark.usual(40)
def test_mig_faults_without_a_failed_state(cluster: SimCluster) -> None:
    cluster.configs({"mixed": "version: v1\nflags: {migStrategy: mixed}\n"})
    cluster.wait(lambda: cluster.mig(HUNG) == ("success", "true"), what="the operator's default to be applied")
    for name, fault in {HUNG: "mig-watch-hung", PARTIAL: "mig-partial", PAUSED: "mig-paused"}.items():
        cluster.fault(name, fault)
        cluster.set_config(name, "mixed")
        cluster.partition(name, "halves")
    cluster.wait(lambda: cluster.mig(PAUSED) == ("success", "paused-for-mig-change"), what="paused operands")
    cluster.wait(lambda: cluster.mig(PARTIAL) == ("success", "true"), what="the false success")
    cluster.wait(lambda: cluster.gpus(PARTIAL) == {HALVES: 8}, what="one half of each GPU")
    # The other changes are complete, so this one would be, too.
    assert cluster.mig(HUNG) == ("", "true")
    assert cluster.gpus(PAUSED) == {}
    for name in (HUNG, PAUSED):
        cluster.restart(name, MIG_MANAGER)
    cluster.fault(PARTIAL, None)
    cluster.restart(PARTIAL, MIG_MANAGER)
    for name in (HUNG, PARTIAL, PAUSED):
        cluster.wait(lambda name=name: cluster.mig(name) == ("success", "true"), what=f"{name} to be repaired")  # type: ignore[misc]
        cluster.wait(lambda name=name: cluster.gpus(name) == {HALVES: 16}, what=f"all halves of {name}")  # type: ignore[misc]
