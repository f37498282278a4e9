# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of sharing a GPU: measurements of this project and of CERN, and the rules derived from them."""

from __future__ import annotations

import math
import typing as t

from .names import MPS_MODE, TIME_SLICING_MODE

# The measurements comprise 189 timed cases with synthetic kernels (compute-bound, copies, short bursts), started through the driver API. Each value
# is the median of 3 repeats; clocks and results were checked in each repeat. Under MPS, each of N clients gets 100/N % of the SMs, which is the
# device plugin's setting. Not measured: more than 8 processes, MIG, tensor cores at the power limit, faults.
MEASURED = "one NVIDIA H200, driver 580.159.04, 2026-11-21"
MAX_MEASURED_PODS = 8


class BusyPods(t.NamedTuple):
    """The speed of each of N processes that always have work, as a fraction of a process's speed alone on the GPU, and how evenly they are served."""

    mode: str
    load: str
    pods: int
    share: float
    fairness: float
    """The smallest share divided by the largest, in the worst of the repeats."""


class LaunchLatency(t.NamedTuple):
    """The milliseconds from submission to completion of a synchronous launch next to busy processes; 1.0 ms without busy processes."""

    mode: str
    busy: int
    median_ms: float
    p99_ms: float


class Loss(t.NamedTuple):
    """The loss measured with CERN's simulation, in per cent of the time that ideal sharing would take; one value for each problem size."""

    step: str
    per_cent: tuple[float, float, float]


BUSY: tuple[BusyPods, ...] = (
    BusyPods(TIME_SLICING_MODE, "compute", 2, 0.452, 0.999),
    BusyPods(TIME_SLICING_MODE, "compute", 4, 0.226, 0.996),
    BusyPods(TIME_SLICING_MODE, "compute", 8, 0.113, 0.996),
    BusyPods(TIME_SLICING_MODE, "copy", 2, 0.453, 0.999),
    BusyPods(TIME_SLICING_MODE, "copy", 4, 0.226, 0.998),
    BusyPods(TIME_SLICING_MODE, "copy", 8, 0.113, 0.993),
    BusyPods(MPS_MODE, "compute", 2, 0.502, 1.000),
    BusyPods(MPS_MODE, "compute", 4, 0.244, 0.996),
    BusyPods(MPS_MODE, "compute", 8, 0.122, 0.996),
    BusyPods(MPS_MODE, "copy", 2, 0.499, 0.988),
    BusyPods(MPS_MODE, "copy", 4, 0.248, 0.962),
    BusyPods(MPS_MODE, "copy", 8, 0.123, 0.935),
)
WAITING: tuple[LaunchLatency, ...] = (
    LaunchLatency(TIME_SLICING_MODE, 0, 1.01, 1.02),
    LaunchLatency(TIME_SLICING_MODE, 1, 2.29, 3.29),
    LaunchLatency(TIME_SLICING_MODE, 3, 5.10, 7.95),
    LaunchLatency(MPS_MODE, 1, 1.01, 1.02),
    LaunchLatency(MPS_MODE, 3, 1.01, 1.03),
)
# The fraction of the GPU that all busy processes get together. These rules fit the rows above.
TOTAL = {TIME_SLICING_MODE: 0.905, MPS_MODE: 0.98}
# One turn of a busy process: a time slice of 2.06 ms and a switch of 0.22 ms. A launch waits for the turns of all other processes.
TURN_MS = 2.3
# The memory that each MPS client should leave free. If four clients fill their shares, the shares, the MPS server and the driver's
# reserve together exceed the GPU's memory: in the measurement, one of the four clients could not allocate the last 0.7 GiB of its share.
MPS_RESERVE_MIB = 819

# Source: CERN's webinar "Adding and managing GPUs on Kubernetes", autumn 2024, Diana Gaponcic, IT-CD-PI; A100 40GB PCIe, driver 470.129.06, CUDA 11.6.
# The workload is a simulation (Xsuite) that uses the GPU heavily, with few memory accesses and little communication with the CPU.
# Each row compares a time with twice the time of the previous row ("Shared x2" with twice x1). The resulting shares of the GPU: 0.36, 0.18 and 0.09.
WEBINAR_TIME_SLICING: tuple[Loss, ...] = (
    Loss("x1 to x2", (37.90, 38.23, 38.61)),
    Loss("x2 to x4", (0, 0, 0)),
    Loss("x4 to x8", (0, 0, 0)),
)
WEBINAR_MIG = Loss("whole GPU to 7g.40gb", (8.97, 9.37, 8.91))

# The number of SMs of the whole GPU, and of each profile by its id. Sources: nvidia-smi mig -lgip on an H200; go-nvml's mock of an A100 DGX.
_H200 = (132, {19: 16, 20: 16, 15: 26, 14: 32, 9: 60, 5: 64, 0: 132})
_A100 = (108, {19: 14, 20: 14, 15: 14, 14: 28, 9: 42, 5: 56, 0: 98})
SMS: dict[str, tuple[int, dict[int, int]]] = {
    "H200": _H200,
    **dict.fromkeys(("A100-SXM4-40GB", "A100-PCIE-40GB", "A100-SXM4-80GB", "A100-80GB-PCIe"), _A100),
}
# The memory of an H200's MIG devices in MiB (nvidia-smi mig -lgip), which is slightly less than the sizes in their names.
H200_MIB = {19: 16384, 20: 16384, 15: 33280, 14: 33280, 9: 71424, 5: 71424, 0: 143360}


def limit_note(pods: int) -> str:
    """A note for the end of a sentence if this number of pods exceeds the measured numbers; otherwise empty."""
    return f"; not measured beyond {MAX_MEASURED_PODS} pods" if pods > MAX_MEASURED_PODS else ""


def share(mode: str, pods: int) -> float:
    """The fraction of the GPU for each of `pods` busy pods: the measured value if there is one, otherwise the value that the rule TOTAL yields."""
    measured = (row.share for row in BUSY if (row.mode, row.load, row.pods) == (mode, "compute", pods))
    return next(measured, TOTAL[mode] / pods)


def wait_ms(pods: int) -> int:
    """The longest wait of a launch under time-slicing while all other pods are busy, in milliseconds, rounded up."""
    return math.ceil((pods - 1) * TURN_MS)
