# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures MIG planning: enumerates, packs and plans in one process, and prints CPU seconds and MiB as JSON."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.nodes.mig import mig_capacity
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodsByNode
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import ConfigMaps, plan_sharing_changes
from ansible_collections.accel.gpu.plugins.module_utils.sharing.reader import plan_demand
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import maximal
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig_packing import PackedGpu, pack
from tests.helpers.fleet import node

MODEL = "A100-SXM4-40GB"
GPUS, NODES, GPUS_PER_NODE = 1000, 5000, 2


def enumeration() -> None:
    """Enumerate all maximal layouts of all geometries; each model has one of these geometries."""
    for geometry in mig.placement_tables():
        maximal(geometry)


def packing() -> None:
    """Pack a demand of three profiles onto 1,000 GPUs, of which a third is partitioned and a third is in use."""
    geometry = mig.geometry(MODEL)
    assert geometry
    gpus = [
        PackedGpu(
            f"n{at // GPUS_PER_NODE:04}",
            at % GPUS_PER_NODE,
            {"3g.20gb": 1} if at % 3 == 0 else None,
            at % 3 == 1,
            geometry,
        )
        for at in range(GPUS)
    ]
    packed = pack(gpus, {"1g.5gb": GPUS, "2g.10gb": GPUS // 2, "3g.20gb": GPUS // 2})
    assert not packed.missing


def planning() -> None:
    """Compute the steps of a run from 5,000 nodes and a demand."""
    demand = {"1g.5gb": NODES * GPUS_PER_NODE, "2g.10gb": NODES, "3g.20gb": NODES * 2}
    sharing = {"mode": "mig", "demand": demand}
    plan = derive({"name": "lab"}, {}, [{"name": "train", "match": {"model": MODEL}, "sharing": sharing}])
    membership = assign_pools(plan.pools, FLEET)
    configmaps = ConfigMaps(capacity=mig_capacity(FLEET, {}))
    allocation = plan_demand(plan, FLEET, membership, configmaps, PodsByNode())
    changes = plan_sharing_changes(allocation.plan, FLEET, membership, configmaps, pods=PodsByNode())
    assert not allocation.missing
    assert len(changes.node_changes) == NODES


LABELS = {"nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-disabled", "nvidia.com/gpu.memory": "40960"}
FLEET = [node(f"n{at:04}", f"NVIDIA-{MODEL}", GPUS_PER_NODE, labels=LABELS) for at in range(NODES)]


def seconds(work: t.Callable[[], None]) -> float:
    """Return the CPU time: the minimum of three measurements, since a busy machine only adds time."""
    actual = []
    for dummy in range(3):
        begun = time.process_time()
        work()
        actual.append(time.process_time() - begun)
    return min(actual)


def peak() -> float:
    """Return the peak memory of this process; the value of getrusage would include that of the parent process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kib) / 1024


if __name__ == "__main__":
    actual = {work.__name__: seconds(work) for work in (enumeration, packing, planning)}
    actual["MiB"] = peak()
    print(json.dumps(actual))
