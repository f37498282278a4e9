# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the all-reduce of several pools in parallel: the pod of rank 0 of each, then those that connect to it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from .all_reduce import CONTAINER, NETWORK, NODE, AllReduceSite, choose_nodes, evaluate, manifest, on_timeout
from .evaluation import MAX_TEXTS, PodObservation, observe
from .validator import explain, undeleted

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import GpuRequest
    from ..cluster_state.node import Node
    from ..kube.lease import Lease
    from ..pools.plan import PoolPlan
    from .all_reduce import AllReduceOptions
    from .pod_client import PodClient
    from .pods import Workload


@dataclass(frozen=True)
class AllReduceResult:
    """The result of one pool's measurement, and what is wrong with it."""

    values: t.Mapping[str, t.Any]
    problems: tuple[str, ...] = ()


class AllReduceRunner:
    """The measurements of one run, one kind after the other, since both use all GPUs of a node."""

    def __init__(self, pods: PodClient, workload: Workload, options: AllReduceOptions) -> None:
        """Send no request yet."""
        self._pods = pods
        self._workload = replace(workload, deadline=options.timeout)
        self._options = options

    def run(
        self,
        pools: t.Mapping[str, tuple[PoolPlan, t.Sequence[Node]]],
        used: t.Mapping[str, t.Sequence[GpuRequest]],
        lease: Lease,
    ) -> dict[str, dict[str, AllReduceResult]]:
        """The results by pool and kind; a measurement that does not apply to a pool has the reason as `skipped`."""
        results: dict[str, dict[str, AllReduceResult]] = {name: {} for name in pools}
        for kind in self._options.kinds:
            sites = []
            for name, (pool, nodes) in pools.items():
                site = choose_nodes(kind, pool, nodes, used, self._options.nodes if kind == NETWORK else 1)
                if isinstance(site, str):
                    results[name][kind] = AllReduceResult({"skipped": site})
                else:
                    sites.append(site)
            for name, result in (self._measure(sites, lease) if sites else {}).items():
                results[name][kind] = result
        return results

    def _measure(self, sites: t.Sequence[AllReduceSite], lease: Lease) -> dict[str, AllReduceResult]:
        observed: dict[str, PodObservation] = {}
        addresses: dict[str, str] = {}

        def update(pods: dict[str, dict[str, t.Any]]) -> None:
            for site in sites:
                own = [pods[name] for name in site.pod_names(self._workload) if name in pods]
                observed[site.pool.name] = observe(own, len(site.nodes))
                address = ((own[0].get("status") or {}).get("podIP") if own else None) or ""
                addresses[site.pool.name] = address

        def text() -> str:
            return "; ".join(
                f"{site.kind} of {site.pool.name}: {observed.get(site.pool.name, 'no pods')}" for site in sites
            )

        def over(site: AllReduceSite) -> bool:
            observation = observed[site.pool.name]
            return observation.ended or bool(observation.failures)

        left: list[str] = []
        try:
            self._create([(site, 0) for site in sites], addresses, lease)
            others, started = [site for site in sites if len(site.nodes) > 1], list(sites)
            if others:
                self._pods.await_pods(
                    update,
                    lambda: all(addresses[site.pool.name] or over(site) for site in others),
                    self._options.timeout,
                    text,
                )
                started = [site for site in sites if len(site.nodes) == 1 or addresses.get(site.pool.name)]
                self._create([(site, rank) for site in started for rank in range(1, len(site.nodes))], addresses, lease)
            self._pods.await_pods(update, lambda: all(map(over, started)), self._options.timeout, text)
            results = {site.pool.name: self._evaluate(site, observed[site.pool.name]) for site in sites}
        finally:
            left = self._pods.delete()
        for site in sites:
            if own := [name for name in left if name in site.pod_names(self._workload)]:
                result = results[site.pool.name]
                results[site.pool.name] = AllReduceResult(result.values, (*result.problems, undeleted(own)))
        return results

    def _create(
        self, ranks: t.Iterable[tuple[AllReduceSite, int]], addresses: t.Mapping[str, str], lease: Lease
    ) -> None:
        self._pods.create(
            (
                manifest(site, rank, addresses[site.pool.name] if rank else "", self._workload, self._options.image)
                for site, rank in ranks
            ),
            lease,
        )

    def _evaluate(self, site: AllReduceSite, observation: PodObservation) -> AllReduceResult:
        values = {"nodes": [node.name for node in site.nodes]}
        if observation.failures:
            nodes = dict(zip(site.pod_names(self._workload), site.nodes, strict=True))
            return AllReduceResult(
                values,
                tuple(
                    explain(self._pods, failure, nodes[failure.pod], self._options.image, on_timeout(site.kind))
                    for failure in observation.failures[:MAX_TEXTS]
                ),
            )
        if not observation.ended or sum(observation.phases.values()) < len(site.nodes):
            reasons = "; ".join(observation.waiting[:MAX_TEXTS]) or "the GPUs do not reach each other"
            what = "GPUs of the node" if site.kind == NODE else "nodes"
            return AllReduceResult(
                values,
                (
                    f"all-reduce between the {what} {', '.join(values['nodes'])} did not end in {self._options.timeout} seconds "
                    f"({observation}): {reasons}. {on_timeout(site.kind)}",
                ),
            )
        log = self._pods.log(site.pod_name(0, self._workload), CONTAINER)
        found, problem = evaluate(site, log, self._options.minimum(site.kind))
        return AllReduceResult(found, (problem,) if problem else ())
