# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OLM's CRDs and the objects that OpenShift creates for OLM: CatalogSources and the API service of PackageManifests."""

from __future__ import annotations

import base64
import datetime
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from ..api import Api, ApiError, Object, in_parallel
from ..errors import LabError
from ..layout import Lab
from ..openshift import monitoring
from ..openshift.crds import wait_established
from . import catalogs
from .serve import port_of

OLM_NAMESPACE = "openshift-operator-lifecycle-manager"
PACKAGE_SERVICE = "packageserver-service"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SOURCES = f"/apis/operators.coreos.com/v1alpha1/namespaces/{catalogs.NAMESPACE}/catalogsources"
_API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.packages.operators.coreos.com"
_PACKAGES = f"/apis/packages.operators.coreos.com/v1/namespaces/{catalogs.NAMESPACE}/packagemanifests"
_TITLES = {
    "certified-operators": ("Certified Operators", -200),
    "redhat-operators": ("Red Hat Operators", -100),
    catalogs.STAGING: ("Staging Operators", 0),
}


def apply_crds(api: Api, folder: Path, limit: float = 120.0) -> None:
    """Apply OLM's CRDs and those of the monitoring, and wait until the API server serves them."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    desired: dict[str, Object] = {crd["metadata"]["name"]: crd for crd in monitoring.crds()}
    for path in sorted(folder.glob("*.yaml")):
        crd = yaml.load(path.read_text(), Loader=loader)
        # The files contain an empty status.
        desired[crd["metadata"]["name"]] = {key: value for key, value in crd.items() if key != "status"}
    in_parallel(lambda name: api.apply(f"{_CRDS}/{name}", desired[name]), desired)
    wait_established(api, desired, limit)


def apply(lab: Lab, api: Api) -> None:
    """Apply the objects of OLM, with the lab's current ports."""
    for namespace in (catalogs.NAMESPACE, "openshift-operators", OLM_NAMESPACE):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        api.apply(f"/api/v1/namespaces/{namespace}", body)
    config = {"apiVersion": "operators.coreos.com/v1", "kind": "OLMConfig", "metadata": {"name": "cluster"}}
    api.apply("/apis/operators.coreos.com/v1/olmconfigs/cluster", config)
    service = f"/api/v1/namespaces/{OLM_NAMESPACE}/services/{PACKAGE_SERVICE}"
    api.apply(service, _package_service(lab))
    api.apply(_API_SERVICE, _api_service(lab))
    apply_sources(lab, api)


def apply_sources(lab: Lab, api: Api) -> None:
    """Apply the CatalogSources, without the staging one unless its setting is `on`."""
    for name in expected_sources(lab):
        title, priority = _TITLES[name]
        spec = {
            "sourceType": "grpc",
            "address": f"127.0.0.1:{port_of(lab, name)}",
            "displayName": title,
            "publisher": "Red Hat",
            "priority": priority,
        }
        body = {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "CatalogSource",
            "metadata": {"name": name, "namespace": catalogs.NAMESPACE},
            "spec": spec,
        }
        api.apply(f"{_SOURCES}/{name}", body)


def expected_sources(lab: Lab) -> list[str]:
    """Return the names of the CatalogSources that the lab's settings request."""
    staging = catalogs.of(lab).setting(f"{catalogs.CLOUD}.staging") == "on"
    return [name for name in catalogs.CATALOGS if staging or name != catalogs.STAGING]


def wait_connected(lab: Lab, api: Api, changed: Mapping[str, float], limit: float = 120.0) -> None:
    """Wait until OLM has connected to each catalog after its last change, or reports an unreachable one as not connected.

    A Subscription that is created before would be resolved from the previous content.
    """
    settings = catalogs.of(lab)
    deadline = time.monotonic() + limit
    for name in expected_sources(lab):
        reachable = settings.fault(f"{catalogs.CLOUD}.{catalogs.UNREACHABLE}", name) is None
        while not _is_current(api.get(f"{_SOURCES}/{name}") or {}, changed[name], reachable=reachable):
            if time.monotonic() > deadline:
                raise LabError(f"OLM did not notice the change of CatalogSource {name} within {limit:.0f} s")
            time.sleep(0.1)


def _is_current(source: Object, changed: float, *, reachable: bool) -> bool:
    state = source.get("status", {}).get("connectionState", {})
    if not reachable or state.get("lastObservedState") != "READY":
        return not reachable and state.get("lastObservedState") == "TRANSIENT_FAILURE"
    connected = datetime.datetime.fromisoformat(state["lastConnect"]).timestamp()
    # The status contains whole seconds.
    return connected >= int(changed)


def wait_ready(lab: Lab, api: Api, limit: float = 300.0) -> None:
    """Wait until all reachable catalogs are ready, and their packages are listed."""
    settings = catalogs.of(lab)
    reachable = [name for name in expected_sources(lab) if catalogs.served(settings, name) is not None]
    packages = {package for name in reachable for package in catalogs.CATALOGS[name]}
    deadline = time.monotonic() + limit
    while waiting := _waiting(api, reachable, packages):
        if time.monotonic() > deadline:
            raise LabError(
                f"{waiting} is not ready after {limit:.0f} s: see 'lab/lab{lab.option} logs catalog-operator'"
            )
        time.sleep(0.1)


def _waiting(api: Api, sources: list[str], packages: set[str]) -> str:
    """Return the first object that is not ready, or an empty string."""
    for name, source in zip(sources, in_parallel(lambda name: api.get(f"{_SOURCES}/{name}"), sources), strict=True):
        state = (source or {}).get("status", {}).get("connectionState", {}).get("lastObservedState")
        if state != "READY":
            return f"CatalogSource {name}"
    try:
        listed = {item["metadata"]["name"] for item in api.list(_PACKAGES)}
    except ApiError:
        return "the API of PackageManifests"
    return next((f"PackageManifest {name}" for name in sorted(packages - listed)), "")


def _package_service(lab: Lab) -> Object:
    """Return a Service for the package server beside the cluster: Endpoints must not contain loopback addresses."""
    port = lab.ports()["packageserver"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": PACKAGE_SERVICE, "namespace": OLM_NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "protocol": "TCP"}]},
    }


def _api_service(lab: Lab) -> Object:
    authority = base64.b64encode((lab.pki / "ca.crt").read_bytes()).decode()
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": _API_SERVICE.rpartition("/")[2]},
        "spec": {
            "group": "packages.operators.coreos.com",
            "version": "v1",
            "groupPriorityMinimum": 2000,
            "versionPriority": 15,
            "caBundle": authority,
            "service": {"name": PACKAGE_SERVICE, "namespace": OLM_NAMESPACE, "port": lab.ports()["packageserver"]},
        },
    }
