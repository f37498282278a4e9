# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cluster_policy reads from and writes to the cluster, and how it waits for the operator."""

from __future__ import annotations

import time
import typing as t

from ..catalog.names import GENERATED_SELECTOR
from ..cluster_state.cluster_policy import active_policy
from ..cluster_state.driver_upgrade import UNFINISHED, Upgrade, upgrade_of
from ..cluster_state.generated_mig_config import by_node, generated
from ..cluster_state.node import parse
from ..cluster_state.operand_failures import operand_failures, unready
from ..cluster_state.ownership import POOLS
from ..cluster_state.pool_assignment import any_claimed, may_be_set_aside, some_work
from ..common.wait import WaitTimeout, wait_until
from ..drain.operand_diagnosis import describe_failures, operand_pods
from ..helm.await_workloads import failure_message
from ..helm.preparation import WaitOptions
from ..helm.release_records import note_path, was_installed
from ..helm.workloads import format_rollout
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.objects import NOT_CHECKED, same_object
from ..kube.paths import CLUSTER_POLICIES, NODES, collection_path, object_path
from ..nvidia_config import mig_parted
from ..pools.plan import Plan, PoolPlan
from ..schema.messages import abbreviate
from .cluster_policy import PolicyChange, is_driver, owned
from .readiness import IgnoredNodes, OperatorReadiness, RequiredEffect, assess, is_outdated
from .stalled_rollout import is_stalled, next_pod

if t.TYPE_CHECKING:
    from ..kube.lease import Lease

Object = dict[str, t.Any]
_OPERATOR_PODS = "app=gpu-operator"
# What the operator makes and names where nobody says otherwise, up to v25.10 (assets/state-mig-manager).
_DEFAULT_MIG = "default-mig-parted-config"


class ClusterPolicyClient:
    """One cluster's ClusterPolicy and what its operator makes of it."""

    def __init__(self, client: Client, namespace: str, pools: t.Sequence[PoolPlan] = ()) -> None:
        """`namespace` is where the operator is, unless the policy's own status says otherwise; `pools` say which nodes are waited for."""
        self._client = client
        self._namespace = namespace
        self._pools = pools
        self._nodes: list[Object] | None = None
        self._unread: Object | None = None
        self._daemonsets: list[Object] = []
        self._aside = IgnoredNodes()
        self.replaced: list[str] = []

    def policy(self) -> Object | None:
        """The policy that counts; None when there is none."""
        found = active_policy(self._client.list_known(CLUSTER_POLICIES))
        if found is not None:
            self._namespace = (found.get("status") or {}).get("namespace") or self._namespace
        self._unread = t.cast("Object | None", found)
        return self._unread

    def daemonsets(self) -> list[Object]:
        """Every DaemonSet of the operator's namespace, in one list."""
        self._daemonsets = list(self._client.list(f"/apis/apps/v1/namespaces/{self._namespace}/daemonsets"))
        return self._daemonsets

    def nodes(self) -> list[Object]:
        """Every node, of each only what says whether a pod belongs there: a node's full object has 20 KB and more."""
        return [_slim(node) for node in self._client.list(NODES)]

    def installed_by_us(self, release: str, namespace: str) -> bool:
        """Whether this collection's own Helm release brought the policy."""
        return was_installed(self._client.get(note_path(release, namespace)))

    def apply(self, change: PolicyChange, live: Object, *, check: bool) -> tuple[bool, str | None]:
        """Send the change; (False, ..) when the server finds that nothing differs. Raises a conflict when the policy has moved on."""
        if not change.changed:
            return False, None
        path = f"{CLUSTER_POLICIES}/{live['metadata']['name']}"
        self._unread = live if check else None
        result: Object = live
        try:
            if change.body is not None:
                result = self._client.apply(path, change.body, dry_run=check, field_validation="Strict")
            if change.removal is not None:
                result = self._client.patch(path, change.removal, dry_run=check)
        except ApiError as error:
            if not (check and error.forbidden):
                raise
            return True, NOT_CHECKED
        return not same_object(live, result), None

    def lacking(self, plan: Plan, live: Object | None) -> list[Object]:
        """The ConfigMaps that the policy is to name and that are not there, as they are to be made.

        A MIG configuration of ours takes the place of the one that is in use, so it begins with the entries of that one, and of those that
        the MIG manager has generated on the nodes.
        """
        found: list[Object] = []
        if (
            "devicePlugin" in plan.policy.spec
            and self._client.get(_path(plan.config.name, plan.config.namespace)) is None
        ):
            found.append(_configmap(plan.config.name, plan.config.namespace, plan.config.data))
        if "migManager" in plan.policy.spec and self._client.get(_path(plan.mig.name, plan.mig.namespace)) is None:
            used = (((live or {}).get("spec") or {}).get("migManager") or {}).get("config") or {}
            theirs = mig_parted.read(self._client.get(_path(used.get("name") or _DEFAULT_MIG, plan.mig.namespace)))
            known = {**plan.mig.usual, **self._generated(plan, theirs), **theirs}
            text = mig_parted.document({**known, **plan.mig.entries})
            found.append(_configmap(plan.mig.name, plan.mig.namespace, {mig_parted.KEY: text}))
        return found

    def _generated(self, plan: Plan, live: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
        path = collection_path("v1", "ConfigMap", plan.mig.namespace)
        found = list(self._client.list(path, label_selector=GENERATED_SELECTOR))
        return generated(plan, by_node(found), map(parse, self._client.list(NODES)), live).entries if found else {}

    def create(self, configmaps: t.Iterable[Object]) -> None:
        """Make ConfigMaps before a pod is told to mount them; from then on gpu_sharing looks after them."""
        for body in configmaps:
            self._client.apply(_path(body["metadata"]["name"], body["metadata"]["namespace"]), body)

    def look(self, name: str, effect: RequiredEffect) -> OperatorReadiness:
        """Read the DaemonSets anew, the policy unless it has just been read, and the nodes when the rest might be as it should."""
        policy = self._unread or self._client.get(f"{CLUSTER_POLICIES}/{name}") or {"metadata": {"name": name}}
        self._unread = None
        daemonsets = self.daemonsets()
        known = self._nodes
        if known is not None:
            verdict = assess(policy, daemonsets, known, effect, self._upgrade(daemonsets))
            if any(not (item.current and item.ready == item.desired) for item in verdict.operands):
                aside = self._set_aside(verdict)
                return assess(policy, daemonsets, self._nodes or known, effect, None, aside) if aside else verdict
        self._nodes = self.nodes()
        verdict = assess(policy, daemonsets, self._nodes, effect)
        aside = self._set_aside(verdict)
        return assess(policy, daemonsets, self._nodes, effect, None, aside) if aside else verdict

    def _set_aside(self, verdict: OperatorReadiness) -> IgnoredNodes | None:
        """The nodes that are not waited for, read where all pods that are not ready may be theirs; None where there are none.

        While no other GPU node works, a node that a pool may claim is waited for: what fails everywhere is not the node's fault.
        """
        missing = max((item.desired - item.available for item in verdict.operands), default=0)
        if verdict.ready or not missing:
            return None
        candidates = may_be_set_aside(self._pools, [parse(node) for node in self._nodes or ()])
        if missing > len(candidates):
            return None
        pods = operand_pods(self._client, self._namespace, candidates)
        failures = operand_failures(pods, time.time())
        if not failures:
            return None
        self._nodes = self.nodes()
        fresh = [parse(node) for node in self._nodes]
        failures = {name: found for name, found in failures.items() if name in may_be_set_aside(self._pools, fresh)}
        if not failures or not (some_work(fresh, failures) or not any_claimed(self._pools, fresh, failures)):
            return None
        self._aside = IgnoredNodes(describe_failures(self._client, self._namespace, failures), unready(pods, failures))
        return self._aside

    def _replace(self, lease: t.Callable[[], Lease]) -> None:
        """Have DaemonSets go on whose rolling update the nodes that are set aside keep from it: one pod of each at a time."""
        for daemonset in filter(owned, self._daemonsets):
            app = str((daemonset["spec"]["template"]["metadata"].get("labels") or {}).get("app") or "")
            if not is_stalled(daemonset, self._aside.unready.get(app, ())):
                continue
            path = f"/api/v1/namespaces/{self._namespace}/pods"
            pod = next_pod(daemonset, self._client.list(path, label_selector=f"app={app}"), self._aside.reasons)
            if pod is None:
                continue
            with lease() as held:
                held.check()
                only = {"preconditions": {"uid": pod["metadata"]["uid"]}}
                self._client.delete(object_path("v1", "Pod", pod["metadata"]["name"], self._namespace), body=only)
            self.replaced.append(pod["metadata"]["name"])

    def await_ready(
        self,
        name: str,
        effect: RequiredEffect,
        waiting: WaitOptions,
        partial: t.Callable[[OperatorReadiness], Object],
        lease: t.Callable[[], Lease],
    ) -> OperatorReadiness:
        """Until everything is seen; raises TimeoutStory with what is not, and what ails the pods, also where waiting is of no use."""

        def look() -> OperatorReadiness:
            verdict = self.look(name, effect)
            if verdict.set_aside and not verdict.ready:
                self._replace(lease)
            return verdict

        verdict = wait_until(
            look,
            lambda verdict: verdict.ready or bool(verdict.halted),
            timeout=waiting.timeout,
            interval=waiting.interval,
            story=self._story,
            partial=partial,
            say=_said,
            progress=waiting.progress,
        )
        if not verdict.ready:
            raise WaitTimeout(self._story(verdict), partial(verdict))
        return verdict

    def _upgrade(self, daemonsets: t.Iterable[Object]) -> Upgrade:
        """How far a driver upgrade is by now; nobody is asked unless there is one."""
        if not any(is_outdated(found) for found in daemonsets if is_driver(found)):
            return Upgrade()
        listed = self._client.list(NODES, label_selector=UNFINISHED, metadata_only=True)
        return upgrade_of((found["metadata"]["name"], found["metadata"].get("labels") or {}) for found in listed)

    def _story(self, verdict: OperatorReadiness) -> str:
        apps = sorted({item.app for item in verdict.unfinished if item.app})
        # Without one of its DaemonSets to blame, the operator itself is the one to look at.
        selector = f"app in ({','.join(apps)})" if apps else _OPERATOR_PODS
        lines = [*verdict.waiting, *verdict.halted]
        lines += [format_rollout(ailment) for ailment in failure_message(self._client, self._namespace, [selector])]
        away = [node["metadata"]["name"] for node in self._nodes or [] if not _is_ready(node)]
        if away:
            lines.append(f"{len(away)} nodes are not Ready: {abbreviate(away)}")
        return (
            "The GPU operator is not ready: " + "; ".join(lines) + f". More: kubectl -n {self._namespace} get pods, "
            f"kubectl -n {self._namespace} logs deployment/gpu-operator."
        )


def _said(verdict: OperatorReadiness) -> str:
    ready, wanted = verdict.pods
    counted = f"{ready}/{wanted} operand pods ready" if wanted else "waiting for the GPU operator"
    # How far the driver is says more than how many pods are away because of it.
    open_ends = verdict.upgrade.told() or verdict.waiting[:1]
    return "; ".join([counted, *open_ends])


def _path(configmap: str, namespace: str) -> str:
    return object_path("v1", "ConfigMap", configmap, namespace)


def _configmap(name: str, namespace: str, data: t.Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": dict(data),
    }


def _slim(node: Object) -> Object:
    metadata, status = node["metadata"], node.get("status") or {}
    ready = [item for item in status.get("conditions") or [] if item.get("type") == "Ready"]
    noted = {key: value for key, value in (metadata.get("annotations") or {}).items() if key == POOLS.labels}
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}, "annotations": noted},
        "spec": {"taints": (node.get("spec") or {}).get("taints") or []},
        "status": {"conditions": ready},
    }


def _is_ready(node: Object) -> bool:
    return any(item.get("status") == "True" for item in node["status"]["conditions"])
