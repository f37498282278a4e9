# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes distributions, and the problems that are known for them."""

from __future__ import annotations

import dataclasses
import typing as t

from .releases import Release, release_of

# Kubernetes distributions: how their nodes are recognized, and what the container toolkit needs to configure their containerd.
#
# The toolkit writes a configuration file for containerd, and signals the process that listens on the socket to read the file. The chart's defaults,
# /etc/containerd/config.toml and /run/containerd/containerd.sock, are the paths of a containerd that kubeadm uses. Since v1.18 (operator v25.10), the
# toolkit writes a drop-in file, by default /etc/containerd/conf.d/99-nvidia.toml, and adds its folder to the imports of the configuration file
# (nvidia-container-toolkit pkg/config/engine/containerd/config_drop_in.go).

DEFAULT_SOCKET = "/run/containerd/containerd.sock"
# Variables of the toolkit's container (nvidia-container-toolkit cmd/nvidia-ctk-installer/container/runtime/runtime.go).
SOCKET = "CONTAINERD_SOCKET"
CONFIG = "CONTAINERD_CONFIG"
DROP_IN = "RUNTIME_DROP_IN_CONFIG"
_SOURCE = "RUNTIME_CONFIG_SOURCE"
_EXECUTABLE = "RUNTIME_EXECUTABLE_PATH"
# These variables belong together: if the user sets one of them, none is derived.
CONFIG_VARIABLES = frozenset({CONFIG, "RUNTIME_CONFIG", DROP_IN, _SOURCE, "RUNTIME_CONFIG_SOURCES", _EXECUTABLE})

K3S_FAMILY = "k3s-or-rke2"


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A Kubernetes distribution.

    version_suffix: the beginning of the part of the kubelet's version after the +. node_label: the key and the value of a label that each node has; an
    empty value stands for any value. annotation: the key of an annotation that some of the nodes have.
    toolkit: the toolkit's variables that differ from the chart's defaults, by the operator release since which they are valid, the newest release first.
    restarts: what restarts when the toolkit reloads containerd. family: a name that distributions with the same known issues share.
    """

    name: str
    title: str
    version_suffix: str = ""
    node_label: tuple[str, str] | None = None
    annotation: str = ""
    toolkit: tuple[tuple[Release, t.Mapping[str, str]], ...] = ()
    restarts: str = "containerd"
    family: str = ""
    source: str = ""

    @property
    def conditions(self) -> set[str]:
        """The conditions of known issues that this distribution meets (see KNOWN_ISSUES)."""
        return {self.name, self.family} - {""}

    @property
    def mark(self) -> str:
        """The mark that identifies the distribution's nodes; empty if some of them may have no mark."""
        if self.version_suffix:
            return f"kubelet version with +{self.version_suffix}"
        return f"node label {'='.join(filter(None, self.node_label))}" if self.node_label else ""

    def has_label(self, labels: t.Mapping[str, str]) -> bool:
        """Whether a node with these labels has the label of this distribution."""
        key, value = self.node_label or ("", "")
        return key in labels and value in ("", labels[key])

    def toolkit_variables(self, operator_version: str) -> dict[str, str]:
        """The toolkit's variables for this release of the operator."""
        release = release_of(operator_version)
        return dict(next((variables for since, variables in self.toolkit if release >= since), {}))


_K3S_SOCKET = {SOCKET: "/run/k3s/containerd/containerd.sock"}
_MICROK8S = {
    CONFIG: "/var/snap/microk8s/current/args/containerd-template.toml",
    SOCKET: "/var/snap/microk8s/common/run/containerd.sock",
}
_K0S_SOCKET = {SOCKET: "/run/k0s/containerd.sock"}
_K0S_IMPORTS = "/etc/k0s/containerd.d/nvidia.toml"
_EVER: Release = (0, 0)

DISTRIBUTIONS: tuple[Distribution, ...] = (
    Distribution(
        "kubeadm",
        "kubeadm",
        annotation="kubeadm.alpha.kubernetes.io/cri-socket",
        source="gpu-operator/getting-started.rst of NVIDIA/cloud-native-docs",
    ),
    # The signal restarts RKE2 and K3s, which find the toolkit's runtimes below /usr/local/nvidia/toolkit and write them into containerd's
    # configuration themselves.
    Distribution(
        "rke2",
        "RKE2",
        version_suffix="rke2r",
        node_label=("node.kubernetes.io/instance-type", "rke2"),
        toolkit=((_EVER, _K3S_SOCKET),),
        restarts="containerd and with it the RKE2 agent",
        family=K3S_FAMILY,
        source="docs.rke2.io add-ons/gpu_operators, 'Deploy NVIDIA operator'",
    ),
    Distribution(
        "k3s",
        "K3s",
        version_suffix="k3s",
        node_label=("node.kubernetes.io/instance-type", "k3s"),
        toolkit=((_EVER, _K3S_SOCKET),),
        restarts="containerd and with it the K3s agent",
        family=K3S_FAMILY,
        source="docs.k3s.io advanced, 'Alternative Container Runtime Support'; k3s pull request 11065",
    ),
    # k0s merges the files in /etc/k0s/containerd.d, but not the files that these import, so the toolkit writes its drop-in file there, and its imports into a
    # file that nothing reads.
    Distribution(
        "k0s",
        "k0s",
        version_suffix="k0s",
        toolkit=(
            (
                (25, 10),
                {
                    CONFIG: "/tmp/nvidia-operator-dummy-import.toml",
                    DROP_IN: _K0S_IMPORTS,
                    _EXECUTABLE: "/var/lib/k0s/bin/containerd",
                    **_K0S_SOCKET,
                },
            ),
            (_EVER, {CONFIG: _K0S_IMPORTS, _EXECUTABLE: "/var/lib/k0s/bin/containerd", **_K0S_SOCKET}),
        ),
        source="k0s docs/runtime.md, 'Using nvidia-container-runtime'; gpu-operator issue 1835; nvidia-container-toolkit pull request 1029",
    ),
    Distribution(
        "microk8s",
        "MicroK8s",
        node_label=("microk8s.io/cluster", "true"),
        toolkit=(
            ((25, 10), {**_MICROK8S, _SOURCE: "file=/var/snap/microk8s/current/args/containerd.toml"}),
            (_EVER, _MICROK8S),
        ),
        source="gpu-operator/getting-started.rst of NVIDIA/cloud-native-docs, 'MicroK8s'",
    ),
    # OpenShift's nodes run CRI-O, for which the operator configures the toolkit itself. The machine config operator labels each node.
    Distribution(
        "openshift",
        "OpenShift",
        node_label=("node.openshift.io/os_id", ""),
        restarts="CRI-O",
        source="openshift/machine-config-operator templates/common/_base (node.openshift.io/os_id), gpu-operator controllers/state_manager.go",
    ),
)

BY_NAME: t.Mapping[str, Distribution] = {each.name: each for each in DISTRIBUTIONS}


# Known issues of GPU operator releases that a plan warns about, each as a sentence with its source.
#
# `notes of vX`: the known issues of release vX in gpu-operator/release-notes.rst of NVIDIA/cloud-native-docs. Users add their own in
# gpu_cluster.known_issues.

# The conditions that a cluster can meet. They are derived from the pools and gpu_cluster.operator (pools/derive.py), from nodes and pods
# and from other objects, both in gpu_operator/detect.py. `model X` is met by GPUs whose name begins with X.
MODEL_CONDITION = "model "
# This condition can be derived only from pods.
HOST_USERS = "host-users"
CONDITIONS: t.Mapping[str, str] = {
    "containerd": "GPU nodes run containerd",
    "cri-o": "GPU nodes run CRI-O",
    "gds": "GPUDirect Storage is enabled",
    "gke": "GPU nodes run on GKE",
    "gpucluster": "the cluster has a GPUCluster in addition to the ClusterPolicy",
    HOST_USERS: "pods have spec.hostUsers: false",
    K3S_FAMILY: "the distribution is K3s or RKE2",
    "mig": "a pool partitions GPUs",
    "rdma": "GPUDirect RDMA is enabled",
    "rdma-nic": "NFD has found an NVIDIA (Mellanox) network adapter on GPU nodes",
    "rhel8": "GPU nodes run RHEL 8",
    "selinux": "SELinux is enabled on GPU nodes",
    "vgpu": "GPU nodes are vGPU guests",
    **{name: f"the distribution is {distribution.title}" for name, distribution in BY_NAME.items()},
}


class KnownIssue(t.NamedTuple):
    """An issue of every release whose version begins with the numbers of one of `releases`.

    `conditions` contains the conditions that a cluster must meet for a warning (see CONDITIONS). `openshift` contains the first numbers of the OpenShift
    versions that have the issue; it is empty if the issue does not depend on the version.
    """

    releases: tuple[str, ...]
    conditions: frozenset[str]
    text: str
    openshift: tuple[str, ...] = ()

    def affects_openshift(self, version: str) -> bool:
        """Whether a cluster with this version of OpenShift may have the issue; an empty version is unknown."""
        return not (version and self.openshift) or any(f"{version}.".startswith(f"{each}.") for each in self.openshift)

    def affects(self, version: str) -> bool:
        """Whether the release with exactly this version has the issue."""
        return any(f"{version}.".startswith(f"{release}.") for release in self.releases)


KNOWN_ISSUES: tuple[KnownIssue, ...] = (
    KnownIssue(
        ("v23", "v24", "v25", "v26"),
        frozenset({"openshift"}),
        "OpenShift 4.18.22 and 4.18.23: their crun breaks every release of the operator; use 4.18.24 or later "
        "(cloud-native-docs openshift/steps-overview.rst)",
        openshift=("4.18.22", "4.18.23"),
    ),
    KnownIssue(
        ("v23.9", "v24.3"),
        frozenset({"openshift"}),
        "OpenShift 4.11.12: its Driver Toolkit images are broken, so the driver can be built only with cluster-wide entitlements "
        "(notes of v23.9.0)",
        openshift=("4.11.12",),
    ),
    KnownIssue(
        ("v23.9.2",),
        frozenset({"openshift"}),
        "OpenShift 4.15 without its integrated image registry: the installation stalls, since no pull secrets are created "
        "for service accounts; fixed in v24.3.0 (notes of v23.9.2 and v24.3.0)",
        openshift=("4.15",),
    ),
    KnownIssue(
        ("v23.9", "v24.3", "v24.6"),
        frozenset({"vgpu"}),
        "NVIDIA vGPU with KubeVirt v0.58.0, v0.58.1, v0.59.0 or OpenShift Virtualization 4.12.0 to 4.12.2 does not work "
        "(notes of v23.9.0)",
    ),
    KnownIssue(
        ("v24.3",),
        frozenset({"vgpu"}),
        "GPUs that need the open kernel modules and GSP firmware: the vGPU Manager does not work on them; fixed in v24.6.0 "
        "(notes of v24.3.0)",
    ),
    KnownIssue(
        ("v23.9", "v24.3", "v24.6", "v25.3.2"),
        frozenset({"vgpu"}),
        "NVIDIA vGPU on nodes whose nouveau driver is not blacklisted: the driver cannot initialize the GPU and the "
        "operator's pods stay in Init (notes of v23.9.0 and v25.3.2)",
    ),
    KnownIssue(
        ("v23.9", "v24.3", "v24.6"),
        frozenset({"vgpu"}),
        "Nodes with different operating systems, or vGPU alongside data-center drivers, in one cluster: one ClusterPolicy "
        "supports only one driver type and one operating system (notes of v23.9.0)",
    ),
    KnownIssue(
        ("v23.9.1", "v23.9.2", "v24.3", "v24.6"),
        frozenset({"model GH200", "mig"}),
        "GH200 with the MIG configuration all-balanced: its 1g.12gb instances do not work as expected (notes of v23.9.1)",
    ),
    KnownIssue(
        ("v24.9.0",),
        frozenset({K3S_FAMILY}),
        "RKE2 and K3s: container toolkit v1.17.0 does not start; set toolkit.version to v1.17.1-ubuntu20.04 in operator.values or use v24.9.1 "
        "(notes of v24.9.0)",
    ),
    KnownIssue(
        ("v24.9", "v25.3.0"),
        frozenset({"k0s"}),
        "On k0s, the container toolkit before v1.17.6 reads the configuration of the host's containerd instead of that of k0s, so containers get no "
        "GPU; use v25.3.1 or later (gpu-operator issue 1323)",
    ),
    KnownIssue(
        ("v25.3.0", "v25.3.1", "v25.3.2"),
        frozenset({"mig"}),
        "Drivers 570.124.06, 570.133.20, 570.148.08 and 570.158.01 (one of them is the default) on a node with both whole "
        "and MIG-partitioned GPUs: pods that request a GPU stay Pending; use 570.172.08 or later (notes of v25.3.1, gpu-operator "
        "issue 1361)",
    ),
    KnownIssue(
        ("v25.3.0",),
        frozenset({"model B200"}),
        "HGX B200 with the default driver 570.124.06: it needs 570.133.20 or later (cloud-native-docs "
        "gpu-operator/platform-support.rst)",
    ),
    KnownIssue(
        ("v25.3.1", "v25.3.2"),
        frozenset({"rke2"}),
        "CDI on RKE2 is not operational (notes of v25.3.1 and v25.3.2)",
    ),
    *(
        KnownIssue(
            ("v25.3.2",),
            frozenset({distribution}),
            "If CONTAINERD_SOCKET is set, its directory is not mounted into the container toolkit, which then cannot reload containerd; fixed in "
            "v25.3.3 (notes of v25.3.3, gpu-operator issue 1694)",
        )
        for distribution in (K3S_FAMILY, "k0s", "microk8s")
    ),
    KnownIssue(
        ("v25.3.2", "v25.3.3", "v25.3.4"),
        frozenset({"model GH200", "mig"}),
        "MIG or GPUDirect Storage on GH200 and GB200 with drivers 580.65.06 and later: these start with coherent driver "
        "memory management, which excludes both (notes of v25.3.2)",
    ),
    KnownIssue(
        ("v25.10.0",),
        frozenset({"cri-o"}),
        "CRI-O: operands remain in Init:RunContainerError for minutes until the container toolkit runs; fixed in v25.10.1 (notes of v25.10.0)",
    ),
    KnownIssue(
        ("v25.10.0",),
        frozenset({"containerd"}),
        "A containerd whose top-level configuration has its own imports: container toolkit v1.18.0 overwrites them; fixed in v25.10.1 "
        "(notes of v25.10.0)",
    ),
    KnownIssue(
        ("v25.10.0",),
        frozenset({"gke"}),
        "GKE 1.33 and later: the container toolkit misconfigures containerd; set RUNTIME_CONFIG_SOURCE=file in "
        "toolkit.env (notes of v25.10.0)",
    ),
    KnownIssue(
        ("v25.10.0",),
        frozenset({"model RTX", "vgpu"}),
        "MIG-backed vGPU on an RTX PRO 6000 Server Edition with the default vGPU configuration fails; use one whose type "
        "names end in GFX (notes of v25.10.0)",
    ),
    KnownIssue(
        ("v25.10.1",),
        frozenset({"selinux", "mig"}),
        "SELinux enforcing: GPU Feature Discovery cannot write its labels, so the MIG manager is not scheduled; set "
        "USE_NODE_FEATURE_API=true in gfd.env (notes of v25.10.1)",
    ),
    KnownIssue(
        ("v25.10.1", "v26"),
        frozenset({"rhel8", "mig"}),
        "RHEL 8 with a driver preinstalled on the host: MIG manager v0.13.1 and later needs a newer glibc than the host "
        "has; set migManager.version to v0.12.3 (notes of v26.3.0, mig-parted issue 329)",
    ),
    KnownIssue(
        ("v26.3.0",),
        frozenset({"rdma"}),
        "GPUDirect RDMA: nvidia-peermem may not start again after the driver pod restarts without a reboot; set FORCE_REINSTALL=true in "
        "driver.manager.env of operator.values (notes of v26.3.0)",
    ),
    KnownIssue(
        ("v26.3.0", "v26.3.1", "v26.3.2"),
        frozenset({"rdma-nic"}),
        "RDMA or NCCL workloads: the device plugin puts every ibverbs device of the node into GPU containers; fixed in v26.3.3 "
        "(notes of v26.3.3, gpu-operator pull request 2525)",
    ),
    KnownIssue(
        ("v26.3.1",),
        frozenset({HOST_USERS}),
        "Pods with spec.hostUsers: false: their containers with GPUs cannot be created (notes of v26.3.1, container toolkit issue 648)",
    ),
    KnownIssue(
        ("v26.7",),
        frozenset({"gpucluster"}),
        "A GPUCluster in addition to a ClusterPolicy: a cluster can only have one of them; delete one (notes of v26.7.0)",
    ),
    KnownIssue(
        ("v25.10", "v26"),
        frozenset({"mig"}),
        "MIG manager v0.13.0 to v0.15.0: when a change fails after an earlier one succeeded in the same process, the "
        "node's operands stay paused; delete its nvidia-mig-manager pod (mig-parted pkg/mig/reconfigure, read at these "
        "tags)",
    ),
    KnownIssue(
        ("v26.7",),
        frozenset({"mig"}),
        "MIG manager v0.15.0: when an operand's pod does not terminate within 5 minutes, the state remains pending; "
        "delete the node's nvidia-mig-manager pod (gpu-operator issue 2833)",
    ),
)


def issues_of(version: str) -> list[KnownIssue]:
    """The known issues of the operator release with exactly this version."""
    return [issue for issue in KNOWN_ISSUES if issue.affects(version)]
