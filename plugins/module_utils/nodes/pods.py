# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods on nodes: operands of the GPU operator, users of GPUs, and what keeps operands from running."""

from __future__ import annotations

import datetime
import functools
import posixpath
import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.names import CLIENT_LABEL, LIVE_PODS
from ..catalog.operands import (
    APPS,
    DCGM,
    DCGM_EXPORTER,
    DISCOVERY,
    DRIVER,
    FRACTION_ANNOTATIONS,
    FRACTION_SCHEDULERS,
    MIG_MANAGER,
    PLUGIN,
    RESERVATION_APPS,
    TOOLKIT,
    VALIDATOR,
    DevicePlugin,
    is_foreign_gpu_resource,
    is_gpu_group_label,
    plugin_of_image,
)
from ..core.messages import abbreviate
from ..kube.errors import ApiError
from ..kube.paths import DAEMONSETS, NAMESPACES, PODS, RESOURCE_CLAIMS, RUNTIME_CLASS_LIST
from .node import ready_condition, to_count

if t.TYPE_CHECKING:
    from ..core.values import Document
    from ..kube.client import Client

# Finds the ways in which a pod's containers access GPUs without requesting a GPU (pure).
#
# | in the pod | access to | source |
# |---|---|---|
# | a privileged container | every device of the node, regardless of its mounts | containerd internal/cri/opts: WithHostDevices, WithAllDevicesAllowed |
# | hostPath `/dev/nvidia*`, mounted | the device files, because there is no other reason to mount them | |
# | hostPath `/dev` or `/`, mounted | nothing: the device cgroup only allows the runtime's default devices (runc specconv AllowedDevices) | |
# | CDI annotation, value `nvidia.com/...` | the devices that it names | container-device-interface pkg/cdi/annotations.go; toolkit: prefix nvidia.cdi.k8s.io/
# |
# | annotation io.kubernetes.cri-o.Devices | the device files that it lists | cri-o internal/config/device |
# | a RuntimeClass with an NVIDIA handler | the devices in NVIDIA_VISIBLE_DEVICES of the image or the pod | nvidia-container-toolkit internal/config/image |
# | a nodeSelector with nvidia.com/gpu.deploy.client | unknown: the pod declares itself a GPU client | mig-parted pkg/mig/reconfigure |
# | a mount below /var/run/nvidia-container-devices | the devices in its path | toolkit: accept-nvidia-visible-devices-as-volume-mounts |

# The RuntimeClasses that the GPU operator creates (assets/pre-requisites). With the first one, the environment of an image can request all GPUs.
RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy")
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# Values that inject no device (nvidia-container-toolkit, internal/config/image).
_NO_DEVICES = ("", "none", "void")
_DEVICE_FILES = "/dev/nvidia"
_DEVICES_AS_MOUNTS = "/var/run/nvidia-container-devices/"
_CDI_PREFIXES = ("cdi.k8s.io/", "nvidia.cdi.k8s.io/")
_CRIO_DEVICES = "io.kubernetes.cri-o.Devices"


def nvidia_runtime_classes(runtime_classes: t.Iterable[Document]) -> frozenset[str]:
    """The names of the RuntimeClasses (node.k8s.io/v1) with an NVIDIA handler, and those that the operator creates."""
    names = {item["metadata"]["name"] for item in runtime_classes if "nvidia" in str(item.get("handler") or "")}
    return frozenset({*names, *RUNTIME_CLASSES})


def gpu_access(pod: Document, runtime_classes: t.Collection[str]) -> t.Iterator[str]:
    """Descriptions of the pod's access to GPUs; only kinds of access that have no other purpose count."""
    spec = pod["spec"]
    if spec.get("runtimeClassName") in runtime_classes:
        yield f"runtimeClassName {spec['runtimeClassName']}"
    if CLIENT_LABEL in (spec.get("nodeSelector") or {}):
        yield f"nodeSelector {CLIENT_LABEL}"
    yield from _annotations(pod["metadata"].get("annotations") or {})
    mounts = [mount for container in _containers(spec) for mount in container.get("volumeMounts") or ()]
    mounted = {mount.get("name") for mount in mounts}
    for volume in spec.get("volumes") or ():
        path = posixpath.normpath((volume.get("hostPath") or {}).get("path") or "/")
        if path.startswith(_DEVICE_FILES) and volume.get("name") in mounted:
            yield f"mounts {path}"
    for mount in mounts:
        if str(mount.get("mountPath") or "").startswith(_DEVICES_AS_MOUNTS):
            yield f"mounts {mount['mountPath']}"
    for container in _containers(spec):
        yield from _environment(container)


def privileged_containers(pod: Document) -> t.Iterator[str]:
    """Descriptions of the pod's privileged containers, which can access every device of the node, except finished init containers."""
    starting = (pod.get("status") or {}).get("phase") == "Pending"
    for container in _containers(pod["spec"]):
        if not (container.get("securityContext") or {}).get("privileged"):
            continue
        is_init = any(container is other for other in pod["spec"].get("initContainers") or ())
        if not is_init or starting or container.get("restartPolicy") == "Always":
            yield f"privileged container {container.get('name')}"


def _containers(spec: Document) -> t.Iterator[Document]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _annotations(annotations: t.Mapping[str, str]) -> t.Iterator[str]:
    for key, value in sorted(annotations.items()):
        if key.startswith(_CDI_PREFIXES):
            devices = [device.strip() for device in value.split(",")]
            # NVIDIA's CDI vendors: nvidia.com, management.nvidia.com, runtime.nvidia.com.
            gpus = [device for device in devices if f".{device.partition('/')[0]}".endswith(".nvidia.com")]
            if gpus:
                yield f"annotation {key}: {', '.join(gpus)}"
        elif key == _CRIO_DEVICES and _DEVICE_FILES in value:
            yield f"annotation {key}: {value}"


def _environment(container: Document) -> t.Iterator[str]:
    for entry in container.get("env") or ():
        if entry.get("name") != VISIBLE_DEVICES:
            continue
        if entry.get("valueFrom"):
            # The value is known only on the node, but the reference shows that the variable is set on purpose.
            yield f"{VISIBLE_DEVICES} from a reference"
        elif entry.get("value", "") not in _NO_DEVICES:
            yield f"{VISIBLE_DEVICES}={entry['value']}"


# Reads the state of the GPU operator's operands: their pods on each node, the pods' failures, and the status of their DaemonSets (pure).

# The prefixes of the driver pods' apps, for a ClusterPolicy and for NVIDIADriver objects (gpu-operator internal/state/driver.go, getDriverAppName).
_DRIVER_PREFIXES = (DRIVER, "nvidia-gpu-driver-", "nvidia-vgpu-driver-")
# The operands that the MIG manager stops or deletes for a change (mig-parted pkg/mig/reconfigure), and the MIG manager
# itself, which is restarted.
STOPPED_FOR_MIG = frozenset({PLUGIN, DISCOVERY, DCGM, DCGM_EXPORTER, VALIDATOR, MIG_MANAGER})
# The pods that mount the managed ConfigMaps (gpu-operator assets/state-device-plugin, gpu-feature-discovery, state-mig-manager).
CONFIGMAP_PODS_SELECTOR = f"app in ({PLUGIN},{DISCOVERY},{MIG_MANAGER})"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class ContainerFailure:
    """The reason why an operand's pod does not work; details are in the log of the container."""

    node: str
    pod: str
    container: str
    reason: str
    restarts: int = 0

    @property
    def in_back_off(self) -> bool:
        """Whether the kubelet delays the container's next start because earlier starts failed. A running container, such as a driver's, may just be slow."""
        return self.reason.startswith((_BACK_OFF, *NEVER_STARTED))

    def __str__(self) -> str:
        restarts = f", {self.restarts} restarts" if self.restarts else ""
        return f"pod {self.pod} container {self.container}: {self.reason}{restarts}"


# Known messages in the log of a failed container, and their explanations (gpu-operator issues 141 and 1726: Secure Boot).
_SECURE_BOOT = (
    "Secure Boot rejects the unsigned kernel module: use a driver with signed modules (driver.precompiled, or one that is installed on the node), "
    "or disable Secure Boot"
)
_MEANINGS = (
    ("Key was rejected by service", _SECURE_BOOT),
    ("Loading of unsigned module is rejected", _SECURE_BOOT),
    ("not signed by a key that is trusted by the kernel", _SECURE_BOOT),
)


def with_meaning(text: str) -> str:
    """The description of a failure, followed by the explanation and the remedy if it contains a known message."""
    meaning = next((meaning for known, meaning in _MEANINGS if known in text), "")
    return f"{text} ({meaning})" if meaning else text


def node_of(pod: Pod) -> str:
    """The node of a pod; empty before it is scheduled."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def container_failures(pods: t.Iterable[Pod]) -> dict[str, list[ContainerFailure]]:
    """The failures of the pods, by node; nodes without failures are not included."""
    failures: dict[str, list[ContainerFailure]] = {}
    for pod in pods:
        for failure in _pod_failures(pod):
            failures.setdefault(failure.node, []).append(failure)
    return failures


def is_ready(pod: Pod) -> bool:
    """Whether the condition Ready of a pod is true."""
    return ready_condition(pod).get("status") == "True"


def pod_of(pods: t.Iterable[Pod], app: str, node: str) -> str | None:
    """The name of this operand's pod on a node; None if there is none."""
    return next((pod["metadata"]["name"] for pod in pods if app_of(pod) == app and node_of(pod) == node), None)


def _pod_failures(pod: Pod) -> t.Iterator[ContainerFailure]:
    status = pod.get("status") or {}
    failure = functools.partial(ContainerFailure, node_of(pod), pod["metadata"]["name"])
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        termination = _termination(container)
        restarts = int(container.get("restartCount") or 0)
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            details = termination or waiting.get("message")
            reason = f"{waiting['reason']} ({details})" if details else waiting["reason"]
            yield failure(container["name"], reason, restarts)
        elif termination and restarts and not container.get("ready"):
            yield failure(container["name"], termination, restarts)
    if not containers and status.get("phase") != "Running":
        conditions = status.get("conditions") or ()
        unmet = (entry.get("message") for entry in conditions if entry.get("status") == "False")
        yield failure("-", ": ".join(filter(None, (status.get("phase") or "unknown", next(filter(None, unmet), "")))))


def _termination(container: t.Mapping[str, t.Any]) -> str:
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        terminated = state.get("terminated")
        if terminated and terminated.get("exitCode"):
            message = str(terminated.get("message") or terminated.get("reason") or "").strip()
            return f"exit {terminated['exitCode']}" + (f": {message[-400:]}" if message else "")
    return ""


def operands_by_node(pods: t.Iterable[Pod]) -> dict[str, list[str]]:
    """The apps of the operand pods on each node."""
    apps: dict[str, list[str]] = {}
    for pod in pods:
        known = _operand(app_of(pod))
        if known in APPS and node_of(pod):
            apps.setdefault(node_of(pod), []).append(known)
    return apps


def _operand(app: str) -> str:
    """The operand for a value of the label app. The driver's value has a suffix on OpenShift, and differs if NVIDIADriver objects are used."""
    return DRIVER if app.startswith(_DRIVER_PREFIXES) else app


def app_of(pod: Pod) -> str:
    """The value of the pod's label app, which identifies the operand."""
    return str((pod["metadata"].get("labels") or {}).get("app") or "")


# A container with this number of restarts waits at least 40 seconds before its next start (the kubelet waits 10 seconds at first, and twice as long
# each time).
_MIN_RESTARTS = 3
_BACK_OFF = "CrashLoopBackOff"
# The reasons for images that cannot be pulled and for containers that cannot be created; these containers have no restarts.
NEVER_STARTED = (
    *("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
)
# The minimum age, in seconds, of a pod that fails for one of these reasons.
_MIN_AGE = 60.0
# Each operand waits for the previous one. If several operands fail, the first one is therefore the cause.
_START_ORDER = (DRIVER, TOOLKIT, VALIDATOR, DISCOVERY)


def operand_failures(pods: t.Iterable[Pod], now: float) -> dict[str, ContainerFailure]:
    """For each node, the lasting failure of the first failing operand in start order; `now` is in seconds since 1970."""
    first: dict[str, ContainerFailure] = {}
    for pod in sorted(pods, key=_start_position):
        for failure in _pod_failures(pod):
            if failure.node and _lasts(pod, failure, now):
                first.setdefault(failure.node, failure)
    return first


def unready_operands(pods: t.Iterable[Pod], nodes: t.Collection[str]) -> dict[str, set[str]]:
    """For each app, the nodes in `nodes` on which its pod exists but is not ready."""
    unready: dict[str, set[str]] = {}
    for pod in pods:
        node = node_of(pod)
        if node in nodes and not is_ready(pod):
            unready.setdefault(app_of(pod), set()).add(node)
    return unready


def _start_position(pod: Pod) -> int:
    known = _operand(app_of(pod))
    return _START_ORDER.index(known) if known in _START_ORDER else len(_START_ORDER)


def _lasts(pod: Pod, failure: ContainerFailure, now: float) -> bool:
    if failure.restarts >= _MIN_RESTARTS:
        return True
    created = pod["metadata"].get("creationTimestamp")
    if not created or not failure.reason.startswith(NEVER_STARTED):
        return False
    return now - datetime.datetime.fromisoformat(created).timestamp() >= _MIN_AGE


class DaemonSetStatus(t.NamedTuple):
    """The numbers of nodes that the controller reports; `current`: whether they refer to the current generation of the DaemonSet."""

    scheduled: int
    desired: int
    updated: int
    available: int
    current: bool

    @property
    def is_outdated(self) -> bool:
        """Whether pods of an older template remain."""
        return self.updated < self.desired


def daemonset_status(daemonset: t.Mapping[str, t.Any]) -> DaemonSetStatus:
    """The status of a DaemonSet; counts that are not written yet are 0."""
    status = daemonset.get("status") or {}
    return DaemonSetStatus(
        scheduled=int(status.get("currentNumberScheduled") or 0),
        desired=int(status.get("desiredNumberScheduled") or 0),
        updated=int(status.get("updatedNumberScheduled") or 0),
        available=int(status.get("numberAvailable") or 0),
        current=int(status.get("observedGeneration") or 0) >= int(daemonset["metadata"].get("generation") or 0),
    )


# Determines which GPUs each pod on a node requests, and how the pod accesses GPUs (pure).
#
# Requesting a resource from the device plugin is only one kind of access. Any process with an open device file blocks changes by the MIG manager
# ("In use by another client"), regardless of its pod's requests (NVIDIA/gpu-operator#1704, #2570).
# Other device plugins and schedulers also give GPUs to pods, under other resource names or without any (see catalog/operands.py).

PREFIX = "nvidia.com/"
# The DRA driver for GPUs, and its device classes (dra-driver-nvidia-gpu, deployments/helm).
DRA_DRIVER = "gpu.nvidia.com"
DEVICE_CLASSES = (DRA_DRIVER, "mig.nvidia.com", "vfio.gpu.nvidia.com")
# Pods with at least this priority are parts of the cluster itself (kubernetes scheduling.SystemCriticalPriority).
_SYSTEM_CRITICAL = 2_000_000_000
# The kubelet sets this annotation on the API's copy of a static pod.
_MIRROR = "kubernetes.io/config.mirror"
Claim = t.Mapping[str, t.Any]
ByNode = t.Mapping[str, t.Sequence["PodOnNode"]]


@dataclass(frozen=True)
class GpuRequest:
    """The amount of one resource that a pod requests."""

    namespace: str
    pod: str
    resource: str
    count: int


def gpu_requests(pods: t.Iterable[Pod]) -> dict[str, list[GpuRequest]]:
    """The pods' requests for NVIDIA resources, by node."""
    requests: dict[str, list[GpuRequest]] = {}
    for node, pod in active_pods(pods):
        metadata = pod["metadata"]
        for resource, count in requested_resources(pod).items():
            request = GpuRequest(metadata.get("namespace", ""), metadata["name"], resource, count)
            requests.setdefault(node, []).append(request)
    return requests


def active_pods(pods: t.Iterable[Pod]) -> t.Iterator[tuple[str, Pod]]:
    """Each pod that is on a node and has not terminated, with the node's name; pods being deleted count until they are gone."""
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            yield node, pod


def requested_resources(pod: Pod) -> dict[str, int]:
    """The NVIDIA resources that the scheduler counts for a pod: those of its containers and sidecars, or those of its largest init container if higher.

    A sidecar is an init container that keeps running, even while later init containers run (kubernetes v1.36
    staging/src/k8s.io/component-helpers/resource/helpers.go).
    """
    spec = pod.get("spec") or {}
    sidecars, largest = Counter[str](), Counter[str]()
    for container in spec.get("initContainers") or ():
        resources = _container_resources(container)
        if container.get("restartPolicy") == "Always":
            sidecars += resources
        else:
            # The union has the larger of the two counts.
            largest |= sidecars + resources
    running = sum(map(_container_resources, spec.get("containers") or ()), sidecars)
    return dict(+(running | largest))


def foreign_resources(pod: Pod) -> tuple[str, ...]:
    """The resources of other device plugins, and of dynamic resource allocation, that the pod's containers request."""
    spec = pod.get("spec") or {}
    requested = {
        name
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for kind in ("requests", "limits")
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items()
        if str(amount) != "0"
    }
    return tuple(sorted(filter(is_foreign_gpu_resource, requested)))


def is_reservation(pod: Pod) -> bool:
    """Whether KAI Scheduler or Run:ai has created the pod to reserve a GPU for pods that use a part of it."""
    return app_of(pod) in RESERVATION_APPS or pod["metadata"].get("namespace") in RESERVATION_APPS


def foreign_plugins(pods: t.Iterable[Pod], operator_namespace: str) -> dict[tuple[str, DevicePlugin], list[str]]:
    """The nodes with each device plugin that is not an operand, by the name of its DaemonSet or pod and the plugin."""
    nodes_of: dict[tuple[str, DevicePlugin], list[str]] = {}
    for node, pod in active_pods(pods):
        plugin = _plugin_of(pod["spec"])
        owner = _daemonset_of(pod)
        if plugin is not None and owner and not _is_operand(pod, operator_namespace):
            nodes_of.setdefault((f"DaemonSet {pod['metadata'].get('namespace', '')}/{owner}", plugin), []).append(node)
    return nodes_of


def _plugin_of(spec: Document) -> DevicePlugin | None:
    """The device plugin that a pod with this spec runs; None if it runs none."""
    images = (str(container.get("image") or "") for container in spec.get("containers") or ())
    return next(filter(None, map(plugin_of_image, images)), None)


def _container_resources(container: t.Mapping[str, t.Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    # An extended resource's request equals its limit; the API server derives the request from the limit.
    requested = resources.get("requests") or resources.get("limits") or {}
    return Counter({name: to_count(value) for name, value in requested.items() if name.startswith(PREFIX)})


@dataclass(frozen=True)
class PodOnNode:
    """One pod on a node.

    resources: see requested_resources(). access: descriptions of its access to GPUs; empty if it has none.
    keep_reason: the reason why a drain does not evict the pod ("DaemonSet exporter", "static pod"); empty if a drain evicts it.
    unmanaged: whether no controller or scheduler recreates the pod. priority: the pod's scheduling priority.
    created: the time in RFC 3339 format, in which alphabetical order is chronological.
    possible_access: the reason why a pod of the cluster itself may use a GPU although its spec does not show this. These pods are privileged; examples
    are CNI plugins, CSI drivers and node exporters.
    demands: what the pod requires of its node, if it requests resources or selects labels of NVIDIA.
    pausable: whether the pod belongs to a DaemonSet and terminates unless the label nvidia.com/gpu.deploy.client is true.
    labels: the pod's labels. ready: whether its condition Ready is true. starting_or_ending: whether it is pending or being deleted, so that no disruption
    budget applies to it.
    """

    namespace: str
    name: str
    uid: str
    resources: t.Mapping[str, int] = field(default_factory=dict)
    access: tuple[str, ...] = ()
    keep_reason: str = ""
    unmanaged: bool = False
    priority: int = 0
    created: str = ""
    possible_access: tuple[str, ...] = ()
    pausable: bool = False
    labels: t.Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    ready: bool = field(default=False, compare=False, repr=False)
    starting_or_ending: bool = field(default=False, compare=False, repr=False)
    demands: Demands | None = field(default=None, compare=False, repr=False)

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class PodsByNode(t.NamedTuple):
    """Maps by node: the pods that use its GPUs, the other pods that a drain of all pods evicts, the pods that may hold a GPU, and all demands.

    The pods in the third map belong to the cluster itself; no drain evicts them.
    """

    gpu_pods: ByNode = {}
    other_pods: ByNode = {}
    possible_holders: ByNode = {}
    demands: t.Mapping[str, t.Sequence[Demands]] = {}


def classify_pods(by_node: ByNode) -> PodsByNode:
    """Group the pods from parse_pods() by the effect that a change to their node has on them."""

    def select(accepts: t.Callable[[PodOnNode], bool]) -> ByNode:
        return {node: accepted for node, pods in by_node.items() if (accepted := list(filter(accepts, pods)))}

    return PodsByNode(
        gpu_pods=select(lambda pod: bool(pod.access)),
        other_pods=select(lambda pod: not pod.access and not pod.keep_reason),
        possible_holders=select(lambda pod: bool(pod.possible_access)),
        demands={
            node: demands for node, pods in by_node.items() if (demands := [pod.demands for pod in pods if pod.demands])
        },
    )


def parse_pods(
    pods: t.Iterable[Pod],
    claims: t.Iterable[Claim] = (),
    *,
    operator_namespace: str = "",
    runtime_classes: t.Collection[str] = RUNTIME_CLASSES,
) -> dict[str, list[PodOnNode]]:
    """The pods on nodes, by node, sorted by namespace and name.

    `claims` contains the ResourceClaims of the cluster (resource.k8s.io, v1 or a beta version); without them, access through DRA is not detected.
    `runtime_classes` contains the names of the RuntimeClasses with an NVIDIA handler.
    The result does not contain NVIDIA's operands in the operator's namespace, because the operator stops them itself.
    """
    sources = {(claim["metadata"].get("namespace", ""), claim["metadata"]["name"]): _claimed(claim) for claim in claims}
    by_node: dict[str, list[PodOnNode]] = {}
    for node, pod in active_pods(pods):
        if not _is_operand(pod, operator_namespace):
            by_node.setdefault(node, []).append(_parse_pod(pod, sources, runtime_classes))
    return {
        node: sorted(on_node, key=lambda pod: (pod.namespace, pod.name)) for node, on_node in sorted(by_node.items())
    }


def _parse_pod(
    pod: Pod, sources: t.Mapping[tuple[str, str], t.Sequence[str]], runtime_classes: t.Collection[str]
) -> PodOnNode:
    metadata, priority = pod["metadata"], int(pod["spec"].get("priority") or 0)
    resources = requested_resources(pod)
    access = [*_requests(pod, resources, sources), *gpu_access(pod, runtime_classes)]
    controllers = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    keep_reason, privileged = _keep_reason(pod, controllers), tuple(privileged_containers(pod))
    is_cluster_pod = bool(keep_reason) or priority >= _SYSTEM_CRITICAL
    if not is_cluster_pod:
        access += privileged
    return PodOnNode(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resources=resources,
        access=tuple(dict.fromkeys(access)),
        keep_reason=keep_reason,
        unmanaged=not controllers and not is_reservation(pod),
        priority=priority,
        created=metadata.get("creationTimestamp") or "",
        possible_access=privileged if is_cluster_pod and not access else (),
        pausable=bool(keep_reason) and (pod["spec"].get("nodeSelector") or {}).get(CLIENT_LABEL) == "true",
        labels=metadata.get("labels") or {},
        ready=is_ready(pod),
        starting_or_ending=(pod.get("status") or {}).get("phase") == "Pending"
        or bool(metadata.get("deletionTimestamp")),
        demands=demands_of(pod, resources),
    )


def _requests(
    pod: Pod, resources: t.Iterable[str], sources: t.Mapping[tuple[str, str], t.Sequence[str]]
) -> t.Iterator[str]:
    for resource in sorted(resources):
        yield f"requests {resource}"
    yield from _other_access(pod)
    # The pod's status lists the claims that were created for it from a template.
    status = pod.get("status") or {}
    for claim in (*(pod["spec"].get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ())):
        for source in sources.get((pod["metadata"].get("namespace", ""), claim.get("resourceClaimName")), ()):
            yield f"claims a device of {source}"


def _other_access(pod: Pod) -> t.Iterator[str]:
    """Descriptions of the GPUs that the pod gets from other device plugins and schedulers."""
    for resource in foreign_resources(pod):
        yield f"requests {resource}"
    metadata = pod["metadata"]
    if is_reservation(pod):
        yield "reserves a GPU for pods that share it"
    elif group := next(filter(is_gpu_group_label, sorted(metadata.get("labels") or {})), ""):
        yield f"label {group}"
    elif pod["spec"].get("schedulerName") in FRACTION_SCHEDULERS:
        for key in FRACTION_ANNOTATIONS:
            if key in (metadata.get("annotations") or {}):
                yield f"annotation {key}"


def _claimed(claim: Claim) -> list[str]:
    """The driver that has allocated a GPU for a claim or, before the allocation, the requested device classes."""
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation:
        results = (allocation.get("devices") or {}).get("results") or ()
        return [DRA_DRIVER] if any(result.get("driver") == DRA_DRIVER for result in results) else []
    classes: list[str] = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        # In v1 and v1beta2, the class is in `exactly` or `firstAvailable`; in v1beta1, it is in the request itself.
        for option in (request, request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            classes += [option["deviceClassName"]] if option.get("deviceClassName") in DEVICE_CLASSES else []
    return classes


def _keep_reason(pod: Pod, controllers: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    for controller in controllers:
        if controller.get("kind") == "DaemonSet":
            return f"DaemonSet {controller['name']}"
    return "static pod" if _MIRROR in (pod["metadata"].get("annotations") or {}) else ""


def _daemonset_of(pod: Pod) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["name"]) for owner in owners if owner.get("kind") == "DaemonSet"), "")


def _is_operand(pod: Pod, operator_namespace: str) -> bool:
    """Whether the operator has created the pod. All pods that it creates, including validators, have one of these labels (gpu-operator assets)."""
    app = app_of(pod)
    return pod["metadata"].get("namespace") == operator_namespace and (app == DISCOVERY or app.startswith("nvidia-"))


@dataclass(frozen=True)
class Demands:
    """The requirements that the pods of a workload have of a node. owner: the kind and the name of the workload, with the namespace."""

    owner: str
    selector: t.Mapping[str, str] = field(default_factory=dict)
    terms: tuple[Document, ...] = ()
    resources: t.Mapping[str, int] = field(default_factory=dict)


def demands_of(pod: Document, resources: t.Mapping[str, int]) -> Demands | None:
    """The requirements that a pod has of its node; None if it neither requests a resource of NVIDIA nor selects a label of NVIDIA."""
    spec = pod.get("spec") or {}
    selector = spec.get("nodeSelector") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = tuple(affinity.get("nodeSelectorTerms") or ())
    keys = {*selector, *(item.get("key", "") for term in terms for item in term.get("matchExpressions") or ())}
    if not resources and not any(str(key).startswith(PREFIX) for key in keys):
        return None
    return Demands(_owner(pod), selector, terms, resources)


def _owner(pod: Document) -> str:
    metadata = pod["metadata"]
    namespace = metadata.get("namespace", "")
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = str(owner.get("kind")), str(owner["name"])
            suffix = f"-{(metadata.get('labels') or {}).get('pod-template-hash')}"
            if kind == "ReplicaSet" and name.endswith(suffix):
                kind, name = "Deployment", name.removesuffix(suffix)
            return f"{kind} {namespace}/{name}"
    return f"Pod {namespace}/{metadata['name']}"


# Lists the pods of one node or of all nodes, with the ResourceClaims and RuntimeClasses that the pods refer to.


def pods_by_node(client: Client, pods: t.Sequence[Document], operator_namespace: str) -> PodsByNode:
    """Classify these pods; ResourceClaims and RuntimeClasses are read only if a pod refers to one."""
    claims, classes = claims_of(client, pods), _runtime_classes_of(client, pods)
    return classify_pods(parse_pods(pods, claims, operator_namespace=operator_namespace, runtime_classes=classes))


def pods_on(client: Client, node: str | None = None) -> list[Document]:
    """The pods of one node, or of all nodes, that have not terminated."""
    return list(client.list(PODS, field_selector=LIVE_PODS + (f",spec.nodeName={node}" if node else "")))


def read_plugin_pods(client: Client, operator_namespace: str) -> list[Document]:
    """The pods of device plugins that are not operands: one list request for the DaemonSets, and one for the pods of each DaemonSet with such a plugin.

    The result is empty if the user is not allowed to list DaemonSets.
    """
    pods: list[Document] = []
    try:
        for item in client.list(DAEMONSETS):
            namespace, template = item["metadata"]["namespace"], item["spec"]["template"]
            metadata = {"namespace": namespace, "labels": (template.get("metadata") or {}).get("labels")}
            if _plugin_of(template["spec"]) and not _is_operand({"metadata": metadata}, operator_namespace):
                labels = (item["spec"].get("selector") or {}).get("matchLabels") or {}
                selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
                pods += client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=selector)
    except ApiError as error:
        if not error.forbidden:
            raise
    return pods


def claims_of(client: Client, pods: t.Iterable[Document]) -> t.Sequence[Document]:
    """The ResourceClaims of the cluster; empty, without sending a request, if none of these pods has one."""
    claiming = any((pod.get("spec") or {}).get("resourceClaims") for pod in pods)
    return client.list_known(RESOURCE_CLAIMS) if claiming else ()


def _runtime_classes_of(client: Client, pods: t.Iterable[Document]) -> t.Collection[str]:
    """The names of the RuntimeClasses with an NVIDIA handler; they are read only if one of these pods has a class that the operator does not create."""
    named = {(pod.get("spec") or {}).get("runtimeClassName") for pod in pods}
    if named <= {None, *RUNTIME_CLASSES}:
        return RUNTIME_CLASSES
    return nvidia_runtime_classes(client.list_known(RUNTIME_CLASS_LIST))


# Finds NVIDIA's failing pods on nodes, and reads the end of their logs.

# Up to this number of nodes, one list request per node is cheaper than a list of the operator's whole namespace.
_MAX_LISTS = 5
_MAX_LOGS = 5
_LOG_LINES = 3
_MAX_LOG_CHARS = 400
# The containers that copy the configuration in the node's label for the device plugin and gpu-feature-discovery (config-manager, config-manager-init).
_CONFIG_MANAGER = "config-manager"

# The messages of a driver that cannot be unloaded while it is in use (gpu-driver-container nvidia-driver, _unload_driver; k8s-driver-manager
# cmd/driver-manager/main.go, uninstallDriver).
_CANNOT_UNLOAD = re.compile(
    "could not unload NVIDIA driver|unable to (?:unload|cleanup) driver|failed to (?:unload|uninstall) (?:nvidia )?driver",
    re.IGNORECASE,
)

# Seconds between two calls of failing_operands() during a wait for nodes.
OPERANDS_INTERVAL = 5.0


def read_operand_pods(client: Client, namespace: str, nodes: t.Collection[str]) -> list[Document]:
    """The pods on these nodes in the operator's namespace."""
    path = f"{NAMESPACES}/{namespace}/pods"
    if len(nodes) <= _MAX_LISTS:
        return [pod for node in sorted(nodes) for pod in client.list(path, field_selector=f"spec.nodeName={node}")]
    return [pod for pod in client.list(path) if (pod.get("spec") or {}).get("nodeName") in nodes]


def failing_operands(
    client: Client, namespace: str, nodes: t.Collection[str], now: float, configured: t.Collection[str] = ()
) -> dict[str, str]:
    """For each node with a failing NVIDIA pod, a description of the pod with the reason; other nodes are not included.

    `configured`: nodes whose label selects the desired configuration. A pod there that failed because of an earlier configuration starts again soon.
    """
    failures = operand_failures(read_operand_pods(client, namespace, nodes), now) if nodes else {}
    lasting = {
        name: failure
        for name, failure in failures.items()
        if name not in configured or not failure.container.startswith(_CONFIG_MANAGER)
    }
    return describe_failures(client, namespace, lasting)


def describe_failures(client: Client, namespace: str, failures: t.Mapping[str, ContainerFailure]) -> dict[str, str]:
    """For each node, a description of its failure; the first few descriptions include the end of the log, and the pods that keep a driver in use."""
    texts = {node: str(failure) for node, failure in failures.items()}
    for node in sorted(failures)[:_MAX_LOGS]:
        failure = failures[node]
        log = log_end(client, namespace, failure.pod, failure.container, previous=bool(failure.restarts))
        if log and log not in texts[node]:
            texts[node] += f"; its log ends: {log}"
        if _CANNOT_UNLOAD.search(texts[node]):
            texts[node] += gpu_holders(client, namespace, node)
    return {node: with_meaning(text) for node, text in texts.items()}


def gpu_holders(client: Client, namespace: str, node: str) -> str:
    """The pods that hold a GPU of the node and prevent that its driver is unloaded, as the end of a message; empty if there are none or they cannot be read."""
    try:
        pods = pods_by_node(client, pods_on(client, node), namespace)
    except ApiError:
        return ""
    held = [f"{pod.full_name} ({', '.join(pod.access)})" for pod in pods.gpu_pods.get(node, ())]
    held += [
        f"{pod.full_name} (maybe: {', '.join(pod.possible_access)})" for pod in pods.possible_holders.get(node, ())
    ]
    return f"; pods that hold a GPU of the node: {abbreviate(held)}; delete them, or drain the node" if held else ""


def log_end(client: Client, namespace: str, pod: str, container: str, *, previous: bool) -> str:
    """The last lines of the log of a container, or of its previous instance, as one line; empty if the log cannot be read."""
    query = {"container": container, "previous": "true" if previous else "false", "tailLines": _LOG_LINES}
    try:
        text = client.text(f"{NAMESPACES}/{namespace}/pods/{pod}/log", query)
    except ApiError:
        # The container may be gone, or the permission to read logs may be missing. The message is useful even without the log.
        return ""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-_MAX_LOG_CHARS:]
