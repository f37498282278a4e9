# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worker MachineSets of a new cluster, as OpenShift's installer creates them (openshift/installer, pkg/asset/machines)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..api import Object
from ..openshift.objects import FAILURE_DOMAINS, INFRASTRUCTURE, REGIONS
from ..vsphere.images import template

NAMESPACE = "openshift-machine-api"
MACHINE_SETS = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machinesets"
_ROLE = "machine.openshift.io/cluster-api-machine-role"
_TYPE = "machine.openshift.io/cluster-api-machine-type"
CLUSTER_LABEL = "machine.openshift.io/cluster-api-cluster"
SET_LABEL = "machine.openshift.io/cluster-api-machineset"
ZONES = {
    "AWS": ("us-east-2a", "us-east-2b"),
    "Azure": ("1", "2"),
    "GCP": ("us-central1-a", "us-central1-b"),
    "VSphere": tuple(FAILURE_DOMAINS),
}


def machine_sets(platform: str) -> Iterator[Object]:
    """Yield one MachineSet with one replica for each zone of the platform."""
    for number, zone in enumerate(ZONES[platform]):
        suffix = {"Azure": f"{REGIONS['Azure']}{zone}", "VSphere": str(number), "GCP": zone[-1]}.get(platform, zone)
        yield machine_set(f"{INFRASTRUCTURE}-worker-{suffix}", provider_spec(platform, zone), replicas=1)


def machine_set(name: str, provider: Object, *, replicas: int) -> Object:
    """Return a MachineSet of worker nodes."""
    labels = {CLUSTER_LABEL: INFRASTRUCTURE, SET_LABEL: name}
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {CLUSTER_LABEL: INFRASTRUCTURE}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, _ROLE: "worker", _TYPE: "worker"}},
                "spec": {"lifecycleHooks": {}, "metadata": {}, "providerSpec": {"value": provider}},
            },
        },
    }


def provider_spec(platform: str, zone: str) -> dict[str, Any]:
    """Return the providerSpec of the worker machines in a zone."""
    common = {"userDataSecret": {"name": "worker-user-data"}}
    name = INFRASTRUCTURE
    if platform == "AWS":
        return {
            **common,
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "AWSMachineProviderConfig",
            "ami": {"id": "ami-0a1b2c3d4e5f60718"},
            "blockDevices": [{"ebs": {"encrypted": True, "iops": 0, "volumeSize": 120, "volumeType": "gp3"}}],
            "credentialsSecret": {"name": "aws-cloud-credentials"},
            "deviceIndex": 0,
            "iamInstanceProfile": {"id": f"{name}-worker-profile"},
            "instanceType": "m6i.xlarge",
            "metadataServiceOptions": {},
            "placement": {"availabilityZone": zone, "region": REGIONS["AWS"]},
            "securityGroups": [{"filters": [{"name": "tag:Name", "values": [f"{name}-node"]}]}],
            "subnet": {"filters": [{"name": "tag:Name", "values": [f"{name}-subnet-private-{zone}"]}]},
            "tags": [{"name": f"kubernetes.io/cluster/{name}", "value": "owned"}],
        }
    if platform == "Azure":
        return {
            **common,
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "AzureMachineProviderSpec",
            "credentialsSecret": {"name": "azure-cloud-credentials", "namespace": NAMESPACE},
            "image": {"offer": "", "publisher": "", "sku": "", "version": "", "resourceID": f"/images/{name}"},
            "location": REGIONS["Azure"],
            "managedIdentity": f"{name}-identity",
            "networkResourceGroup": f"{name}-rg",
            "osDisk": {"diskSizeGB": 128, "managedDisk": {"storageAccountType": "Premium_LRS"}, "osType": "Linux"},
            "publicLoadBalancer": name,
            "resourceGroup": f"{name}-rg",
            "subnet": f"{name}-worker-subnet",
            "vmSize": "Standard_D4s_v5",
            "vnet": f"{name}-vnet",
            "zone": zone,
        }
    if platform == "GCP":
        return {
            **common,
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "GCPMachineProviderSpec",
            "canIPForward": False,
            "credentialsSecret": {"name": "gcp-cloud-credentials"},
            "deletionProtection": False,
            "disks": [{"autoDelete": True, "boot": True, "image": "rhcos", "sizeGb": 128, "type": "pd-ssd"}],
            "machineType": "n2-standard-4",
            "networkInterfaces": [{"network": f"{name}-network", "subnetwork": f"{name}-worker-subnet"}],
            "projectID": "lab",
            "region": REGIONS["GCP"],
            "serviceAccounts": [
                {"email": f"{name}-w@lab.iam", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
            ],
            "tags": [f"{name}-worker"],
            "zone": zone,
        }
    topology = FAILURE_DOMAINS[zone]["topology"]
    return {
        **common,
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "VSphereMachineProviderSpec",
        "credentialsSecret": {"name": "vsphere-cloud-credentials"},
        "diskGiB": 120,
        "memoryMiB": 16384,
        "network": {"devices": [{"networkName": topology["networks"][0]}]},
        "numCPUs": 4,
        "numCoresPerSocket": 4,
        "snapshot": "",
        "template": template(zone),
        "workspace": {
            "datacenter": topology["datacenter"],
            "datastore": topology["datastore"],
            "folder": topology["folder"],
            "resourcePool": topology["resourcePool"],
            "server": FAILURE_DOMAINS[zone]["server"],
        },
    }
