# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resources of a measured command are those of its own processes."""

from __future__ import annotations

import os
import sys

import pytest

from tests.performance.bench.timer import BenchmarkError, resources


def test_the_memory_of_this_process_does_not_count() -> None:
    large = bytearray(os.urandom(1) * 300 * 2**20)
    measured, output = resources([sys.executable, "-S", "-c", "print('done')"], os.environ)
    assert output == "done\n"
    assert measured.mib is not None
    assert 0 < measured.mib < 100 < len(large) / 2**20


def test_memory_and_time_of_a_child_process_count() -> None:
    child = "x = b'x' * 200 * 2**20; sum(range(3_000_000))"
    measured, _output = resources(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"], os.environ
    )
    assert measured.mib is not None
    assert measured.cpu_seconds is not None
    assert measured.mib > 200
    assert measured.cpu_seconds > 0


def test_a_command_that_fails_is_an_error_with_its_output() -> None:
    with pytest.raises(BenchmarkError, match="why"):
        resources([sys.executable, "-c", "print('why'); raise SystemExit(3)"], os.environ)
