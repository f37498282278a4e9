# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the pods that validate all pools in parallel, reads their logs, and deletes them."""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from dataclasses import dataclass, replace

from ..catalog.names import FIELD_MANAGER, LIVE_PODS
from ..cluster_state.gpu_pods import gpu_requests
from ..cluster_state.node import Node, parse_node
from ..cluster_state.pool_assignment import assign_pools
from ..kube.paths import NODES, PODS, object_path
from ..schema.messages import abbreviate
from ..validation_programs.programs import KERNEL, PROGRAMS
from . import evidence
from .diagnosis import diagnose, hang
from .evaluation import DeviceCheck, PodFailure, PoolTest, check_devices, devices
from .failures import ExplainedFailure, group_failures
from .pod_client import DELETE_TIMEOUT, PodClient
from .pods import device_pod
from .sites import NotTestable, ValidationSite, choose_node

if t.TYPE_CHECKING:
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from .pods import Workload
    from .sites import PodRequest, UsedGpus


@dataclass(frozen=True)
class ValidationState:
    """The data that is read before any pod runs."""

    nodes: dict[str, Node]
    membership: Membership
    evidence: dict[str, dict[str, t.Any]]
    fingerprint_inputs: dict[str, dict[str, t.Any]]
    leftovers: list[str]

    def is_current(self, pool: str) -> bool:
        """Whether the evidence of an earlier run is still valid."""
        return evidence.is_verified(self.evidence.get(pool), self.fingerprint_inputs[pool])

    def members(self, pool: str) -> list[Node]:
        """The nodes of a pool."""
        return [self.nodes[name] for name in self.membership.by_pool.get(pool, ())]


class Validator:
    """Validates the pools of one plan on one cluster."""

    def __init__(self, client: Client, plan: Plan, workload: Workload, progress: Progress) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._plan = plan
        self.workload = workload
        interval = float(workload.options["wait_sleep"])
        self.pods = PodClient(client, workload.settings.namespace, workload.run_id, progress, interval)
        self._evidence = object_path("v1", "ConfigMap", plan.validation.configmap, workload.settings.namespace)

    def read(self) -> ValidationState:
        """The nodes, the evidence of earlier runs, and pods of killed runs."""
        nodes = {node.name: node for node in map(parse_node, self._client.list(NODES))}
        membership = assign_pools(self._plan.pools, list(nodes.values()))
        inputs = evidence.inputs_by_pool(self._plan, nodes, membership)
        leftovers = self.pods.leftovers()
        entries = evidence.read_evidence(self._client.get(self._evidence))
        return ValidationState(nodes, membership, entries, inputs, leftovers)

    def used_gpus(self) -> UsedGpus:
        """The GPU requests of all pods that have not terminated, by node; sends one list request."""
        return gpu_requests(self._client.list(PODS, field_selector=LIVE_PODS))

    def choose_sites(
        self, pools: t.Iterable[PoolPlan], state: ValidationState, used: UsedGpus
    ) -> dict[str, ValidationSite | NotTestable]:
        """Choose the node on which each pool is validated."""
        limit = self.workload.options["max_pods"]
        return {pool.name: choose_node(pool, state.members(pool.name), used, limit) for pool in pools}

    def run(self, tests: t.Sequence[PoolTest], lease: Lease) -> dict[str, DeviceCheck]:
        """Run the pods of all tests; return the result of each pool with its problems."""
        remaining: list[str] = []
        try:
            self._create(tests, lease)
            self._await_pods(tests)
            results = {test.pool.name: self._evaluate(test) for test in tests}
        finally:
            remaining = self.pods.delete()
        for test in tests:
            if own := [name for name in remaining if name in test.pod_names]:
                results[test.pool.name] = results[test.pool.name].with_problem(undeleted(own))
        return results

    def record(self, entries: t.Mapping[str, dict[str, t.Any]], state: ValidationState, lease: Lease) -> None:
        """Store the results of pools; those of undeclared pools are removed."""
        declared = {pool.name for pool in self._plan.pools}
        kept = {name: entry for name, entry in state.evidence.items() if name in declared}
        stored = {**kept, **entries}
        if stored == state.evidence:
            return
        lease.check()
        metadata = {
            "name": self._plan.validation.configmap,
            "namespace": self.workload.settings.namespace,
            "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER},
        }
        data = {name: json.dumps(entry, sort_keys=True, default=dict) for name, entry in stored.items()}
        self._client.apply(
            self._evidence, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )

    def _create(self, tests: t.Sequence[PoolTest], lease: Lease) -> None:
        # The pods of the negative checks are created last, so that they queue behind the others.
        self._create_pods([(test, request) for test in tests for request in test.site.holders], lease)
        accepted = [test for test in tests if not test.rejected]
        self._create_pods([(test, request) for test in accepted for request in test.site.negative_checks], lease)

    def _create_pods(self, wave: t.Sequence[tuple[PoolTest, PodRequest]], lease: Lease) -> None:
        bodies = (device_pod(test.pool, test.site, request, self.workload) for test, request in wave)
        rejected = self.pods.create(bodies, lease)
        for test, request in wave:
            if reason := rejected.get(test.pod_name(request)):
                test.rejected[test.pod_name(request)] = reason

    def _await_pods(self, tests: t.Sequence[PoolTest]) -> None:
        def update(pods: dict[str, dict[str, t.Any]]) -> None:
            for test in tests:
                test.update(pods)

        self.pods.await_pods(
            update,
            lambda: all(test.finished for test in tests),
            max(self.workload.timeout(test.pool) for test in tests),
            lambda: "; ".join(f"{test.pool.name}: {test.observation}" for test in tests if not test.finished),
        )

    def _evaluate(self, test: PoolTest) -> DeviceCheck:
        observation, node = test.observation, test.site.node
        programs: dict[str, t.Any] = {"image": self.workload.image(KERNEL, node)}
        if observation.started:
            programs[KERNEL.name] = KERNEL.failed
        if test.failures or not observation.ended:
            return replace(self._evaluate_failed(test), programs=programs)
        if not test.ran_together:
            return DeviceCheck(problems=(f"its {test.site.pods} pods were never all running at the same time",))
        if test.problems:
            return DeviceCheck(problems=test.problems)
        pods = [test.pod_name(request) for request in test.site.holders]
        logs = self.pods.logs(pods, KERNEL.container)
        result = check_devices(test.pool, node, logs)
        wrong = list(result.problems)
        for program in self.workload.device_programs(test.pool) if not wrong else ():
            own = logs if program is KERNEL else self.pods.logs(pods, program.container)
            programs[program.name], more = program.evaluate(own, self.workload.options_of(test.pool))
            wrong += more
        return replace(result, programs=programs, problems=tuple(wrong))

    def _evaluate_failed(self, test: PoolTest) -> DeviceCheck:
        """The failures of the pods, or the known state of pods that did not complete in time."""
        observation, node = test.observation, test.site.node
        logs = self.pods.logs_if_any(observation.started, KERNEL.container)
        used = Counter(uuid for log in logs.values() for dummy, uuid in devices(log))
        failures = [explain(self.pods, each, node, self.workload, logs) for each in test.failures]
        failures += self._hanging(test, logs)
        problems, groups = tuple(map(str, failures)), group_failures(failures, len(test.pod_names))
        if not test.failures:
            late = f"{test.site.pods} pods did not complete in time ({observation})"
            problems = (f"{late}: {'; '.join((*observation.waiting, *problems)) or 'they are still running'}",)
            waiting = [abbreviate(observation.waiting, separator="; ")] if observation.waiting else []
            groups = (f"{late}: {'; '.join((*waiting, *groups)) or 'they are still running'}",)
        return DeviceCheck(dict(sorted(used.items())), problems, summary=groups)

    def _hanging(self, test: PoolTest, logs: t.Mapping[str, str]) -> t.Iterator[ExplainedFailure]:
        """The running pods that have listed their device, but have not finished the kernel."""
        for pod in test.observation.running:
            log = logs.get(pod, "")
            if devices(log) and KERNEL.evaluate({pod: log}, self.workload.options_of(test.pool))[1]:
                yield ExplainedFailure(pod, "has not finished its kernel", _device(log), log, hang(test.site.node))


def explain(
    pods: PodClient, failure: PodFailure, node: Node, workload: Workload, kernel_logs: t.Mapping[str, str] | None = None
) -> ExplainedFailure:
    """A failure with the end of its log and with its remedy; a rejected pod has no log. `kernel_logs`: logs that were already read, by pod."""
    program = next((each for each in PROGRAMS if each.container == failure.container), KERNEL)
    log = None
    if failure.exit_code is not None:
        known = (kernel_logs or {}).get(failure.pod) if failure.container == KERNEL.container else None
        log = pods.log_if_any(failure.pod, failure.container) if known is None else known
    image = workload.image(program, node)
    remedy = diagnose(f"{failure.reason}\n{log or ''}", node, program, image, failure.exit_code)
    return ExplainedFailure(failure.pod, failure.reason, _device(log or ""), log, remedy)


def undeleted(names: t.Sequence[str]) -> str:
    """The message about pods that were not deleted in time, with the remedy."""
    return (
        f"{abbreviate(names)} was deleted {DELETE_TIMEOUT:.0f} seconds ago and still exists: the kubelet cannot kill a "
        "process that waits for its GPU, or does not respond. Cordon the node, and reboot it"
    )


def _device(log: str) -> str:
    uuids = [uuid for dummy, uuid in devices(log)]
    return uuids[0] if len(uuids) == 1 else ""
