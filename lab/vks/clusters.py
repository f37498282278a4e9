# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operations on clusters and on the account: every handler returns the response body, or raises RequestRefused."""

from __future__ import annotations

import time
from typing import Any

from . import checks, groups, kubeconfigs, lifecycle, seed
from .rules import VksRules
from .state import AccountState, RequestRefused, Row, stamp

_SHORT = ("id", "name", "description", "status", "releaseChannel", "version", "enablePrivateCluster", "azStrategy")
_INTERNAL = ("kubeconfig", "gone_at")


def find(state: AccountState, rules: VksRules, query: Row) -> Any:
    """Return a page of clusters."""
    rows = [short(state, cluster) for cluster in state.clusters.values()]
    for name in ("id", "name", "status", "version"):
        if name in query:
            rows = [row for row in rows if query[name] in str(row[name])]
    return rules.page(rows, query)


def get(state: AccountState, identity: str) -> Row:
    """Return the cluster with this id; raise RequestRefused if it does not exist."""
    cluster = state.clusters.get(identity)
    if cluster is None:
        raise RequestRefused(404, f"cluster {identity} not found")
    return cluster


def group(state: AccountState, cluster: Row, identity: str) -> Row:
    """Return the node group with this id; raise RequestRefused if the cluster has none."""
    row = state.groups.get(identity)
    if row is None or row["cluster"] != cluster["id"] or lifecycle.is_hidden(row, time.time()):
        raise RequestRefused(404, f"node group {identity} not found")
    return row


def create(state: AccountState, rules: VksRules, body: Row) -> Any:
    """Create a cluster: only the control plane, ACTIVE immediately, without a Kubernetes cluster."""
    if len(state.clusters) >= rules.number("max-clusters"):
        raise RequestRefused(400, f"quota exceeded: at most {rules.number('max-clusters'):.0f} clusters")
    if (
        body["name"] in [cluster["name"] for cluster in state.clusters.values()]
        and rules.guess("duplicate-names") == "refused"
    ):
        raise RequestRefused(400, f"cluster name {body['name']} already exists")
    if body["version"] not in seed.VERSIONS:
        raise RequestRefused(400, f"version {body['version']} is not supported")
    if not body.get("subnetId") and not body.get("listSubnetIds"):
        raise RequestRefused(400, "subnetId or listSubnetIds must be given")
    spec = {**body, "subnetId": body.get("subnetId") or body["listSubnetIds"][0]}
    made = seed.cluster(state.new_id(rules, "k8s"), **spec)
    state.clusters[made["id"]] = made
    return short(state, made)


def update(state: AccountState, cluster: Row, body: Row) -> Any:
    """Change the fields that PUT can change; the version can only increase."""
    if "version" in body and body["version"] not in seed.VERSIONS[seed.VERSIONS.index(cluster["version"]) :]:
        raise RequestRefused(400, f"cluster cannot be upgraded to version {body['version']}")
    cluster.update(body, updatedAt=stamp())
    return short(state, cluster)


def delete(state: AccountState, rules: VksRules, cluster: Row) -> Any:
    """Delete a cluster immediately, with its node groups."""
    for one in list(state.groups_of(cluster["id"])):
        checks.free(rules, one)
        if one["real"]:
            raise RequestRefused(400, "the lab's own cluster cannot be deleted: delete its node groups")
        del state.groups[one["id"]]
    del state.clusters[cluster["id"]]
    return {**short(state, cluster), "status": "DELETING"}


def detail(state: AccountState, rules: VksRules, cluster: Row) -> Any:
    """Return a cluster with all its settings."""
    nodes = [
        lifecycle.is_ready(rules, one, node, time.time())
        for one in state.groups_of(cluster["id"])
        for node in one["nodes"]
    ]
    rest = {key: value for key, value in cluster.items() if key not in (*_SHORT, *_INTERNAL)}
    if cluster["azStrategy"] == "MULTI":
        del rest["subnetId"]
    return {**short(state, cluster), **rest, "numReadyNodes": sum(nodes), "numNotReadyNodes": len(nodes) - sum(nodes)}


def short(state: AccountState, cluster: Row) -> Row:
    """Return a cluster as it appears in lists."""
    count = sum(one["count"] for one in state.groups_of(cluster["id"]))
    times = {name: cluster[name] for name in ("createdAt", "updatedAt")}
    return {**{name: cluster[name] for name in _SHORT}, "numNodes": count, **times}


def events(state: AccountState, rules: VksRules, cluster: Row, query: Row, only: str | None = None) -> Any:
    """Return a page of events, newest first."""
    rows = []
    for event in reversed(state.data["events"].get(cluster["id"], [])):
        matches = all(event[name] == query[name] for name in ("action", "type") if name in query)
        if matches and only in (None, event["group"]):
            rows.append({key: value for key, value in event.items() if key != "group"})
    return rules.page(rows, query)


def kubeconfig(rules: VksRules, cluster: Row) -> Any:
    """Return the kubeconfig of a cluster."""
    kept = cluster.get("kubeconfig")
    if kept is None:
        return {
            "kubeConfig": None,
            "expirationAt": None,
            "expirationDays": None,
            "status": "NONE",
            "renewalWarning": False,
        }
    return {
        "kubeConfig": kept["text"],
        "expirationAt": stamp(kept["ends"]),
        "expirationDays": kept["days"],
        "status": kept["status"],
        "renewalWarning": kubeconfigs.warns(rules, kept),
    }


def account(state: AccountState, rules: VksRules, what: str) -> Any:
    """Return the data of the account: images, versions, the quota or the workspace."""
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
            "serviceAccountId": seed.stable_id("sa", "lab"),
            "status": "ACTIVE",
            "statusReason": None,
        }
    limit = rules.value("no-quota", 0)
    return {
        "maxClusters": int(rules.number("max-clusters")),
        "numClusters": len(state.clusters),
        "maxNodeGroupsPerCluster": int(rules.number("max-groups")),
        "maxNodesPerNodeGroup": int(rules.number("max-nodes") if limit is None else limit),
    }


def begin(state: AccountState, rules: VksRules, name: str, *, real: bool) -> None:
    """Create the first node group of the named cluster unless it has groups; without `real` it is ACTIVE immediately."""
    for cluster in state.clusters.values():
        if cluster["name"] == name and not list(state.groups_of(cluster["id"])):
            groups.create(state, rules, cluster, seed.first_group(), real=real)
            for group in () if real else state.groups_of(cluster["id"]):
                group.update(status="ACTIVE", operation=None, nodes=[{**node, "created": 0} for node in group["nodes"]])
