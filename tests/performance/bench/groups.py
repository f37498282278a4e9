# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of magnum_nodegroup on Magnum clusters without Kubernetes: nothing to change, parallel creation, several clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import yaml

from lab.layout import Lab as LabLayout
from lab.openstack.rest import Rest
from tests.labs import Lab

from .request_counts import CloudLog
from .results import Limit, Measurement, Row, all_runs, ratios
from .timer import Timer

GROUPS_OF_ONE_CLUSTER, CREATED_GROUPS = 50, 20
CLUSTERS, GROUPS, FORKS = 10, 4, (1, 5, 10)
# The token, the cluster, and the list of its node groups. The list has wrong limits, so the module also reads each group.
CONSTANT_REQUESTS = 3
NOTHING_RATIO, PARALLEL_RATIO = 1.0, 1.15
# Minimum duration of the creation of a node group, in seconds, where it is measured; real machines take minutes.
DELAY = 30
_ITEMS = "node groups"
_CLIENT = "openstack"
_LARGE = "bench-large"
_CREATE_TIMEOUT = 120.0


class MagnumClusters:
    """Creates Magnum clusters in the project of the lab's user. They have no Kubernetes, so that only Magnum is measured."""

    def __init__(self, lab: LabLayout) -> None:
        """ServerLog in as that user."""
        self._rest = Rest(lab, "demo", "demo")

    def create(self, names: Collection[str]) -> None:
        """Create the missing clusters of these names, and wait until all are complete."""
        existing = {cluster["name"] for cluster in self._listed()}
        templates = self._rest.get("magnum", "/clustertemplates")["clustertemplates"]
        template = next(one["uuid"] for one in templates if one["name"] == "k8s")
        for name in names:
            if name not in existing:
                body = {"name": name, "cluster_template_id": template, "keypair": "lab", "node_count": 1}
                self._rest.post("magnum", "/clusters", body)
        deadline = time.monotonic() + _CREATE_TIMEOUT
        while missing := set(names) - self._complete():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Magnum did not complete the clusters {', '.join(sorted(missing))}")
            time.sleep(0.2)

    def _complete(self) -> set[str]:
        return {cluster["name"] for cluster in self._listed() if cluster["status"] == "CREATE_COMPLETE"}

    def _listed(self) -> list[dict[str, str]]:
        actual: list[dict[str, str]] = self._rest.get("magnum", "/clusters")["clusters"]
        return actual


class NodeGroupBenchmark:
    """Measures magnum_nodegroup in a lab with the part openstack."""

    def __init__(self, lab: Lab, folder: Path, rounds: int, say: Callable[[str], None]) -> None:
        """Log in to Magnum; clusters are created later."""
        self._lab, self._folder, self._rounds, self._say = lab, folder, rounds, say
        self._clusters = MagnumClusters(LabLayout.named(lab.name))

    def nothing(self, count: int, pairs: int) -> Row:
        """Measure a run without changes in a cluster of `count` node groups, against the openstack client that lists them and shows one."""
        self._say(f"creating {count} node groups in one cluster")
        timer = self._timer([_LARGE])
        groups = nodegroups(count)
        self._reconcile(timer, groups, changed=1)
        own_runs: list[list[Measurement]] = []
        other_runs: list[list[Measurement]] = []
        for number in range(self._rounds):
            own_runs.append([])
            other_runs.append([])
            for dummy in range(pairs):
                self._say(f"{count} node groups, round {number + 1}: magnum_nodegroup, then openstack")
                own_runs[-1].append(self._reconcile(timer, groups, changed=0))
                other_runs[-1].append(_client(timer, groups[0]["name"]))
        runs, actual = all_runs(own_runs), ratios(own_runs, other_runs)
        limits = (
            *([Limit("ratio", max(actual), NOTHING_RATIO)] if count == GROUPS_OF_ONE_CLUSTER else []),
            Limit("requests", max(run.requests for run in runs), count + CONSTANT_REQUESTS),
            Limit("writes", max(run.writes for run in runs), 0),
        )
        other = "openstack coe nodegroup list and show"
        return Row("nothing to change", count, own_runs, other, other_runs, limits, _NOTHING, actual, _ITEMS)

    def created_in_parallel(self, count: int, delay: float) -> Row:
        """Measure the creation of `count` node groups by one task, against a single group; Magnum needs `delay` seconds for each."""
        name = "bench-created"
        timer = self._timer([name])
        groups = nodegroups(count)
        self._lab.command("cloud", "set", f"magnum.delay={delay}")
        own_runs: list[list[Measurement]] = []
        other_runs: list[list[Measurement]] = []
        for number in range(self._rounds):
            self._say(f"round {number + 1}: {count} node groups are created, then a single one")
            for desired, runs in ((groups, own_runs), (groups[:1], other_runs)):
                runs.append([self._reconcile(timer, desired, changed=1)])
                self._reconcile(timer, desired, changed=1, state="absent")
        self._lab.command("cloud", "set", "magnum.delay=0.05")
        actual = ratios(own_runs, other_runs)
        limits = (
            Limit("ratio", max(actual), PARALLEL_RATIO),
            Limit("writes", max(run.writes for run in all_runs(own_runs)), count),
        )
        return Row("parallel creation", count, own_runs, "a single group", other_runs, limits, _CREATED, actual, _ITEMS)

    def fleet(self, clusters: int, groups: int, forks: Sequence[int]) -> list[Row]:
        """Measure a run without changes on clusters that are hosts of the inventory, for each number of forks."""
        self._say(f"creating {clusters} clusters of {groups} node groups each")
        names = [f"bench-{number:02}" for number in range(clusters)]
        all_clusters, one_cluster = self._timer(names), self._timer(names[:1])
        desired = nodegroups(groups)
        self._reconcile(all_clusters, desired, changed=1)
        rows = []
        for number in forks:
            self._say(f"{clusters} clusters, forks {number}, and a single cluster")
            own_runs: list[list[Measurement]] = []
            other_runs: list[list[Measurement]] = []
            for dummy in range(self._rounds):
                own_runs.append([self._reconcile(all_clusters, desired, changed=0, arguments=("--forks", str(number)))])
                other_runs.append([self._reconcile(one_cluster, desired, changed=0)])
            rows.append(fleet_row(clusters, groups, number, own_runs, other_runs))
        return rows

    def _timer(self, clusters: Sequence[str]) -> Timer:
        """Create the clusters, and return a timer whose inventory has them as hosts."""
        self._clusters.create(clusters)
        folder = self._folder / f"{clusters[0]}-{len(clusters)}"
        folder.mkdir()
        inventory = folder / "clusters.yml"
        inventory.write_text(yaml.safe_dump({"gpu_clusters": {"hosts": dict.fromkeys(clusters)}}))
        return Timer(self._lab, CloudLog(LabLayout.named(self._lab.name)), inventory)

    def _reconcile(
        self,
        timer: Timer,
        groups: Sequence[dict[str, object]],
        *,
        changed: int,
        state: str = "present",
        arguments: Sequence[str] = (),
    ) -> Measurement:
        return timer.playbook("groups.yml", changed=changed, arguments=arguments, groups=groups, state=state)


def nodegroups(count: int) -> list[dict[str, object]]:
    """Return node groups for the module's option, with all fields that a pool can set."""
    return [
        {
            "name": f"gpu-{number:02}",
            "flavor": "g2.5xlarge",
            # Clusters without Kubernetes have no machines, which a quota would limit.
            "node_count": 0,
            "min_node_count": 0,
            "max_node_count": 4,
            "node_labels": {"accel.gpu/pool": f"pool-{number:02}"},
            "node_taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        }
        for number in range(count)
    ]


def _client(timer: Timer, group: object) -> Measurement:
    """Measure the commands that list the groups and show one of them."""
    runs = [
        timer.command("openstack", "coe", "nodegroup", *words, agent=_CLIENT)
        for words in (("list", _LARGE), ("show", _LARGE, str(group)))
    ]
    return Measurement(sum(run.seconds for run in runs), requests=sum(run.requests for run in runs))


def fleet_row(
    clusters: int,
    groups: int,
    forks: int,
    own_runs: Sequence[Sequence[Measurement]],
    other_runs: Sequence[Sequence[Measurement]],
) -> Row:
    """Return the row for several clusters; its ratio compares with one run per cluster."""
    actual = tuple(ratio / clusters for ratio in ratios(own_runs, other_runs))
    limits = (
        Limit("ratio", max(actual), 1.0),
        Limit(
            "requests per cluster",
            max(run.requests for run in all_runs(own_runs)) / clusters,
            groups + CONSTANT_REQUESTS,
        ),
        Limit("writes", max(run.writes for run in all_runs(own_runs)), 0),
    )
    title = f"nothing to change, {groups} in each of {clusters} clusters, forks {forks}"
    return Row(title, clusters * groups, own_runs, "a single cluster", other_runs, limits, _FLEET, actual, _ITEMS)


_NOTHING = f"""The rows about *node groups* measure `magnum_nodegroup` on clusters in the lab's own Magnum, which have no Kubernetes API server. A module call
sends {CONSTANT_REQUESTS} requests (for a token, the cluster, and the list of its node groups) and one additional request for each group, because
Magnum's list contains the wrong minimum and maximum for each group."""

_CREATED = f"""In *parallel creation*, Magnum needs {DELAY} seconds to create each group, from the request until the status is CREATE_COMPLETE."""

_FLEET = """With several clusters, each cluster is a host in the inventory, and Ansible works on as many clusters at a time as there are
forks. These runs are compared with a run for a single cluster. The ratio is the duration of the run for all clusters, divided by
the number of clusters and by the duration of the run for a single cluster. A ratio of at most 1 means that one run for all clusters
takes no longer than separate runs for each cluster."""
