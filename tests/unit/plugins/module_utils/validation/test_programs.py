# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell commands of the programs, run with programs in place of NVIDIA's, and results read from logs."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.validation import programs

# nbody in benchmark mode (NVIDIA/cuda-samples).
LOAD = """\
> Compute 9.0 CUDA device: [NVIDIA H200]
number of bodies = 262144
262144 bodies, total time for 10 iterations: 416.491 ms
= 1650.000 billion interactions per second
= {rate} single-precision GFLOP/s at 20 flops per interaction
"""


def run(command: str, folder: Path, **scripts: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a container does, with these programs in its PATH."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False, timeout=30)


LISTS = {"nvidia-smi": "echo GPU 0: $*"}


def test_the_kernel_runs_after_the_list_of_devices(tmp_path: Path) -> None:
    done = run(programs.kernel_command(5, 0), tmp_path, **LISTS, vectorAdd="echo Test PASSED")
    assert (done.returncode, done.stdout) == (0, "GPU 0: -L\nTest PASSED\n")
    assert programs.kernel_passed(done.stdout)


@pytest.mark.parametrize(
    ("scripts", "code"),
    [
        ({"nvidia-smi": "exit 9", "vectorAdd": "exit 0"}, 9),
        ({**LISTS, "vectorAdd": "exit 1"}, 1),
        (LISTS, 127),
        ({**LISTS, "vectorAdd": "exec sleep 20"}, 124),
    ],
)
def test_each_failure_has_its_exit_code(tmp_path: Path, scripts: dict[str, str], code: int) -> None:
    assert run(programs.kernel_command(1, 20), tmp_path, **scripts).returncode == code


def test_the_load_is_repeated_until_its_time_is_over(tmp_path: Path) -> None:
    start = time.monotonic()
    done = run(programs.load_command(2, 5), tmp_path, nbody="sleep 0.4; echo $*")
    assert done.returncode == 0
    assert time.monotonic() - start >= 1
    assert set(done.stdout.splitlines()) == {"-benchmark -numbodies=262144 -i=10"}
    assert len(done.stdout.splitlines()) > 1


def test_a_failed_load_ends_immediately(tmp_path: Path) -> None:
    assert run(programs.load_command(20, 5), tmp_path, nbody="exit 35").returncode == 35


def test_results_of_the_load() -> None:
    logs = [LOAD.format(rate="33000.000") + LOAD.format(rate="33010.000"), LOAD.format(rate="31000.500")]
    assert programs.load_result(60, logs) == {"seconds": 60, "min_gflops": 31000.5, "max_gflops": 33005.0}
    assert programs.load_result(60, ["nothing"]) == {"seconds": 60}
    assert programs.mean_gflops("") is None
