# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mode `time-slicing`: the pods of a GPU take turns on it, without memory limits."""

from __future__ import annotations

from ..catalog import benchmarks
from ..catalog.names import TIME_SLICING_MODE
from .base import DeclaredSharing, PodExpectation, Problems, SharingMode, missing_replicas_problems


class TimeSlicing(SharingMode):
    """The time-slicing of the device plugin."""

    name = TIME_SLICING_MODE
    own_options = ("replicas",)
    implied_by = ("replicas",)
    plugin_key = "timeSlicing"

    def problems(self, declared: DeclaredSharing) -> Problems:
        """The problem of a missing number of shares."""
        yield from missing_replicas_problems(self, declared)

    def performance(self, pods: PodExpectation) -> str:
        """The share, the latency and the memory of a pod."""
        return f"{time_sliced(pods.replicas, 'the GPU')}; memory is not divided{benchmarks.limit_note(pods.replicas)}"


def time_sliced(replicas: int, device: str) -> str:
    """The share of each pod if this number of pods take turns on a device."""
    others = f"{replicas - 1} busy pod{'s' if replicas > 2 else ''}"
    return (
        f"busy pods get {benchmarks.share(TIME_SLICING_MODE, replicas):.3f} of {device} each (10 % is lost to switching), a synchronous "
        f"launch waits up to {benchmarks.wait_ms(replicas)} ms alongside {others}"
    )


TIME_SLICING = TimeSlicing()
