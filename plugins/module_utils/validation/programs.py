# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that validation pods run, as shell commands, and their results from the logs (pure).

nvidia-smi -L and NVIDIA's CUDA samples vectorAdd (a kernel whose result it verifies) and nbody (a load).
"""

from __future__ import annotations

import re
import typing as t

# NVIDIA/cuda-samples, Samples/0_Introduction/vectorAdd/vectorAdd.cu.
KERNEL_PASSED = "Test PASSED"
# NVIDIA/cuda-samples, Samples/5_Domain_Specific/nbody/nbody.cpp.
_GFLOPS = re.compile(r"^= (\d+(?:\.\d+)?) (?:single|double)-precision GFLOP/s", re.MULTILINE)
# The samples' folder in NVIDIA's images; other images may have the programs in their PATH.
_WITH_SAMPLES = "PATH=$PATH:/cuda-samples"
# A process that ignores the signal of `timeout` is killed after these seconds.
_KILL_AFTER = 5
# About one second on a data center GPU.
_NBODY = "nbody -benchmark -numbodies=262144 -i=10"
LIST_DEVICES = "nvidia-smi -L"
# coreutils: timeout ends with 124 if the program ended at its signal, with 137 if it had to be killed.
TIMEOUT_CODES = (124, 137)


def kernel_command(timeout: int, hold_seconds: int) -> str:
    """List the device, run the kernel on it, and hold the device."""
    kernel = f"{_WITH_SAMPLES} timeout -k {_KILL_AFTER} {timeout} vectorAdd"
    return f"{LIST_DEVICES} && {kernel} && sleep {hold_seconds}"


def load_command(seconds: int, timeout: int) -> str:
    """Keep the device busy for some seconds; `timeout`: the seconds that one run of the load may take beyond that."""
    load = f"{_WITH_SAMPLES} timeout -k {_KILL_AFTER} {seconds + timeout} {_NBODY} || exit $?"
    return f'end=$(($(date +%s) + {seconds})); while [ "$(date +%s)" -lt "$end" ]; do {load}; done'


def kernel_passed(log: str) -> bool:
    """Whether the kernel has computed the right result."""
    return KERNEL_PASSED in log


def mean_gflops(log: str) -> float | None:
    """The mean of the load's measurements; None without one."""
    rates = [float(match[1]) for match in _GFLOPS.finditer(log)]
    return round(sum(rates) / len(rates), 1) if rates else None


def load_result(seconds: int, logs: t.Iterable[str]) -> dict[str, t.Any]:
    """The result of the load over all pods, from their logs."""
    rates = sorted(rate for rate in map(mean_gflops, logs) if rate is not None)
    return {"seconds": seconds, **({"min_gflops": rates[0], "max_gflops": rates[-1]} if rates else {})}
