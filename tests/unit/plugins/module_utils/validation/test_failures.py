# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures of pods, one by one and grouped by their cause."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.validation.evaluation import ExplainedFailure, group_failures

HUNG = "kernel ended with exit code 124 (Error)"
ALONE = ExplainedFailure("p-0", HUNG, "GPU-0", "line", "Reboot the node.")


def _hung(count: int, device: str = "GPU-{}", log: str | None = "line") -> list[ExplainedFailure]:
    return [ExplainedFailure(f"p-{index}", HUNG, device.format(index), log, "Reboot.") for index in range(count)]


@pytest.mark.parametrize(
    ("failures", "texts"),
    [
        ([], []),
        ([ALONE], [f"p-0 on GPU-0: {HUNG}; its log: line. Reboot the node."]),
        (_hung(2), [f"2 of 8 pods on 2 GPUs (GPU-0, GPU-1): {HUNG}; log of p-0: line. Reboot."]),
        (
            _hung(8),
            [
                f"8 of 8 pods on 8 GPUs (GPU-0, GPU-1, GPU-2, GPU-3, GPU-4 and 3 more): {HUNG}; log of p-0: line. Reboot.",
            ],
        ),
        (_hung(2, "GPU-a"), [f"2 of 8 pods on 1 GPU (GPU-a): {HUNG}; log of p-0: line. Reboot."]),
        (_hung(2, "MIG-{}"), [f"2 of 8 pods on 2 devices (MIG-0, MIG-1): {HUNG}; log of p-0: line. Reboot."]),
        (_hung(2, "", None), [f"2 of 8 pods (p-0, p-1): {HUNG}. Reboot."]),
        (
            [*_hung(2), ExplainedFailure("p-2", "rejected: exceeded quota")],
            [
                f"2 of 8 pods on 2 GPUs (GPU-0, GPU-1): {HUNG}; log of p-0: line. Reboot.",
                "p-2: rejected: exceeded quota",
            ],
        ),
        ([ALONE, *_hung(1)], [str(ALONE), f"p-0 on GPU-0: {HUNG}; its log: line. Reboot."]),
    ],
)
def test_group_failures(failures: list[ExplainedFailure], texts: list[str]) -> None:
    assert list(group_failures(failures, 8)) == texts
