# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of the charts of the GPU operator and of NFD that are maps, with the maps in each of them.

Helm only warns where a scalar replaces a map, and templates that read a field of it then fail or render nothing.
Sources: deployments/gpu-operator/values.yaml of gpu-operator (v25.10, and draDriver, kataSandboxDevicePlugin of v26.3) and
deployment/helm/node-feature-discovery/values.yaml of node-feature-discovery (v0.18).
"""

from __future__ import annotations

OPERATOR_MAPS: dict[str, tuple[str, ...]] = {
    "ccManager": ("resources",),
    "cdi": (),
    "daemonsets": ("annotations", "labels", "rollingUpdate"),
    "dcgm": ("resources",),
    "dcgmExporter": ("resources", "service", "serviceMonitor"),
    "devicePlugin": ("config", "mps", "resources"),
    "draDriver": (),
    "driver": (
        "certConfig",
        "kernelModuleConfig",
        "licensingConfig",
        "manager",
        "nvidiaDriverCRD",
        "rdma",
        "repoConfig",
        "resources",
        "startupProbe",
        "upgradePolicy",
        "virtualTopology",
    ),
    "gdrcopy": (),
    "gds": (),
    "gfd": ("resources",),
    "hostPaths": (),
    "kataManager": ("config", "resources"),
    "kataSandboxDevicePlugin": (),
    "mig": (),
    "migManager": ("config", "gpuClientsConfig", "resources"),
    "nfd": (),
    "node-feature-discovery": (),
    "nodeStatusExporter": ("resources",),
    "operator": ("affinity", "annotations", "initContainer", "logging", "resources"),
    "platform": (),
    "psa": (),
    "sandboxDevicePlugin": ("resources",),
    "sandboxWorkloads": (),
    "toolkit": ("resources",),
    "validator": ("plugin", "resources"),
    "vfioManager": ("driverManager", "resources"),
    "vgpuDeviceManager": ("config",),
    "vgpuManager": ("driverManager", "resources"),
}
# The maps of every workload of NFD.
_NFD_WORKLOAD = (
    "affinity",
    "annotations",
    "labels",
    "livenessProbe",
    "networkPolicy",
    "nodeSelector",
    "podSecurityContext",
    "rbac",
    "readinessProbe",
    "resources",
    "serviceAccount",
)
NFD_MAPS: dict[str, tuple[str, ...]] = {
    "featureGates": (),
    "gc": (*_NFD_WORKLOAD, "deploymentAnnotations", "podDisruptionBudget"),
    "global": (),
    "image": (),
    "master": (*_NFD_WORKLOAD, "deploymentAnnotations", "podDisruptionBudget", "securityContext", "startupProbe"),
    "prometheus": ("labels",),
    "topologyUpdater": (*_NFD_WORKLOAD, "daemonsetAnnotations", "securityContext"),
    "worker": (*_NFD_WORKLOAD, "daemonsetAnnotations", "securityContext", "updateStrategy"),
}
