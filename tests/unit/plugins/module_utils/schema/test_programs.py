# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell commands of the programs, run with programs in place of NVIDIA's, and results read from logs."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema import validators
from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import (
    DEVICE_PROGRAMS,
    KERNEL,
    NODE_PROGRAMS,
    PROGRAMS,
    Program,
)
from tests.helpers.validation import DEFAULTS

# nbody in benchmark mode (NVIDIA/cuda-samples).
NBODY = """\
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


LOAD = DEVICE_PROGRAMS[1]
NODE, NETWORK = NODE_PROGRAMS


def test_the_kernel_prints_its_result(tmp_path: Path) -> None:
    done = run(KERNEL.command({**DEFAULTS, "kernel_timeout": 5}), tmp_path, vectorAdd="echo Test PASSED")
    assert (done.returncode, done.stdout) == (0, "Test PASSED\n")
    assert KERNEL.evaluate({"a": done.stdout}, DEFAULTS) == ("passed", ())
    result, [problem] = KERNEL.evaluate({"a": done.stdout, "b": "GPU 0: T4 (UUID: GPU-b)"}, DEFAULTS)
    assert result == "failed"
    assert problem.startswith("b ended without an error, but its kernel did not print 'Test PASSED'")
    assert "GPU-b" in problem


@pytest.mark.parametrize(
    ("scripts", "code"),
    [({"vectorAdd": "exit 1"}, 1), ({}, 127), ({"vectorAdd": "exec sleep 20"}, 124)],
)
def test_each_failure_has_its_exit_code(tmp_path: Path, scripts: dict[str, str], code: int) -> None:
    assert run(KERNEL.command({**DEFAULTS, "kernel_timeout": 1}), tmp_path, **scripts).returncode == code


def test_the_load_is_repeated_until_its_time_is_over(tmp_path: Path) -> None:
    start = time.monotonic()
    done = run(LOAD.command({"load_seconds": 2, "kernel_timeout": 5}), tmp_path, nbody="sleep 0.4; echo $*")
    assert done.returncode == 0
    assert time.monotonic() - start >= 1
    assert set(done.stdout.splitlines()) == {"-benchmark -numbodies=262144 -i=10"}
    assert len(done.stdout.splitlines()) > 1


def test_a_failed_load_ends_immediately(tmp_path: Path) -> None:
    options = {"load_seconds": 20, "kernel_timeout": 5}
    assert run(LOAD.command(options), tmp_path, nbody="exit 35").returncode == 35


def test_results_of_the_load() -> None:
    options = {"load_seconds": 60}
    rates = [NBODY.format(rate="33000.000") + NBODY.format(rate="33010.000"), NBODY.format(rate="31000.500")]
    result = {"seconds": 60, "min_gflops": 31000.5, "max_gflops": 33005.0}
    assert LOAD.evaluate({"a": rates[0], "b": rates[1]}, options) == (result, ())
    assert LOAD.evaluate({"a": "nothing"}, options) == ({"seconds": 60}, ())


# The end of nccl-tests 2.x (src/util.cu).
OUTPUT = """\
GPU 0: NVIDIA H200 (UUID: GPU-1)
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  2147483648     536870912     float     sum      -1   7904.0  271.70  475.47      0   7897.1  271.93  475.88      0
# Out of bounds values : {wrong}
# Avg bus bandwidth    : {bandwidth}
#
"""


@pytest.mark.parametrize(
    ("bandwidth", "wrong", "minimum", "result", "problem"),
    [
        ("361.234 ", "0 OK", 0, 361.2, ""),
        ("1.2e+03 OK", "0 OK", 400, 1200.0, ""),
        ("35.9 ", "0 OK", 300, 35.9, "35.9 GB/s bus bandwidth, but at least 300 is required. Check nvidia-smi nvlink"),
        ("361.2 ", "18 FAILED", 0, None, "18 wrong values"),
    ],
)
def test_results_of_an_all_reduce(bandwidth: str, wrong: str, minimum: int, result: float | None, problem: str) -> None:
    options = {**DEFAULTS, "min_bandwidth": minimum}
    values, text = NODE.evaluate(OUTPUT.format(bandwidth=bandwidth, wrong=wrong), options)
    assert values.get("bus_bandwidth") == result
    assert problem in text
    assert bool(text) == bool(problem)


def test_output_without_a_result_is_a_problem() -> None:
    assert NETWORK.evaluate("NCCL WARN", DEFAULTS) == ({}, "the log has no bandwidth")


@pytest.mark.parametrize(("timeout", "limit"), [(900, 300), (7200, 2400), (30, 10)])
def test_a_measurement_has_a_third_of_the_time_of_its_pods(timeout: int, limit: int) -> None:
    options = {**DEFAULTS, "all_reduce_timeout": timeout, "all_reduce_nodes": 2}
    for program in NODE_PROGRAMS:
        assert f"timeout -k 5 {limit} " in program.command(0, 8, options)


@pytest.mark.parametrize(
    ("program", "result", "text"),
    [
        (KERNEL, "passed", "the CUDA kernel passed"),
        (KERNEL, "failed", ""),
        (LOAD, {"seconds": 60, "min_gflops": 1.5, "max_gflops": 2.0}, "60 s of load at 1.5 to 2.0 GFLOP/s"),
        (LOAD, {"seconds": 60}, "60 s of load"),
        (NODE, {"nodes": ["a"], "gpus": 8, "bus_bandwidth": 350.0}, "350.0 GB/s between 8 GPUs of a node"),
        (NETWORK, {"nodes": ["a", "b"], "gpus": 16, "bus_bandwidth": 9.5}, "9.5 GB/s between 16 GPUs of 2 nodes"),
        (NODE, {"skipped": "its GPUs are shared"}, ""),
    ],
)
def test_results_in_reports(program: Program, result: object, text: str) -> None:
    assert program.describe(result) == text
    assert program.describe(None) == ""


def test_keys_are_unique_and_each_program_has_images() -> None:
    options = [name for program in PROGRAMS for name in program.options]
    assert len(set(options)) == len(options)
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    assert all(program.public_images and program.commands for program in PROGRAMS)
    images = [image for program in PROGRAMS for image in program.public_images.values()]
    assert [problem for problem in map(validators.image, images) if problem] == []
    assert all(program.requested_by in ("", *program.options) for program in PROGRAMS)
    assert [program.name for program in PROGRAMS if program.requested(DEFAULTS)] == ["kernel"]
