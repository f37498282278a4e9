# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of gpu_sharing on nodes without pods: a change of all nodes, and a run without changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.labs import Lab

from .bare_cluster import BareCluster
from .results import Limit, Measurement, Row, all_runs, ratios, seconds
from .timer import Timer

PAGE = 500
# Requests in addition to the pages of nodes and one patch per node: the ClusterPolicy, two ConfigMaps, the lease, pods.
CONSTANT = 20
_SHARES = (4, 2)
_READ = ("kubectl", "get", "nodes", "-l", "bench=yes", "--output", "name")


# The maximum ratio of a change to kubectl's time, by number of nodes.
RATIOS: Mapping[int, float] = {100: 2.5, 1000: 1.3, 5000: 1.0}
# On the largest cluster, without a change.
NOTHING_RATIO, NOTHING_MIB = 1.0, 150.0


class SharingBenchmark:
    """Measures gpu_sharing on clusters of increasing size."""

    def __init__(self, lab: Lab, folder: Path, rounds: int, say: Callable[[str], None]) -> None:
        """Create the cluster without nodes."""
        self._timer = Timer(lab)
        self._cluster = BareCluster(lab, folder, _SHARES[0])
        self._rounds = rounds
        self._say = say
        self._shares = _SHARES[0]

    def grow(self, nodes: int) -> int:
        """Create nodes up to this number; return the size of one node in bytes."""
        self._say(f"creating {nodes:,} nodes")
        self._cluster.grow(nodes, lambda: self._share(_SHARES[0], changed=1))
        return self._cluster.node_bytes()

    def change(self, pairs: int) -> Row:
        """Measure a change of all nodes from 4 shares to 2 or back, alternating with kubectl label."""
        nodes = self._cluster.count
        own_runs: list[list[Measurement]] = []
        other_runs: list[list[Measurement]] = []
        for number in range(self._rounds):
            own_runs.append([])
            other_runs.append([])
            for dummy in range(pairs):
                self._say(f"{nodes:,} nodes, round {number + 1}: gpu_sharing, then kubectl label")
                self._shares = _SHARES[1] if self._shares == _SHARES[0] else _SHARES[0]
                own_runs[-1].append(self._share(self._shares, changed=1))
                other_runs[-1].append(self._timer.kubectl())
        actual = ratios(own_runs, other_runs)
        limits = [
            *([Limit("ratio", max(actual), RATIOS[nodes])] if nodes in RATIOS else []),
            _request_limit(own_runs, nodes, nodes),
            Limit(
                "writes to nodes and related objects", max(run.writes for run in all_runs(own_runs)), nodes + CONSTANT
            ),
        ]
        return Row("change of shares", nodes, own_runs, "kubectl label", other_runs, tuple(limits), _NOTE, actual)

    def baseline(self, times: int) -> Row:
        """Measure a playbook with one task that does nothing."""
        self._say("a playbook that does nothing")
        own_runs = [
            [self._timer.playbook("ping.yml", changed=0) for dummy in range(times)] for dummy in range(self._rounds)
        ]
        return Row("ansible.builtin.ping", 0, own_runs, note=_BASELINE)

    def with_loop(self, change: Row) -> Row:
        """Compare the change with a loop of kubernetes.core.k8s over the nodes."""
        self._say(f"{change.count:,} nodes: kubernetes.core.k8s in a loop")
        looped = self._timer.playbook("objects.yml", changed=1, step="looped", nodes=change.count)
        actual = (seconds(change.own_runs) / looped.seconds,)
        return Row(
            "the same", change.count, change.own_runs, "kubernetes.core.k8s in a loop", [[looped]], ratios=actual
        )

    def nothing(self, times: int) -> Row:
        """Measure a run that changes nothing but verifies that all nodes have the resources of their pool."""
        nodes = self._cluster.count
        own_runs: list[list[Measurement]] = []
        other_runs: list[list[Measurement]] = []
        for number in range(self._rounds):
            own_runs.append([])
            other_runs.append([])
            for dummy in range(times):
                self._say(f"{nodes:,} nodes, round {number + 1}: nothing to change, then kubectl get")
                own_runs[-1].append(self._share(self._shares, changed=0, wait=True))
                other_runs[-1].append(self._timer.command(*_READ, agent="kubectl/"))
        runs, actual = all_runs(own_runs), ratios(own_runs, other_runs)
        largest = nodes == max(RATIOS)
        limits = [
            *([Limit("ratio", max(actual), NOTHING_RATIO)] if largest else []),
            *([Limit("MiB", max(run.mib or math.inf for run in runs), NOTHING_MIB)] if largest else []),
            _request_limit(own_runs, nodes, 0),
            Limit("pages of nodes", max(run.pages for run in runs), math.ceil(nodes / PAGE)),
            Limit("writes", max(run.writes for run in runs), 0),
        ]
        return Row("nothing to change", nodes, own_runs, "kubectl get", other_runs, tuple(limits), _NOTHING, actual)

    def _share(self, shares: int, *, changed: int, wait: bool = False) -> Measurement:
        return self._timer.playbook("sharing.yml", changed=changed, replicas=shares, wait=wait)


_BASELINE = """*ansible.builtin.ping* measures Ansible with a module that does nothing. The result is a lower bound for all benchmarks that
run a playbook."""

_NOTE = """A *change of shares* changes every node from 4 shares per GPU to 2 shares, or from 2 to 4, while no pod uses a GPU. The nodes have no agents
that apply the change. The run therefore does not wait for the result (`wait: false`), and neither does `kubectl label`. The run includes all other steps
of the change: acquiring the Lease, adding the entry to the device plugin's ConfigMap, and deleting the unused entry."""


_NOTHING = """With *nothing to change*, the run verifies that all nodes have the resources that their pool declares. The run is compared with
`kubectl get nodes --output name`, which reads the same nodes."""


def _request_limit(own_runs: list[list[Measurement]], nodes: int, patches: int) -> Limit:
    pages = math.ceil(nodes / PAGE)
    return Limit("requests", max(run.requests for run in all_runs(own_runs)), pages + patches + CONSTANT)
