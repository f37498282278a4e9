# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node labels by which users select the GPU operator's operands, and their effects (pure).

Source: gpu-operator v25.10.1 controllers/state_manager.go (gpuStateLabels, getWorkloadConfig, hasOperandsDisabled).
"""

from __future__ import annotations

import typing as t

from ..catalog.names import (
    DEPLOY_PREFIX,
    DISCOVERY_DEPLOY_LABEL,
    OPERANDS_LABEL,
    PLUGIN_DEPLOY_LABEL,
    VGPU_CONFIG_LABEL,
    WORKLOAD_LABEL,
)

Labels = t.Mapping[str, str]

WORKLOADS = ("container", "vm-passthrough", "vm-vgpu")
VIRTUAL_MACHINES = ("vm-passthrough", "vm-vgpu")
_SWITCHES = ("true", "false")
# The operator sets these only on nodes for virtual machines.
_SANDBOX_LABELS = tuple(f"{DEPLOY_PREFIX}sandbox-{name}" for name in ("device-plugin", "validator"))


def is_for_users(key: str) -> bool:
    """Whether users may set this NVIDIA label."""
    return key in (WORKLOAD_LABEL, VGPU_CONFIG_LABEL) or key.startswith(DEPLOY_PREFIX)


def invalid_value(key: str, value: str) -> str | None:
    """The reason why the value is invalid for this label; None if it is valid."""
    if key == WORKLOAD_LABEL and value not in WORKLOADS:
        return f"is not a valid value; use {', '.join(WORKLOADS[:-1])} or {WORKLOADS[-1]}"
    if key.startswith(DEPLOY_PREFIX) and value not in _SWITCHES:
        return 'is not a valid value; use "true" or "false"'
    return None


def reason_without_discovery(labels: Labels) -> str:
    """The reason why gpu-feature-discovery never labels a node with these labels; empty if it may label the node."""
    for key in (OPERANDS_LABEL, DISCOVERY_DEPLOY_LABEL):
        if labels.get(key) == "false":
            return f"label {key}=false keeps gpu-feature-discovery away"
    if labels.get(WORKLOAD_LABEL) in VIRTUAL_MACHINES:
        return f"label {WORKLOAD_LABEL}={labels[WORKLOAD_LABEL]} assigns its GPUs to virtual machines"
    if DISCOVERY_DEPLOY_LABEL not in labels and any(labels.get(key) == "true" for key in _SANDBOX_LABELS):
        return "the GPU operator prepares its GPUs for virtual machines (sandboxWorkloads.defaultWorkload of the ClusterPolicy)"
    return ""


def reason_without_containers(labels: Labels) -> str:
    """The reason why a node with these labels offers no GPU to containers; empty if it may offer one."""
    if labels.get(PLUGIN_DEPLOY_LABEL) == "false":
        return f"label {PLUGIN_DEPLOY_LABEL}=false keeps the device plugin away"
    return reason_without_discovery(labels)
