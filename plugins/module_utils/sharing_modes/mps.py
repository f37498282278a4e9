# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mode `mps`: the pods of a GPU run on it at the same time, each with an equal part of its memory and its SMs."""

from __future__ import annotations

import typing as t

from ..catalog import benchmarks
from ..catalog.names import MPS_MODE
from .base import Counts, DeclaredSharing, PodExpectation, Problems, SharingMode, missing_replicas_problems
from .time_slicing import TIME_SLICING

if t.TYPE_CHECKING:
    from .sharing import Sharing

# The maximum number of clients that the MPS control daemon accepts (k8s-device-plugin cmd/mps-control-daemon/mps/device.go).
_MAX_CLIENTS, _MAX_CLIENTS_BEFORE_TURING = 48, 16
_TURING = (7, 5)
_CAPABLE_LABEL = "nvidia.com/mps.capable"


class Mps(SharingMode):
    """NVIDIA's Multi-Process Service. Its daemon uses the whole GPU, and its clients end when the daemon ends."""

    name = MPS_MODE
    own_options = ("replicas",)
    fixed_options: t.ClassVar[t.Mapping[str, tuple[t.Any, str]]] = {
        "fail_requests_greater_than_one": (True, "MPS always rejects a request for two shares (NVIDIA device plugin)")
    }
    plugin_key = "mps"
    evicts_all_pods = True

    def problems(self, declared: DeclaredSharing) -> Problems:
        """The problems in the number of shares, which MPS limits depending on the GPU's generation."""
        yield from missing_replicas_problems(self, declared)
        replicas, model = declared.options.get("replicas"), declared.model
        if not isinstance(replicas, int):
            return
        is_old = model is not None and tuple(map(int, model.compute.split("."))) < _TURING
        limit = _MAX_CLIENTS_BEFORE_TURING if is_old else _MAX_CLIENTS
        if replicas > limit:
            gpu = f"a {model.key}" if is_old and model else "a GPU"
            yield (
                f"{declared.path}.sharing.replicas: {replicas} is not allowed: the MPS control daemon lets at most {limit} clients share {gpu}; "
                f"use at most {limit}, or mode: {TIME_SLICING.name}"
            )

    def labels(self, sharing: Sharing, product: str, devices: Counts) -> dict[str, str]:
        """The common labels, and the label that shows that MPS can be used."""
        return {**super().labels(sharing, product, devices), _CAPABLE_LABEL: "true"}

    def performance(self, pods: PodExpectation) -> str:
        """The share, the latency and the memory of a pod."""
        return (
            f"busy pods get {benchmarks.share(self.name, pods.replicas):.3f} of the GPU each, with the same latency as a pod that runs alone; "
            "the share is a hard limit, even while other pods are idle; "
            f"{_memory(pods.memory_mib_per_share)}{benchmarks.limit_note(pods.replicas)}"
        )


def _memory(mib: int | None) -> str:
    if mib is None:
        return "memory is divided"
    usable = mib - benchmarks.MPS_RESERVE_MIB
    if usable <= 0:
        return f"{mib} MiB of memory each, too little for more than a CUDA context"
    return f"{mib} MiB of memory each, of which 0.8 GiB should stay free ({usable / 1024:.1f} GiB usable)"


MPS = Mps()
