# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and applies the ClusterPolicy, and waits until the operator has processed it."""

from __future__ import annotations

import itertools
import time
import typing as t
from dataclasses import replace

from ..catalog.distributions import DISTRIBUTIONS
from ..catalog.names import GENERATED_SELECTOR
from ..catalog.operands import TOOLKIT
from ..cluster_state.cluster_policy import active_policy, mig_configmap, recorded_tolerations, uses_driver_objects
from ..cluster_state.driver_upgrade import UNFINISHED, DriverUpgrade, driver_upgrade
from ..cluster_state.generated_mig_config import merge_generated, parse_generated
from ..cluster_state.node import parse_node
from ..cluster_state.nvidia_driver import follows_own_policies, is_managed
from ..cluster_state.operand_pods import daemonset_status
from ..cluster_state.ownership import POOL_OWNER
from ..cluster_state.pool_assignment import ignorable_nodes
from ..common.errors import PartialFailure
from ..common.wait import WaitOptions, WaitTimeout
from ..helm.release_records import is_marked_installed, marker_path
from ..helm.workloads import diagnose_pods, format_failure, pod_failures
from ..kube.client import Client
from ..kube.diff import same_object
from ..kube.errors import ApiError
from ..kube.objects import NOT_CHECKED
from ..kube.paths import CLUSTER_POLICIES, NODES, NVIDIA_DRIVERS, RUNTIME_CLASSES, collection_path, object_path
from ..nvidia_config import mig_parted
from ..pools.plan import ComponentPlan, Plan, PoolPlan
from ..schema.messages import abbreviate
from .cluster_policy import PolicyChange, policy_version
from .container_runtime import (
    SELECTOR,
    handlers_of,
    missing_runtime_classes,
    runtime_classes_of,
    toolkit_problems,
)
from .daemonsets import app_label, is_driver, is_operand, is_stalled, next_pod_to_replace, outdated_images
from .driver_object_writer import label_nodes
from .driver_objects import DriverObjects, plan_driver_objects, pool_label_edits
from .driver_rollout import DriverRollout, UpgradePolicies
from .failing_nodes import FailingNodes
from .readiness import OperatorReadiness, RequiredEffect, assess
from .stalled_pods import StalledPods, permitted_pods

if t.TYPE_CHECKING:
    from ..kube.lease import Lease

Object = dict[str, t.Any]
_ANNOTATIONS = (POOL_OWNER.labels, *(each.annotation for each in DISTRIBUTIONS if each.annotation))
_OPERATOR_PODS = "app=gpu-operator"
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
        if not plan.declares_drivers and not any(map(is_managed, drivers)):
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

    def _with_runtime_classes(self, readiness: OperatorReadiness) -> OperatorReadiness:
        """Add the operands' runtime classes to the readiness, and a line for each missing class."""
        if not runtime_classes_of(self._daemonsets):
            return readiness
        try:
            classes = self._client.list_known(RUNTIME_CLASSES)
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
        selector = f"app in ({','.join(apps)})" if apps else _OPERATOR_PODS
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
