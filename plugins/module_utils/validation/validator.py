# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the pods that validate all pools in parallel, reads their logs, and deletes them."""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER, LIVE_PODS
from ..cluster_state.gpu_pods import gpu_requests
from ..cluster_state.node import Node, parse_node
from ..cluster_state.pool_assignment import assign_pools
from ..common.parallel import call_all
from ..common.wait import WaitTimeout, wait_until
from ..kube.errors import ApiError
from ..kube.paths import NODES, PODS, object_path
from . import evidence
from .evaluation import DeviceCheck, PoolTest, check_devices, excerpt
from .pods import POOL_LABEL, RUN_LABEL, NotTestable, ValidationSite, choose_node, manifest, run_label

if t.TYPE_CHECKING:
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from .pods import Workload

_MAX_TEXTS = 3
_DELETE_TIMEOUT = 60.0

Pod = dict[str, t.Any]


@dataclass(frozen=True)
class ValidationState:
    """The data that is known before any pod runs."""

    nodes: dict[str, Node]
    membership: Membership
    evidence: dict[str, dict[str, t.Any]]
    facts: dict[str, dict[str, t.Any]]
    leftovers: list[str]

    def is_current(self, pool: str) -> bool:
        """Whether the evidence of an earlier run is still valid."""
        entry = self.evidence.get(pool)
        return entry is not None and entry.get("evidence") == evidence.fingerprint(self.facts[pool])

    def members(self, pool: str) -> list[Node]:
        """The nodes of a pool."""
        return [self.nodes[name] for name in self.membership.by_pool.get(pool, ())]


class Validator:
    """Validates the pools of one plan on one cluster."""

    def __init__(
        self, client: Client, plan: Plan, workload: Workload, max_pods: int, progress: Progress, interval: float
    ) -> None:
        """Send no request yet."""
        self._client = client
        self._plan = plan
        self.workload = workload
        self._max_pods = max_pods
        self._progress = progress
        self._interval = interval
        self._pods = f"/api/v1/namespaces/{workload.namespace}/pods"
        self._evidence = object_path("v1", "ConfigMap", plan.validation.configmap, workload.namespace)

    def read(self) -> ValidationState:
        """The nodes, the evidence of earlier runs, and pods of killed runs."""
        nodes = {node.name: node for node in map(parse_node, self._client.list(NODES))}
        membership = assign_pools(self._plan.pools, list(nodes.values()))
        facts = evidence.facts_by_pool(self._plan, nodes, membership)
        leftovers = [pod["name"] for pod in self._pod_metadata() if not pod.get("deletionTimestamp")]
        entries = evidence.read_evidence(self._client.get(self._evidence))
        return ValidationState(nodes, membership, entries, facts, leftovers)

    def delete_pods(self) -> None:
        """Delete the pods of all validations and wait until they are gone."""
        self._client.delete(self._pods, query={"labelSelector": POOL_LABEL})
        wait_until(
            lambda: [pod["name"] for pod in self._pod_metadata()],
            lambda names: not names,
            timeout=_DELETE_TIMEOUT,
            interval=min(self._interval, 1.0),
            describe=lambda names: f"These validation pods are not deleted yet: {', '.join(names[:_MAX_TEXTS])}.",
            progress=self._progress,
            progress_text=lambda names: f"deleting {len(names)} validation pods",
        )

    def _pod_metadata(self) -> t.Iterator[dict[str, t.Any]]:
        """The metadata of the pods of all validations."""
        pods = self._client.list(self._pods, label_selector=POOL_LABEL, metadata_only=True)
        return (pod["metadata"] for pod in pods)

    def choose_sites(
        self, pools: t.Sequence[PoolPlan], state: ValidationState
    ) -> dict[str, ValidationSite | NotTestable]:
        """The node of each pool, chosen with one list of all pods that have not ended."""
        requests = gpu_requests(self._client.list(PODS, field_selector=LIVE_PODS))
        return {pool.name: choose_node(pool, state.members(pool.name), requests, self._max_pods) for pool in pools}

    def run(self, tests: t.Sequence[PoolTest], timeout: float, lease: Lease) -> dict[str, DeviceCheck]:
        """Run the pods of all tests; return the result of each pool with its problems."""
        try:
            self._create(tests, lease)
            self._await_pods(tests, timeout)
            return {test.pool.name: self._evaluate(test) for test in tests}
        finally:
            self.delete_pods()

    def record(self, results: t.Sequence[tuple[PoolTest, DeviceCheck]], state: ValidationState, lease: Lease) -> None:
        """Store the evidence of validated pools; entries of undeclared pools are removed."""
        declared = {pool.name for pool in self._plan.pools}
        entries = {name: entry for name, entry in state.evidence.items() if name in declared}
        for test, result in results:
            facts = state.facts[test.pool.name]
            entries[test.pool.name] = {
                "evidence": evidence.fingerprint(facts),
                "facts": facts,
                "node": test.site.node.name,
                "devices": dict(result.devices),
                **test.answers,
            }
        lease.check()
        metadata = {
            "name": self._plan.validation.configmap,
            "namespace": self.workload.namespace,
            "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER},
        }
        data = {name: json.dumps(entry, sort_keys=True, default=dict) for name, entry in entries.items()}
        self._client.apply(
            self._evidence, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )

    def _create(self, tests: t.Sequence[PoolTest], lease: Lease) -> None:
        def create(body: Pod) -> Pod:
            lease.check()
            return self._client.create(self._pods, body)

        # The pods of the negative checks are created last, so that they queue behind the others.
        holders = [(test, request) for test in tests for request in test.site.holders]
        for wave in (holders, [(test, request) for test in tests for request in test.site.negative_checks]):
            bodies = [manifest(test.pool, test.site, request, self.workload) for test, request in wave]
            calls = [(body["metadata"]["name"], functools.partial(create, body)) for body in bodies]
            call_all(calls, stop=lease.lost)
            lease.check()

    def _await_pods(self, tests: t.Sequence[PoolTest], timeout: float) -> None:
        selector = f"{RUN_LABEL}={run_label(self.workload.run_id)}"

        def read() -> t.Sequence[PoolTest]:
            pods = {pod["metadata"]["name"]: pod for pod in self._client.list(self._pods, label_selector=selector)}
            for test in tests:
                test.update(pods)
            return tests

        try:
            wait_until(
                read,
                lambda dummy: all(test.finished for test in tests),
                timeout=timeout,
                interval=self._interval,
                describe=lambda dummy: "",
                progress=self._progress,
                progress_text=lambda dummy: "; ".join(
                    f"{test.pool.name}: {test.observation}" for test in tests if not test.finished
                ),
            )
        except WaitTimeout:
            # The evaluation of each pool reports what is missing.
            return

    def _evaluate(self, test: PoolTest) -> DeviceCheck:
        expected, observation = test.site.pods, test.observation
        if observation.failures:
            return DeviceCheck(problems=tuple(map(self._with_log, observation.failures[:_MAX_TEXTS])))
        if not observation.ended:
            reasons = "; ".join(observation.waiting[:_MAX_TEXTS]) or "they are still running"
            return DeviceCheck(problems=(f"{expected} pods did not end in time ({observation}): {reasons}",))
        if not test.ran_together:
            return DeviceCheck(problems=(f"its {expected} pods were never all running at the same time",))
        if test.problems:
            return DeviceCheck(problems=test.problems)
        pods = [test.pod_name(request) for request in test.site.holders]
        logs = call_all([(pod, functools.partial(self._log, pod)) for pod in pods])
        return check_devices(test.pool, test.site.node, dict(zip(pods, logs, strict=True)))

    def _log(self, pod: str) -> str:
        return self._client.text(f"{self._pods}/{pod}/log")

    def _with_log(self, failure: str) -> str:
        """Add the log of a pod that ended with an error; a refused pod has no log."""
        if "exit code" not in failure:
            return failure
        try:
            return f"{failure}; its log: {excerpt(self._log(failure.split(':', 1)[0]))}"
        except ApiError:
            return failure
