# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the programs that use all free GPUs of nodes, for several pools in parallel: first rank 0 of each pool, then the ranks that connect to it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..schema.messages import abbreviate
from ..validation_programs.programs import NODE_PROGRAMS
from .evaluation import PodObservation, observe, rejections
from .failures import group_failures
from .pods import node_program_pod, pod_name
from .sites import NodeProgramSite, choose_nodes
from .validator import explain, undeleted

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.lease import Lease
    from ..pools.plan import PoolPlan
    from ..validation_programs.program import NodeProgram
    from .pod_client import PodClient
    from .pods import Workload
    from .sites import UsedGpus


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
