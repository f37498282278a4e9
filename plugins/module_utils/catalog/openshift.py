# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of OpenShift's APIs: OLM and its packages, the Machine API, the cluster autoscaler."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from dataclasses import dataclass, field

from .names import GPU_RESOURCE

if t.TYPE_CHECKING:
    from .releases import Kind, Release

# The operators as OLM installs them on OpenShift: packages, catalogs, namespaces, and the names of their custom resources.
#
# Sources: bundle/metadata/annotations.yaml and bundle/manifests of NVIDIA/gpu-operator (package, suggested namespace, alm-examples),
# manifests/stable of openshift/cluster-nfd-operator, and "Installing the Node Feature Discovery Operator on OpenShift" of NVIDIA/cloud-native-docs.

HELM, OLM = "helm", "olm"
INSTALLERS = (HELM, OLM)
MANUAL, AUTOMATIC = "Manual", "Automatic"
SOURCE_NAMESPACE = "openshift-marketplace"
# The distribution on which OLM installs operators unless `installer` says otherwise.
OPENSHIFT = "openshift"

# OLM's API group, its two versions, and the path of the one with Subscriptions.
GROUP = "operators.coreos.com"
V1ALPHA1, V1 = f"{GROUP}/v1alpha1", f"{GROUP}/v1"
API_PATH = f"/apis/{V1ALPHA1}"
# The API of the packages in all catalogs (PackageManifests).
PACKAGES_API_PATH = f"/apis/packages.{GROUP}/v1"

# The fields in the spec of a Subscription that get the value of a single option of the module olm_subscription, each with the option's name. A run
# chooses one of several sources, and a channel if none is declared.
SUBSCRIPTION_FIELDS: t.Mapping[str, str] = {
    "name": "package",
    "installPlanApproval": "approval",
    "channel": "channel",
    "source": "source",
    "sourceNamespace": "source_namespace",
}

EXAMPLES_ANNOTATION = "alm-examples"
# OLM's labels on the objects of a ClusterServiceVersion (operator-lifecycle-manager pkg/lib/ownerutil).
OWNER_LABEL, OWNER_KIND_LABEL = "olm.owner", "olm.owner.kind"
CSV_KIND = "ClusterServiceVersion"
# With this annotation, a pod runs under this security context constraint, no matter who creates it. Without it, pods that an administrator creates run
# under `anyuid`, as the image's user (openshift/apiserver-library-go, securitycontextconstraints/sccadmission).
REQUIRED_SCC = {"openshift.io/required-scc": "restricted-v2"}


@dataclasses.dataclass(frozen=True)
class OlmPackage:
    """One package; `resource` is the name of the custom resource in its examples, and `kinds` contains the kinds in its bundle."""

    package: str
    namespace: str
    source: str
    resource: str
    kinds: tuple[Kind, ...] = ()


OPERATOR = OlmPackage("gpu-operator-certified", "nvidia-gpu-operator", "certified-operators", "gpu-cluster-policy")
NFD_CR: Kind = ("nfd.openshift.io/v1", "NodeFeatureDiscovery")
# The field of a NodeFeatureDiscovery with the tolerations of its workers.
WORKER_TOLERATIONS = ("spec", "operand", "workerTolerations")
NFD = OlmPackage("nfd", "openshift-nfd", "redhat-operators", "nfd-instance", (NFD_CR,))
PACKAGES: t.Mapping[str, OlmPackage] = {"operator": OPERATOR, "nfd": NFD}


# OpenShift's Machine API and its cluster autoscaler: kinds, labels and annotations, and what each release reads.
#
# Sources: openshift/api machine/v1beta1; openshift/machine-api-operator pkg/controller/machineset; the release branches of
# openshift/kubernetes-autoscaler, cluster-autoscaler/cloudprovider/clusterapi (clusterapi_utils.go, clusterapi_unstructured.go).

MACHINE_API_VERSION = "machine.openshift.io/v1beta1"
MACHINE_API_NAMESPACE = "openshift-machine-api"
# The option of modules that read MachineSets.
NAMESPACE_OPTION: dict[str, dict[str, t.Any]] = {"namespace": {"type": "str", "default": MACHINE_API_NAMESPACE}}
MACHINE_API_PATH = f"/apis/{MACHINE_API_VERSION}"
CLUSTER_VERSION_PATH = "/apis/config.openshift.io/v1/clusterversions/version"
INFRASTRUCTURE_PATH = "/apis/config.openshift.io/v1/infrastructures/cluster"

# The object that configures which boot images OpenShift manages, and its entry for MachineSets (openshift/api operator/v1,
# types_machineconfiguration.go).
MACHINE_CONFIGURATION_API = "operator.openshift.io/v1"
MACHINE_CONFIGURATION_PATH = f"/apis/{MACHINE_CONFIGURATION_API}/machineconfigurations/cluster"
MACHINE_SETS_MANAGER: t.Mapping[str, str] = {"resource": "machinesets", "apiGroup": "machine.openshift.io"}
# The first release in which OpenShift can update the templates of vSphere, and the first in which it does so unless this is switched off
# (openshift/machine-config-operator pkg/controller/common/featuregates.go, CheckBootImagePlatform).
BOOT_IMAGES_SINCE: Release = (4, 20)
BOOT_IMAGES_BY_DEFAULT: Release = (4, 22)
# The label with the stream of the operating system, and the only stream whose boot images OpenShift manages on vSphere; without the label, it is this one.
OS_STREAM_LABEL, MANAGED_OS_STREAM = "machineconfiguration.openshift.io/osstream", "rhel-9"
# The values of a MachineSet's status.authoritativeAPI with which the Machine API does not manage it (openshift/api machine/v1beta1).
OTHER_AUTHORITIES = ("ClusterAPI", "Migrating")

# Labels of MachineSets, of their Machines, and in their selectors.
MACHINESET_LABEL = "machine.openshift.io/cluster-api-machineset"
MACHINE_CLUSTER_LABEL = "machine.openshift.io/cluster-api-cluster"
MACHINE_ROLE_LABEL = "machine.openshift.io/cluster-api-machine-role"
# Either annotation marks a Machine that a scale-down removes first; older releases read the second (machine-api-operator
# pkg/controller/machineset/delete_policy.go).
DELETE_MACHINE_ANNOTATIONS = ("machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine")
# cluster-autoscaler-operator pkg/controller/machineautoscaler sets these on the MachineSet that a MachineAutoscaler refers to.
AUTOSCALER_ANNOTATIONS = (
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size",
    "machine.openshift.io/cluster-api-autoscaler-node-group-max-size",
    "autoscaling.openshift.io/machineautoscaler",
)

# The label by which the autoscaler recognizes nodes with GPUs; its value is the `type` in ClusterAutoscaler's resourceLimits.gpus
# (clusterapi_provider.go, GPULabel). As long as a node with it has no allocatable nvidia.com/gpu, the autoscaler treats it as a node whose driver is
# being installed, in every release (processors/customresources/gpu_processor.go), so nodes that never offer this resource must not have the label.
ACCELERATOR_LABEL = "cluster-api/accelerator"
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"

# OpenShift's own capacity annotations of a MachineSet. The memory is a number of MiB.
CPU, MEMORY_MB, GPU, MAX_PODS = (f"machine.openshift.io/{name}" for name in ("vCPU", "memoryMb", "GPU", "maxPods"))
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
# The annotations of Cluster API. The memory is a quantity of bytes; labels are k=v, separated by commas; taints are k=v:Effect.
CAPACITY_CPU, CAPACITY_MEMORY, CAPACITY_MAX_PODS = (f"{_CAPACITY}/{name}" for name in ("cpu", "memory", "maxPods"))
GPU_COUNT, GPU_TYPE = f"{_CAPACITY}/gpu-count", f"{_CAPACITY}/gpu-type"
CAPACITY_LABELS, CAPACITY_TAINTS = f"{_CAPACITY}/labels", f"{_CAPACITY}/taints"
CAPACITY_KEYS = (
    *(CPU, MEMORY_MB, GPU, MAX_PODS, CAPACITY_CPU, CAPACITY_MEMORY, CAPACITY_MAX_PODS),
    *(GPU_COUNT, GPU_TYPE, CAPACITY_LABELS, CAPACITY_TAINTS),
)


def machine_sets_path(namespace: str) -> str:
    """The path of the MachineSets in one namespace."""
    return f"{MACHINE_API_PATH}/namespaces/{namespace}/machinesets"


def machines_path(namespace: str) -> str:
    """The path of the Machines in one namespace."""
    return f"{MACHINE_API_PATH}/namespaces/{namespace}/machines"


@dataclass(frozen=True)
class AutoscalerRules:
    """How the autoscaler derives a node from a MachineSet without nodes, in OpenShift release `since` and later.

    cpu, memory, gpu_count, max_pods: the annotations that it reads; the first one that exists counts. Without cpu and memory, it ignores the MachineSet.
    counts_gpu_type: whether gpu-type selects the resource that gpu-count counts; otherwise, this is always nvidia.com/gpu.
    all_labels: whether it expects all labels of the template on the nodes, or only those for which is_managed_label() is true.
    fixed_size: whether it scales a MachineSet whose minimum equals its maximum (clusterapi_nodegroup.go).
    Every release also reads the template's taints, and the annotations with labels and taints.
    """

    since: Release
    cpu: tuple[str, ...]
    memory: tuple[str, ...]
    gpu_count: tuple[str, ...]
    max_pods: tuple[str, ...]
    counts_gpu_type: bool = False
    all_labels: bool = True
    fixed_size: bool = True

    def countable(self, resources: t.Mapping[str, int]) -> tuple[str, int]:
        """The name and amount of a node's resource that the autoscaler can count: nvidia.com/gpu, or another resource if the release can count it.

        The amount is 0 if the node offers no such resource.
        """
        offered = {name: amount for name, amount in resources.items() if amount}
        if GPU_RESOURCE in offered or not self.counts_gpu_type or not offered:
            return GPU_RESOURCE, offered.get(GPU_RESOURCE, 0)
        return next(iter(offered.items()))


# The newest rules come first. Releases before 4.19 read only OpenShift's annotations, releases 4.19 to 4.23 read OpenShift's and Cluster API's
# annotations, and later releases read only Cluster API's annotations.
AUTOSCALER_RULES: tuple[AutoscalerRules, ...] = (
    AutoscalerRules(
        since=(5, 0),
        cpu=(CAPACITY_CPU,),
        memory=(CAPACITY_MEMORY,),
        gpu_count=(GPU_COUNT,),
        max_pods=(CAPACITY_MAX_PODS,),
        counts_gpu_type=True,
        all_labels=False,
    ),
    AutoscalerRules(
        since=(4, 19),
        cpu=(CAPACITY_CPU, CPU),
        memory=(CAPACITY_MEMORY, MEMORY_MB),
        gpu_count=(GPU_COUNT, GPU),
        max_pods=(CAPACITY_MAX_PODS, MAX_PODS),
    ),
    AutoscalerRules(since=(4, 17), cpu=(CPU,), memory=(MEMORY_MB,), gpu_count=(GPU,), max_pods=(MAX_PODS,)),
    AutoscalerRules(
        since=(0, 0), cpu=(CPU,), memory=(MEMORY_MB,), gpu_count=(GPU,), max_pods=(MAX_PODS,), fixed_size=False
    ),
)

# The domains of the template labels that Cluster API sets on nodes (clusterapi_utils.go, isManagedLabel). As of July 2026, the branches 4.22 and 4.23 of
# openshift/kubernetes-autoscaler still read all labels, but release-5.0 does not.
_ROLE_LABEL_DOMAIN = "node-role.kubernetes.io"
_MANAGED_LABEL_DOMAINS = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


def is_managed_label(key: str) -> bool:
    """Whether the autoscaler of every release expects a label of the template on the nodes."""
    domain = key.partition("/")[0]
    return domain == _ROLE_LABEL_DOMAIN or any(
        domain == name or domain.endswith(f".{name}") for name in _MANAGED_LABEL_DOMAINS
    )


def autoscaler_rules(release: Release) -> AutoscalerRules:
    """The rules of the autoscaler in this release of OpenShift."""
    return next(rules for rules in AUTOSCALER_RULES if release >= rules.since)


# For a cluster that does not report its version: the first release whose autoscaler reads every annotation.
ASSUMED_RELEASE: Release = (4, 19)


def openshift_release(version: str) -> Release:
    """The first two numbers of an OpenShift version; raises ValueError for other text."""
    match = re.match(r"(\d+)\.(\d+)(\.|$)", version)
    if not match:
        raise ValueError(f"{version!r} is not a version of OpenShift, such as 4.18.7")
    return int(match[1]), int(match[2])


class MachineSetting(t.NamedTuple):
    """The field of a providerSpec that contains the value of a node group option.

    path: the path of the field from the top of the providerSpec. decode, encode: functions that convert the field's value to the option's value, and back.
    """

    path: tuple[str, ...]
    decode: t.Callable[[t.Any], t.Any] = lambda value: value
    encode: t.Callable[[t.Any], t.Any] = lambda value: value


def _first_gpus(value: t.Any) -> t.Any:
    """The type and the count of the first entry in a list of GPUs."""
    first = (value or [{}])[0]
    return {key: first.get(key) for key in ("type", "count")} if first else None


def template_content(path: t.Any) -> t.Any:
    """A template's path without the number of a replacement.

    The name of a template of this collection ends with a checksum of its content (vsphere/templates.py), and then with a number if it replaces one that
    somebody has edited: a machine that was cloned from either of them is the same.
    """
    match = _REPLACEMENT.fullmatch(path) if isinstance(path, str) else None
    return match[1] if match else path


_REPLACEMENT = re.compile(r"(.+-[0-9a-f]{6})-[0-9]{1,4}")


@dataclass(frozen=True)
class Platform:
    """The machines of one kind of providerSpec; everything that differs between platforms is defined here.

    settings: the node group options that the platform supports: `flavor` is the machine type, `template` is the virtual machine that is cloned, and
    `accelerators` contains the GPUs, if the machine type does not determine them. defaults: other fields of machines with GPUs.
    zone, region: their paths in the providerSpec. failure_domains: whether the cluster's Infrastructure has
    them instead. numbered_zones: whether a zone is only a number within its region, so that the value of the zone label begins with the region.
    zone_label_keys, region_label_keys: the keys of a node's labels for its zone and region: those of Kubernetes and of the platform's CSI driver.
    controller_annotations: the annotations that the platform's MachineSet controller repeatedly sets from the machine type or the providerSpec
    (pkg/actuators/machineset of machine-api-provider-aws, -azure and -gcp; machine-api-operator pkg/controller/vsphere/machineset).
    """

    name: str
    kinds: tuple[str, ...]
    controller_annotations: frozenset[str]
    settings: t.Mapping[str, MachineSetting]
    defaults: t.Mapping[str, t.Any] = field(default_factory=dict)
    zone: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    failure_domains: bool = False
    numbered_zones: bool = False
    zone_label_keys: tuple[str, ...] = (ZONE_LABEL,)
    region_label_keys: tuple[str, ...] = (REGION_LABEL,)

    def zone_label(self, zone: str, region: str) -> str:
        """The value of a node's label for a zone."""
        return f"{region}-{zone}".lower() if self.numbered_zones else zone

    def zone_labels(self, zone: str, region: str) -> dict[str, str]:
        """The labels of a node for its zone; empty without a zone."""
        return dict.fromkeys(self.zone_label_keys, self.zone_label(zone, region)) if zone else {}

    def region_labels(self, region: str) -> dict[str, str]:
        """The labels of a node for its region; empty without a region."""
        return dict.fromkeys(self.region_label_keys, region) if region else {}


# The path of the failure domains of vSphere in the Infrastructure object.
_VSPHERE_DOMAINS = ("spec", "platformSpec", "vsphere", "failureDomains")
PLATFORMS: tuple[Platform, ...] = (
    Platform(
        "AWS",
        ("AWSMachineProviderConfig",),
        settings={"flavor": MachineSetting(("instanceType",))},
        zone=("placement", "availabilityZone"),
        region=("placement", "region"),
        zone_label_keys=(ZONE_LABEL, "topology.ebs.csi.aws.com/zone"),
        controller_annotations=frozenset({CPU, MEMORY_MB, GPU}),
    ),
    Platform(
        "Azure",
        ("AzureMachineProviderSpec",),
        settings={"flavor": MachineSetting(("vmSize",))},
        zone=("zone",),
        region=("location",),
        numbered_zones=True,
        zone_label_keys=(ZONE_LABEL, "topology.disk.csi.azure.com/zone"),
        controller_annotations=frozenset({CPU, MEMORY_MB, GPU}),
    ),
    Platform(
        "GCP",
        ("GCPMachineProviderSpec",),
        settings={
            "flavor": MachineSetting(("machineType",)),
            "accelerators": MachineSetting(("gpus",), _first_gpus, lambda gpus: [dict(gpus)]),
        },
        # Google Cloud cannot migrate a virtual machine with GPUs (cloud.google.com/compute/docs/gpus, "Handle host maintenance events").
        defaults={"onHostMaintenance": "Terminate"},
        zone=("zone",),
        region=("region",),
        zone_label_keys=(ZONE_LABEL, "topology.gke.io/zone"),
        controller_annotations=frozenset({CPU, MEMORY_MB, GPU}),
    ),
    Platform(
        "vSphere",
        ("VSphereMachineProviderSpec",),
        settings={"template": MachineSetting(("template",))},
        failure_domains=True,
        # openshift/vmware-vsphere-csi-driver-operator, topologyCategories.
        zone_label_keys=(ZONE_LABEL, "topology.csi.vmware.com/openshift-zone"),
        region_label_keys=(REGION_LABEL, "topology.csi.vmware.com/openshift-region"),
        controller_annotations=frozenset({CPU, MEMORY_MB}),
    ),
)
PLATFORM_NAMES = tuple(platform.name for platform in PLATFORMS)
# The platforms whose machines the collection does not create, by the kind of the providerSpec (openshift/api machine/v1 and v1alpha1, and the actuators).
UNSUPPORTED_PLATFORMS = {
    "OpenstackProviderSpec": "OpenStack",
    "NutanixMachineProviderConfig": "Nutanix",
    "BareMetalMachineProviderSpec": "bare metal",
    "IBMCloudMachineProviderSpec": "IBM Cloud",
    "PowerVSMachineProviderConfig": "IBM Power Virtual Server",
    "LibvirtMachineProviderConfig": "libvirt",
}
# What works on a cluster whose machines the collection does not create.
OWN_MACHINES_REMEDY = (
    "Everything else works: create the GPU nodes yourself (%s), remove gpu_cluster.cloud.machineset and the pools' nodes, and select the nodes with the "
    "pools' match"
)


def platform_of(provider_spec: t.Mapping[str, t.Any]) -> Platform | None:
    """The platform of a MachineSet's providerSpec.value; None if no platform has its kind."""
    return next((platform for platform in PLATFORMS if provider_spec.get("kind") in platform.kinds), None)


def zone_and_region(provider_spec: t.Mapping[str, t.Any]) -> tuple[str, str]:
    """The zone and the region in a providerSpec; each is empty if the providerSpec does not contain it."""
    platform = platform_of(provider_spec)
    if platform is None:
        return "", ""
    return _text_at(provider_spec, platform.zone), _text_at(provider_spec, platform.region)


def provider_zone_labels(provider_spec: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The labels of a node for the zone in a providerSpec. The labels of failure domains are not included, because only the cluster knows them."""
    platform = platform_of(provider_spec)
    return platform.zone_labels(*zone_and_region(provider_spec)) if platform else {}


def _at(document: t.Any, path: tuple[str, ...]) -> t.Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _text_at(document: t.Any, path: tuple[str, ...]) -> str:
    return str(_at(document, path) or "") if path else ""


@dataclass(frozen=True)
class FailureDomain:
    """A failure domain of vSphere. `folder` is the one of the cluster's virtual machines, which templates must not be in."""

    name: str
    zone: str
    server: str
    datacenter: str
    cluster: str
    datastore: str
    network: str
    resource_pool: str | None
    folder: str | None
    region: str = ""


def failure_domains(infrastructure: t.Mapping[str, t.Any] | None) -> list[FailureDomain]:
    """The failure domains of vSphere in an Infrastructure object, in its order; none in a cluster that was installed before OpenShift 4.13 without any."""
    domains = []
    for each in _at(infrastructure, _VSPHERE_DOMAINS) or ():
        topology = each.get("topology") or {}
        networks = topology.get("networks") or [""]
        domains.append(
            FailureDomain(
                name=str(each.get("name") or ""),
                zone=str(each.get("zone") or ""),
                server=str(each.get("server") or ""),
                datacenter=str(topology.get("datacenter") or ""),
                cluster=str(topology.get("computeCluster") or ""),
                datastore=str(topology.get("datastore") or ""),
                network=str(networks[0]),
                resource_pool=topology.get("resourcePool") or None,
                folder=topology.get("folder") or None,
                region=str(each.get("region") or ""),
            )
        )
    return domains


# The objects of OpenShift's cluster autoscaler (openshift/cluster-autoscaler-operator, pkg/apis and pkg/controller).

API_VERSION, AUTOSCALER_KIND = "autoscaling.openshift.io/v1", "ClusterAutoscaler"
# The operator accepts no other name (pkg/controller/clusterautoscaler/validator.go).
AUTOSCALER_NAME = "default"
MACHINE_AUTOSCALER_API_VERSION, MACHINE_AUTOSCALER_KIND = "autoscaling.openshift.io/v1beta1", "MachineAutoscaler"
MACHINE_SET_KIND = "MachineSet"
CLUSTER_AUTOSCALERS_PATH = f"/apis/{API_VERSION}/clusterautoscalers"
CLUSTER_AUTOSCALER_PATH = f"{CLUSTER_AUTOSCALERS_PATH}/{AUTOSCALER_NAME}"
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
