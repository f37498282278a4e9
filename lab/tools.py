# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs a lab is made of: where each is pinned, what its build yields, and how long that usually takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .layout import LAB

_KUBE_VERSION = "v1.36.4"


@dataclass(frozen=True)
class Copy:
    """A folder of a tool's own module that is kept beside its program."""

    module: str
    source: str
    target: str
    # What the project's release process writes into Chart.yaml, which the sources leave at a place-holder.
    chart_version: str | None = None
    app_version: str | None = None


@dataclass(frozen=True)
class Tool:
    """One pinned program; `folder` holds its go.mod and go.sum."""

    name: str
    folder: Path
    package: str
    program: str
    usual_seconds: int
    ldflags: str = ""
    applets: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = field(default=())
    # What follows is said only of what is built with a C compiler (_folder in build.py), and not shown of the others.
    # Further programs of the same module, by their packages; each is called as the last part of its package.
    beside: tuple[str, ...] = field(default=(), repr=False)
    # It calls C, and is linked with the machine's C library.
    cgo: bool = field(default=False, repr=False)
    # It is no Go program but a C library of the folder's *.c, with headers of this package's folder.
    library: bool = field(default=False, repr=False)

    @property
    def programs(self) -> tuple[str, ...]:
        """The names under which the built program is called."""
        return self.applets or (self.program,)


def _pinned(name: str, package: str, usual_seconds: int, program: str = "", **more: object) -> Tool:
    return Tool(name, LAB / "pins" / name, package, program or name, usual_seconds, **more)  # type: ignore[arg-type]


_GPU_OPERATOR = "github.com/NVIDIA/gpu-operator"
_NFD = "sigs.k8s.io/node-feature-discovery"
_KWOK = "sigs.k8s.io/kwok"
_DEVICE_PLUGIN = "github.com/NVIDIA/k8s-device-plugin/cmd"
_VERSION = "k8s.io/component-base/version"


def _gpu_operator(name: str, version: str, usual_seconds: int) -> Tool:
    """One release of the GPU operator with its chart and the files of its image."""
    chart = Copy(_GPU_OPERATOR, "deployments/gpu-operator", "charts/gpu-operator", version, version)
    copies = (chart, Copy(_GPU_OPERATOR, "assets", "assets"), Copy(_GPU_OPERATOR, "manifests", "manifests"))
    return _pinned(name, f"{_GPU_OPERATOR}/cmd/gpu-operator", usual_seconds, program="gpu-operator", copies=copies)


# The order of building: what everything else waits for comes first. The seconds were measured on two cores with an
# empty build cache, downloads included, one after the other; a build of one's own replaces them.
TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        _pinned("process-compose", "github.com/f1bonacc1/process-compose/src", 38),
        _pinned("etcd", "go.etcd.io/etcd/server/v3", 28),
        Tool(
            "kubernetes",
            LAB / "pins" / "kube",
            ".",
            "kube",
            265,
            # Without these the control plane calls itself v0.0.0, and charts refuse to install.
            ldflags=f"-X {_VERSION}.gitVersion={_KUBE_VERSION} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36",
            applets=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        ),
        _pinned(
            "kwok",
            f"{_KWOK}/cmd/kwok",
            60,
            copies=(Copy(_KWOK, "kustomize/crd/bases", "crds"), Copy(_KWOK, "kustomize/stage", "stages")),
        ),
        Tool("sim", LAB / "sim", ".", "sim", 45),
        _pinned(
            "nfd",
            f"{_NFD}/cmd/nfd-master",
            69,
            program="nfd-master",
            copies=(
                Copy(
                    _NFD,
                    "deployment/helm/node-feature-discovery",
                    "charts/node-feature-discovery",
                    chart_version="0.19.0",
                    app_version="v0.19.0",
                ),
            ),
        ),
        _gpu_operator("gpu-operator", "v25.10.1", 86),
        _pinned("helm", "helm.sh/helm/v3/cmd/helm", 53),
        # What an upgrade begins with; it shares few compiled libraries with the newer one.
        _gpu_operator("gpu-operator-25.3", "v25.3.2", 150),
        # From which Helm takes charts by oci://.
        _pinned("registry", "github.com/distribution/distribution/v3/cmd/registry", 90),
        # Through which a test has a bad network between a client and the API server.
        _pinned("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server", 13, program="toxiproxy-server"),
        # NVIDIA's own agents, the driver's library that they find here, and the node that they believe to be on.
        _pinned(
            "nvidia-agents",
            f"{_DEVICE_PLUGIN}/gpu-feature-discovery",
            110,
            program="gpu-feature-discovery",
            beside=(f"{_DEVICE_PLUGIN}/nvidia-device-plugin", f"{_DEVICE_PLUGIN}/mps-control-daemon"),
            cgo=True,
        ),
        _pinned(
            "mig-parted",
            "github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted",
            16,
            program="nvidia-mig-parted",
            cgo=True,
        ),
        Tool("nvml", LAB / "nvml", "github.com/NVIDIA/go-nvml/pkg/nvml", "libnvidia-ml.so.1", 2, library=True),
        Tool("host", LAB / "host", ".", "host", 10),
    )
}

# A lab starts with the first part; another one is built by whoever needs it.
_LATER: dict[str, tuple[str, ...]] = {
    "upgrade": ("gpu-operator-25.3",),
    "registry": ("registry",),
    "toxiproxy": ("toxiproxy",),
    "agents": ("nvidia-agents", "mig-parted", "nvml", "host"),
}
PARTS: dict[str, tuple[str, ...]] = {
    "kube": tuple(name for name in TOOLS if not any(name in tools for tools in _LATER.values())),
    **_LATER,
}
