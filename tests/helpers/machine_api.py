# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MachineSets of workers and Machines as dictionaries, for tests of node groups."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import machine_set_mark

Object = dict[str, Any]

NAMESPACE = "openshift-machine-api"
MACHINESET_LABEL = "machine.openshift.io/cluster-api-machineset"
GROUP_LABEL, GROUP_MARK = "accel.gpu/nodegroup", "accel.gpu/nodegroup-mark"
ROLE_LABEL = "machine.openshift.io/cluster-api-machine-role"
CLUSTER_LABEL = "machine.openshift.io/cluster-api-cluster"

_PROVIDER_SPECS: dict[str, Object] = {
    "AWS": {
        "kind": "AWSMachineProviderConfig",
        "ami": {"id": "ami-1"},
        "instanceType": "m6i.xlarge",
        "placement": {"availabilityZone": "us-east-2a", "region": "us-east-2"},
        "subnet": {"filters": [{"name": "tag:Name", "values": ["private-us-east-2a"]}]},
    },
    "Azure": {"kind": "AzureMachineProviderSpec", "vmSize": "Standard_D4s_v3", "location": "eastus", "zone": "1"},
    "GCP": {
        "kind": "GCPMachineProviderSpec",
        "machineType": "n1-standard-4",
        "region": "us-central1",
        "zone": "us-central1-a",
        "onHostMaintenance": "Migrate",
    },
    "vSphere": {
        "kind": "VSphereMachineProviderSpec",
        "template": "prod-rhcos",
        "numCPUs": 4,
        "memoryMiB": 16384,
        "workspace": {"server": "vc.example.com", "datacenter": "dc1", "datastore": "ds1", "folder": "/dc1/vm/prod"},
    },
}
FAILURE_DOMAINS: Object = {
    "spec": {
        "platformSpec": {
            "vsphere": {
                "failureDomains": [
                    {
                        "name": "fd-west",
                        "region": "west",
                        "zone": "west-1",
                        "server": "vc.example.com",
                        "topology": {"datacenter": "dc2", "datastore": "ds2"},
                    },
                    {
                        "name": "fd-east",
                        "region": "east",
                        "zone": "east-1",
                        "server": "vc.example.com",
                        "topology": {"datacenter": "dc1", "datastore": "ds1"},
                    },
                ]
            }
        }
    }
}


def worker_machineset(
    name: str = "prod-worker-a", platform: str = "AWS", role: str = "worker", **provider_spec: Any
) -> Object:
    """A MachineSet of ordinary workers, as the installer creates it, with what other tools leave on it."""
    labels = {CLUSTER_LABEL: "prod-7x2kd", MACHINESET_LABEL: name}
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": "0d358554-95b3-463f-86fc-21344a3cf48c",
            "resourceVersion": "4711",
            "generation": 7,
            "creationTimestamp": "2026-01-12T08:00:00Z",
            "managedFields": [{"manager": "openshift-install"}],
            "ownerReferences": [{"kind": "MachineDeployment", "name": "d"}],
            "finalizers": ["example.com/keep"],
            "labels": {CLUSTER_LABEL: "prod-7x2kd", "hive.openshift.io/managed": "true"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "machine.openshift.io/vCPU": "4",
                "machine.openshift.io/memoryMb": "16384",
                "machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "5",
                "autoscaling.openshift.io/machineautoscaler": f"{NAMESPACE}/{name}",
                "argocd.argoproj.io/tracking-id": "x",
            },
        },
        "spec": {
            "replicas": 3,
            "deletePolicy": "Oldest",
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {
                    "labels": {**labels, ROLE_LABEL: role, "machine.openshift.io/cluster-api-machine-type": role}
                },
                "spec": {"providerSpec": {"value": {**copy.deepcopy(_PROVIDER_SPECS[platform]), **provider_spec}}},
            },
        },
        "status": {"replicas": 3, "readyReplicas": 3, "observedGeneration": 7},
    }


def marked(machineset: Object, group: str) -> Object:
    """The MachineSet as this collection marks one that it has created or adopted for the node group."""
    metadata = machineset["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), GROUP_LABEL: group}
    mark = {GROUP_MARK: machine_set_mark(machineset, group)}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **mark}
    return machineset


def machine(name: str, machineset: Object, phase: str = "Running", *, node: str | None = None, **status: Any) -> Object:
    """A Machine of a MachineSet, with a node of the same name while it is running."""
    node = name if node is None and phase == "Running" else node
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "creationTimestamp": "2026-11-24T05:00:00Z",
            "labels": {CLUSTER_LABEL: "prod-7x2kd", MACHINESET_LABEL: machineset["metadata"]["name"]},
        },
        "spec": {"providerSpec": copy.deepcopy(machineset["spec"]["template"]["spec"]["providerSpec"])},
        "status": {"phase": phase, **({"nodeRef": {"name": node}} if node else {}), **status},
    }
