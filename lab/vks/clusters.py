# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be asked of clusters and of the account: every handler returns the body of the answer, or raises Problem."""

from __future__ import annotations

import time
from typing import Any

from . import checks, groups, kubeconfigs, life, seed
from .pages import page
from .rules import Rules
from .world import Problem, Row, World, stamp

_SHORT = ("id", "name", "description", "status", "releaseChannel", "version", "enablePrivateCluster", "azStrategy")
_INTERNAL = ("kubeconfig", "gone_at")


def find(world: World, rules: Rules, query: Row) -> Any:
    """A page of clusters."""
    rows = [short(world, cluster) for cluster in world.clusters.values()]
    for name in ("id", "name", "status", "version"):
        if name in query:
            rows = [row for row in rows if query[name] in str(row[name])]
    return page(rules, rows, query)


def get(world: World, identity: str) -> Row:
    """The cluster of that id; nobody has one of another."""
    found = world.clusters.get(identity)
    if found is None:
        raise Problem(404, f"cluster {identity} not found")
    return found


def group(world: World, cluster: Row, identity: str) -> Row:
    """The node group of that id in a cluster."""
    found = world.groups.get(identity)
    if found is None or found["cluster"] != cluster["id"] or life.hidden(found, time.time()):
        raise Problem(404, f"node group {identity} not found")
    return found


def create(world: World, rules: Rules, body: Row) -> Any:
    """Make a cluster: the control plane alone, ACTIVE at once, with no Kubernetes behind it."""
    if len(world.clusters) >= rules.number("max-clusters"):
        raise Problem(400, f"quota exceeded: at most {rules.number('max-clusters'):.0f} clusters")
    if (
        body["name"] in [cluster["name"] for cluster in world.clusters.values()]
        and rules.guess("duplicate-names") == "refused"
    ):
        raise Problem(400, f"cluster name {body['name']} already exists")
    if body["version"] not in seed.VERSIONS:
        raise Problem(400, f"version {body['version']} is not supported")
    if not body.get("subnetId") and not body.get("listSubnetIds"):
        raise Problem(400, "subnetId or listSubnetIds must be given")
    said = {**body, "subnetId": body.get("subnetId") or body["listSubnetIds"][0]}
    made = seed.cluster(world.new_id(rules, "k8s"), **said)
    world.clusters[made["id"]] = made
    return short(world, made)


def update(world: World, cluster: Row, body: Row) -> Any:
    """Change what PUT changes; the version only goes up."""
    if "version" in body and body["version"] not in seed.VERSIONS[seed.VERSIONS.index(cluster["version"]) :]:
        raise Problem(400, f"cluster cannot be upgraded to version {body['version']}")
    cluster.update(body, updatedAt=stamp())
    return short(world, cluster)


def delete(world: World, rules: Rules, cluster: Row) -> Any:
    """Take a cluster away at once, with its node groups."""
    for one in list(world.of(cluster["id"])):
        checks.free(rules, one)
        if one["real"]:
            raise Problem(400, "the lab's own cluster stays: delete its node groups")
        del world.groups[one["id"]]
    del world.clusters[cluster["id"]]
    return {**short(world, cluster), "status": "DELETING"}


def detail(world: World, rules: Rules, cluster: Row) -> Any:
    """A cluster with all its settings."""
    nodes = [life.ready(rules, one, node, time.time()) for one in world.of(cluster["id"]) for node in one["nodes"]]
    rest = {key: value for key, value in cluster.items() if key not in (*_SHORT, *_INTERNAL)}
    if cluster["azStrategy"] == "MULTI":
        del rest["subnetId"]
    return {**short(world, cluster), **rest, "numReadyNodes": sum(nodes), "numNotReadyNodes": len(nodes) - sum(nodes)}


def short(world: World, cluster: Row) -> Row:
    """A cluster as lists tell it."""
    count = sum(one["count"] for one in world.of(cluster["id"]))
    times = {name: cluster[name] for name in ("createdAt", "updatedAt")}
    return {**{name: cluster[name] for name in _SHORT}, "numNodes": count, **times}


def events(world: World, rules: Rules, cluster: Row, query: Row, only: str | None = None) -> Any:
    """A page of events, the newest first."""
    rows = []
    for event in reversed(world.data["events"].get(cluster["id"], [])):
        wanted = all(event[name] == query[name] for name in ("action", "type") if name in query)
        if wanted and only in (None, event["group"]):
            rows.append({key: value for key, value in event.items() if key != "group"})
    return page(rules, rows, query)


def kubeconfig(rules: Rules, cluster: Row) -> Any:
    """The kubeconfig of a cluster; a text in place of an object is YAML."""
    kept = cluster.get("kubeconfig")
    if kept is None and rules.guess("kubeconfig-first") == "404":
        raise Problem(404, f"kubeconfig of cluster {cluster['id']} not found")
    if kept is None:
        return {
            "kubeConfig": None,
            "expirationAt": None,
            "expirationDays": None,
            "status": "NONE",
            "renewalWarning": False,
        }
    if rules.guess("kubeconfig-answer") == "yaml" and kept["status"] == "ACTIVE":
        return kept["text"]
    return {
        "kubeConfig": kept["text"],
        "expirationAt": stamp(kept["ends"]),
        "expirationDays": kept["days"],
        "status": kept["status"],
        "renewalWarning": kubeconfigs.warns(rules, kept),
    }


def account(world: World, rules: Rules, what: str) -> Any:
    """What belongs to no cluster: images, versions, the quota, the workspace."""
    if what == "list-images":
        rows = [(system, version) for system in seed.IMAGES for version in seed.VERSIONS]
        return [
            {
                "id": seed.image(*row),
                "os": seed.IMAGES[row[0]],
                "kubernetesVersion": row[1],
                "enable": True,
                "stage": "STABLE",
            }
            for row in rows
        ]
    if what == "list-versions":
        return [
            {"version": version, "enable": True, "stage": "STABLE", "deprecatedAt": None} for version in seed.VERSIONS
        ]
    if what == "get-workspace":
        return {
            "projectId": seed.PROJECT,
            "serviceAccountId": seed.fixed("sa", "lab"),
            "status": "ACTIVE",
            "statusReason": None,
        }
    limit = rules.value("no-quota", 0)
    return {
        "maxClusters": int(rules.number("max-clusters")),
        "numClusters": len(world.clusters),
        "maxNodeGroupsPerCluster": int(rules.number("max-groups")),
        "maxNodesPerNodeGroup": int(rules.number("max-nodes") if limit is None else limit),
    }


def begin(world: World, rules: Rules, name: str, *, real: bool) -> None:
    """Give the cluster of that name its first node group, unless it has groups already; one that is not real is there at once."""
    for cluster in world.clusters.values():
        if cluster["name"] == name and not list(world.of(cluster["id"])):
            groups.create(world, rules, cluster, seed.first_group(), real=real)
            for group in () if real else world.of(cluster["id"]):
                group.update(status="ACTIVE", doing=None, nodes=[{**node, "born": 0} for node in group["nodes"]])
