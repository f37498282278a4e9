# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of OpenShift's cluster autoscaler (openshift/cluster-autoscaler-operator, pkg/apis and pkg/controller)."""

from __future__ import annotations

from .releases import Release

API_VERSION, KIND = "autoscaling.openshift.io/v1", "ClusterAutoscaler"
# The operator accepts no other name (pkg/controller/clusterautoscaler/validator.go).
NAME = "default"
MACHINE_AUTOSCALER_API_VERSION, MACHINE_AUTOSCALER_KIND = "autoscaling.openshift.io/v1beta1", "MachineAutoscaler"
MACHINE_SET_KIND = "MachineSet"
CLUSTER_AUTOSCALERS_PATH = f"/apis/{API_VERSION}/clusterautoscalers"
CLUSTER_AUTOSCALER_PATH = f"{CLUSTER_AUTOSCALERS_PATH}/{NAME}"
# The MachineAutoscalers of all namespaces.
MACHINE_AUTOSCALERS_PATH = f"/apis/{MACHINE_AUTOSCALER_API_VERSION}/machineautoscalers"

# The ConfigMap of the Priority expander, in the namespace of the autoscaler (kubernetes/autoscaler, expander/priority/priority.go).
PRIORITY_CONFIGMAP, PRIORITY_KEY = "cluster-autoscaler-priority-expander", "priorities"
PRIORITY_EXPANDER = "Priority"
EXPANDERS = ("LeastWaste", PRIORITY_EXPANDER, "Random")

# The releases of OpenShift that added fields to the ClusterAutoscaler, by the key in gpu_cluster.autoscaler. Earlier releases reject these fields as unknown
# (developers.redhat.com/articles/2024/10/17/efficient-autoscaling-openshift-priority-and-leastwaste-expanders). All other fields are older
# (pkg/apis/autoscaling/v1/clusterautoscaler_types.go).
AUTOSCALER_FIELDS_SINCE: dict[tuple[str, ...], Release] = {("expanders",): (4, 16)}

# The annotation of a node with the namespace and name of the node's Machine. A Machine's name is the name of its MachineSet with a suffix.
MACHINE_ANNOTATION = "machine.openshift.io/machine"

# The autoscaler's own defaults (kubernetes/autoscaler, FAQ.md, "What are the parameters to CA?").
DEFAULT_DELAY_AFTER_ADD, DEFAULT_MAX_NODE_PROVISION_TIME = "10m", "15m"


def machine_autoscalers_path(namespace: str) -> str:
    """The path of the MachineAutoscalers in one namespace. The operator reads only those in the Machine API's namespace."""
    return f"/apis/{MACHINE_AUTOSCALER_API_VERSION}/namespaces/{namespace}/machineautoscalers"


def group_id(namespace: str, machine_set: str) -> str:
    """The name of a MachineSet's node group, which the Priority expander matches against its regular expressions."""
    return f"{MACHINE_SET_KIND}/{namespace}/{machine_set}"
