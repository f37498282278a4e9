# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundles of the lab's catalogs: the real manifests of NVIDIA's and OpenShift's operators, with the few changes below."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .. import build
from ..errors import LabError
from ..tools import OPERATORS

Object = dict[str, Any]
GPU_OPERATOR, NFD = "gpu-operator-certified", "nfd"
NFD_VERSION = "v4.12.0"
_NFD_TOOL = "cluster-nfd-operator"
# In NVIDIA's sources this is the operator's image, which the release process replaces.
_UNRELEASED = (
    "ghcr.io/nvidia/gpu-operator:main-latest",
    "ghcr.io/nvidia/gpu-operator/gpu-operator-validator:main-latest",
)
MISSING_IMAGE = "nvcr.io/nvidia/gpu-operator:v0.0.0-missing"
# A kind that bundles may contain and whose CRD the lab does not have, for an InstallPlan with a step that fails.
_WITHOUT_CRD = {
    "apiVersion": "autoscaling.k8s.io/v1",
    "kind": "VerticalPodAutoscaler",
    "metadata": {"name": "gpu-operator"},
    "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gpu-operator"}},
}


@dataclass(frozen=True)
class Bundle:
    """One version of an operator in a catalog: its package, version and manifests."""

    package: str
    version: str
    manifests: tuple[Object, ...]

    @property
    def name(self) -> str:
        """The name of its ClusterServiceVersion."""
        return f"{self.package}.{self.version}"

    @property
    def csv(self) -> Object:
        """Its ClusterServiceVersion."""
        return next(one for one in self.manifests if one["kind"] == "ClusterServiceVersion")


def gpu_operator(version: str) -> Bundle:
    """Return the bundle of a release of the GPU operator, with the image as in the published bundle: by digest.

    The digest is invented, because the sources do not contain the published one.
    """
    digest = hashlib.sha256(f"gpu-operator {version}".encode()).hexdigest()
    image = f"nvcr.io/nvidia/gpu-operator@sha256:{digest}"
    manifests = _read(OPERATORS[version].tool, "bundle/manifests")
    return Bundle(GPU_OPERATOR, version, tuple(_replace(manifests, dict.fromkeys(_UNRELEASED, image))))


def nfd() -> Bundle:
    """Return the bundle of OpenShift's NFD operator, with the API fields and CRDs of current releases (docs/lab-openshift.md)."""
    manifests = _read(_NFD_TOOL, "bundle/manifests")
    for manifest in manifests:
        if manifest["metadata"]["name"] == "nodefeaturediscoveries.nfd.openshift.io":
            _add_tolerations(manifest)
        if manifest["kind"] == "ClusterServiceVersion":
            _grant_node_features(manifest)
    return Bundle(NFD, NFD_VERSION, (*manifests, *_read("nfd", "charts/node-feature-discovery/crds")))


def with_missing_image(bundle: Bundle) -> Bundle:
    """Return a bundle whose Deployments use an image that no registry has, so that they never become ready."""

    def change(csv: Object) -> None:
        for deployment in csv["spec"]["install"]["spec"]["deployments"]:
            for container in deployment["spec"]["template"]["spec"]["containers"]:
                container["image"] = MISSING_IMAGE

    return _changed(bundle, change)


def with_failing_step(bundle: Bundle) -> Bundle:
    """Return a bundle with an object whose CRD is missing, so that the InstallPlan fails."""
    return Bundle(bundle.package, bundle.version, (*bundle.manifests, _WITHOUT_CRD))


def _changed(bundle: Bundle, change: Callable[[Object], None]) -> Bundle:
    csv = copy.deepcopy(bundle.csv)
    change(csv)
    others = [one for one in bundle.manifests if one["kind"] != "ClusterServiceVersion"]
    return Bundle(bundle.package, bundle.version, (csv, *others))


def _read(tool: str, folder: str) -> list[Object]:
    built = build.cached(tool)
    if built is None:
        raise LabError(f"{tool} is not built: run 'lab/lab build olm'")
    return list(_documents(built / folder))


def _documents(folder: Path) -> Iterator[Object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted(folder.glob("*.yaml")):
        yield from (document for document in yaml.load_all(path.read_text(), Loader=loader) if document)


def _replace(value: Any, texts: dict[str, str]) -> Any:
    """Return a copy of JSON-like data in which each text that is a key of `texts` is replaced."""
    if isinstance(value, dict):
        return {key: _replace(one, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [_replace(one, texts) for one in value]
    return texts.get(value, value) if isinstance(value, str) else value


def _add_tolerations(crd: Object) -> None:
    text = {"type": "string"}
    toleration = {
        "type": "object",
        "properties": {
            **dict.fromkeys(("key", "operator", "value", "effect"), text),
            "tolerationSeconds": {"type": "integer", "format": "int64"},
        },
    }
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields = ("workerTolerations", "masterTolerations")
    spec["operand"]["properties"] |= {name: {"type": "array", "items": toleration} for name in fields}


def _grant_node_features(csv: Object) -> None:
    """The operator can grant to the master only the permissions that it has itself."""
    permissions = csv["spec"]["install"]["spec"]["clusterPermissions"][0]["rules"]
    kinds = ["nodefeatures", "nodefeaturerules", "nodefeaturegroups", "nodefeaturegroups/status"]
    verbs = ["get", "list", "watch", "patch", "update"]
    permissions.append({"apiGroups": ["nfd.k8s-sigs.io"], "resources": kinds, "verbs": verbs})
