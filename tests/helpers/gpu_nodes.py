# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node objects of the size of real GPU nodes, with the data of NFD, GFD, the device plugin and the kubelet; nothing runs on them."""

from __future__ import annotations

import datetime
from typing import Any

from lab.systems import CONDITIONS, KUBELET, SYSTEMS

Object = dict[str, Any]
# The model of gpu_node().
GPU_MODEL = "Tesla-T4"
_SYSTEM = SYSTEMS["ubuntu-24.04"]
_IMAGES = 30
_FLAGS = (
    *("ADX", "AESNI", "AVX", "AVX2", "AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL", "BMI1", "BMI2", "FMA3", "MOVBE"),
    *("RDSEED", "SHA", "SSE4", "SSE42", "VAES"),
)
# Labels of the lab's NFD master for a worker's features, without the prefix feature.node.kubernetes.io/.
_NFD = {
    **{f"cpu-cpuid.{flag}": "true" for flag in _FLAGS},
    "cpu-hardware_multithreading": "true",
    "cpu-model.family": "6",
    "cpu-model.id": "143",
    "cpu-model.vendor_id": "Intel",
    "kernel-version.full": _SYSTEM.kernel,
    "kernel-version.major": "6",
    "kernel-version.minor": "8",
    "kernel-version.revision": "0",
    "memory-numa": "true",
    "pci-10de.present": "true",
    "pci-8086.present": "true",
    "storage-nonrotationaldisk": "true",
    "system-os_release.ID": _SYSTEM.id,
    "system-os_release.VERSION_ID": _SYSTEM.version_id,
    "system-os_release.VERSION_ID.major": "24",
    "system-os_release.VERSION_ID.minor": "04",
}
# Labels of GFD v0.18 on a Tesla T4, without the prefix nvidia.com/; labels for sharing are in gpu_node().
_GFD = {
    "cuda.driver-version.full": "580.105.08",
    "cuda.driver-version.major": "580",
    "cuda.driver-version.minor": "105",
    "cuda.driver-version.revision": "08",
    "cuda.driver.major": "580",
    "cuda.driver.minor": "105",
    "cuda.driver.rev": "08",
    "cuda.runtime-version.full": "13.0",
    "cuda.runtime-version.major": "13",
    "cuda.runtime-version.minor": "0",
    "cuda.runtime.major": "13",
    "cuda.runtime.minor": "0",
    "gfd.timestamp": "1795314319",
    "gpu.compute.major": "7",
    "gpu.compute.minor": "5",
    "gpu.count": "1",
    "gpu.family": "turing",
    "gpu.machine": "unknown",
    "gpu.memory": "15360",
    "gpu.mode": "compute",
    "mig.capable": "false",
    "mps.capable": "false",
    "vgpu.present": "false",
}
# Labels of the GPU operator, without the prefix nvidia.com/gpu.
_OPERATOR = {
    "present": "true",
    **{
        f"deploy.{operand}": "true"
        for operand in (
            *("container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver", "gpu-feature-discovery"),
            *("node-status-exporter", "operator-validator"),
        )
    },
}


def gpu_node(name: str, replicas: int = 1, labels: dict[str, str] | None = None) -> Object:
    """A Tesla T4 that is offered `replicas` times; about 15 KB in an API response."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sharing = {
        "gpu.product": GPU_MODEL + ("-SHARED" if replicas > 1 else ""),
        "gpu.replicas": str(replicas),
        "gpu.sharing-strategy": "time-slicing" if replicas > 1 else "none",
    }
    actual = {
        **{f"feature.node.kubernetes.io/{key}": value for key, value in _NFD.items()},
        **{f"nvidia.com/{key}": value for key, value in {**_GFD, **sharing}.items()},
    }
    resources = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    offered = {**resources, "nvidia.com/gpu": str(replicas)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {
                "nfd.node.kubernetes.io/feature-labels": ",".join(
                    key.removeprefix("feature.node.kubernetes.io/") for key in actual
                ),
                "node.alpha.kubernetes.io/ttl": "0",
                "nvidia.com/gpu-driver-upgrade-enabled": "true",
            },
            "labels": {
                "kubernetes.io/hostname": name,
                **{f"{prefix}kubernetes.io/arch": "amd64" for prefix in ("", "beta.")},
                **{f"{prefix}kubernetes.io/os": "linux" for prefix in ("", "beta.")},
                **actual,
                "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
                **{f"nvidia.com/gpu.{key}": value for key, value in _OPERATOR.items()},
                **(labels or {}),
            },
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [
                {**condition, "lastHeartbeatTime": now, "lastTransitionTime": now} for condition in CONDITIONS
            ],
            "addresses": [{"type": "Hostname", "address": name}],
            "images": _images(),
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": _SYSTEM.runtime,
                "kernelVersion": _SYSTEM.kernel,
                "kubeProxyVersion": "",
                "kubeletVersion": KUBELET,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": _SYSTEM.image,
                "systemUUID": "",
            },
        },
    }


def _images() -> list[Object]:
    """Images of the operator, of the network and of some workloads; a kubelet reports 50 at most."""
    digest = "a" * 64
    return [
        {"names": [f"registry.example/some/image-{number}@sha256:{digest}"], "sizeBytes": 10**9}
        for number in range(_IMAGES)
    ]
