# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenShift's CRDs: copies of the files in the pinned Go modules, whose schemas and CEL rules the API server enforces."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from ..api import Api, ApiError, Object, in_parallel

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# The tool whose cache folder contains the files.
TOOL = "openshift-crds"
# Files below `crds/`. A suffix such as -Default is OpenShift's feature set: that of a cluster without previews.
FILES = (
    "config/v1/0000_00_cluster-version-operator_01_clusteroperators.crd.yaml",
    "config/v1/0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml",
    "config/v1/0000_03_config-operator_01_proxies.crd.yaml",
    "config/v1/0000_03_marketplace_01_operatorhubs.crd.yaml",
    "config/v1/0000_10_config-operator_01_dnses.crd.yaml",
    "config/v1/0000_10_config-operator_01_imagedigestmirrorsets.crd.yaml",
    "config/v1/0000_10_config-operator_01_imagetagmirrorsets.crd.yaml",
    "config/v1/0000_10_config-operator_01_infrastructures-Default.crd.yaml",
    "machine/v1beta1/0000_10_machine-api_01_machinehealthchecks.crd.yaml",
    "machine/v1beta1/0000_10_machine-api_01_machines-Default.crd.yaml",
    "machine/v1beta1/0000_10_machine-api_01_machinesets-Default.crd.yaml",
    "machineconfiguration/v1/0000_80_machine-config_01_kubeletconfigs.crd.yaml",
    "machineconfiguration/v1/0000_80_machine-config_01_machineconfigpools-Default.crd.yaml",
    "machineconfiguration/v1/0000_80_machine-config_01_machineconfigs.crd.yaml",
    "operator/v1/0000_80_machine-config_01_machineconfigurations-Default.crd.yaml",
    "security/v1/0000_03_config-operator_01_securitycontextconstraints.crd.yaml",
    "autoscaling/v1/01_clusterautoscaler.crd.yaml",
    "autoscaling/v1/02_machineautoscaler.crd.yaml",
)
# OpenShift serves ImageStreams from an aggregated API server, so no module has a CRD of them. This one accepts any content.
_IMAGE_STREAMS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "imagestreams.image.openshift.io"},
    "spec": {
        "group": "image.openshift.io",
        "names": {
            "kind": "ImageStream",
            "listKind": "ImageStreamList",
            "plural": "imagestreams",
            "singular": "imagestream",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {"status": {}},
            }
        ],
    },
}


def load(folder: Path) -> Iterator[Object]:
    """Yield the CRDs, from the cache folder of the tool `openshift-crds`."""
    for file in FILES:
        crd: Object = yaml.load((folder / "crds" / file).read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        crd.pop("status", None)
        yield crd
    yield _IMAGE_STREAMS


def apply(api: Api, folder: Path, limit: float = 120.0) -> None:
    """Create the CRDs, and wait until the API server serves them."""
    desired = {crd["metadata"]["name"]: crd for crd in load(folder)}
    in_parallel(lambda name: api.apply(f"{_CRDS}/{name}", desired[name]), desired)
    wait_established(api, desired, limit)


def wait_established(api: Api, names: Iterable[str], limit: float) -> None:
    """Wait until the API server serves these CRDs."""
    pending = set(names)
    deadline = time.monotonic() + limit
    while missing := pending - {crd["metadata"]["name"] for crd in api.list(_CRDS) if is_established(crd)}:
        if time.monotonic() > deadline:
            raise ApiError(0, f"the API server does not serve {', '.join(sorted(missing))} after {limit:.0f} s")
        time.sleep(0.1)


def is_established(crd: Object) -> bool:
    """Return whether the API server serves a CRD."""
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
