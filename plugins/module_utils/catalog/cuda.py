# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of the programs that validate GPUs, by CUDA version, and which GPUs and drivers a CUDA version needs."""

from __future__ import annotations

import re

# Major and minor number of a CUDA version or compute capability.
Version = tuple[int, int]

# NVIDIA's CUDA samples vectorAdd and nbody as /cuda-samples/NAME, with sh and coreutils (NVIDIA/k8s-samples, deployments/container). The
# tags are those of NVIDIA's and other projects' manifests. A driver runs the programs of its own CUDA version and of older ones.
_SAMPLES = "nvcr.io/nvidia/k8s/cuda-sample"
KERNEL_IMAGES: dict[str, str] = {
    "11.2": f"{_SAMPLES}:vectoradd-cuda11.2.1",
    "11.7": f"{_SAMPLES}:vectoradd-cuda11.7.1",
    "12.5": f"{_SAMPLES}:vectoradd-cuda12.5.0",
}
LOAD_IMAGES: dict[str, str] = {
    "11.7": f"{_SAMPLES}:nbody-cuda11.7.1",
    "12.5": f"{_SAMPLES}:nbody-cuda12.5.0",
}
# NGC's PyTorch image has nccl-tests as /usr/local/bin/*_perf_mpi (NVIDIA Run:ai, "Validating GPU Cluster Communication with NCCL Tests").
NCCL_IMAGE = "nvcr.io/nvidia/pytorch:26.01-py3"

# The key of an image that is used with every CUDA version.
ANY_VERSION = "0.0"

# The lowest compute capability of each major version (CUDA Toolkit release notes, "Deprecated Architectures").
_MIN_COMPUTE: dict[int, Version] = {11: (3, 5), 12: (5, 0), 13: (7, 5)}
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})*", re.ASCII)


def parse_version(text: str) -> Version | None:
    """The first two numbers of a version; None for other text."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def runs_on(cuda: Version, compute: Version | None) -> bool:
    """Whether programs of a CUDA version run on GPUs of a compute capability; None: unknown, and assumed to be supported."""
    return compute is None or compute >= _MIN_COMPUTE.get(cuda[0], (0, 0))
