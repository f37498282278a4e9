# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small cluster with a ready operator, for tests that break one part of it."""

from __future__ import annotations

from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.readiness import (
    OperatorReadiness,
    RequiredEffect,
    assess,
)

Object = dict[str, Any]

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
EFFECT = RequiredEffect((GPU,), {"nvidia-device-plugin-daemonset": "accel-gpu-device-plugin"})


def node(name: str, gpu: bool = True, taints: list[Object] | None = None) -> Object:
    labels = {
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.deploy.device-plugin": "true",
    }
    return {"metadata": {"name": name, "labels": labels if gpu else {}}, "spec": {"taints": taints or []}}


def daemonset(name: str, count: int, operand: str, **status: int) -> Object:
    return {
        "metadata": {"name": name, "generation": 2, "ownerReferences": [{"kind": "ClusterPolicy"}]},
        "spec": {
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {f"nvidia.com/gpu.deploy.{operand}": "true"},
                    "tolerations": [GPU],
                    "volumes": [{"configMap": {"name": "accel-gpu-device-plugin"}}, {"hostPath": {}}],
                },
            }
        },
        "status": {
            "observedGeneration": 2,
            "desiredNumberScheduled": count,
            "updatedNumberScheduled": count,
            "numberAvailable": count,
            **status,
        },
    }


def status(state: str = "ready", reason: str = "Reconciled", error: str = "", message: str = "") -> Object:
    return {
        "metadata": {"name": "cluster-policy"},
        "status": {
            "state": state,
            "conditions": [
                {"type": "Ready", "status": "False" if error else "True", "reason": (error and "Error") or reason},
                {"type": "Error", "status": "True" if error else "False", "reason": error, "message": message},
            ],
        },
    }


class Scenario:
    """Three GPU nodes and one other, all ready."""

    def __init__(self) -> None:
        self.policy = status()
        self.driver = daemonset("nvidia-driver-daemonset", 3, "driver")
        self.plugin = daemonset("nvidia-device-plugin-daemonset", 3, "device-plugin")
        self.others: list[Object] = []
        self.nodes = [node("gpu-0"), node("gpu-1"), node("gpu-2"), node("cpu-0", gpu=False)]

    def verdict(self) -> OperatorReadiness:
        return assess(self.policy, [self.driver, self.plugin, *self.others], self.nodes, EFFECT)
