# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of magnum_nodegroup on clusters of Magnum that have no Kubernetes: nothing to change, many at once, a fleet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median_high

import yaml

from lab.layout import Lab as LabLayout
from tests.labs import Lab

from .asked import Clouds
from .clusters import Clusters
from .rows import Limit, Row, Run, flat, ratios
from .timed import Timer

MANY, CREATED = 50, 20
CLUSTERS, GROUPS, FORKS = 10, 4, (1, 5, 10)
# A token, the cluster, and the list of its node groups, which lies about their limits: so each is asked for, too.
BESIDE_EACH = 3
NOTHING_SECONDS, SIDE_BY_SIDE = 3.0, 1.15
# What making a node group takes at least, where it is measured: machines take minutes.
DELAY = 30
_OF = "node groups"
_CLIENT = "openstack"
_LARGE = "bench-large"


class NodeGroups:
    """Times magnum_nodegroup in a lab with the part openstack."""

    def __init__(self, lab: Lab, folder: Path, rounds: int, say: Callable[[str], None]) -> None:
        """Make no cluster yet."""
        self._lab, self._folder, self._rounds, self._say = lab, folder, rounds, say
        self._clusters = Clusters(LabLayout.named(lab.name))

    def nothing(self, count: int, pairs: int) -> Row:
        """Nothing to change in one cluster of so many node groups, beside the openstack client that lists them and shows one."""
        self._say(f"making {count} node groups of one cluster")
        timer = self._timer([_LARGE])
        groups = declared(count)
        self._bring(timer, groups, changed=1)
        ours: list[list[Run]] = []
        others: list[list[Run]] = []
        for number in range(self._rounds):
            ours.append([])
            others.append([])
            for dummy in range(pairs):
                self._say(f"{count} node groups, round {number + 1}: magnum_nodegroup, then openstack")
                ours[-1].append(self._bring(timer, groups, changed=0))
                others[-1].append(_client(timer, groups[0]["name"]))
        runs = flat(ours)
        own = median_high(run.module_seconds or math.inf for run in runs)
        limits = (
            *([Limit("module's seconds", own, NOTHING_SECONDS)] if count == MANY else []),
            Limit("requests", max(run.requests for run in runs), count + BESIDE_EACH),
            Limit("writes", max(run.writes for run in runs), 0),
        )
        found = ratios(ours, others)
        other = "openstack coe nodegroup list and show"
        return Row("nothing to change", count, ours, other, others, limits, _NOTHING, found, _OF)

    def side_by_side(self, count: int, delay: float) -> Row:
        """So many node groups by one call, beside one alone; each takes Magnum `delay` seconds."""
        name = "bench-created"
        timer = self._timer([name])
        groups = declared(count)
        self._lab.command("cloud", "set", f"magnum.delay={delay}")
        ours: list[list[Run]] = []
        others: list[list[Run]] = []
        for number in range(self._rounds):
            self._say(f"round {number + 1}: {count} node groups are created, then one alone")
            for of, made in ((groups, ours), (groups[:1], others)):
                made.append([self._bring(timer, of, changed=1)])
                self._bring(timer, of, changed=1, state="absent")
        self._lab.command("cloud", "set", "magnum.delay=0.05")
        found = ratios(ours, others)
        limits = (
            Limit("ratio", max(found), SIDE_BY_SIDE),
            Limit("writes", max(run.writes for run in flat(ours)), count),
        )
        return Row("created side by side", count, ours, "one alone", others, limits, _CREATED, found, _OF)

    def fleet(self, clusters: int, groups: int, forks: Sequence[int]) -> list[Row]:
        """Nothing to change in so many clusters, each a host of the inventory with so many node groups, by number of forks."""
        self._say(f"making {clusters} clusters of {groups} node groups each")
        names = [f"bench-{number:02}" for number in range(clusters)]
        everyone, alone = self._timer(names), self._timer(names[:1])
        wanted = declared(groups)
        self._bring(everyone, wanted, changed=1)
        rows = []
        for number in forks:
            self._say(f"{clusters} clusters, forks {number}, and one cluster alone")
            ours: list[list[Run]] = []
            others: list[list[Run]] = []
            for dummy in range(self._rounds):
                ours.append([self._bring(everyone, wanted, changed=0, arguments=("--forks", str(number)))])
                others.append([self._bring(alone, wanted, changed=0)])
            rows.append(of_fleet(clusters, groups, number, ours, others))
        return rows

    def _timer(self, clusters: Sequence[str]) -> Timer:
        """Clusters that there are from now on, as hosts of an inventory."""
        self._clusters.make(clusters)
        folder = self._folder / f"{clusters[0]}-{len(clusters)}"
        folder.mkdir()
        inventory = folder / "clusters.yml"
        inventory.write_text(yaml.safe_dump({"gpu_clusters": {"hosts": dict.fromkeys(clusters)}}))
        return Timer(self._lab, folder, Clouds(LabLayout.named(self._lab.name)), inventory)

    def _bring(
        self,
        timer: Timer,
        groups: Sequence[dict[str, object]],
        *,
        changed: int,
        state: str = "present",
        arguments: Sequence[str] = (),
    ) -> Run:
        return timer.playbook("groups.yml", changed=changed, arguments=arguments, groups=groups, state=state)


def declared(count: int) -> list[dict[str, object]]:
    """Node groups as the module's option takes them, with everything that a pool says of one."""
    return [
        {
            "name": f"gpu-{number:02}",
            "flavor": "g2.5xlarge",
            # Rows of a database have no machines that a quota would have to allow.
            "node_count": 0,
            "min_node_count": 0,
            "max_node_count": 4,
            "node_labels": {"accel.gpu/pool": f"pool-{number:02}"},
            "node_taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        }
        for number in range(count)
    ]


def _client(timer: Timer, group: object) -> Run:
    """What somebody types who looks at the groups and at one of them."""
    asked = [
        timer.command("openstack", "coe", "nodegroup", *words, agent=_CLIENT)
        for words in (("list", _LARGE), ("show", _LARGE, str(group)))
    ]
    return Run(sum(run.seconds for run in asked), requests=sum(run.requests for run in asked))


def of_fleet(
    clusters: int, groups: int, forks: int, ours: Sequence[Sequence[Run]], others: Sequence[Sequence[Run]]
) -> Row:
    """A row of a fleet; its ratio is to as many runs for one cluster as there are clusters."""
    found = tuple(ratio / clusters for ratio in ratios(ours, others))
    limits = (
        Limit("ratio", max(found), 1.0),
        Limit("requests a cluster", max(run.requests for run in flat(ours)) / clusters, groups + BESIDE_EACH),
        Limit("writes", max(run.writes for run in flat(ours)), 0),
    )
    what = f"nothing to change, {groups} in each of {clusters} clusters, forks {forks}"
    return Row(what, clusters * groups, ours, "one cluster alone", others, limits, _FLEET, found, _OF)


_NOTHING = f"""The rows of *node groups* are of `magnum_nodegroup` on clusters of the lab's own Magnum that have no Kubernetes. A call costs
{BESIDE_EACH} requests (a token, the cluster, the list of its node groups) and one for each group, since Magnum's list does not tell their
limits as they are."""

_CREATED = f"""Of the groups that are created side by side, each takes Magnum {DELAY} seconds, from its request to its status CREATE_COMPLETE."""

_FLEET = """Of several clusters, each is a host of the inventory, of which Ansible works on as many at a time as there are forks; beside it
stands one cluster alone, and the ratio is to that time as often as there are clusters: with a ratio of at most 1, a fleet takes no more
than its clusters one by one."""
