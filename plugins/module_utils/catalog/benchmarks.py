# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sharing a GPU costs: what was measured, what somebody else measured beside it, and the one line that applies to a pool."""

from __future__ import annotations

import math
import typing as t

from . import mig, models

# 189 timed cases with synthetic kernels (compute-bound, copies, short bursts) through the driver API, medians of 3 repeats, clocks
# and results checked in each; MPS with 100/N % of the SMs for each of N clients, as the device plugin sets it. Not measured: more
# than 8 processes, MIG, tensor cores at the power limit, faults.
MEASURED = "one NVIDIA H200, driver 580.159.04, 2026-11-21"
# Diana Gaponcic, IT-CD-PI: a simulation (Xsuite) that is heavy on the GPU, low on memory accesses and on talk with the CPU.
WEBINAR = (
    "CERN's webinar 'Adding and managing GPUs on Kubernetes', autumn 2024: A100 40GB PCIe, driver 470.129.06, CUDA 11.6"
)

TIME_SLICING, MPS, MIG = "time-slicing", "mps", "mig"
MOST_MEASURED = 8


class Busy(t.NamedTuple):
    """N processes that always have work: what each gets, as a part of what it has alone on the card, and how evenly."""

    mode: str
    load: str
    pods: int
    share: float
    fairness: float
    """The least share over the largest, the worst of the repeats."""


class Waiting(t.NamedTuple):
    """A launch that is waited for, of 1.0 ms alone, beside busy processes: milliseconds from submission to completion."""

    mode: str
    busy: int
    median_ms: float
    p99_ms: float


class Loss(t.NamedTuple):
    """What CERN's simulation lost, in per cent of the time that ideal sharing would take; one value for each size of it."""

    step: str
    per_cent: tuple[float, float, float]


BUSY: tuple[Busy, ...] = (
    Busy(TIME_SLICING, "compute", 2, 0.452, 0.999),
    Busy(TIME_SLICING, "compute", 4, 0.226, 0.996),
    Busy(TIME_SLICING, "compute", 8, 0.113, 0.996),
    Busy(TIME_SLICING, "copy", 2, 0.453, 0.999),
    Busy(TIME_SLICING, "copy", 4, 0.226, 0.998),
    Busy(TIME_SLICING, "copy", 8, 0.113, 0.993),
    Busy(MPS, "compute", 2, 0.502, 1.000),
    Busy(MPS, "compute", 4, 0.244, 0.996),
    Busy(MPS, "compute", 8, 0.122, 0.996),
    Busy(MPS, "copy", 2, 0.499, 0.988),
    Busy(MPS, "copy", 4, 0.248, 0.962),
    Busy(MPS, "copy", 8, 0.123, 0.935),
)
WAITING: tuple[Waiting, ...] = (
    Waiting(TIME_SLICING, 0, 1.01, 1.02),
    Waiting(TIME_SLICING, 1, 2.29, 3.29),
    Waiting(TIME_SLICING, 3, 5.10, 7.95),
    Waiting(MPS, 1, 1.01, 1.02),
    Waiting(MPS, 3, 1.01, 1.03),
)
# What N busy processes have of the card together, as a rule over the rows above.
TOTAL = {TIME_SLICING: 0.905, MPS: 0.98}
# One turn of a busy process: a slice of 2.06 ms and a switch of 0.22 ms; whoever waits, waits for those of the others.
TURN_MS = 2.3
# Of its memory a client of MPS should leave so much: four that fill their parts, the server and what the driver reserves exceed the
# card, and one of the four was refused 0.7 GiB early.
MPS_SPARE_MIB = 819
# A context of CUDA without any library, in MiB; under MPS at 12.5 % of the SMs.
CONTEXT_MIB = {TIME_SLICING: 526, MPS: 89}

# "Shared x2" against twice the time of x1 and so on. Shares of the card that follow: 0.36, 0.18 and 0.09.
WEBINAR_TIME_SLICING: tuple[Loss, ...] = (
    Loss("x1 to x2", (37.90, 38.23, 38.61)),
    Loss("x2 to x4", (0, 0, 0)),
    Loss("x4 to x8", (0, 0, 0)),
)
WEBINAR_MIG = Loss("whole GPU to 7g.40gb", (8.97, 9.37, 8.91))

# SMs of the whole GPU, and of each profile by its id. Sources: nvidia-smi mig -lgip on an H200; go-nvml's mock of an A100 DGX.
_H200 = (132, {19: 16, 20: 16, 15: 26, 14: 32, 9: 60, 5: 64, 0: 132})
_A100 = (108, {19: 14, 20: 14, 15: 14, 14: 28, 9: 42, 5: 56, 0: 98})
SMS: dict[str, tuple[int, dict[int, int]]] = {
    "H200": _H200,
    **dict.fromkeys(("A100-SXM4-40GB", "A100-PCIE-40GB", "A100-SXM4-80GB", "A100-80GB-PCIe"), _A100),
}
# What an H200's devices have, in MiB (nvidia-smi mig -lgip): less than their names say.
H200_MIB = {19: 16384, 20: 16384, 15: 33280, 14: 33280, 9: 71424, 5: 71424, 0: 143360}


def line(
    mode: str,
    replicas: int = 1,
    *,
    memory_mib_per_share: int | None = None,
    profiles: t.Collection[str] = (),
    model: str | None = None,
) -> str:
    """What the pods of a pool have to expect, in one sentence without a full stop; empty where nothing is shared.

    profiles: the MIG devices' names, without their counts. model: as models.find() takes it. What is not known is left out.
    """
    beyond = f"; not measured beyond {MOST_MEASURED} pods" if replicas > MOST_MEASURED else ""
    if mode == TIME_SLICING:
        return f"{_sliced(replicas, 'the card')}; memory is not divided{beyond}"
    if mode == MPS:
        return f"{_by_mps(replicas)}; {_memory_of_mps(memory_mib_per_share)}{beyond}"
    if mode == MIG:
        return f"{_by_mig(replicas, profiles, model)}{beyond}"
    return ""


def share(mode: str, pods: int) -> float:
    """What each of so many busy pods gets of the card: as measured, else by the rule over what was."""
    measured = (row.share for row in BUSY if (row.mode, row.load, row.pods) == (mode, "compute", pods))
    return next(measured, TOTAL[mode] / pods)


def wait_ms(pods: int) -> int:
    """The longest wait of a launch under time-slicing, while all other pods are busy; in whole milliseconds, rounded up."""
    return math.ceil((pods - 1) * TURN_MS)


def _sliced(replicas: int, whole: str) -> str:
    others = f"{replicas - 1} busy pod{'s' if replicas > 2 else ''}"
    return (
        f"busy pods get {share(TIME_SLICING, replicas):.3f} of {whole} each (10 % goes to switching), a waited-for launch waits up to "
        f"{wait_ms(replicas)} ms beside {others}"
    )


def _by_mps(replicas: int) -> str:
    return (
        f"busy pods get {share(MPS, replicas):.3f} of the card each, with the latency of a pod alone; the share is a hard cap, also "
        "beside idle pods"
    )


def _memory_of_mps(mib: int | None) -> str:
    if mib is None:
        return "memory is divided"
    if mib <= MPS_SPARE_MIB:
        return f"{mib} MiB of memory each, too little for more than a context of CUDA"
    return f"{mib} MiB of memory each, of which 0.8 GiB should stay free ({(mib - MPS_SPARE_MIB) / 1024:.1f} GiB to plan with)"


def _by_mig(replicas: int, profiles: t.Collection[str], model: str | None) -> str:
    found = models.find(model) if model else None
    geometry = mig.geometry(found.key) if found else None
    parts = [_device(name, geometry, found.key if found else "") for name in sorted(profiles, reverse=True)]
    devices = "; ".join([*parts, "no device takes compute, memory or bandwidth from another"])
    return f"{devices}; on each, {_sliced(replicas, 'it')}, and its memory is not divided" if replicas > 1 else devices


def _device(name: str, geometry: mig.Geometry | None, key: str) -> str:
    """What one device has; where the model or the profile is not known, what its name says."""
    compute, dummy, rest = name.partition("g.")
    memory = f"{rest.partition('gb')[0]} GB"
    profile = geometry.profile(name) if geometry else None
    if geometry is None or profile is None:
        return f"{name} has {compute} compute slice{'s' if compute != '1' else ''} and {memory}"
    most = max(each.compute for each in geometry.profiles)
    if key not in SMS:
        return f"{name} has {profile.compute} of {most} compute slices and {memory}"
    whole, of_profile = SMS[key]
    sms = of_profile[profile.id]
    if key == "H200":
        memory = f"{H200_MIB[profile.id]} MiB"
    unused = 100 * (whole - sms) / whole if profile.compute == most else 0
    lost = f" ({unused:.0f} % of the SMs are in no device, and CERN's simulation lost as much)" if unused else ""
    return f"{name} has {sms} of {whole} SMs and {memory}{lost}"
