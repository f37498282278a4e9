# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of labels, annotations, taints and objects that this collection, NVIDIA and NFD use in a cluster."""

from __future__ import annotations

import re

VERSION = "0.1.0"

# This collection
# The prefix of its labels, annotations and taints.
OWN_PREFIX = "accel.gpu/"
FIELD_MANAGER = "accel.gpu"
# The field manager of the replicas of an operator that is stopped until it is upgraded.
STOPPING_MANAGER = "accel.gpu-upgrade"
# The field manager of the fields that a custom resource gets from its operator's example.
EXAMPLE_MANAGER = "accel.gpu-example"
# The field manager of the name of the licensing Secret in the ClusterPolicy.
LICENSING_MANAGER = "accel.gpu-licensing"
POOL_LABEL = "accel.gpu/pool"
OWNED_TOLERATIONS_ANNOTATION = "accel.gpu/tolerations"
FORMER_ANNOTATION = "accel.gpu/former"
REFRESH_ANNOTATION = "accel.gpu/config"
# On an NVIDIADriver of a pool: the `driver` that the pool declares, as JSON.
DRIVER_ANNOTATION = "accel.gpu/driver"
CREATED_ANNOTATION = "accel.gpu/created"
# On a Subscription of OLM: the collection's entries in the lists of spec.config, as JSON.
SUBSCRIPTION_CONFIG_ANNOTATION = "accel.gpu/subscription-config"
LEASE_NAMESPACE = "kube-system"
LEASE_NAME = "accel-gpu"
# On that Lease: gpu_cluster.name, recorded by the first run that changed the cluster.
CLUSTER_NAME_ANNOTATION = "accel.gpu/cluster-name"
DEVICE_PLUGIN_CONFIGMAP = "accel-gpu-device-plugin"
VALIDATION_CONFIGMAP = "accel-gpu-validation"
MIG_CONFIGMAP = "accel-gpu-mig-parted"
GPUS_ANNOTATION = "accel.gpu/gpus"
# The rollout settings for the release of a node from its pool, if they differ from the defaults.
ROLLOUT_ANNOTATION = "accel.gpu/rollout"
# On a node that is being changed: why this collection has cordoned it.
CORDONED_ANNOTATION = "accel.gpu/cordoned"
# Next to that cordon: the name of the driver pod that is being restarted.
DRIVER_RESTART_ANNOTATION = "accel.gpu/driver-restart"
# The configuration for a rollback.
LAST_GOOD_ANNOTATION = "accel.gpu/last-good"
# On a node: the labels for NVIDIA's agents that a pool has overwritten, and the MIG devices that the node had then, as JSON.
FORMER_LABELS_ANNOTATION = "accel.gpu/former-labels"
# Why the last change of a node failed: an annotation, and the key of a taint if the node is quarantined.
FAILED_KEY = "accel.gpu/failed"
# On a MachineSet and its MachineAutoscaler: the declared name of the node group. A copy carries this label too, so it is no evidence of who manages it.
NODEGROUP_LABEL = "accel.gpu/nodegroup"
# The mark of a node group (schema.providers.group_mark): an annotation of a MachineSet, and a label of a replacement in VKS. Magnum's labels have
# keys of their own kind.
NODEGROUP_MARK = "accel.gpu/nodegroup-mark"
MAGNUM_NODEGROUP_MARK = "accel_gpu_nodegroup_mark"
# On a MachineSet: the labels, taints (`key:effect`) and annotations that the collection has set, as JSON, so that only these are removed later. Its
# entry FORMER_TAINTS lists the taints that the collection has removed, because Machines that already exist still have them.
REGISTRATION_ANNOTATION = "accel.gpu/registration"
FORMER_TAINTS = "former_taints"
# On the ClusterAutoscaler: the collection's entries of resourceLimits.gpus; on the ConfigMap of the Priority expander: its expressions. Both as JSON.
GPU_LIMITS_ANNOTATION = "accel.gpu/gpu-limits"
PRIORITIES_ANNOTATION = "accel.gpu/priorities"
# The CronJob of the role new_nodes, and all its objects.
NEW_NODES_NAME = "accel-gpu-new-nodes"

# The values of sharing.mode; gpu-feature-discovery's label for the sharing strategy also uses the first three.
NONE_MODE, TIME_SLICING_MODE, MPS_MODE, MIG_MODE = "none", "time-slicing", "mps", "mig"

# Kubernetes: the maximum length of a label's value (apimachinery, util/validation)
LABEL_LENGTH = 63

# NVIDIA's device plugin (k8s-device-plugin: cmd/config-manager, api/config/v1)
CONFIG_LABEL = "nvidia.com/device-plugin.config"
GPU_RESOURCE = "nvidia.com/gpu"
SHARED_GPU_RESOURCE = "nvidia.com/gpu.shared"

# The prefix of NFD's labels, and two of these labels. The rule in the derived values for NFD sets the first label. Only a file that the user provides sets
# the second label, because NFD does not read the state of Secure Boot.
NFD_PREFIX = "feature.node.kubernetes.io/"
NOUVEAU_LABEL = "feature.node.kubernetes.io/kernel-loadedmodule.nouveau"
SECURE_BOOT_LABEL = "feature.node.kubernetes.io/secure-boot"

# Labels with the name of a node's group (in documentation of the clouds, of Karpenter, Cluster API and Magnum), and with the type of its machine.
NODE_GROUP_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "magnum.openstack.org/nodegroup",
    "doks.digitalocean.com/node-pool",
    "lke.linode.com/pool-id",
    "worker.gardener.cloud/pool",
    "ibm-cloud.kubernetes.io/worker-pool-name",
    "capi.stackhpc.com/node-group",
    "kops.k8s.io/instancegroup",
    "yandex.cloud/node-group-id",
    "k8s.scaleway.com/pool-name",
)
INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ZONE_LABELS = (
    "topology.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "topology.ebs.csi.aws.com/",
    "topology.disk.csi.azure.com/",
    "topology.gke.io/",
    "topology.cinder.csi.openstack.org/",
)
# Labels of a single node, and labels whose value changes during the life of a node; a prefix ends with a slash.
VOLATILE_LABELS = (
    "alpha.eksctl.io/instance-id",
    "eks.amazonaws.com/nodegroup-image",
    "eks.amazonaws.com/sourceLaunchTemplateVersion",
    "kubernetes.azure.com/node-image-version",
    "ibm-cloud.kubernetes.io/worker-id",
    "karpenter.sh/initialized",
    "karpenter.sh/registered",
    "node.kubernetes.io/exclude-from-external-load-balancers",
    "node.openshift.io/os_version",
    "plan.upgrade.cattle.io/",
)

# NVIDIA's gpu-feature-discovery (k8s-device-plugin: internal/lm)
PRODUCT_LABEL = "nvidia.com/gpu.product"
COUNT_LABEL = "nvidia.com/gpu.count"
MEMORY_LABEL = "nvidia.com/gpu.memory"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
FAMILY_LABEL = "nvidia.com/gpu.family"
VGPU_PRESENT_LABEL = "nvidia.com/vgpu.present"
SHARED_SUFFIX = "-SHARED"
MIG_INFIX = "-MIG-"
INVALID_SUFFIX = "-INVALID"

# NVIDIA's MIG manager (mig-parted: cmd/nvidia-mig-manager)
# Its ConfigMap unless the ClusterPolicy selects another one; up to v25.10, the operator creates it (gpu-operator: assets/state-mig-manager).
DEFAULT_MIG_CONFIGMAP = "default-mig-parted-config"
MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
MIG_CAPABLE_LABEL = "nvidia.com/mig.capable"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
# The labels of the ConfigMap that the MIG manager generates for each node, in operator v26.3 and later.
GENERATED_SELECTOR = "app.kubernetes.io/component=nvidia-mig-manager"
GENERATED_NODE_LABEL = "nvidia.com/node-name"

# The GPU operator (gpu-operator: controllers/state_manager.go, gpuNodeLabels)
GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
PCI_PRESENT_LABELS = (
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
GPU_TAINT_KEY = "nvidia.com/gpu"
# Labels by which users and the operator select the operands of a node, and whether its GPUs are for containers or for virtual machines.
DEPLOY_PREFIX = "nvidia.com/gpu.deploy."
DRIVER_DEPLOY_LABEL = "nvidia.com/gpu.deploy.driver"
OPERANDS_LABEL = "nvidia.com/gpu.deploy.operands"
DISCOVERY_DEPLOY_LABEL = "nvidia.com/gpu.deploy.gpu-feature-discovery"
PLUGIN_DEPLOY_LABEL = "nvidia.com/gpu.deploy.device-plugin"
MIG_MANAGER_DEPLOY_LABEL = "nvidia.com/gpu.deploy.mig-manager"
WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"
VGPU_CONFIG_LABEL = "nvidia.com/vgpu.config"
# DaemonSets that use GPUs select nodes by this label, so that the MIG manager can stop them for a change (mig-parted v0.15 pkg/mig/reconfigure).
CLIENT_LABEL = "nvidia.com/gpu.deploy.client"
PAUSED_FOR_MIG = "paused-for-mig-change"

# The driver's DaemonSets and pods, and their container (gpu-operator: assets/state-driver, manifests/state-driver).
COMPONENT_LABEL = "app.kubernetes.io/component"
DRIVER_COMPONENT = "nvidia-driver"
DRIVER_CONTAINER = "nvidia-driver-ctr"
# Keys of the Secret or ConfigMap with the files of the license client (gpu-operator: controllers/object_controls.go)
LICENSE_TOKEN_KEY = "client_configuration_token.tok"
LICENSE_CONFIG_KEY = "gridd.conf"
# The path of the licensing configuration in a ClusterPolicy's spec, and the fields there and in an NVIDIADriver that contain the name of the Secret or
# ConfigMap (gpu-operator: api/nvidia)
LICENSING_CONFIG = ("driver", "licensingConfig")
LICENSE_FIELDS = {"Secret": "secretName", "ConfigMap": "configMapName"}
DRIVER_LICENSE_FIELDS = {"Secret": "secretName", "ConfigMap": "name"}

# The operator's upgrade controller (k8s-operator-libs: pkg/upgrade/consts.go)
DRIVER_UPGRADE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
DRIVER_UPGRADE_SKIP_LABEL = "nvidia.com/gpu-driver-upgrade.skip"

# Kubernetes: for extended resources, a ResourceQuota supports only requests (documentation, "Quota for extended resources")
QUOTA_PREFIX = "requests."
# A field selector that excludes finished pods, which hold no resources.
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
# The label of validation pods; its value is the pool.
VALIDATION_LABEL = "accel.gpu/validation"
# Selects the pods of the operator itself.
OPERATOR_PODS = "app=gpu-operator"


# The names of the templates in vCenter that the collection builds.


def template_name(group: str, release: str, digest: str) -> str:
    """The name of the template of a node group, with the release of its OVA, and a hexadecimal digest of what it is built from."""
    return f"{group}-{release}-{digest[:6]}"


def is_template_of(group: str, path: str) -> bool:
    """Whether the last part of an inventory path is a template_name() of the node group; a number follows it if the name was taken."""
    name = path.rpartition("/")[2]
    return re.fullmatch(rf"{re.escape(group)}-.+-[0-9a-f]{{6}}(?:-[0-9]+)?", name) is not None
