# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes distributions: how their nodes are recognized, and what the container toolkit needs to configure their containerd.

The toolkit writes a configuration file for containerd, and signals the process that listens on the socket to read the file. The chart's defaults,
/etc/containerd/config.toml and /run/containerd/containerd.sock, are the paths of a containerd that kubeadm uses. Since v1.18 (operator v25.10), the
toolkit writes a drop-in file, by default /etc/containerd/conf.d/99-nvidia.toml, and adds its folder to the imports of the configuration file
(nvidia-container-toolkit pkg/config/engine/containerd/config_drop_in.go).
"""

from __future__ import annotations

import dataclasses
import typing as t

from .releases import Release, release_of

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
        """The conditions of known issues that this distribution meets (see known_issues.py)."""
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
