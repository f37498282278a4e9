# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates and corrects the ClusterPolicy, and waits for the operands."""

from __future__ import annotations

import datetime
import itertools
import posixpath
import time
import typing as t
from dataclasses import replace

from ..catalog.distributions import CONFIG, DEFAULT_SOCKET, DISTRIBUTIONS, DROP_IN, SOCKET
from ..catalog.names import CONFIG_LABEL, EXAMPLE_MANAGER, GENERATED_SELECTOR, OPERATOR_PODS
from ..catalog.operands import DISCOVERY, MPS_DAEMON, PLUGIN, TOOLKIT, VALIDATOR
from ..catalog.taints import format_toleration
from ..core.errors import InvalidOptions, PartialFailure
from ..core.messages import abbreviate, abbreviate_nodes
from ..core.values import Document, Object, get_nested, part_of
from ..core.waits import WaitOptions, WaitTimeout
from ..helm.preparation import diagnose_pods, format_failure, pod_failures, unready_reasons
from ..helm.release import is_marked_installed, marker_path
from ..kube.errors import ApiError
from ..kube.fields import same_object
from ..kube.objects import NOT_CHECKED, ExpectedObjects, InvalidObjects, known_fields, read_definition, spec_schema
from ..kube.paths import CLUSTER_POLICIES, NODES, NVIDIA_DRIVERS, RUNTIME_CLASS_LIST, collection_path, object_path
from ..nodes.mig import merge_generated, parse_generated
from ..nodes.node import CONTAINERD, Node, distribution_of, parse_node
from ..nodes.ownership import POOL_OWNER, assign_pools, can_continue_without, ignorable_nodes
from ..nodes.pods import (
    app_of,
    container_failures,
    daemonset_status,
    describe_failures,
    is_ready,
    node_of,
    operand_failures,
    read_operand_pods,
    unready_operands,
)
from ..sharing_modes import mig_parted
from .cluster_policy import (
    POLICY_API_VERSION,
    POLICY_KIND,
    DesiredPolicy,
    DriverRollout,
    PolicyChange,
    UpgradePolicies,
    active_policy,
    driver_results,
    follows_own_policies,
    initial_change,
    is_managed_driver,
    mig_configmap,
    new_policy,
    planned_upgrade,
    policy_version,
    recorded_tolerations,
    uses_driver_objects,
    with_planned_values,
)
from .detect import relocate_plan
from .driver_objects import DriverObjects, label_nodes, plan_driver_objects, pool_label_edits, refused_objects
from .installation import operator_owner, read_example
from .readiness import (
    UNFINISHED,
    DriverUpgrade,
    IgnoredNodes,
    OperatorReadiness,
    RequiredEffect,
    StalledPods,
    app_label,
    assess,
    driver_upgrade,
    is_driver,
    is_operand,
    is_stalled,
    next_pod_to_replace,
    outdated_images,
    permitted_pods,
)

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..nodes.pods import ContainerFailure
    from ..pools.plan import ComponentPlan, Plan, PoolPlan

# Checks whether NVIDIA's runtime class exists and whether the container toolkit can configure the containerd of each node (pure).
#
# The operator mounts the folders of containerd's socket and configuration into the toolkit's pod and passes the paths within the pod to the toolkit
# (gpu-operator v25.10.1 controllers/object_controls.go, transformForRuntime).

# The volume of each path, by the environment variable that contains the path.
_PATHS = {SOCKET: "containerd-socket", CONFIG: "containerd-config", DROP_IN: "containerd-drop-in-config"}
_TITLES = {SOCKET: "socket", CONFIG: "configuration", DROP_IN: "drop-in configuration"}
_DEFAULTS = {
    SOCKET: DEFAULT_SOCKET,
    CONFIG: "/etc/containerd/config.toml",
    DROP_IN: "/etc/containerd/conf.d/99-nvidia.toml",
}
_CONTAINER = "nvidia-container-toolkit-ctr"
# Selects the toolkit's pods and the pods of one operand that uses the runtime class.
SELECTOR = f"app in ({TOOLKIT},{PLUGIN})"
# A toolkit container that has restarted this number of times has a lasting problem, because each attempt takes 30 seconds.
_MIN_RESTARTS = 2
# The minimum age in seconds of a pod without a sandbox; the kubelet creates the sandbox immediately if the runtime knows the handler.
_MIN_AGE = 60.0


def runtime_classes_of(daemonsets: t.Iterable[Document]) -> set[str]:
    """The runtime classes that the operands' pods refer to."""
    specs = (item["spec"]["template"]["spec"] for item in daemonsets if is_operand(item))
    return {str(name) for spec in specs if (name := spec.get("runtimeClassName"))}


def missing_runtime_classes(daemonsets: t.Iterable[Document], classes: t.Iterable[Document]) -> list[str]:
    """A message for each runtime class that operands refer to but that does not exist; the API server rejects their pods."""
    existing = {item["metadata"]["name"] for item in classes}
    return [
        f"RuntimeClass {name} does not exist, so the API server rejects the operands' pods; the operator creates it"
        for name in sorted(runtime_classes_of(daemonsets) - existing)
    ]


def handlers_of(daemonsets: t.Iterable[Document], classes: t.Iterable[Document]) -> dict[str, str]:
    """The handlers of the existing runtime classes that operands refer to, by class name."""
    named = runtime_classes_of(daemonsets)
    return {
        item["metadata"]["name"]: str(item.get("handler") or "")
        for item in classes
        if item["metadata"]["name"] in named
    }


def host_paths(toolkit: Document) -> dict[str, str]:
    """The paths on the node that the toolkit's DaemonSet uses, by the environment variable that sets them."""
    spec = toolkit["spec"]["template"]["spec"]
    folders = {
        volume["name"]: str((volume.get("hostPath") or {}).get("path") or "") for volume in spec.get("volumes") or ()
    }
    container: Document = next((item for item in spec.get("containers") or () if item["name"] == _CONTAINER), {})
    variables = {entry["name"]: str(entry.get("value") or "") for entry in container.get("env") or ()}
    return {
        name: posixpath.join(folders[volume], posixpath.basename(variables[name]))
        for name, volume in _PATHS.items()
        if folders.get(volume) and variables.get(name)
    }


def toolkit_problems(
    toolkit: Document, pods: t.Iterable[Document], nodes: t.Iterable[Document], version: str, now: float
) -> list[str]:
    """Messages about nodes that cannot start pods with the runtime class because their containerd is not where the toolkit expects it.

    `pods` contains the pods that SELECTOR selects; only nodes on which one of them keeps failing are considered. `version` is the operator's version.
    """
    failing = failing_nodes(pods, now)
    if not failing:
        return []
    paths = host_paths(toolkit)
    by_reason: dict[str, list[str]] = {}
    for node in map(parse_node, nodes):
        if node.name in failing and (reason := _mismatch(node, paths, version)):
            by_reason.setdefault(reason, []).append(node.name)
    return [f"{abbreviate_nodes(names)}: {reason}" for reason, names in sorted(by_reason.items())]


def failing_nodes(pods: t.Iterable[Document], now: float) -> set[str]:
    """The nodes on which the toolkit's container exits repeatedly or on which the runtime creates no sandbox for a pod with a runtime class."""
    return {node_of(pod) for pod in pods if not is_ready(pod) and (_crashes(pod) or _lacks_sandbox(pod, now))}


def _crashes(pod: Document) -> bool:
    return any(
        failure.container == _CONTAINER and failure.restarts >= _MIN_RESTARTS
        for failure in container_failures([pod]).get(node_of(pod), ())
    )


def _lacks_sandbox(pod: Document, now: float) -> bool:
    """Whether a pod with a runtime class still has no sandbox; the kubelet reports this as the condition PodReadyToStartContainers."""
    conditions = {item["type"]: item["status"] for item in (pod.get("status") or {}).get("conditions") or ()}
    created = pod["metadata"].get("creationTimestamp")
    if not created or not pod["spec"].get("runtimeClassName") or conditions.get("PodReadyToStartContainers") != "False":
        return False
    return now - datetime.datetime.fromisoformat(created).timestamp() >= _MIN_AGE


def _mismatch(node: Node, paths: t.Mapping[str, str], version: str) -> str:
    distribution = distribution_of(node)
    if distribution is None or not node.container_runtime.startswith(CONTAINERD):
        return ""
    needed = {SOCKET: DEFAULT_SOCKET, **distribution.toolkit_variables(version)}
    wrong = [
        f"{_TITLES[name]} at {paths[name]} instead of {needed[name]} ({name})"
        for name in _PATHS
        if name in paths and name in needed and paths[name] != needed[name]
    ]
    if not wrong:
        return ""
    return (
        f"the container toolkit expects containerd's {' and '.join(wrong)} on these nodes ({distribution.title}, kubelet "
        f"{node.kubelet_version}); set gpu_cluster.distribution: {distribution.name}, or correct toolkit.env in gpu_cluster.operator.values"
    )


# Finds the nodes on which NVIDIA's pods keep failing, so that the wait for the operator continues without them.

# The operands that read the configuration in a node's label, and the validator, which waits for the device plugin.
_CONFIGURED = (PLUGIN, DISCOVERY, MPS_DAEMON)
_WAITING = (*_CONFIGURED, VALIDATOR)


class FailingNodes:
    """Determines the nodes that a wait ignores, and keeps the result of the last search."""

    def __init__(self, client: Client, pools: t.Sequence[PoolPlan]) -> None:
        """Store the arguments; nothing is read yet."""
        self._client = client
        self._pools = pools
        # The stalled pods of the last call, and the broken nodes on which they run, with the apps that fail there and the reason.
        self._stalled: t.Sequence[Object] = ()
        self._broken: dict[str, set[str]] = {}
        self._broken_reasons: dict[str, str] = {}
        # The nodes whose configuration gpu_sharing replaces after this wait, although the operands that read it fail.
        self._replaced: dict[str, ContainerFailure] = {}
        # Whether gpu_sharing runs after this wait.
        self.sharing_follows = False
        # The result of the last call that found nodes.
        self.ignored = IgnoredNodes()

    def find(
        self,
        readiness: OperatorReadiness,
        stalled: t.Sequence[Object],
        namespace: str,
        nodes: t.Sequence[Object],
        read_nodes: t.Callable[[], t.Sequence[Object]],
    ) -> IgnoredNodes | None:
        """Find the nodes that the run does not wait for; None if there are none.

        A discovered node of a pool is broken if one of its pods is in `stalled` and in back-off. The pods of other nodes are read only if all pods that
        are not ready may be on ignored nodes. If no other GPU node works, the run also waits for failing nodes that a pool may claim, because a failure
        on all nodes is not caused by one node.
        """
        missing = max((item.desired - item.available for item in readiness.operands), default=0)
        if readiness.ready or not missing:
            return None
        if stalled is not self._stalled:
            self._replaced = self._find_replaced(stalled, read_nodes) if self.sharing_follows else {}
            broken = self._find_broken(readiness, stalled, read_nodes)
            self._broken_reasons = describe_failures(self._client, namespace, broken)
            self._stalled, self._broken = stalled, _failing_apps(stalled, broken)
        candidates = ignorable_nodes(self._pools, _parsed(nodes)) - self._broken.keys()
        if missing > len(candidates) + len(self._broken) + len(self._replaced):
            return None
        pods = read_operand_pods(self._client, namespace, candidates)
        failures = operand_failures(pods, time.time())
        if failures:
            current = _parsed(read_nodes())
            ignorable = ignorable_nodes(self._pools, current)
            failures = {name: failure for name, failure in failures.items() if name in ignorable}
            if not can_continue_without({*failures, *self._broken}, self._pools, current):
                return None
        if not failures and not self._broken and not self._replaced:
            return None
        reasons = {**self._broken_reasons, **describe_failures(self._client, namespace, failures)}
        unready = unready_operands([*pods, *stalled], reasons)
        configured = [pod for pod in stalled if app_of(pod) in _WAITING]
        for app, names in unready_operands(configured, self._replaced).items():
            unready.setdefault(app, set()).update(names)
        for name, failure in self._replaced.items():
            reasons.setdefault(name, f"{failure}; the role sharing replaces its label {CONFIG_LABEL}")
        self.ignored = IgnoredNodes(reasons, unready, self._broken)
        return self.ignored

    def _find_replaced(
        self, stalled: t.Sequence[Object], read_nodes: t.Callable[[], t.Sequence[Object]]
    ) -> dict[str, ContainerFailure]:
        """The nodes of pools on which an operand fails that reads the configuration in the node's label, if gpu_sharing replaces this label."""
        failures = operand_failures((pod for pod in stalled if app_of(pod) in _CONFIGURED), time.time())
        if not failures:
            return {}
        nodes = _parsed(read_nodes())
        by_name = {node.name: node for node in nodes}
        membership = assign_pools(self._pools, nodes)
        return {
            name: failures[name]
            for pool in self._pools
            for name in membership.by_pool[pool.name]
            if name in failures and by_name[name].labels.get(CONFIG_LABEL, pool.config_key) != pool.config_key
        }

    def _find_broken(
        self,
        readiness: OperatorReadiness,
        stalled: t.Sequence[Object],
        read_nodes: t.Callable[[], t.Sequence[Object]],
    ) -> dict[str, ContainerFailure]:
        """The broken nodes, with the failure of each; empty if a driver upgrade is blocked, because the remedy for the upgrade is more useful."""
        in_back_off = {
            name: failure for name, failure in operand_failures(stalled, time.time()).items() if failure.in_back_off
        }
        if not in_back_off or readiness.blocked:
            return {}
        nodes = _parsed(read_nodes())
        ignorable = ignorable_nodes(self._pools, nodes)
        broken = {
            name: failure
            for name, failure in in_back_off.items()
            if name not in ignorable and name not in self._replaced
        }
        if not can_continue_without(broken, self._pools, nodes):
            return {}
        return broken


def _failing_apps(pods: t.Iterable[Object], nodes: t.Collection[str]) -> dict[str, set[str]]:
    """The apps whose pods are in back-off, by node; other pods on a node may only be waiting for these pods."""
    apps: dict[str, set[str]] = {name: set() for name in nodes}
    for pod in pods:
        for name, failure in operand_failures([pod], time.time()).items():
            if name in apps and failure.in_back_off:
                apps[name].add(app_of(pod))
    return apps


def _parsed(nodes: t.Iterable[Object]) -> list[Node]:
    return [parse_node(node) for node in nodes]


# Reads and applies the ClusterPolicy, and waits until the operator has processed it.

_ANNOTATIONS = (POOL_OWNER.labels, *(each.annotation for each in DISTRIBUTIONS if each.annotation))
# Seconds between two diagnoses of the container toolkit during a wait, and the maximum number of pods that one diagnosis reads.
_DIAGNOSIS_INTERVAL = 10.0
_MAX_DIAGNOSED = 500
# The maximum number of pods that a progress line shows.
_MAX_NAMED = 2


class ClusterPolicyClient:
    """Accesses the ClusterPolicy of one cluster and the objects that its operator creates."""

    def __init__(self, client: Client, namespace: str, pools: t.Sequence[PoolPlan] = ()) -> None:
        """`namespace` is used unless the policy's status contains the operator's namespace; `pools` determines which nodes may be ignored."""
        self._client = client
        self.namespace = namespace
        self._pools = pools
        self._nodes: list[Object] | None = None
        # The policy that was just read; None if it must be read again.
        self._policy: Object | None = None
        self._daemonsets: list[Object] = []
        self._failing_nodes = FailingNodes(client, pools)
        self._version = ""
        self._diagnosed = -_DIAGNOSIS_INTERVAL
        self._stalled_pods = StalledPods(client)
        self.replaced_pods: list[str] = []
        # Whether the pools' NVIDIADriver objects require the pool label on each node.
        self.labels_nodes = False
        # Whether OLM replaces the operator.
        self.by_olm = False

    @property
    def sharing_follows(self) -> bool:
        """Whether gpu_sharing runs next. If so, gpu_sharing fails for broken nodes and replaces wrong configurations, and this module does neither."""
        return self._failing_nodes.sharing_follows

    @sharing_follows.setter
    def sharing_follows(self, value: bool) -> None:
        self._failing_nodes.sharing_follows = value

    def policy(self) -> Object | None:
        """The active policy; None if there is none."""
        policy = active_policy(self._client.list_known(CLUSTER_POLICIES))
        if policy is not None:
            self.namespace = (policy.get("status") or {}).get("namespace") or self.namespace
        self._policy = t.cast("Object | None", policy)
        return self._policy

    def daemonsets(self) -> list[Object]:
        """All DaemonSets of the operator's namespace, read with one list request."""
        self._daemonsets = list(self._client.list(f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets"))
        return self._daemonsets

    def drivers(self, policy: t.Mapping[str, t.Any]) -> list[Object]:
        """The NVIDIADriver objects if they describe the driver under this policy; otherwise empty, and no request is sent."""
        return list(self._client.list(NVIDIA_DRIVERS)) if uses_driver_objects(policy.get("spec") or {}) else []

    def read_drivers(self, plan: Plan, policy: t.Mapping[str, t.Any] | None) -> tuple[Object, ...]:
        """The NVIDIADriver objects if they describe the driver or a pool declares its own driver; otherwise empty, and no request is sent."""
        if policy is None or not (plan.declares_drivers or uses_driver_objects(policy.get("spec") or {})):
            return ()
        return self._client.list_known(NVIDIA_DRIVERS)

    def driver_objects(self, plan: Plan, policy: Object) -> DriverObjects:
        """The changes to NVIDIADriver objects that the pools require; sends up to two list requests if the objects or a pool define the driver."""
        drivers = self.read_drivers(plan, policy)
        if not plan.declares_drivers and not any(map(is_managed_driver, drivers)):
            own = follows_own_policies(drivers, policy_version(policy))
            return DriverObjects(live=drivers, own_policies=own)
        nodes = [parse_node(node) for node in self._client.list(NODES)]
        return plan_driver_objects(plan, policy, drivers, nodes)

    def rollout(
        self,
        policy: Object,
        nodes: t.Mapping[str, int],
        objects: DriverObjects,
        reasons: t.Sequence[str],
        *,
        switches: bool,
    ) -> DriverRollout:
        """The driver rollout that results from a change to the policy and from the changes to the objects.

        `nodes` contains the number of nodes that the change to the policy affects, by NVIDIADriver. `switches` is true if the objects replace the
        policy's DaemonSet.
        """
        spec = policy.get("spec") or {}
        if switches:
            return objects.switch(spec, sum(nodes.values()), reasons)
        by_objects = objects.nodes_by_owner()
        rolled = {name: nodes.get(name, 0) + by_objects.get(name, 0) for name in {*nodes, *by_objects}}
        return UpgradePolicies.read(spec, objects.live, own=objects.own_policies).rollout(rolled, reasons)

    def _label_new_nodes(self, lease: t.Callable[[], Lease]) -> None:
        """Set the pool label on newly discovered nodes, because the selectors of NVIDIADriver objects require it."""
        nodes = [parse_node(node) for node in self._nodes or ()]
        edits = pool_label_edits(self._pools, nodes)
        if not edits:
            return
        with lease() as held:
            label_nodes(self._client, edits, held.check)
        self._nodes = None

    def is_seeded(self, live: Object, release: ComponentPlan) -> bool:
        """Whether the collection passed the tolerations to the chart when it installed the chart, and no run has recorded them in the policy yet."""
        if recorded_tolerations(live) is not None:
            return False
        return is_marked_installed(self._client.get(marker_path(release.name, release.namespace)))

    def apply(self, change: PolicyChange, live: Object, *, check: bool) -> tuple[bool, str | None]:
        """Send the change. Raises a conflict error if the policy has changed since it was read.

        Returns whether anything differs, and the reason if the server did not check the change.
        """
        if not change.changed:
            return False, None
        path = f"{CLUSTER_POLICIES}/{live['metadata']['name']}"
        self._policy = live if check else None
        result: Object = live
        try:
            if change.body is not None:
                result = self._client.apply(path, change.body, dry_run=check, field_validation="Strict")
            if change.removal is not None:
                result = self._client.patch(path, change.removal, dry_run=check)
        except ApiError as error:
            if not (check and error.lacks_right):
                raise
            return True, NOT_CHECKED
        return not same_object(live, result), None

    def missing_configmaps(self, plan: Plan, live: Object | None) -> list[Object]:
        """The ConfigMaps that the policy will refer to and that do not exist yet, with their initial content.

        The collection's MIG configuration replaces the current one, so it initially contains the entries of the current one and the entries that
        the MIG manager has generated on the nodes.
        """
        configmaps: list[Object] = []
        if "devicePlugin" in plan.policy.spec and self._configmap(plan.config.name, plan.config.namespace) is None:
            configmaps.append(_configmap(plan.config.name, plan.config.namespace, plan.config.data))
        if "migManager" in plan.policy.spec and self._configmap(plan.mig.name, plan.mig.namespace) is None:
            current = mig_parted.parse_configmap(self._configmap(mig_configmap(live), plan.mig.namespace))
            known = {**plan.mig.default_entries, **self._generated_entries(plan, current), **current}
            text = mig_parted.render_configuration({**known, **plan.mig.entries})
            configmaps.append(_configmap(plan.mig.name, plan.mig.namespace, {mig_parted.KEY: text}))
        return configmaps

    def _configmap(self, name: str, namespace: str) -> Object | None:
        return self._client.get(object_path("v1", "ConfigMap", name, namespace))

    def _generated_entries(self, plan: Plan, current: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
        path = collection_path("v1", "ConfigMap", plan.mig.namespace)
        configmaps = list(self._client.list(path, label_selector=GENERATED_SELECTOR))
        if not configmaps:
            return {}
        return merge_generated(
            plan, parse_generated(configmaps), map(parse_node, self._client.list(NODES)), current
        ).entries

    def create(self, configmaps: t.Iterable[Object]) -> None:
        """Create ConfigMaps before pods mount them; gpu_sharing manages them afterwards."""
        for body in configmaps:
            metadata = body["metadata"]
            self._client.apply(object_path("v1", "ConfigMap", metadata["name"], metadata["namespace"]), body)

    def read_readiness(self, name: str, effect: RequiredEffect) -> OperatorReadiness:
        """Assess whether the operator is ready.

        Reads the DaemonSets, the policy unless it was just read and, once everything else may be ready, the nodes.
        """
        policy = self._policy or self._client.get(f"{CLUSTER_POLICIES}/{name}") or {"metadata": {"name": name}}
        self._policy = None
        self._version = policy_version(policy)
        daemonsets = self.daemonsets()
        drivers = self.drivers(policy)
        readiness = None
        if self._nodes is not None:
            upgrade = self._driver_upgrade(daemonsets)
            readiness = assess(policy, daemonsets, self._nodes, effect, upgrade, drivers=drivers)
        if readiness is None or all(item.current and item.ready == item.desired for item in readiness.operands):
            readiness = assess(policy, daemonsets, self._read_nodes(), effect, drivers=drivers)
        stalled = self._stalled_pods.find(readiness, self.namespace)
        ignored = self._failing_nodes.find(readiness, stalled, self.namespace, self._nodes or [], self._read_nodes)
        if ignored:
            readiness = assess(policy, daemonsets, self._nodes or [], effect, None, ignored, drivers)
        named = pod_failures(stalled, _MAX_NAMED, readiness.ignored_nodes)
        readiness = replace(readiness, stalled_pods=tuple(map(format_failure, named)))
        if self.by_olm:
            operator = self._client.get(object_path("apps/v1", "Deployment", "gpu-operator", self.namespace))
            outdated = outdated_images(operator, daemonsets, policy.get("spec") or {})
            readiness = replace(readiness, waiting=(*readiness.waiting, *outdated))
        return readiness if readiness.unfinished else self._with_runtime_classes(readiness)

    def with_reasons(self, readiness: OperatorReadiness) -> OperatorReadiness:
        """Add the reasons why operand pods are not ready, for a run that does not wait; a request is sent only if an operand is unfinished."""
        apps = sorted({item.app for item in readiness.unfinished if item.app})
        if not apps:
            return readiness
        pods = itertools.islice(
            permitted_pods(self._client, self.namespace, f"app in ({','.join(apps)})"), _MAX_DIAGNOSED
        )
        return replace(readiness, waiting=(*readiness.waiting, *unready_reasons(pods)))

    def _with_runtime_classes(self, readiness: OperatorReadiness) -> OperatorReadiness:
        """Add the operands' runtime classes to the readiness, and a line for each missing class."""
        if not runtime_classes_of(self._daemonsets):
            return readiness
        try:
            classes = self._client.list_known(RUNTIME_CLASS_LIST)
        except ApiError as error:
            if not error.forbidden:
                raise
            return readiness
        missing = missing_runtime_classes(self._daemonsets, classes)
        handlers = handlers_of(self._daemonsets, classes)
        return replace(readiness, waiting=(*readiness.waiting, *missing), runtime_classes=handlers)

    def _runtime_problems(self) -> list[str]:
        """Messages about nodes whose containerd cannot be configured by the container toolkit."""
        toolkit = next((item for item in self._daemonsets if item["metadata"]["name"] == TOOLKIT), None)
        if toolkit is None or not self._nodes:
            return []
        # Without permission to list pods, no problem is found, and the wait ends with a timeout.
        pods = permitted_pods(self._client, self.namespace, SELECTOR)
        first = list(itertools.islice(pods, _MAX_DIAGNOSED))
        return toolkit_problems(toolkit, first, self._nodes, self._version, time.time())

    def _read_nodes(self) -> list[Object]:
        self._nodes = [_slim(node) for node in self._client.list(NODES)]
        return self._nodes

    def _continue_stalled_updates(self, lease: t.Callable[[], Lease]) -> None:
        """Replace one pod of each DaemonSet whose rolling update is stalled by ignored nodes.

        A broken node counts only if the failing pod belongs to another DaemonSet, such as the driver's, and this DaemonSet's pod waits for that pod.
        Otherwise, the new template itself may cause the failure, and the update would then fail on every node.
        """
        ignored = self._failing_nodes.ignored
        for daemonset in filter(is_operand, self._daemonsets):
            app = app_label(daemonset)
            stalling = {name for name in ignored.reasons if app not in ignored.broken.get(name, ())}
            if not is_stalled(daemonset, stalling.intersection(ignored.unready.get(app, ()))):
                continue
            path = f"/api/v1/namespaces/{self.namespace}/pods"
            pods = self._client.list(path, label_selector=f"app={app}")
            pod = next_pod_to_replace(daemonset, pods, stalling)
            if pod is None:
                continue
            name = pod["metadata"]["name"]
            with lease() as held:
                held.check()
                body = {"preconditions": {"uid": pod["metadata"]["uid"]}}
                self._client.delete(object_path("v1", "Pod", name, self.namespace), body=body)
            self.replaced_pods.append(name)

    def await_ready(
        self,
        name: str,
        effect: RequiredEffect,
        waiting: WaitOptions,
        partial: t.Callable[[OperatorReadiness], Object],
        lease: t.Callable[[], Lease],
    ) -> OperatorReadiness:
        """Wait until the operator is ready. Raises PartialFailure for broken nodes, or WaitTimeout with a diagnosis.

        If waiting cannot help, WaitTimeout is raised immediately.
        """

        def read() -> OperatorReadiness:
            readiness = self.read_readiness(name, effect)
            if readiness.ignored_nodes and not readiness.ready:
                self._continue_stalled_updates(lease)
            # The toolkit retries indefinitely, but with the same paths, so waiting does not help.
            if readiness.unfinished and time.monotonic() - self._diagnosed >= _DIAGNOSIS_INTERVAL:
                self._diagnosed = time.monotonic()
                readiness = replace(readiness, blocked=(*readiness.blocked, *self._runtime_problems()))
            if self.labels_nodes and not readiness.ready:
                self._label_new_nodes(lease)
            return readiness

        readiness = waiting.until(
            read,
            lambda readiness: readiness.ready or bool(readiness.blocked),
            describe=self._timeout_message,
            partial=partial,
            progress_text=_progress_text,
        )
        if not readiness.ready:
            raise WaitTimeout(self._timeout_message(readiness), partial(readiness))
        if readiness.broken_nodes and not self.sharing_follows:
            raise PartialFailure(self._broken_message(readiness), partial(readiness))
        return readiness

    def _broken_message(self, readiness: OperatorReadiness) -> str:
        lines = [f"{name}: {readiness.ignored_nodes[name]}" for name in readiness.broken_nodes]
        listed = abbreviate(lines, separator="\n")
        return (
            f"The GPU operator is ready, except on {len(lines)} node(s) that belong to pools:\n{listed}\n"
            f"Correct the cause (kubectl -n {self.namespace} describe pod), then run the playbook again."
        )

    def _driver_upgrade(self, daemonsets: t.Iterable[Object]) -> DriverUpgrade:
        """The progress of a driver upgrade; sends a request only during an upgrade."""
        if not any(daemonset_status(item).is_outdated for item in daemonsets if is_driver(item)):
            return DriverUpgrade()
        nodes = self._client.list(NODES, label_selector=UNFINISHED, metadata_only=True)
        return driver_upgrade((node["metadata"]["name"], node["metadata"].get("labels") or {}) for node in nodes)

    def _timeout_message(self, readiness: OperatorReadiness) -> str:
        readiness = self._with_runtime_classes(readiness) if readiness.unfinished else readiness
        apps = sorted({item.app for item in readiness.unfinished if item.app})
        # If all DaemonSets are ready, the operator itself is diagnosed.
        selector = f"app in ({','.join(apps)})" if apps else OPERATOR_PODS
        lines = [*readiness.waiting, *(readiness.blocked or self._runtime_problems())]
        # Nodes that the run may ignore are listed last, because they are not the cause of the timeout.
        nodes = [parse_node(node) for node in self._nodes or ()]
        last = ignorable_nodes(self._pools, nodes)
        lines += [format_failure(failure) for failure in diagnose_pods(self._client, self.namespace, [selector], last)]
        lines += [
            f"node {name} belongs to a pool, and fails: {readiness.ignored_nodes[name]}"
            for name in readiness.broken_nodes
        ]
        not_ready = [node.name for node in nodes if not node.ready]
        if not_ready:
            lines.append(f"{len(not_ready)} nodes are not Ready: {abbreviate(not_ready)}")
        return (
            "The GPU operator is not ready: "
            + "; ".join(lines)
            + f". For details, run kubectl -n {self.namespace} get pods and "
            f"kubectl -n {self.namespace} logs deployment/gpu-operator."
        )


def _progress_text(readiness: OperatorReadiness) -> str:
    ready, expected = readiness.pods
    count = f"{ready}/{expected} operand pods ready" if expected else "waiting for the GPU operator"
    # The progress of the driver upgrade is more useful than the number of pods that wait for it.
    return "; ".join([count, *(readiness.upgrade.messages() or readiness.waiting[:1]), *readiness.stalled_pods])


def _configmap(name: str, namespace: str, data: t.Mapping[str, str]) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def _slim(node: Object) -> Object:
    """The part of a node that determines where pods must run; a complete node has 20 KB or more."""
    metadata, status = node["metadata"], node.get("status") or {}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key in _ANNOTATIONS}
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}, "annotations": annotations},
        "spec": {"taints": (node.get("spec") or {}).get("taints") or []},
        "status": {
            "conditions": [item for item in status.get("conditions") or [] if item.get("type") == "Ready"],
            "nodeInfo": status.get("nodeInfo") or {},
        },
    }


# Creates the ClusterPolicy of an operator that OLM has installed, from the operator's own example, because OLM does not create a ClusterPolicy.

DEFINITION = "clusterpolicies.nvidia.com"


def plan_of_operator(client: Client, plan: Plan, expected: ExpectedObjects, *, check: bool) -> Plan:
    """The plan with the namespace of an operator that OLM has installed and that has no ClusterPolicy yet; raises InvalidObjects without an operator.

    In check mode, the operator may be missing if the same run would install it.
    """
    namespace, owner = operator_owner(client, "metadata.name=gpu-operator")
    if owner:
        return relocate_plan(plan, namespace, plan.config.name)
    if check and (POLICY_API_VERSION, POLICY_KIND) in expected.kinds:
        return plan
    raise InvalidObjects(
        ["The cluster has no ClusterPolicy: install the GPU operator first (role gpu_operator, or its Helm chart)."]
    )


def create_policy(client: Client, plan: Plan, cluster: ClusterPolicyClient, desired: DesiredPolicy) -> Object:
    """Create the policy with all fields of the operator's example, then apply the desired fields, so that a later apply can remove them again.

    Raises InvalidOptions before anything is created if NVIDIADriver objects of the pools cannot describe the driver.
    """
    namespace = plan.operator.namespace
    example = read_example(client, namespace, POLICY_KIND)
    if example is None:
        raise InvalidOptions(
            [
                f"No ClusterServiceVersion in namespace {namespace} has an example of a {POLICY_KIND} (annotation alm-examples). Check that the operator is "
                f"installed (kubectl -n {namespace} get csv), or create the {POLICY_KIND}, and run the playbook again."
            ]
        )
    schema = spec_schema(read_definition(client, DEFINITION), POLICY_API_VERSION)
    body = new_policy({**example, "spec": known_fields(example.get("spec") or {}, schema)}, desired)
    if problems := cluster.driver_objects(plan, body).problems:
        raise InvalidOptions(list(problems))
    live = client.create(CLUSTER_POLICIES, body, field_validation="Strict", manager=EXAMPLE_MANAGER)
    name = live["metadata"]["name"]
    applied = t.cast("Object", initial_change(replace(desired, name=name)).body)
    applied = {**applied, "spec": part_of(live["spec"], applied["spec"])}
    return client.apply(f"{CLUSTER_POLICIES}/{name}", applied, field_validation="Strict")


# Adds NVIDIADriver objects to a report: their nodes, their states, and the changes that a run would make.


def add_driver_objects(
    client: Client, plan: Plan, policy: Object | None, nodes: t.Sequence[Node], info: Object
) -> DriverObjects:
    """Return the changes that the pools require, and add the objects, the problems that would fail a run, and the notes to the report."""
    drivers = ClusterPolicyClient(client, plan.operator.namespace).read_drivers(plan, policy)
    if drivers:
        info["nvidia_drivers"] = driver_results(drivers, [(node.name, node.labels) for node in nodes])
    objects = DriverObjects()
    if policy:
        # A run applies the Helm values first, so the objects inherit from the resulting policy.
        objects = plan_driver_objects(plan, with_planned_values(policy, plan), drivers, nodes)
    info.setdefault("tolerations", []).extend(_toleration_changes(objects))
    problems = objects.problems
    if policy and not problems and planned_upgrade(policy, plan) is None:
        # If an upgrade is planned, the check is skipped, because the upgrade first applies the CRDs of its chart.
        problems = tuple(refused_objects(client, objects, policy_version(policy), check=True))
    info["warnings"] += [*problems, *objects.notes]
    return objects


def _toleration_changes(objects: DriverObjects) -> t.Iterator[Object]:
    """The tolerations that existing objects gain or lose; new objects are omitted, because they are created with their tolerations."""
    for change in objects.changes:
        if change.is_new:
            continue
        before, after = (get_nested(side, "spec", "tolerations") or () for side in (change.before, change.body))
        adds, removes = (
            [format_toleration(item) for item in one if item not in other]
            for one, other in ((after, before), (before, after))
        )
        if adds or removes:
            yield {
                "object": f"NVIDIADriver {change.name}",
                "adds": adds,
                "removes": removes,
                "restarts": f"the driver restarts on {len(change.nodes)} node(s) of pool {change.pool}"
                if change.pool
                else "the driver restarts on its nodes",
            }
