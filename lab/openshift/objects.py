# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that a new OpenShift cluster has, as far as the collection and the operators read them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from ..api import Api, Object, in_parallel
from ..layout import Lab
from ..systems import SYSTEMS
from ..vsphere.inventory import DATACENTER, MACHINES_FOLDER, NETWORK, VCENTER
from .constraints import security_context_constraints
from .releases import Release

PLATFORMS = ("AWS", "Azure", "GCP", "VSphere")
# The name of the cluster in its cloud; the installer also appends a random suffix.
INFRASTRUCTURE = "prod"
REGIONS = {"AWS": "us-east-2", "Azure": "eastus", "GCP": "us-central1"}
# Labels that the cluster-version operator and the other operators put on their namespaces.
_MONITORED = {"openshift.io/cluster-monitoring": "true"}
_PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
NAMESPACES: dict[str, dict[str, str]] = {
    "openshift": {},
    "openshift-config": {},
    "openshift-config-managed": {},
    "openshift-infra": {},
    "openshift-machine-api": {**_MONITORED, **_PRIVILEGED},
    "openshift-machine-config-operator": {**_MONITORED, **_PRIVILEGED},
    "openshift-marketplace": {**_MONITORED, "pod-security.kubernetes.io/enforce": "baseline"},
    "openshift-monitoring": {**_MONITORED, **_PRIVILEGED},
    "openshift-operator-lifecycle-manager": _MONITORED,
    "openshift-operators": {},
}
_CONFIG = "/apis/config.openshift.io/v1"
_STARTED, _COMPLETED = "2026-01-12T08:00:00Z", "2026-01-12T08:41:00Z"


def create(lab: Lab, api: Api, release: Release, platform: str) -> None:
    """Create the objects with their status, or update them after a change of release; those of users are not changed."""
    in_parallel(lambda name: api.apply(f"/api/v1/namespaces/{name}", _namespace(name)), NAMESPACES)

    def create_one(entry: tuple[str, Object]) -> None:
        path, body = entry
        status = body.pop("status", None)
        api.apply(path, body)
        if status is not None:
            api.merge(f"{path}/status", {"status": status})

    in_parallel(create_one, list(objects(lab, release, platform)))


def objects(lab: Lab, release: Release, platform: str) -> Iterator[tuple[str, Object]]:
    """Yield the path and the content of each object, in any order."""
    image = (
        f"quay.io/openshift-release-dev/ocp-release@sha256:{uuid.uuid5(uuid.NAMESPACE_DNS, release.version).hex * 2}"
    )
    yield _config("ClusterVersion", "version", *_cluster_version(lab, release, image))
    yield _config("Infrastructure", "cluster", *_infrastructure(lab, platform))
    yield _config("Proxy", "cluster", {"trustedCA": {"name": ""}}, {})
    yield _config("DNS", "cluster", {"baseDomain": "prod.example.com"}, {})
    for name, text in {"machine-api": "openshift-machine-api", "cluster-autoscaler": "openshift-machine-api"}.items():
        yield _config("ClusterOperator", name, {}, _cluster_operator(release, text))
    for role in ("master", "worker"):
        yield _machine_config_pool(role)
    yield _driver_toolkit(release)
    yield (
        "/api/v1/namespaces/openshift-machine-api/serviceaccounts/machine-api-controllers",
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "machine-api-controllers", "namespace": "openshift-machine-api"},
        },
    )
    for body in security_context_constraints():
        yield f"/apis/security.openshift.io/v1/securitycontextconstraints/{body['metadata']['name']}", body


def _namespace(name: str) -> Object:
    # OpenShift gives each namespace a range of user ids, from which the restricted constraints take a pod's user.
    number = 1_000_000_000 + 10_000 * (sum(name.encode()) % 1000)
    annotations = {
        "openshift.io/sa.scc.uid-range": f"{number}/10000",
        "openshift.io/sa.scc.supplemental-groups": f"{number}/10000",
    }
    metadata = {"name": name, "labels": NAMESPACES[name], "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _config(kind: str, name: str, spec: Object, status: Object) -> tuple[str, Object]:
    plural = {"Proxy": "proxies", "DNS": "dnses"}.get(kind, f"{kind.lower()}s")
    body = {
        "apiVersion": "config.openshift.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }
    return f"{_CONFIG}/{plural}/{name}", body


def _cluster_version(lab: Lab, release: Release, image: str) -> tuple[Object, Object]:
    status = {
        "availableUpdates": [],
        "conditions": _conditions(
            Available=("True", "", f"Done applying {release.version}"),
            Failing=("False", "", ""),
            Progressing=("False", "", f"Cluster version is {release.version}"),
            RetrievedUpdates=("False", "RemoteFailed", "Unable to retrieve available updates"),
        ),
        "desired": {"version": release.version, "image": image, "channels": [f"stable-{release.minor}"]},
        "history": [
            {
                "state": "Completed",
                "version": release.version,
                "image": image,
                "startedTime": _STARTED,
                "completionTime": _COMPLETED,
                "verified": False,
            }
        ],
        "observedGeneration": 1,
        "versionHash": "accelgpulab=",
    }
    spec = {"channel": f"stable-{release.minor}", "clusterID": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{lab.name}.lab"))}
    return spec, status


def _infrastructure(lab: Lab, platform: str) -> tuple[Object, Object]:
    key = platform.lower()
    details: dict[str, dict[str, Any]] = {
        "AWS": {"region": REGIONS["AWS"]},
        "Azure": {"resourceGroupName": f"{INFRASTRUCTURE}-rg", "cloudName": "AzurePublicCloud"},
        "GCP": {"projectID": "lab", "region": REGIONS["GCP"]},
        "VSphere": {"apiServerInternalIPs": ["192.0.2.5"], "ingressIPs": ["192.0.2.6"]},
    }
    spec: Object = {"cloudConfig": {"name": ""}, "platformSpec": {"type": platform}}
    if platform == "VSphere":
        spec["cloudConfig"] = dict(CLOUD_CONFIG)
        vcenter = {"server": VCENTER, "port": lab.ports()["vcenter"], "datacenters": [DATACENTER]}
        spec["platformSpec"]["vsphere"] = {"vcenters": [vcenter], "failureDomains": list(FAILURE_DOMAINS.values())}
    server = f"https://127.0.0.1:{lab.ports()['kube-apiserver']}"
    status: Object = {
        "apiServerURL": server,
        "apiServerInternalURI": server,
        "controlPlaneTopology": "HighlyAvailable",
        "infrastructureTopology": "HighlyAvailable",
        "cpuPartitioning": "None",
        "etcdDiscoveryDomain": "",
        "infrastructureName": INFRASTRUCTURE,
        "platform": platform,
        "platformStatus": {"type": platform, key: details[platform]},
    }
    return spec, status


# The ConfigMap in openshift-config, and its key, with the address of the vCenter.
CLOUD_CONFIG = {"name": "cloud-provider-config", "key": "config"}
# The failure domains of the vSphere platform by name: zones of one region.
FAILURE_DOMAINS: dict[str, Object] = {
    f"zone-{letter}": {
        "name": f"zone-{letter}",
        "region": "dc1",
        "zone": f"zone-{letter}",
        "server": VCENTER,
        "topology": {
            "datacenter": DATACENTER,
            "computeCluster": f"/{DATACENTER}/host/cluster-{letter}",
            "datastore": f"/{DATACENTER}/datastore/vsan-{letter}",
            "networks": [NETWORK],
            "resourcePool": f"/{DATACENTER}/host/cluster-{letter}/Resources",
            "folder": MACHINES_FOLDER,
        },
    }
    for letter in "ab"
}


def _cluster_operator(release: Release, namespace: str) -> Object:
    return {
        "conditions": _conditions(
            Available=("True", "AsExpected", f"Cluster operator in {namespace} is available"),
            Degraded=("False", "AsExpected", ""),
            Progressing=("False", "AsExpected", ""),
            Upgradeable=("True", "AsExpected", ""),
        ),
        "versions": [{"name": "operator", "version": release.version}],
        "relatedObjects": [],
    }


def _machine_config_pool(role: str) -> tuple[str, Object]:
    rendered = f"rendered-{role}-{uuid.uuid5(uuid.NAMESPACE_DNS, role).hex}"
    body = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": role, "labels": {f"pools.operator.machineconfiguration.openshift.io/{role}": ""}},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": role}},
            "nodeSelector": {"matchLabels": {f"node-role.kubernetes.io/{role}": ""}},
            "configuration": {"name": rendered},
            "paused": False,
        },
        "status": {
            "conditions": _conditions(Updated=("True", "", f"All nodes are updated with {rendered}"))
            + _conditions(Updating=("False", "", ""), Degraded=("False", "", "")),
            "configuration": {"name": rendered},
            "observedGeneration": 1,
            "machineCount": 0,
            "readyMachineCount": 0,
            "updatedMachineCount": 0,
            "unavailableMachineCount": 0,
            "degradedMachineCount": 0,
        },
    }
    return f"/apis/machineconfiguration.openshift.io/v1/machineconfigpools/{role}", body


def _driver_toolkit(release: Release) -> tuple[str, Object]:
    """Return the image stream with a driver toolkit for each RHCOS build, from which the GPU operator builds drivers."""
    tags = [SYSTEMS[release.system].ostree, "latest"]
    image = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:" + uuid.uuid5(uuid.NAMESPACE_DNS, tags[0]).hex * 2
    body = {
        "apiVersion": "image.openshift.io/v1",
        "kind": "ImageStream",
        "metadata": {"name": "driver-toolkit", "namespace": "openshift"},
        "spec": {"tags": [{"name": tag, "from": {"kind": "DockerImage", "name": image}} for tag in tags]},
    }
    return "/apis/image.openshift.io/v1/namespaces/openshift/imagestreams/driver-toolkit", body


def _conditions(**conditions: tuple[str, str, str]) -> list[Object]:
    return [
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": _COMPLETED}
        for kind, (status, reason, message) in conditions.items()
    ]
