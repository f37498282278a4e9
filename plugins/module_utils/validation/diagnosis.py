# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explains why a program failed, based on its output, and names the remedy (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog import cuda
from ..catalog.names import MPS_MODE
from ..validation_programs.programs import PROGRAMS

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..validation_programs.program import Program

# In coreutils, timeout exits with 124 if its signal ended the program, and with 137 if the program had to be killed.
_TIMEOUT_CODES = (124, 137)
_COMMANDS = "|".join(["timeout", *(command for program in PROGRAMS for command in program.commands)])

# An image's requirement in a message of nvidia-container-cli, and the CUDA version in an image's tag.
_REQUIREMENT = re.compile(r"unsatisfied condition: cuda>=(\d{1,4}\.\d{1,4})")
_TAG = re.compile(r"cuda-?(\d{1,4}\.\d{1,4})", re.IGNORECASE)

_REPAIR = (
    "cordon the node, look for XIDs in its kernel log (dmesg | grep NVRM) and for errors in nvidia-smi -q -d ECC,ROW_REMAPPER, "
    "run dcgmi diag -r 3, then reset or replace the GPU"
)


@dataclass(frozen=True)
class _Finding:
    """A pattern in a log or message, and its explanation, into which the values of _values() are inserted.

    `if_supported`: the explanation if the driver of the node supports the required CUDA version.
    """

    pattern: re.Pattern[str]
    meaning: str
    if_supported: str = ""


def _finding(pattern: str, meaning: str, if_supported: str = "") -> _Finding:
    return _Finding(re.compile(pattern, re.IGNORECASE), meaning, if_supported)


# The failures that any program can have; for the program's own messages, see Program.failures. CUDA's messages are those of
# cudaGetErrorString; "requirement error" is a message of nvidia-container-cli.
_FINDINGS = (
    _finding(
        r"exceeded quota",
        "Raise the limit of this ResourceQuota in the namespace of the pods (gpu_cluster.validation.namespace), "
        "or lower gpu_validation_max_pods. One more pod than GPUs or shares is created to verify that it must wait",
    ),
    _finding(
        r"driver version is insufficient|unsatisfied condition: cuda|PTX was compiled with an unsupported toolchain",
        "Driver {driver} supports CUDA {cuda}, and {image} needs a newer one. Update the driver (driver.version of the pool, or "
        "gpu_cluster.operator.driver.version), or set {variable} to an image for CUDA {cuda} or older",
        "Driver {driver} supports CUDA {cuda}, which is sufficient for {image}, so the container does not use this driver. Look for an older "
        "libcuda.so or CUDA compatibility libraries in the image and in its LD_LIBRARY_PATH, check the container toolkit's pod on the node, "
        "and compare the node's label nvidia.com/cuda.driver-version.full with nvidia-smi on the node",
    ),
    _finding(
        r"ECC error|hardware stack error|GPU is lost|unspecified launch failure", "The GPU reports errors: {repair}"
    ),
    _finding(
        r"no kernel image is available",
        "{image} has no code for {model} (compute capability {compute}). Set {variable} to an image of "
        "a CUDA version that supports it",
    ),
    _finding(
        r"system not yet initialized|system has unsupported",
        "NVSwitch is not initialized: check on the node that Fabric Manager runs in the driver's version (nvidia-smi -q | grep -A2 Fabric)",
    ),
    _finding(
        r"devices?(?:\(s\))? (?:is/are |are )?busy or unavailable|exclusive-process",
        "Another process holds the GPU in exclusive mode: check nvidia-smi -q -d COMPUTE and the MPS control daemon on the node",
    ),
    _finding(r"out of memory", "Other processes use the GPU's memory: list them with nvidia-smi on the node"),
    _finding(
        r"no CUDA-capable device|unknown error|initialization error|operation not supported|driver/library version mismatch",
        "CUDA cannot use the device that nvidia-smi lists: check the driver's and the container toolkit's pods on the node, "
        "and reboot it if the driver was replaced while it was in use",
    ),
    _finding(
        r"nvidia-smi.*(?:not found|no such file)|executable file not found",
        "The container toolkit has not mounted the driver into the container: check the toolkit's pod and the RuntimeClass nvidia",
    ),
    _finding(
        rf"(?:{_COMMANDS})\b.*(?:not found|no such file)",
        "{image} lacks this program. Remove {variable} to use NVIDIA's image, or set it to one with the program in its PATH",
    ),
    _finding(
        r"OOMKilled", "The pod reached its memory limit: raise the default limit of the LimitRange in its namespace"
    ),
)


def required_cuda(text: str, image: str) -> cuda.Version | None:
    """The CUDA version that a message requires, or otherwise the version in the image's tag; None if neither is known."""
    match = _REQUIREMENT.search(text) or _TAG.search(image.rpartition(":")[2])
    return cuda.parse_version(match[1]) if match else None


def diagnose(text: str, node: Node, program: Program, image: str, exit_code: int | None = None) -> str:
    """The cause of a program's failure on a node, with the remedy, as a sentence; empty if it is unknown."""
    own = (_finding(pattern, meaning) for pattern, meaning in program.failures.items())
    for finding in (*own, *_FINDINGS):
        if finding.pattern.search(text):
            required, supported = required_cuda(text, image), cuda.parse_version(node.cuda)
            is_supported = required is not None and supported is not None and required <= supported
            meaning = finding.if_supported if finding.if_supported and is_supported else finding.meaning
            return f"{meaning.format(**_values(node, program, image))}."
    return (program.timeout_remedy or hang(node)) if exit_code in _TIMEOUT_CODES else ""


def _values(node: Node, program: Program, image: str) -> dict[str, str]:
    return {
        "image": image,
        "variable": f"gpu_cluster.validation.{program.image}",
        "driver": node.driver or "(unknown)",
        "cuda": node.cuda or "(unknown)",
        "compute": node.compute or "unknown",
        "model": node.model or "the GPU",
        "repair": _REPAIR,
    }


def hang(node: Node) -> str:
    """The remedy for a program that does not end."""
    mps = " With MPS, processes of another user id wait for each other: set gpu_validation_run_as_user to that of the workloads."
    return f"The GPU does not respond: {_REPAIR}.{mps if node.mode == MPS_MODE else ''}"
