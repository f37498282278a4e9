# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operations on node groups: every handler returns the response body, or raises RequestRefused."""

from __future__ import annotations

import copy
import time
from typing import Any

from . import checks, lifecycle, seed
from .rules import VksRules
from .state import AccountState, RequestRefused, Row, stamp

_SYSTEM_LABEL = {"vks.vngcloud.vn/managed": "true"}
_SYSTEM_TAGS = {"vng.vks.cluster": "1", "vng.vks.node-group": "1", "vng.billing.product": "vks"}
_RESERVED_TAGS = ("vng.vks.", "vng.vpc.", "vng.billing.", "vks-", "vks-mgmt-")
_SETTABLE = ("securityGroups", "upgradeConfig", "imageId", "autoScaleConfig", "labels", "taints")


def create(state: AccountState, rules: VksRules, cluster: Row, body: Row, *, real: bool) -> Any:
    """Create a group; with `real`, its nodes are nodes of the lab's Kubernetes cluster."""
    subnet = checks.new_group(state, rules, cluster, body)
    group: Row = {
        "id": state.new_id(rules, "ng"),
        "cluster": cluster["id"],
        "name": body["name"],
        "status": "CREATING",
        "version": cluster["version"],
        "spec": _spec(body, cluster, subnet),
        "network": subnet["cidr"].partition("/")[0],
        "count": 0,
        "nodes": [],
        "nodes_to_delete": [],
        "ready": [],
        "real": real,
        "forced": False,
        "will_fail": rules.guess("sold-out") == "error" and checks.sold_out(rules, body["flavorId"]),
        "serial": 0,
        "operation": None,
        "createdAt": stamp(),
        "updatedAt": None,
    }
    state.groups[group["id"]] = group
    lifecycle.resize(state, rules, group, body["numNodes"])
    lifecycle.begin(state, rules, group, "create")
    state.add_event(cluster["id"], "NORMAL", "CREATE", f"node group {group['name']}: create started", group["id"])
    return {"group": short(rules, group), "empty": None, "uid": {"uid": group["id"]}}[rules.guess("create-response")]


def update(state: AccountState, rules: VksRules, group: Row, body: Row) -> Any:
    """Change the fields that PUT can change."""
    checks.free(rules, group)
    desired = checks.changed_group(state, rules, group, body)
    before = detail(rules, group)
    spec = group["spec"]
    spec.update({name: body[name] for name in _SETTABLE if name in body})
    if "labels" in body or "taints" in body:
        _relabel(rules, group)
    if desired != group["count"]:
        lifecycle.resize(state, rules, group, desired)
    lifecycle.begin(state, rules, group, "update", before)
    return written(rules, group)


def patch(state: AccountState, rules: VksRules, group: Row, body: Row) -> Any:
    """Change labels, tags and taints."""
    if not body:
        raise RequestRefused(400, "at least one of labels, tags, taints must be given")
    checks.free(rules, group)
    before = detail(rules, group)
    for name, value in body.items():
        group["spec"][name] = value or ([] if name == "taints" else {})
    group["spec"]["tags"] = _own_tags(group["spec"]["tags"])
    _relabel(rules, group)
    lifecycle.begin(state, rules, group, "metadata", before)
    return written(rules, group)


def upgrade(state: AccountState, rules: VksRules, group: Row, body: Row) -> Any:
    """Replace all nodes with nodes of the cluster's version, the only valid target version (DOC)."""
    checks.free(rules, group)
    desired, actual = body["kubernetesVersion"], state.clusters[group["cluster"]]["version"]
    if desired != actual:
        raise RequestRefused(400, f"node group can only be upgraded to the version of the control plane, {actual}")
    before = detail(rules, group)
    group["version"] = desired
    group["spec"]["imageId"] = seed.image(group["spec"]["os"], desired)
    lifecycle.replace(state, rules, group)
    lifecycle.begin(state, rules, group, "upgrade", before)
    return written(rules, group)


def delete(state: AccountState, rules: VksRules, group: Row, *, forced: bool) -> Any:
    """Start the deletion of a group and all its nodes."""
    if not forced:
        checks.free(rules, group)
    group["forced"] = forced
    lifecycle.remove_nodes(group, list(group["nodes"]))
    lifecycle.begin(state, rules, group, "delete")
    return written(rules, group)


def find(state: AccountState, rules: VksRules, cluster: Row, query: Row) -> Any:
    """Return a page of a cluster's groups, in short form."""
    now, search, how = time.time(), query.get("search", ""), rules.guess("search")
    visible = [group for group in state.groups_of(cluster["id"]) if not lifecycle.is_hidden(group, now)]
    if search and how != "ignored":
        visible = [one for one in visible if (search in one["name"] if how == "substring" else search == one["name"])]
    if "status" in query:
        visible = [group for group in visible if lifecycle.shown_status(rules, group, now) == query["status"]]
    return rules.page([short(rules, group) for group in visible], query)


def nodes(rules: VksRules, group: Row, query: Row) -> Any:
    """Return a page of a group's nodes."""
    now, private, fine = time.time(), group["spec"]["enablePrivateNodes"], rules.guess("node-status")
    rows = []
    for node in group["nodes"]:
        ready = lifecycle.is_ready(rules, group, node, now)
        rows.append(
            {
                "id": node["id"],
                "name": node["name"],
                "status": fine if ready or not group["operation"] else "CREATING",
                "floatingIp": None if private else f"203.0.113.{node['address'].rpartition('.')[2]}",
                "fixedIp": node["address"] if rules.guess("node-ip") == "shown" else None,
                "ready": ready,
            }
        )
    return rules.page(rows, query)


def short(rules: VksRules, group: Row) -> Row:
    """Return a group in the short form of lists and write responses."""
    return {
        "id": group["id"],
        "clusterId": group["cluster"],
        "name": group["name"],
        "status": lifecycle.shown_status(rules, group, time.time()),
        "numNodes": group["count"],
        "imageId": group["spec"]["imageId"],
        "kubernetesVersion": group["version"],
        "createdAt": group["createdAt"],
        "updatedAt": group["updatedAt"],
    }


def detail(rules: VksRules, group: Row) -> Row:
    """Return a group with all its settings."""
    operation = group["operation"]
    if operation and operation["before"] and time.time() < operation["shown"]:
        kept: Row = operation["before"]
        return kept
    spec = copy.deepcopy(group["spec"])
    spec["imageOS"] = spec.pop("os")
    if rules.guess("system-labels") == "added":
        spec["labels"].update(_SYSTEM_LABEL)
    if rules.guess("system-tags") == "shown":
        spec["tags"].update(_SYSTEM_TAGS)
    if rules.guess("security-groups-shown") == "default-added":
        spec["securityGroups"].append(seed.stable_id("secg", "default"))
    empty = rules.guess("empty-shown")
    for name in ("labels", "taints", "tags"):
        if not spec[name] and empty == "omitted":
            del spec[name]
        elif not spec[name] and empty == "null":
            spec[name] = None
    return {**short(rules, group), **spec}


def written(rules: VksRules, group: Row) -> Any:
    """Return the response body of a write to a group."""
    return short(rules, group) if rules.guess("write-response") == "group" else None


def _spec(body: Row, cluster: Row, subnet: Row) -> Row:
    system = body.get("os", "ubuntu")
    return {
        "imageId": body.get("imageId") or seed.image(system, cluster["version"]),
        "os": system,
        "flavorId": body["flavorId"],
        "diskSize": body["diskSize"],
        "diskType": body["diskType"],
        "enablePrivateNodes": body["enablePrivateNodes"],
        "sshKeyId": body["sshKeyId"],
        "securityGroups": list(body["securityGroups"]),
        "autoScaleConfig": body.get("autoScaleConfig"),
        "upgradeConfig": body["upgradeConfig"],
        "labels": dict(body.get("labels", {})),
        "taints": list(body.get("taints", [])),
        "tags": _own_tags(body.get("tags", {})),
        "subnetId": subnet["uuid"],
        "secondarySubnets": list(body.get("secondarySubnets", [])),
        "enabledEncryptionVolume": body.get("enabledEncryptionVolume", False),
        "dnsServiceConfig": None,
        "placementGroupId": body.get("placementGroupConfigDto", {}).get("placementGroupId"),
    }


def _own_tags(tags: Row) -> Row:
    """Return the tags without those with a reserved prefix, which the service ignores silently (MCP)."""
    return {key: value for key, value in tags.items() if not key.startswith(_RESERVED_TAGS)}


def _relabel(rules: VksRules, group: Row) -> None:
    """Update labels and taints of existing nodes, if the service does so."""
    if rules.guess("metadata-nodes") == "all":
        for node in group["nodes"]:
            node.update(labels=lifecycle.node_labels(rules, group), taints=group["spec"]["taints"])
