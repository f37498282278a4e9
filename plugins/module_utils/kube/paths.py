# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the paths of objects in the API: fixed paths for the kinds that the collection uses, and discovery for all other kinds."""

from __future__ import annotations

from dataclasses import dataclass

from ..catalog.openshift import NFD_CR

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
DAEMONSETS = "/apis/apps/v1/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/deployments"
CUSTOM_RESOURCE_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RUNTIME_CLASS_LIST = "/apis/node.k8s.io/v1/runtimeclasses"
DISRUPTION_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CLUSTER_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
NVIDIA_DRIVERS = "/apis/nvidia.com/v1alpha1/nvidiadrivers"
GPU_CLUSTERS = "/apis/nvidia.com/v1alpha1/gpuclusters"

# (api version, kind) -> (plural, namespaced)
_KNOWN: dict[tuple[str, str], tuple[str, bool]] = {
    ("v1", "ConfigMap"): ("configmaps", True),
    ("v1", "Event"): ("events", True),
    ("v1", "Namespace"): ("namespaces", False),
    ("v1", "Node"): ("nodes", False),
    ("v1", "Pod"): ("pods", True),
    ("v1", "ResourceQuota"): ("resourcequotas", True),
    ("v1", "Secret"): ("secrets", True),
    ("v1", "Service"): ("services", True),
    ("v1", "ServiceAccount"): ("serviceaccounts", True),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): ("customresourcedefinitions", False),
    ("apps/v1", "DaemonSet"): ("daemonsets", True),
    ("apps/v1", "Deployment"): ("deployments", True),
    ("batch/v1", "CronJob"): ("cronjobs", True),
    ("batch/v1", "Job"): ("jobs", True),
    ("coordination.k8s.io/v1", "Lease"): ("leases", True),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): ("clusterroles", False),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): ("clusterrolebindings", False),
    ("rbac.authorization.k8s.io/v1", "Role"): ("roles", True),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): ("rolebindings", True),
}


@dataclass(frozen=True)
class Kind:
    """A kind that the server has, and the paths of its objects."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def full_name(self) -> str:
        """The kind with its API group, as in `Lease.coordination.k8s.io`; only the kind for the core group."""
        return ".".join(filter(None, (self.kind, self.api_version.rpartition("/")[0])))

    def collection(self, namespace: str | None = None) -> str:
        """The path of the collection; without a namespace, it includes all namespaces."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{within}/{self.plural}"

    def path(self, name: str, namespace: str | None = None) -> str:
        """The path of one object."""
        return f"{self.collection(namespace)}/{name}"


# This kind is not in _KNOWN, because applying its objects requires discovery, which notices if the kind is missing.
NODE_FEATURE_DISCOVERY = Kind(*NFD_CR, plural="nodefeaturediscoveries", namespaced=True)


def known_paths(api_version: str, kind: str) -> tuple[str, bool] | None:
    """The plural of a kind with a fixed path, and whether it has a namespace; None for other kinds."""
    return _KNOWN.get((api_version, kind))


def known_kind(api_version: str, kind: str) -> Kind:
    """A kind with a fixed path; sends no request."""
    return Kind(api_version, kind, *_KNOWN[(api_version, kind)])


def object_path(api_version: str, kind: str, name: str, namespace: str | None = None) -> str:
    """The path of an object of a kind with a fixed path; sends no request."""
    return known_kind(api_version, kind).path(name, namespace)


def collection_path(api_version: str, kind: str, namespace: str | None = None) -> str:
    """The path of the objects of a kind with a fixed path; sends no request."""
    return known_kind(api_version, kind).collection(namespace)
