# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of the GPU operator: the versions that each installs, and its features."""

from __future__ import annotations

import dataclasses
import functools

from . import known_issues as issues

Kind = tuple[str, str]

# The operating systems (os_release.ID) for which the tag of a driver image has only the major version, and since which major version.
TagRule = tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class OperatorRelease:
    """One release of the GPU operator; versions are image tags from its chart."""

    version: str
    driver: str
    device_plugin: str
    toolkit: str
    mig_manager: str
    kinds: tuple[Kind, ...]
    cuda_image: str | None = None
    """The CUDA image in its chart; None where the operator's own image contains the validator's programs."""
    secret_name: bool = False
    """driver.licensingConfig.secretName exists; before, a licence's token could only be in a ConfigMap."""
    generated_mig_config: bool = False
    """The MIG manager generates each node's configurations from its GPUs, unless a ConfigMap is named."""
    tag_rule: TagRule = ()
    gpu_cluster: bool = False
    """The kind GPUCluster exists, for DRA instead of ClusterPolicy and device plugin."""
    known_issues: tuple[str, ...] = ()
    """Sentences of known_issues.py."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as comparable numbers."""
        return tuple(int(number) for number in self.version.removeprefix("v").split("."))

    @property
    def extras_named(self) -> bool:
        """The device plugin offers MIG devices with extras (+me, +gfx) under their own names; up to v0.19 it treats them as plain ones.

        Source: k8s-device-plugin #1807, and v0.19.0 run on such devices.
        """
        version = self.device_plugin.removeprefix("v").partition("-")[0]
        return tuple(map(int, version.split("."))) >= (0, 20)


_CUDA = "nvcr.io/nvidia/cuda:"
_POLICY_KINDS: tuple[Kind, ...] = (("nvidia.com/v1", "ClusterPolicy"), ("nvidia.com/v1alpha1", "NVIDIADriver"))
_DRA_KINDS: tuple[Kind, ...] = (
    *_POLICY_KINDS,
    ("nvidia.com/v1alpha1", "GPUCluster"),
    ("resource.nvidia.com/v1beta1", "ComputeDomain"),
    ("resource.nvidia.com/v1beta1", "ComputeDomainClique"),
)
_FULL_TAG: TagRule = ()
_MAJOR_FROM_RHEL_10: TagRule = (("rocky", 0), ("rhel", 10))
_MAJOR: TagRule = (("rhel", 0), ("rocky", 0), ("ol", 0))

_UNTIL_V24_6 = (issues.CRUN, issues.VGPU_KUBEVIRT, issues.NOUVEAU_VGPU, issues.ONE_DRIVER)
_V23_9 = (*_UNTIL_V24_6, issues.OPENSHIFT_4_11_12)
_FROM_V25_10 = (issues.CRUN, issues.MIG_MANAGER_PAUSED)
_V26_3 = (*_FROM_V25_10, issues.RHEL8_MIG)

_plain = functools.partial(OperatorRelease, kinds=_POLICY_KINDS, tag_rule=_FULL_TAG)
_v25_10 = functools.partial(_plain, secret_name=True)
_v26_3 = functools.partial(_v25_10, generated_mig_config=True, tag_rule=_MAJOR_FROM_RHEL_10)
_v26_7 = functools.partial(_v26_3, tag_rule=_MAJOR, kinds=_DRA_KINDS, gpu_cluster=True)

# Source: NVIDIA/gpu-operator at the tag: deployments/gpu-operator/values.yaml (driver.version, devicePlugin.version,
# toolkit.version, migManager.version, operator.initContainer), crds/; the tag rule: controllers/object_controls.go
# kernelFullVersion, from v26.3 on controllers/state_manager.go and internal/state/nodepool.go. Oldest first.
OPERATOR_RELEASES: tuple[OperatorRelease, ...] = (
    _plain(
        "v23.9.0",
        driver="535.104.12",
        device_plugin="v0.14.2-ubi8",
        toolkit="v1.14.3-ubuntu20.04",
        mig_manager="v0.5.5-ubuntu20.04",
        cuda_image=f"{_CUDA}12.2.2-base-ubi8",
        known_issues=_V23_9,
    ),
    _plain(
        "v23.9.1",
        driver="535.129.03",
        device_plugin="v0.14.3-ubi8",
        toolkit="v1.14.3-ubuntu20.04",
        mig_manager="v0.5.5-ubuntu20.04",
        cuda_image=f"{_CUDA}12.3.1-base-ubi8",
        known_issues=(*_V23_9, issues.GH200_BALANCED),
    ),
    _plain(
        "v23.9.2",
        driver="550.54.14",
        device_plugin="v0.14.5-ubi8",
        toolkit="v1.14.6-ubuntu20.04",
        mig_manager="v0.6.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.3.2-base-ubi8",
        known_issues=(*_V23_9, issues.GH200_BALANCED, issues.OPENSHIFT_4_15_REGISTRY),
    ),
    _plain(
        "v24.3.0",
        driver="550.54.15",
        device_plugin="v0.15.0-ubi8",
        toolkit="v1.15.0-ubuntu20.04",
        mig_manager="v0.7.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.4.1-base-ubi8",
        known_issues=(*_V23_9, issues.GH200_BALANCED, issues.VGPU_MANAGER_GSP),
    ),
    _plain(
        "v24.6.0",
        driver="550.90.07",
        device_plugin="v0.16.1-ubi8",
        toolkit="v1.16.1-ubuntu20.04",
        mig_manager="v0.8.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.5.1-base-ubi8",
        known_issues=(*_UNTIL_V24_6, issues.GH200_BALANCED),
    ),
    _plain(
        "v24.6.1",
        driver="550.90.07",
        device_plugin="v0.16.2-ubi8",
        toolkit="v1.16.1-ubuntu20.04",
        mig_manager="v0.8.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.5.1-base-ubi8",
        known_issues=(*_UNTIL_V24_6, issues.GH200_BALANCED),
    ),
    _plain(
        "v24.6.2",
        driver="550.90.07",
        device_plugin="v0.16.2-ubi8",
        toolkit="v1.16.2-ubuntu20.04",
        mig_manager="v0.8.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.6.1-base-ubi8",
        known_issues=(*_UNTIL_V24_6, issues.GH200_BALANCED),
    ),
    _plain(
        "v24.9.0",
        driver="550.127.05",
        device_plugin="v0.17.0-ubi9",
        toolkit="v1.17.0-ubuntu20.04",
        mig_manager="v0.10.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.6.2-base-ubi9",
        known_issues=(issues.CRUN, issues.TOOLKIT_RKE2_K3S),
    ),
    _plain(
        "v24.9.1",
        driver="550.127.08",
        device_plugin="v0.17.0",
        toolkit="v1.17.3-ubuntu20.04",
        mig_manager="v0.10.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.6.3-base-ubi9",
        known_issues=(issues.CRUN,),
    ),
    _plain(
        "v24.9.2",
        driver="550.144.03",
        device_plugin="v0.17.0",
        toolkit="v1.17.4-ubuntu20.04",
        mig_manager="v0.10.0-ubuntu20.04",
        cuda_image=f"{_CUDA}12.6.3-base-ubi9",
        known_issues=(issues.CRUN,),
    ),
    _plain(
        "v25.3.0",
        driver="570.124.06",
        device_plugin="v0.17.1",
        toolkit="v1.17.5-ubuntu20.04",
        mig_manager="v0.12.1-ubuntu20.04",
        cuda_image=f"{_CUDA}12.8.1-base-ubi9",
        known_issues=(issues.CRUN, issues.DRIVER_570_MIXED_MIG, issues.B200_DEFAULT_DRIVER),
    ),
    _plain(
        "v25.3.1",
        driver="570.148.08",
        device_plugin="v0.17.2",
        toolkit="v1.17.8-ubuntu20.04",
        mig_manager="v0.12.1-ubuntu20.04",
        cuda_image=f"{_CUDA}12.8.1-base-ubi9",
        known_issues=(issues.CRUN, issues.DRIVER_570_MIXED_MIG, issues.CDI_RKE2),
    ),
    _plain(
        "v25.3.2",
        driver="570.148.08",
        device_plugin="v0.17.3",
        toolkit="v1.17.8-ubuntu20.04",
        mig_manager="v0.12.2-ubuntu20.04",
        cuda_image=f"{_CUDA}12.8.1-base-ubi9",
        known_issues=(issues.CRUN, issues.DRIVER_570_MIXED_MIG, issues.CDI_RKE2, issues.CDMM_MIG, issues.NOUVEAU_VGPU),
    ),
    _plain(
        "v25.3.3",
        driver="580.82.07",
        device_plugin="v0.17.4",
        toolkit="v1.17.8-ubuntu20.04",
        mig_manager="v0.12.3-ubuntu20.04",
        cuda_image=f"{_CUDA}13.0.0-base-ubi9",
        known_issues=(issues.CRUN, issues.CDMM_MIG),
    ),
    _plain(
        "v25.3.4",
        driver="580.82.07",
        device_plugin="v0.17.4",
        toolkit="v1.17.8-ubuntu20.04",
        mig_manager="v0.12.3-ubuntu20.04",
        cuda_image=f"{_CUDA}13.0.1-base-ubi9",
        known_issues=(issues.CRUN, issues.CDMM_MIG),
    ),
    _v25_10(
        "v25.10.0",
        driver="580.95.05",
        device_plugin="v0.18.0",
        toolkit="v1.18.0",
        mig_manager="v0.13.0",
        cuda_image=f"{_CUDA}13.0.1-base-ubi9",
        known_issues=(*_FROM_V25_10, issues.CRIO_INIT, issues.TOOLKIT_IMPORTS, issues.GKE_1_33, issues.RTX_PRO_VGPU),
    ),
    _v25_10(
        "v25.10.1",
        driver="580.105.08",
        device_plugin="v0.18.1",
        toolkit="v1.18.1",
        mig_manager="v0.13.1",
        cuda_image=f"{_CUDA}13.0.1-base-ubi9",
        known_issues=(*_FROM_V25_10, issues.SELINUX_MIG, issues.RHEL8_MIG),
    ),
    _v26_3(
        "v26.3.0",
        driver="580.126.20",
        device_plugin="v0.19.0",
        toolkit="v1.19.0",
        mig_manager="v0.14.0",
        known_issues=(*_V26_3, issues.PEERMEM_RESTART, issues.ALL_RDMA_DEVICES),
    ),
    _v26_3(
        "v26.3.1",
        driver="580.126.20",
        device_plugin="v0.19.0",
        toolkit="v1.19.0",
        mig_manager="v0.14.0",
        known_issues=(*_V26_3, issues.ALL_RDMA_DEVICES, issues.USER_NAMESPACES),
    ),
    _v26_3(
        "v26.3.2",
        driver="580.126.20",
        device_plugin="v0.19.2",
        toolkit="v1.19.1",
        mig_manager="v0.14.2",
        known_issues=(*_V26_3, issues.ALL_RDMA_DEVICES),
    ),
    _v26_3(
        "v26.3.3",
        driver="580.126.20",
        device_plugin="v0.19.3",
        toolkit="v1.19.1",
        mig_manager="v0.14.2",
        known_issues=_V26_3,
    ),
    _v26_7(
        "v26.7.0",
        driver="595.91.07",
        device_plugin="v0.20.0",
        toolkit="v1.20.0",
        mig_manager="v0.15.0",
        known_issues=(*_V26_3, issues.MIG_MANAGER_PENDING, issues.GPUCLUSTER_BESIDE),
    ),
)
