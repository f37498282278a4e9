# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating systems, Kubernetes distributions, kubelet version and driver versions of the simulated machines."""

from __future__ import annotations

from dataclasses import dataclass, field

KUBELET = "v1.36.4"


@dataclass(frozen=True)
class System:
    """An operating system in the terms of os-release, the kubelet and NFD."""

    id: str
    version_id: str
    kernel: str
    image: str
    runtime: str
    # The version of an image-based system, OSTREE_VERSION in its os-release.
    ostree: str = ""
    # An earlier version of the same minor release, for example of boot images.
    earlier_ostree: str = ""


SYSTEMS = {
    "ubuntu-22.04": System("ubuntu", "22.04", "5.15.0-119-generic", "Ubuntu 22.04.5 LTS", "containerd://2.1.4"),
    "ubuntu-24.04": System("ubuntu", "24.04", "6.8.0-60-generic", "Ubuntu 24.04.3 LTS", "containerd://2.1.4"),
    "rhel-9.6": System(
        "rhel", "9.6", "5.14.0-570.12.1.el9_6.x86_64", "Red Hat Enterprise Linux 9.6 (Plow)", "containerd://2.1.4"
    ),
    # RHCOS, by OpenShift release. From 4.19 on, its os-release is that of RHEL (openshift/os, docs/faq.md). The versions of
    # 4.20 and 5.0: RedHat-EMEA-SSA-Team/hetzner-ocp4 issue 341, openshift/assisted-service pull request 10441.
    "rhcos-4.16": System(
        "rhcos",
        "4.16",
        "5.14.0-427.92.1.el9_4.x86_64",
        "Red Hat Enterprise Linux CoreOS 416.94.202510081640-0",
        "cri-o://1.29.13-11.rhaos4.16.git5e4d5a5.el9",
        "416.94.202510081640-0",
        "416.94.202406251923-0",
    ),
    "rhcos-4.18": System(
        "rhcos",
        "4.18",
        "5.14.0-427.50.1.el9_4.x86_64",
        "Red Hat Enterprise Linux CoreOS 418.94.202503041606-0",
        "cri-o://1.31.6-2.rhaos4.18.git0b6f3a9.el9",
        "418.94.202503041606-0",
        "418.94.202501221327-0",
    ),
    "rhcos-4.20": System(
        "rhel",
        "9.6",
        "5.14.0-570.60.1.el9_6.x86_64",
        "Red Hat Enterprise Linux CoreOS 9.6.20251023-0 (Plow)",
        "cri-o://1.33.5-3.rhaos4.20.gitd0ea985.el9",
        "9.6.20251023-0",
        "9.6.20250523-0",
    ),
    "rhcos-5.0": System(
        "rhel",
        "9.8",
        "5.14.0-687.10.1.el9_8.x86_64",
        "Red Hat Enterprise Linux CoreOS 9.8.20260428-0 (Plow)",
        "cri-o://1.36.1-1.rhaos5.0.git3c2b1a0.el9",
        "9.8.20260428-0",
        "9.8.20260301-0",
    ),
    "fedora-coreos-43": System(
        "fedora", "43", "6.19.10-200.fc43.x86_64", "Fedora CoreOS 43.20260413.3.2", "containerd://2.1.4"
    ),
}


@dataclass(frozen=True)
class Distribution:
    """A Kubernetes distribution: what its kubelet reports, and where its containerd is.

    `config` is the file or folder that containerd reads, with its imports if `imports`. Empty: the distribution finds the container toolkit's
    runtimes itself when containerd is restarted.
    """

    suffix: str = ""
    runtime: str = ""
    socket: str = "/run/containerd/containerd.sock"
    config: str = "/etc/containerd"
    imports: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


# Sources: kubeadm constants (kubeadm.alpha.kubernetes.io/cri-socket); rke2 and k3s pkg/agent/containerd (runtimes are searched below
# /usr/local/nvidia/toolkit), k3s pkg/nodeconfig; k0s docs/runtime.md; microk8s snap (microk8s.io/cluster, args/containerd-template.toml).
DISTRIBUTIONS = {
    "kubeadm": Distribution(
        annotations={"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"}
    ),
    "rke2": Distribution(
        suffix="+rke2r1",
        runtime="containerd://2.1.4-k3s2",
        socket="/run/k3s/containerd/containerd.sock",
        config="",
        labels={"node.kubernetes.io/instance-type": "rke2"},
    ),
    "k3s": Distribution(
        suffix="+k3s1",
        runtime="containerd://2.1.4-k3s2",
        socket="/run/k3s/containerd/containerd.sock",
        config="",
        labels={"node.kubernetes.io/instance-type": "k3s"},
    ),
    "k0s": Distribution(
        suffix="+k0s.0",
        runtime="containerd://1.7.28",
        socket="/run/k0s/containerd.sock",
        config="/etc/k0s/containerd.d",
        imports=False,
    ),
    "microk8s": Distribution(
        runtime="containerd://1.7.27",
        socket="/var/snap/microk8s/common/run/containerd.sock",
        config="/var/snap/microk8s/current/args/containerd-template.toml",
        labels={"microk8s.io/cluster": "true", "node.kubernetes.io/microk8s-worker": "microk8s-worker"},
    ),
}

CONDITIONS = (
    {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
    {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory", "message": ""},
    {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure", "message": ""},
    {"type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID", "message": ""},
)

# The CUDA version that a driver of each branch reports (CUDA Toolkit release notes, table "CUDA Toolkit and Corresponding
# Driver Versions"; 580.159.04 with 13.0 was measured). lab/sim/rules/releases.go has the same table.
CUDA_OF_BRANCH = {
    "535": "12.2",
    "545": "12.3",
    "550": "12.4",
    "555": "12.5",
    "560": "12.6",
    "565": "12.7",
    "570": "12.8",
    "575": "12.9",
    "580": "13.0",
    "590": "13.1",
    "595": "13.2",
    "610": "13.3",
}
