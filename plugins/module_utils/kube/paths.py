# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the paths of objects in the API: fixed paths for the kinds that the collection uses, and discovery for all other kinds."""

from __future__ import annotations

import difflib
import typing as t
from dataclasses import dataclass

from ..catalog.olm import NFD_CR
from .errors import ApiError

if t.TYPE_CHECKING:
    from .client import Client

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
DAEMONSETS = "/apis/apps/v1/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/deployments"
CUSTOM_RESOURCE_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
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


class UnknownKind(Exception):
    """The server does not have the kind; the message lists the kinds of its group."""


class Discovery:
    """Finds kinds; for kinds without a fixed path, it reads each group and version once."""

    def __init__(self, client: Client) -> None:
        """Store the client; no request is sent yet."""
        self._client = client
        self._groups: dict[str, dict[str, Kind]] = {}

    def get(self, api_version: str, kind: str) -> Kind:
        """The kind; raises UnknownKind with similar names."""
        known = _KNOWN.get((api_version, kind))
        discovered = Kind(api_version, kind, *known) if known else self._kinds(api_version).get(kind)
        if discovered is None:
            raise UnknownKind(self._why_unknown(api_version, kind))
        return discovered

    def forget(self) -> None:
        """Discard the kinds that were read, so that they are read again after a CRD was applied."""
        self._groups.clear()

    def _kinds(self, api_version: str) -> dict[str, Kind]:
        if api_version not in self._groups:
            resources = self._client.get(f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}") or {}
            self._groups[api_version] = {
                resource["kind"]: Kind(api_version, resource["kind"], resource["name"], bool(resource["namespaced"]))
                for resource in resources.get("resources") or []
                if "/" not in resource["name"]
            }
        return self._groups[api_version]

    def _why_unknown(self, api_version: str, kind: str) -> str:
        kinds = self._kinds(api_version)
        if kinds:
            near = difflib.get_close_matches(kind, kinds, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            return f"{api_version} has no kind {kind!r}; it has: {', '.join(sorted(kinds))}.{hint}"
        return f"The cluster has no API {api_version!r} (needed for kind {kind!r}).{self._near_versions(api_version)}"

    def _near_versions(self, api_version: str) -> str:
        try:
            groups = (self._client.get("/apis") or {}).get("groups") or []
        except ApiError:
            return ""
        versions = [version["groupVersion"] for group in groups for version in group.get("versions") or []]
        group = api_version.rpartition("/")[0]
        same = [version for version in versions if version.rpartition("/")[0] == group]
        near = same or difflib.get_close_matches(api_version, [*versions, "v1"], n=2)
        return f" The most similar APIs that it has: {', '.join(near)}." if near else ""


def known_kind(api_version: str, kind: str) -> Kind:
    """A kind with a fixed path; sends no request."""
    return Kind(api_version, kind, *_KNOWN[(api_version, kind)])


def object_path(api_version: str, kind: str, name: str, namespace: str | None = None) -> str:
    """The path of an object of a kind with a fixed path; sends no request."""
    return known_kind(api_version, kind).path(name, namespace)


def collection_path(api_version: str, kind: str, namespace: str | None = None) -> str:
    """The path of the objects of a kind with a fixed path; sends no request."""
    return known_kind(api_version, kind).collection(namespace)
