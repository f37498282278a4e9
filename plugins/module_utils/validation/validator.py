# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs validation programs on the nodes of pools."""

from __future__ import annotations

import functools
import json
import typing as t
from collections import Counter
from dataclasses import dataclass, replace

from ..catalog.names import FIELD_MANAGER, LIVE_PODS, VALIDATION_LABEL
from ..core.messages import abbreviate
from ..core.waits import WaitTimeout, call_all, run_bounded, wait_until
from ..kube.errors import ApiError
from ..kube.fields import is_deleting, is_written, name_of
from ..kube.paths import NODES, PODS, object_path
from ..nodes.node import Node, parse_node
from ..nodes.ownership import assign_pools
from ..nodes.pods import gpu_requests
from ..schema.validation_programs import KERNEL, NODE_PROGRAMS, PROGRAMS
from .evaluation import (
    DeviceCheck,
    ExplainedFailure,
    PodFailure,
    PodObservation,
    PoolTest,
    check_devices,
    devices,
    diagnose,
    group_failures,
    hang,
    inputs_by_pool,
    is_verified,
    observe,
    read_evidence,
    rejections,
)
from .pods import (
    RUN_LABEL,
    NodeProgramSite,
    NotTestable,
    ValidationSite,
    choose_node,
    choose_nodes,
    device_pod,
    node_program_pod,
    pod_name,
    run_label,
)

if t.TYPE_CHECKING:
    from ..core.waits import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import Membership, Plan, PoolPlan
    from ..schema.validation_programs import NodeProgram
    from .pods import PodRequest, UsedGpus, Workload

# Creates, reads and deletes the pods of one run in one namespace.

DELETE_TIMEOUT = 60.0

Pod = dict[str, t.Any]


class PodClient:
    """The validation pods of one run."""

    def __init__(self, client: Client, namespace: str, run_id: str, progress: Progress, interval: float) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._run = f"{RUN_LABEL}={run_label(run_id)}"
        self._progress = progress
        self._interval = interval

    def create(self, bodies: t.Iterable[Pod], lease: Lease) -> dict[str, str]:
        """Create pods in parallel while the lease is held; returns the reasons why the API server has rejected pods, by pod."""

        def create(body: Pod) -> Pod:
            lease.check()
            return self._client.create(self._path, body)

        calls = [(body["metadata"]["name"], functools.partial(create, body)) for body in bodies]
        outcomes = run_bounded(calls, fatal=lambda error: not _is_rejection(error), stop=lease.lost)
        lease.check()
        rejected = {}
        for outcome in outcomes:
            if outcome.error is None:
                continue
            if not _is_rejection(outcome.error):
                raise outcome.error
            rejected[outcome.name] = rejection_reason(str(outcome.error), outcome.name)
        return rejected

    def read(self) -> dict[str, Pod]:
        """The pods of this run by name."""
        return {pod["metadata"]["name"]: pod for pod in self._client.list(self._path, label_selector=self._run)}

    def await_pods(
        self,
        update: t.Callable[[dict[str, Pod]], None],
        done: t.Callable[[], bool],
        timeout: float,
        text: t.Callable[[], str],
    ) -> None:
        """Read the pods until `done` returns True or the timeout has expired; the evaluation reports missing results."""
        try:
            wait_until(
                lambda: update(self.read()),
                lambda dummy: done(),
                timeout=timeout,
                interval=self._interval,
                describe=lambda dummy: "",
                progress=self._progress,
                progress_text=lambda dummy: text(),
            )
        except WaitTimeout:
            return

    def log(self, pod: str, container: str) -> str:
        """The log of a container."""
        return self._client.text(f"{self._path}/{pod}/log", query={"container": container})

    def log_if_any(self, pod: str, container: str) -> str:
        """The log of a container; empty if it has none."""
        try:
            return self.log(pod, container)
        except ApiError:
            return ""

    def logs_if_any(self, pods: t.Sequence[str], container: str) -> dict[str, str]:
        """The logs of a container of several pods; empty for a pod that has none."""
        texts = call_all([(pod, functools.partial(self.log_if_any, pod, container)) for pod in pods])
        return dict(zip(pods, texts, strict=True))

    def logs(self, pods: t.Sequence[str], container: str) -> dict[str, str]:
        """The logs of a container of several pods."""
        texts = call_all([(pod, functools.partial(self.log, pod, container)) for pod in pods])
        return dict(zip(pods, texts, strict=True))

    def leftovers(self) -> tuple[list[str], list[str]]:
        """The pods of other runs that are not being deleted, and the pods of other owners that have the same label; sends one list request."""
        pods = list(self._metadata(VALIDATION_LABEL))
        own = [name_of(pod) for pod in pods if is_written(pod) and not is_deleting(pod)]
        return own, sorted(name_of(pod) for pod in pods if not is_written(pod))

    def delete(self) -> list[str]:
        """Delete the pods of this run; return the names of those that still exist after the time limit."""
        return self._delete(self._run)

    def delete_leftovers(self) -> list[str]:
        """Delete the pods of all runs; return the names of those that still exist after the time limit."""
        return self._delete(VALIDATION_LABEL)

    def _delete(self, selector: str) -> list[str]:
        # Anyone may set the label, and a copy of a pod has it, so the pods are not deleted by the selector.
        calls = [(name_of(pod), functools.partial(self._delete_pod, pod)) for pod in self._own(selector)]
        for outcome in run_bounded(calls):
            if outcome.error is not None:
                raise outcome.error
        remaining: list[str] = []

        def read() -> list[str]:
            remaining[:] = map(name_of, self._own(selector))
            return remaining

        try:
            wait_until(
                read,
                lambda names: not names,
                timeout=DELETE_TIMEOUT,
                interval=min(self._interval, 1.0),
                describe=lambda dummy: "",
                progress=self._progress,
                progress_text=lambda names: f"deleting {len(names)} validation pods",
            )
        except WaitTimeout:
            # The kubelet cannot kill a process that waits for its GPU, so its pod remains. All other pods are deleted.
            return remaining
        return []

    def _delete_pod(self, pod: Pod) -> None:
        """Delete a pod, unless another pod has replaced it."""
        body = {"preconditions": {"uid": pod["metadata"]["uid"]}}
        try:
            self._client.delete(f"{self._path}/{name_of(pod)}", body=body)
        except ApiError as error:
            if not error.conflict:
                raise

    def _own(self, selector: str) -> t.Iterator[Pod]:
        return filter(is_written, self._metadata(selector))

    def _metadata(self, selector: str) -> t.Iterator[Pod]:
        return iter(self._client.list(self._path, label_selector=selector, metadata_only=True))


def rejection_reason(message: str, pod: str) -> str:
    """The message of a rejection without the pod's name, so that all pods of a pool have the same message."""
    return message.removeprefix(f'pods "{pod}" is forbidden: ').removeprefix(f'Pod "{pod}" is invalid: ')


def _is_rejection(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.rejects_object


# Runs the pods that validate all pools in parallel, reads their logs, and deletes them.


@dataclass(frozen=True)
class ValidationState:
    """The data that is read before any pod runs."""

    nodes: dict[str, Node]
    membership: Membership
    evidence: dict[str, dict[str, t.Any]]
    fingerprint_inputs: dict[str, dict[str, t.Any]]
    leftovers: list[str]
    # Pods of other owners that have the label of validation pods.
    foreign_pods: list[str]

    def is_current(self, pool: str) -> bool:
        """Whether the evidence of an earlier run is still valid."""
        return is_verified(self.evidence.get(pool), self.fingerprint_inputs[pool])

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
        inputs = inputs_by_pool(self._plan, nodes, membership)
        leftovers, foreign_pods = self.pods.leftovers()
        entries = read_evidence(self._client.get(self._evidence))
        return ValidationState(nodes, membership, entries, inputs, leftovers, foreign_pods)

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


def foreign(names: t.Sequence[str], namespace: str) -> str:
    """The warning about pods of other owners that have the label of validation pods."""
    return (
        f"The label {VALIDATION_LABEL} in namespace {namespace} is on pods that this collection did not create, which are kept: {abbreviate(names)}. "
        "Remove the label from them, or delete them."
    )


def undeleted(names: t.Sequence[str]) -> str:
    """The message about pods that were not deleted in time, with the remedy."""
    return (
        f"{abbreviate(names)} was deleted {DELETE_TIMEOUT:.0f} seconds ago and still exists: the kubelet cannot kill a "
        "process that waits for its GPU, or does not respond. Cordon the node, and reboot it"
    )


def _device(log: str) -> str:
    uuids = [uuid for dummy, uuid in devices(log)]
    return uuids[0] if len(uuids) == 1 else ""


# Runs the programs that use all free GPUs of nodes, for several pools in parallel: first rank 0 of each pool, then the ranks that connect to it.


@dataclass(frozen=True)
class NodeProgramResult:
    """The result of one pool's measurement, and its problems."""

    values: t.Mapping[str, t.Any]
    problems: tuple[str, ...] = ()
    # The problems grouped by their cause, if the grouped form is shorter.
    summary: tuple[str, ...] = ()


class NodeProgramRunner:
    """Runs the requested programs one after another, because each uses all GPUs of a node."""

    def __init__(self, pods: PodClient, workload: Workload) -> None:
        """Store the arguments; no request is sent yet."""
        self._pods = pods
        self._workload = workload

    def run(
        self, pools: t.Mapping[str, tuple[PoolPlan, t.Sequence[Node]]], used: UsedGpus, lease: Lease
    ) -> dict[str, dict[str, NodeProgramResult]]:
        """The results by pool and program; for a program that does not apply to a pool, `skipped` contains the reason."""
        results: dict[str, dict[str, NodeProgramResult]] = {name: {} for name in pools}
        for program in NODE_PROGRAMS:
            sites = []
            for name, (pool, nodes) in pools.items():
                options = self._workload.options_of(pool)
                if not program.requested(options):
                    continue
                site = choose_nodes(program, pool, nodes, used, options)
                if isinstance(site, str):
                    results[name][program.name] = NodeProgramResult({"skipped": site})
                else:
                    sites.append(site)
            for name, result in (self._measure(program, sites, lease) if sites else {}).items():
                results[name][program.name] = result
        return results

    def _measure(
        self, program: NodeProgram, sites: t.Sequence[NodeProgramSite], lease: Lease
    ) -> dict[str, NodeProgramResult]:
        observed: dict[str, PodObservation] = {}
        addresses: dict[str, str] = {}
        rejected: dict[str, str] = {}
        timeout = max(self._workload.options_of(site.pool)[program.timeout] for site in sites)

        def update(pods: dict[str, dict[str, t.Any]]) -> None:
            for site in sites:
                own = [pods[name] for name in self._pod_names(site) if name in pods]
                observed[site.pool.name] = observe(own, len(site.nodes))
                address = ((own[0].get("status") or {}).get("podIP") if own else None) or ""
                addresses[site.pool.name] = address

        def text() -> str:
            return "; ".join(
                f"{program.name} of {site.pool.name}: {observed.get(site.pool.name, 'no pods')}" for site in sites
            )

        def over(site: NodeProgramSite) -> bool:
            observation = observed[site.pool.name]
            return (
                observation.ended or bool(observation.failures) or not rejected.keys().isdisjoint(self._pod_names(site))
            )

        remaining: list[str] = []
        try:
            rejected |= self._create([(site, 0) for site in sites], addresses, lease)
            others, started = [site for site in sites if len(site.nodes) > 1], list(sites)
            if others:
                self._pods.await_pods(
                    update, lambda: all(addresses[site.pool.name] or over(site) for site in others), timeout, text
                )
                started = [site for site in sites if len(site.nodes) == 1 or addresses.get(site.pool.name)]
                ranks = [(site, rank) for site in started for rank in range(1, len(site.nodes))]
                rejected |= self._create(ranks, addresses, lease)
            self._pods.await_pods(update, lambda: all(map(over, started)), timeout, text)
            results = {site.pool.name: self._evaluate(site, observed[site.pool.name], rejected) for site in sites}
        finally:
            remaining = self._pods.delete()
        for site in sites:
            if own := [name for name in remaining if name in self._pod_names(site)]:
                result = results[site.pool.name]
                results[site.pool.name] = replace(result, problems=(*result.problems, undeleted(own)), summary=())
        return results

    def _pod_names(self, site: NodeProgramSite) -> list[str]:
        """The names of the site's pods, in the order of their ranks."""
        return [pod_name(site.pool, self._workload, f"{site.program.name}-{rank}") for rank in range(len(site.nodes))]

    def _create(
        self, ranks: t.Iterable[tuple[NodeProgramSite, int]], addresses: t.Mapping[str, str], lease: Lease
    ) -> dict[str, str]:
        return self._pods.create(
            (
                node_program_pod(site, rank, addresses[site.pool.name] if rank else "", self._workload)
                for site, rank in ranks
            ),
            lease,
        )

    def _evaluate(
        self, site: NodeProgramSite, observation: PodObservation, rejected: t.Mapping[str, str]
    ) -> NodeProgramResult:
        program, names = site.program, self._pod_names(site)
        options = self._workload.options_of(site.pool)
        values = {"nodes": [node.name for node in site.nodes], "gpus": site.gpus * len(site.nodes)}
        own = {name: rejected[name] for name in names if name in rejected}
        if failures := (*observation.failures, *rejections(own)):
            nodes = dict(zip(names, site.nodes, strict=True))
            explained = [explain(self._pods, each, nodes[each.pod], self._workload) for each in failures]
            problems = tuple(map(str, explained))
            return NodeProgramResult(values, problems, summary=group_failures(explained, len(names)))
        if not observation.ended or sum(observation.phases.values()) < len(site.nodes):
            reasons = abbreviate(observation.waiting, separator="; ") or "its pods still run"
            problem = f"did not end within {options[program.timeout]} seconds ({observation}): {reasons}. {program.timeout_remedy}"
            return NodeProgramResult(values, (f"{site} {problem}",))
        measured, problem = program.evaluate(self._pods.log(names[0], program.container), options)
        return NodeProgramResult({**values, **measured}, (f"{site}: {problem}",) if problem else ())
