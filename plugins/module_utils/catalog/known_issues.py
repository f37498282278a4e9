# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known issues of releases of the GPU operator, each a sentence with its source.

`notes`: the known issues of that release in gpu-operator/release-notes.rst of NVIDIA/cloud-native-docs.
"""

from __future__ import annotations

CRUN = (
    "OpenShift 4.18.22 and 4.18.23: their crun breaks every release of the operator; use 4.18.24 or later "
    "(cloud-native-docs openshift/steps-overview.rst)"
)
OPENSHIFT_4_11_12 = (
    "OpenShift 4.11.12: its Driver Toolkit images are broken, so the driver builds with cluster-wide entitlements "
    "only (notes of v23.9.0)"
)
OPENSHIFT_4_15_REGISTRY = (
    "OpenShift 4.15 without its integrated image registry: the installation stalls, since no pull secrets are created "
    "for service accounts; fixed in v24.3.0 (notes of v23.9.2 and v24.3.0)"
)
VGPU_KUBEVIRT = (
    "NVIDIA vGPU with KubeVirt v0.58.0, v0.58.1, v0.59.0 or OpenShift Virtualization 4.12.0 to 4.12.2 does not work "
    "(notes of v23.9.0)"
)
VGPU_MANAGER_GSP = (
    "GPUs that need the open kernel modules and GSP firmware: the vGPU Manager does not work on them; fixed in v24.6.0 "
    "(notes of v24.3.0)"
)
NOUVEAU_VGPU = (
    "NVIDIA vGPU on nodes whose nouveau driver is not blacklisted: the driver cannot initialise the GPU and the "
    "operator's pods stay in Init (notes of v23.9.0 and v25.3.2)"
)
ONE_DRIVER = (
    "Nodes with different operating systems, or vGPU beside data-center drivers, in one cluster: one ClusterPolicy "
    "can serve one driver type and one system only (notes of v23.9.0)"
)
GH200_BALANCED = (
    "GH200 with the MIG configuration all-balanced: its 1g.12gb instances do not work as expected (notes of v23.9.1)"
)
TOOLKIT_RKE2_K3S = (
    "RKE2 and K3s: container toolkit v1.17.0 does not start; set toolkit.version to v1.17.1-ubuntu20.04 or use "
    "v24.9.1 (notes of v24.9.0)"
)
DRIVER_570_MIXED_MIG = (
    "Drivers 570.124.06, 570.133.20, 570.148.08 and 570.158.01 (one of them is the default) on a node with both whole "
    "and MIG-partitioned GPUs: pods that request a GPU stay Pending; use 570.172.08 or later (notes of v25.3.1, gpu-operator "
    "issue 1361)"
)
B200_DEFAULT_DRIVER = (
    "HGX B200 with the default driver 570.124.06: it needs 570.133.20 or later (cloud-native-docs "
    "gpu-operator/platform-support.rst)"
)
CDI_RKE2 = "CDI on RKE2 is not operational (notes of v25.3.1 and v25.3.2)"
CDMM_MIG = (
    "MIG or GPUDirect Storage on GH200 and GB200 with drivers from 580.65.06 on: these start with coherent driver "
    "memory management, which excludes both (notes of v25.3.2)"
)
CRIO_INIT = (
    "CRI-O: operands hang in Init:RunContainerError for minutes until the container toolkit runs; fixed in v25.10.1 "
    "(notes of v25.10.0)"
)
TOOLKIT_IMPORTS = (
    "Custom imports in containerd's top-level configuration: container toolkit v1.18.0 overwrites them; fixed in v25.10.1 "
    "(notes of v25.10.0)"
)
GKE_1_33 = (
    "GKE 1.33 and later: the container toolkit misconfigures containerd; set RUNTIME_CONFIG_SOURCE=file in "
    "toolkit.env (notes of v25.10.0)"
)
RTX_PRO_VGPU = (
    "MIG-backed vGPU on an RTX PRO 6000 Server Edition with the default vGPU configuration fails; give one whose type "
    "names end in GFX (notes of v25.10.0)"
)
SELINUX_MIG = (
    "SELinux enforcing: GPU Feature Discovery cannot write its labels, so the MIG manager is not scheduled; set "
    "USE_NODE_FEATURE_API=true in gfd.env (notes of v25.10.1)"
)
RHEL8_MIG = (
    "RHEL 8 with a driver preinstalled on the host: MIG manager v0.13.1 and later needs a newer glibc than the host "
    "has; set migManager.version to v0.12.3 (notes of v26.3.0, mig-parted issue 329)"
)
MIG_MANAGER_PAUSED = (
    "MIG manager v0.13.0 to v0.15.0: when a change fails after an earlier one succeeded in the same process, the "
    "node's operands stay paused; delete its nvidia-mig-manager pod (mig-parted pkg/mig/reconfigure, read at these "
    "tags)"
)
MIG_MANAGER_PENDING = (
    "MIG manager v0.15.0: when an operand's pod does not go away within 5 minutes the state stays pending; "
    "delete the node's nvidia-mig-manager pod (gpu-operator issue 2833)"
)
PEERMEM_RESTART = (
    "GPUDirect RDMA: nvidia-peermem may not start again after the driver pod restarts without a reboot; set "
    "FORCE_REINSTALL=true in driver.manager.env (notes of v26.3.0)"
)
ALL_RDMA_DEVICES = (
    "RDMA or NCCL workloads: the device plugin puts every ibverbs device of the node into GPU containers; fixed in "
    "v26.3.3 (notes of v26.3.3, gpu-operator pull request 2525)"
)
USER_NAMESPACES = (
    "Pods with spec.hostUsers false: their containers cannot be created (notes of v26.3.1, container toolkit issue 648)"
)
GPUCLUSTER_BESIDE = "A GPUCluster beside a ClusterPolicy: a cluster can only have one of them (notes of v26.7.0)"

# The traits that a cluster must have for a sentence to be reported; empty where this collection cannot know them. `model X`: GPUs whose name
# begins with X; `mig`: a pool that partitions GPUs; all others follow from the nodes' labels.
REQUIRED_TRAITS: dict[str, frozenset[str]] = {
    CRUN: frozenset({"openshift"}),
    OPENSHIFT_4_11_12: frozenset({"openshift"}),
    OPENSHIFT_4_15_REGISTRY: frozenset({"openshift"}),
    VGPU_KUBEVIRT: frozenset({"vgpu"}),
    VGPU_MANAGER_GSP: frozenset({"vgpu"}),
    NOUVEAU_VGPU: frozenset({"vgpu"}),
    ONE_DRIVER: frozenset({"vgpu"}),
    GH200_BALANCED: frozenset({"model GH200", "mig"}),
    TOOLKIT_RKE2_K3S: frozenset(),
    DRIVER_570_MIXED_MIG: frozenset({"mig"}),
    B200_DEFAULT_DRIVER: frozenset({"model B200"}),
    CDI_RKE2: frozenset({"rke2"}),
    CDMM_MIG: frozenset({"model GH200", "mig"}),
    CRIO_INIT: frozenset(),
    TOOLKIT_IMPORTS: frozenset(),
    GKE_1_33: frozenset({"gke"}),
    RTX_PRO_VGPU: frozenset({"vgpu", "model RTX"}),
    SELINUX_MIG: frozenset({"selinux", "mig"}),
    RHEL8_MIG: frozenset({"rhel8", "mig"}),
    MIG_MANAGER_PAUSED: frozenset({"mig"}),
    MIG_MANAGER_PENDING: frozenset({"mig"}),
    PEERMEM_RESTART: frozenset(),
    ALL_RDMA_DEVICES: frozenset(),
    USER_NAMESPACES: frozenset(),
    GPUCLUSTER_BESIDE: frozenset(),
}
