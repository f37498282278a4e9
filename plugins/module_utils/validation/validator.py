# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the pods that prove pools, all pools at once, reads their logs, and takes everything away again."""

from __future__ import annotations

import json
import time
import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER, LIVE_PODS
from ..cluster_state.gpu_requests import gpu_requests
from ..cluster_state.node import Node, parse
from ..cluster_state.pool_assignment import assign_pools
from ..common.parallel import run_bounded
from ..common.wait import WaitTimeout, wait_until
from ..kube.errors import ApiError
from ..kube.paths import NODES, PODS, object_path
from . import evaluation, evidence
from .pods import POOL_OF, RUN_OF, NotTestable, ValidationSite, choose_node, manifest, run_label
from .pool_test import PoolTest

if t.TYPE_CHECKING:
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from .pods import Workload

_TOLD = 3
_CLEANING = 60.0

Pod = dict[str, t.Any]


@dataclass(frozen=True)
class ValidationState:
    """What is known before anything runs."""

    nodes: dict[str, Node]
    membership: Membership
    noted: dict[str, dict[str, t.Any]]
    facts: dict[str, dict[str, t.Any]]
    leftovers: list[str]

    def current(self, pool: str) -> bool:
        """Whether the evidence of an earlier run still stands."""
        entry = self.noted.get(pool)
        return entry is not None and entry.get("evidence") == evidence.fingerprint(self.facts[pool])

    def members(self, pool: str) -> list[Node]:
        """The nodes of a pool."""
        return [self.nodes[name] for name in self.membership.by_pool.get(pool, ())]


class Validator:
    """The pools of one plan on one cluster."""

    def __init__(
        self, client: Client, plan: Plan, workload: Workload, max_pods: int, progress: Progress, interval: float
    ) -> None:
        """Send nothing yet."""
        self._client = client
        self._plan = plan
        self._workload = workload
        self._max_pods = max_pods
        self._progress = progress
        self._interval = interval
        self._pods = f"/api/v1/namespaces/{workload.namespace}/pods"
        self._evidence = object_path("v1", "ConfigMap", plan.validation.configmap, workload.namespace)

    def read(self) -> ValidationState:
        """The nodes, the evidence of earlier runs, and pods that a killed run has left."""
        nodes = {node.name: node for node in map(parse, self._client.list(NODES))}
        membership = assign_pools(self._plan.pools, list(nodes.values()))
        leftovers = [
            pod["metadata"]["name"]
            for pod in self._client.list(self._pods, label_selector=POOL_OF, metadata_only=True)
            if not pod["metadata"].get("deletionTimestamp")
        ]
        facts = {
            pool.name: evidence.facts(
                pool, [nodes[name] for name in membership.by_pool[pool.name]], self._workload.image
            )
            for pool in self._plan.pools
        }
        return ValidationState(nodes, membership, evidence.noted(self._client.get(self._evidence)), facts, leftovers)

    def clean(self) -> None:
        """Take away every pod of any validation, and see them gone."""
        self._client.delete(self._pods, query={"labelSelector": POOL_OF})
        wait_until(
            lambda: [
                pod["metadata"]["name"]
                for pod in self._client.list(self._pods, label_selector=POOL_OF, metadata_only=True)
            ],
            lambda names: not names,
            timeout=_CLEANING,
            interval=min(self._interval, 1.0),
            story=lambda names: f"These validation pods are not gone: {', '.join(names[:_TOLD])}.",
            progress=self._progress,
            say=lambda names: f"taking away {len(names)} validation pods",
        )

    def trial(self, pool: PoolPlan, site: ValidationSite) -> PoolTest:
        """The proof of a pool on this node, before it begins."""
        return PoolTest(pool, site, self._workload)

    def sites(self, pools: t.Sequence[PoolPlan], state: ValidationState) -> dict[str, ValidationSite | NotTestable]:
        """Where each pool is proven; one list of the pods that hold anything."""
        used = gpu_requests(self._client.list(PODS, field_selector=LIVE_PODS))
        return {pool.name: choose_node(pool, state.members(pool.name), used, self._max_pods) for pool in pools}

    def prove(self, trials: t.Sequence[PoolTest], timeout: float, lease: Lease) -> dict[str, evaluation.DeviceCheck]:
        """Run the pods of all trials; the proof of each pool, with its problems if it has any."""
        try:
            self._create(trials, lease)
            self._follow(trials, timeout)
            return {trial.pool.name: self._judge(trial) for trial in trials}
        finally:
            self.clean()

    def note(
        self, proofs: t.Mapping[str, tuple[PoolTest, evaluation.DeviceCheck]], state: ValidationState, lease: Lease
    ) -> None:
        """Keep the evidence of what was proven, by pool; pools that are no longer declared go."""
        declared = {pool.name for pool in self._plan.pools}
        entries = {name: entry for name, entry in state.noted.items() if name in declared}
        for name, (trial, proof) in proofs.items():
            entries[name] = evidence.note(state.facts[name], trial.site.node.name, proof.devices, trial.told)
        lease.check()
        self._client.apply(
            self._evidence,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": self._plan.validation.configmap,
                    "namespace": self._workload.namespace,
                    "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER},
                },
                "data": {name: json.dumps(entry, sort_keys=True, default=dict) for name, entry in entries.items()},
            },
        )

    def _create(self, trials: t.Sequence[PoolTest], lease: Lease) -> None:
        def creator(body: Pod) -> t.Callable[[], t.Any]:
            def create() -> t.Any:
                lease.check()
                return self._client.create(self._pods, body)

            return create

        # What is not to be served queues up behind those that are.
        crowds = [(trial, ask) for trial in trials for ask in trial.site.crowd]
        for wave in (crowds, [(trial, ask) for trial in trials for ask in trial.site.beyond]):
            bodies = [manifest(trial.pool, trial.site, ask, self._workload) for trial, ask in wave]
            calls = [(body["metadata"]["name"], creator(body)) for body in bodies]
            for outcome in run_bounded(calls, stop=lease.lost):
                if outcome.error is not None:
                    raise outcome.error
            lease.check()

    def _follow(self, trials: t.Sequence[PoolTest], timeout: float) -> None:
        selector = f"{RUN_OF}={run_label(self._workload.run_id)}"

        def read() -> t.Sequence[PoolTest]:
            found = {pod["metadata"]["name"]: pod for pod in self._client.list(self._pods, label_selector=selector)}
            for trial in trials:
                trial.see(found)
            return trials

        try:
            wait_until(
                read,
                lambda now: all(trial.over for trial in now),
                timeout=timeout,
                interval=self._interval,
                story=lambda now: "",
                progress=self._progress,
                say=lambda now: "; ".join(f"{trial.pool.name}: {trial.look}" for trial in now if not trial.over),
            )
        except WaitTimeout:
            # Each pool tells by itself how far it came.
            return

    def _judge(self, trial: PoolTest) -> evaluation.DeviceCheck:
        wanted = trial.site.pods
        if trial.look.refusals:
            return evaluation.DeviceCheck(problems=tuple(self._with_log(text) for text in trial.look.refusals[:_TOLD]))
        if not trial.look.ended:
            told = "; ".join(trial.look.waiting[:_TOLD]) or "they are still running"
            return evaluation.DeviceCheck(problems=(f"{wanted} pods did not end in time ({trial.look}): {told}",))
        if not trial.together:
            return evaluation.DeviceCheck(problems=(f"its {wanted} pods were never all running at the same time",))
        if trial.problems:
            return evaluation.DeviceCheck(problems=trial.problems)
        outcomes = run_bounded([(name, self._reader(name)) for name in map(trial.pod, trial.site.crowd)])
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return evaluation.check_devices(
            trial.pool, trial.site.node, {outcome.name: outcome.value or "" for outcome in outcomes}
        )

    def _reader(self, name: str) -> t.Callable[[], str]:
        return lambda: self._client.text(f"{self._pods}/{name}/log")

    def _with_log(self, refusal: str) -> str:
        """A pod that ended badly says why in its log; one that was refused has none."""
        name = refusal.split(":", 1)[0]
        if "exit code" not in refusal:
            return refusal
        try:
            return f"{refusal}; its log: {evaluation.excerpt(self._client.text(f'{self._pods}/{name}/log'))}"
        except ApiError:
            return refusal


def elapsed(since: float) -> float:
    """Seconds since a monotonic moment, for people."""
    return round(time.monotonic() - since, 1)
