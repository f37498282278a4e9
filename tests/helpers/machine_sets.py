# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MachineSets and the objects of the cluster autoscaler as dictionaries, for tests."""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]

NAMESPACE = "openshift-machine-api"
OLD, NEW = "machine.openshift.io/", "capacity.cluster-autoscaler.kubernetes.io/"
ACCELERATOR, ZONE = "cluster-api/accelerator", "topology.kubernetes.io/zone"
VOLUME_ZONE = "topology.ebs.csi.aws.com/zone"
MIN_SIZE = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"


def machine_set(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    gpus: int = 1,
    gpu_type: str = "nvidia.com/gpu",
    bounds: tuple[int, int] | None = (0, 4),
    zone: str = "us-east-2a",
    taints: list[Object] | None = None,
    replicas: int = 0,
) -> Object:
    """A MachineSet on AWS with both families of capacity annotations, and all labels in the template and in the annotation."""
    complete = {**(labels or {}), ZONE: zone, VOLUME_ZONE: zone}
    annotations = {
        f"{OLD}vCPU": "4",
        f"{OLD}memoryMb": "16384",
        f"{OLD}GPU": str(gpus),
        f"{NEW}cpu": "4",
        f"{NEW}memory": "16Gi",
        f"{NEW}gpu-count": str(gpus),
        f"{NEW}gpu-type": gpu_type,
        f"{NEW}labels": ",".join(f"{key}={value}" for key, value in complete.items()),
    }
    if bounds is not None:
        annotations |= {MIN_SIZE: str(bounds[0]), MAX_SIZE: str(bounds[1])}
    provider = {"kind": "AWSMachineProviderConfig", "placement": {"availabilityZone": zone, "region": zone[:-1]}}
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "template": {
                "spec": {
                    "metadata": {"labels": complete},
                    "taints": copy.deepcopy(taints or []),
                    "providerSpec": {"value": provider},
                }
            },
        },
    }


def machine_autoscaler(name: str, target: str = "", low: int = 0, high: int = 4, **metadata: Any) -> Object:
    """A MachineAutoscaler for the MachineSet `target`, by default the one of the same name."""
    return {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": "1", **metadata},
        "spec": {
            "minReplicas": low,
            "maxReplicas": high,
            "scaleTargetRef": {
                "apiVersion": "machine.openshift.io/v1beta1",
                "kind": "MachineSet",
                "name": target or name,
            },
        },
    }


def cluster_autoscaler(gpus: list[Object] | None = None, **spec: Any) -> Object:
    """The ClusterAutoscaler with these entries in resourceLimits.gpus."""
    limits = {"resourceLimits": {"gpus": gpus}} if gpus is not None else {}
    return {
        "apiVersion": "autoscaling.openshift.io/v1",
        "kind": "ClusterAutoscaler",
        "metadata": {"name": "default", "resourceVersion": "1"},
        "spec": {
            "maxNodeProvisionTime": "30m",
            "scaleDown": {"enabled": True, "delayAfterAdd": "20m"},
            **limits,
            **spec,
        },
    }
