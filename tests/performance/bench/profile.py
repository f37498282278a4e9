# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of gpu_sharing on nodes on which nothing runs: a change of all, and nothing to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high

from tests.labs import Lab

from .cluster import BareCluster
from .rows import Limit, Row, Run, flat, ratios, seconds
from .timed import Timer

PAGE = 500
# What a run asks beside the pages of nodes and a patch a node: the ClusterPolicy, two ConfigMaps, the lease, pods.
CONSTANT = 20
_SHARES = (4, 2)


@dataclass(frozen=True)
class Most:
    """The limits of a change at one number of nodes: seconds, and times as long as kubectl; None: none."""

    seconds: float | None = None
    ratio: float | None = None


LIMITS: Mapping[int, Most] = {100: Most(2.5), 1000: Most(ratio=1.3), 5000: Most(20.0, 1.0)}
NOTHING_SECONDS, NOTHING_MIB = 2.0, 150.0


class Profiles:
    """Times gpu_sharing on clusters of growing size."""

    def __init__(self, lab: Lab, folder: Path, rounds: int, say: Callable[[str], None]) -> None:
        """Make the cluster, without a node yet."""
        self._timer = Timer(lab, folder)
        self._cluster = BareCluster(lab, folder, _SHARES[0])
        self._rounds = rounds
        self._say = say
        self._shares = _SHARES[0]

    def grow(self, nodes: int) -> int:
        """Make the cluster that large; returns the bytes of one node."""
        self._say(f"making {nodes:,} nodes")
        self._cluster.grow(nodes, lambda: self._profile(_SHARES[0], changed=1))
        return self._cluster.size()

    def change(self, pairs: int) -> Row:
        """All nodes from 4 shares to 2 or back, beside kubectl label, by turns; an even number of times in all."""
        nodes = self._cluster.count
        ours: list[list[Run]] = []
        others: list[list[Run]] = []
        for number in range(self._rounds):
            ours.append([])
            others.append([])
            for dummy in range(pairs):
                self._say(f"{nodes:,} nodes, round {number + 1}: gpu_sharing, then kubectl label")
                self._shares = _SHARES[1] if self._shares == _SHARES[0] else _SHARES[0]
                ours[-1].append(self._profile(self._shares, changed=1))
                others[-1].append(self._timer.kubectl())
        found = ratios(ours, others)
        most = LIMITS.get(nodes, Most())
        limits = [
            *([Limit("seconds", seconds(ours), most.seconds)] if most.seconds else []),
            *([Limit("ratio", max(found), most.ratio)] if most.ratio else []),
            _asked(ours, nodes, nodes),
            Limit("writes to nodes and what they name", max(run.writes for run in flat(ours)), nodes + CONSTANT),
        ]
        return Row("profile change", nodes, ours, "kubectl label", others, tuple(limits), _NOTE, found)

    def floor(self, times: int) -> Row:
        """What any playbook of one task takes, whatever its module does."""
        self._say("a playbook that does nothing")
        ours = [
            [self._timer.playbook("ping.yml", changed=0) for dummy in range(times)] for dummy in range(self._rounds)
        ]
        return Row("ansible.builtin.ping", 0, ours, note=_FLOOR)

    def one_by_one(self, change: Row) -> Row:
        """The change beside kubernetes.core.k8s, which is called for each node."""
        self._say(f"{change.count:,} nodes: kubernetes.core.k8s in a loop")
        looped = self._timer.playbook("objects.yml", changed=1, step="looped", nodes=change.count)
        found = (seconds(change.ours) / looped.seconds,)
        return Row("the same", change.count, change.ours, "kubernetes.core.k8s in a loop", [[looped]], ratios=found)

    def nothing(self, times: int) -> Row:
        """Nothing to change: all nodes offer what their pool declares, which is proven."""
        nodes = self._cluster.count
        self._say(f"{nodes:,} nodes: nothing to change")
        ours = [
            [self._profile(self._shares, changed=0, wait=True) for dummy in range(times)]
            for dummy in range(self._rounds)
        ]
        runs = flat(ours)
        whole = nodes in LIMITS and nodes == max(LIMITS)
        own = median_high(run.module_seconds or math.inf for run in runs)
        limits = [
            *([Limit("module's seconds", own, NOTHING_SECONDS)] if whole else []),
            *([Limit("MiB", max(run.module_mib or math.inf for run in runs), NOTHING_MIB)] if whole else []),
            _asked(ours, nodes, 0),
            Limit("pages of nodes", max(run.pages for run in runs), math.ceil(nodes / PAGE)),
            Limit("writes", max(run.writes for run in runs), 0),
        ]
        return Row("nothing to change", nodes, ours, limits=tuple(limits))

    def _profile(self, shares: int, *, changed: int, wait: bool = False) -> Run:
        return self._timer.playbook("profile.yml", changed=changed, replicas=shares, wait=wait)


_FLOOR = """*ansible.builtin.ping* is Ansible alone, with a module that does nothing: no row of ours can be quicker."""

_NOTE = """A *profile change* brings every node from 4 shares a GPU to 2 or back, while nobody holds one. Nothing runs on these
nodes, hence no agent follows: `wait: false`, as `kubectl label` does not wait either. What an agent needs comes first all the
same: the lease, the entry of the device plugin's ConfigMap, and the entry that no node names any more is collected."""


def _asked(ours: list[list[Run]], nodes: int, patches: int) -> Limit:
    pages = math.ceil(nodes / PAGE)
    return Limit("requests", max(run.requests for run in flat(ours)), pages + patches + CONSTANT)
