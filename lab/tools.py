# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of a lab: where each is pinned, what its build produces, and its usual build time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from . import edits
from .layout import LAB

_KUBE_VERSION = "v1.36.4"


@dataclass(frozen=True)
class Copy:
    """A folder of a tool's Go module that is copied beside its program."""

    module: str
    source: str
    target: str
    # The versions that the project's release process writes to Chart.yaml; the sources contain placeholders.
    chart_version: str | None = None
    app_version: str | None = None


@dataclass(frozen=True)
class Tool:
    """One pinned program; `folder` contains its go.mod and go.sum. Without a `package`, only files of modules are copied."""

    name: str
    folder: Path
    package: str
    program: str
    usual_seconds: int
    ldflags: str = ""
    applets: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = field(default=())
    # The following fields are not part of the repr: _folder in build.py hashes them only for tools that use them.
    # Further programs of the same module, by package; the name of each is the last part of its package.
    beside: tuple[str, ...] = field(default=(), repr=False)
    # The program calls C and is linked with the machine's C library.
    cgo: bool = field(default=False, repr=False)
    # Not a Go program but a C library from the folder's *.c files, with the headers in this package's folder.
    library: bool = field(default=False, repr=False)
    edits: tuple[edits.Edit, ...] = field(default=(), repr=False)
    # Build tags, separated by commas.
    tags: str = field(default="", repr=False)

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the built program."""
        return self.applets or ((self.program,) if self.program else ())


def _pinned(name: str, package: str, usual_seconds: int, program: str = "", **more: object) -> Tool:
    return Tool(name, LAB / "pins" / name, package, program or name, usual_seconds, **more)  # type: ignore[arg-type]


_GPU_OPERATOR = "github.com/NVIDIA/gpu-operator"
_NFD = "sigs.k8s.io/node-feature-discovery"
_DEVICE_PLUGIN = "github.com/NVIDIA/k8s-device-plugin/cmd"
_VERSION = "k8s.io/component-base/version"
_MACHINE_API = "github.com/openshift/machine-api-operator/cmd"


def _gpu_operator(version: str) -> Tool:
    """Return the tool for one release of the GPU operator, with its chart and the files of its image."""
    operator = OPERATORS[version]
    chart = Copy(_GPU_OPERATOR, "deployments/gpu-operator", "charts/gpu-operator", version, version)
    folders = ("assets", "manifests", "bundle")
    copies = (chart, *(Copy(_GPU_OPERATOR, folder, folder) for folder in folders))
    package = f"{_GPU_OPERATOR}/cmd/gpu-operator"
    return _pinned(operator.tool, package, operator.usual_seconds, program="gpu-operator", copies=copies)


def _openshift_crds() -> tuple[Copy, ...]:
    """Return the folders with the CRDs of OpenShift's APIs."""
    api = "github.com/openshift/api"
    groups = ("config/v1", "machine/v1beta1", "machineconfiguration/v1", "operator/v1", "security/v1")
    operator = Copy("github.com/openshift/cluster-autoscaler-operator", "install", "crds/autoscaling/v1")
    return (*(Copy(api, f"{group}/zz_generated.crd-manifests", f"crds/{group}") for group in groups), operator)


class PinnedOperator(NamedTuple):
    """The tool of one release of the GPU operator."""

    tool: str
    usual_seconds: int


# The releases of the GPU operator that the lab can build. The first one is built with every lab; upgrades start from the others, which share few
# compiled libraries with it.
OPERATORS = {"v25.10.1": PinnedOperator("gpu-operator", 86), "v25.3.2": PinnedOperator("gpu-operator-25.3", 150)}
_DEFAULT_OPERATOR, *_OLDER_OPERATORS = OPERATORS
_OLDER_TOOLS = tuple(OPERATORS[version].tool for version in _OLDER_OPERATORS)

# In build order: programs that others wait for come first. The seconds were measured on two cores with an empty build
# cache, including downloads, one build after the other; measurements of local builds replace them.
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
            # Without these flags the control plane reports v0.0.0, and charts reject the installation.
            ldflags=f"-X {_VERSION}.gitVersion={_KUBE_VERSION} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36",
            applets=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        ),
        _pinned(
            "kwok",
            f"{edits.KWOK_MODULE}/cmd/kwok",
            60,
            copies=(
                Copy(edits.KWOK_MODULE, "kustomize/crd/bases", "crds"),
                Copy(edits.KWOK_MODULE, "kustomize/stage", "stages"),
            ),
            edits=edits.KWOK,
        ),
        # The shim answers the commands of `kubectl exec`.
        Tool("sim", LAB / "sim", ".", "sim", 45, beside=("./shim",)),
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
        _gpu_operator(_DEFAULT_OPERATOR),
        _pinned("helm", "helm.sh/helm/v3/cmd/helm", 53),
        *map(_gpu_operator, _OLDER_OPERATORS),
        # OpenShift's CRDs: files of two modules, and no program.
        Tool("openshift-crds", LAB / "pins" / "openshift-crds", "", "", 10, copies=_openshift_crds()),
        # Serves charts to Helm by oci://.
        _pinned("registry", "github.com/distribution/distribution/v3/cmd/registry", 90),
        # Simulates network faults between a client and the API server.
        _pinned("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server", 13, program="toxiproxy-server"),
        # OpenShift's way to install operators: the controllers of OLM, and opm, which serves catalogs.
        _pinned(
            "olm",
            f"{edits.LIFECYCLE_MANAGER}/cmd/olm",
            240,
            beside=(
                f"{edits.LIFECYCLE_MANAGER}/cmd/catalog",
                f"{edits.LIFECYCLE_MANAGER}/cmd/package-server",
                f"{edits.REGISTRY}/cmd/opm",
            ),
            copies=(Copy(edits.LIFECYCLE_MANAGER, "deploy/chart/crds", "crds"),),
            edits=edits.OLM,
            # opm otherwise needs the C library gpgme.
            tags="containers_image_openpgp",
        ),
        _pinned(
            "cluster-nfd-operator",
            edits.NFD_MODULE,
            60,
            program="node-feature-discovery-operator",
            copies=(
                Copy(edits.NFD_MODULE, "build/assets", "assets"),
                Copy(edits.NFD_MODULE, "manifests/4.12", "bundle"),
            ),
            edits=edits.NFD_OPERATOR,
        ),
        # OpenShift's Machine API for vSphere, with the CRDs of its IP addresses.
        _pinned(
            "machine-api",
            f"{_MACHINE_API}/vsphere",
            420,
            program="machine-controller-vsphere",
            beside=(f"{_MACHINE_API}/machineset", f"{_MACHINE_API}/nodelink-controller"),
            copies=(Copy("sigs.k8s.io/cluster-api", "config/crd/bases", "crds"),),
        ),
        # The simulator of a vCenter, and the command-line client of vCenters.
        Tool("vcsim", LAB / "vcsim", ".", "vcsim", 40),
        Tool("govc", LAB / "pins" / "govc", ".", "govc", 60),
        # NVIDIA's own agents, the NVML library that they load, and the program that simulates their node.
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

# Parts that a lab does not need to start; they are built on request.
_ON_REQUEST: dict[str, tuple[str, ...]] = {
    "upgrade": _OLDER_TOOLS,
    "openshift": ("openshift-crds",),
    "registry": ("registry",),
    "toxiproxy": ("toxiproxy",),
    "olm": (*_OLDER_TOOLS, "olm", "cluster-nfd-operator"),
    "vsphere": ("machine-api", "vcsim", "govc"),
    "agents": ("nvidia-agents", "mig-parted", "nvml", "host"),
}
PARTS: dict[str, tuple[str, ...]] = {
    "kube": tuple(name for name in TOOLS if not any(name in tools for tools in _ON_REQUEST.values())),
    **_ON_REQUEST,
}
