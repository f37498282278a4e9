# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be asked of node groups: every handler returns the body of the answer, or raises Problem."""

from __future__ import annotations

import copy
import time
from typing import Any

from . import checks, life, seed
from .pages import page
from .rules import Rules
from .world import Problem, Row, World, stamp

_SYSTEM_LABEL = {"vks.vngcloud.vn/managed": "true"}
_SYSTEM_TAGS = {"vng.vks.cluster": "1", "vng.vks.node-group": "1", "vng.billing.product": "vks"}
_RESERVED_TAGS = ("vng.vks.", "vng.vpc.", "vng.billing.", "vks-", "vks-mgmt-")
_SETTABLE = ("securityGroups", "upgradeConfig", "imageId")


def create(world: World, rules: Rules, cluster: Row, body: Row, *, real: bool) -> Any:
    """Make a group; `real`: its nodes are machines of the lab's Kubernetes."""
    subnet = checks.new_group(world, rules, cluster, body)
    group: Row = {
        "id": world.new_id(rules, "ng"),
        "cluster": cluster["id"],
        "name": body["name"],
        "status": "CREATING",
        "version": cluster["version"],
        "spec": _spec(body, cluster, subnet),
        "network": subnet["cidr"].partition("/")[0],
        "count": 0,
        "nodes": [],
        "leaving": [],
        "ready": [],
        "real": real,
        "forced": False,
        "doomed": rules.guess("sold-out") == "error" and checks.sold_out(rules, body["flavorId"]),
        "serial": 0,
        "doing": None,
        "createdAt": stamp(),
        "updatedAt": None,
    }
    world.groups[group["id"]] = group
    life.resize(world, rules, group, body["numNodes"])
    life.begin(world, rules, group, "create")
    world.tell(cluster["id"], "NORMAL", "CREATE", f"node group {group['name']}: create begun", group["id"])
    return {"group": short(rules, group), "empty": None, "uid": {"uid": group["id"]}}[rules.guess("create-answer")]


def update(world: World, rules: Rules, group: Row, body: Row) -> Any:
    """Change what PUT changes."""
    checks.free(rules, group)
    wanted = checks.changed_group(world, rules, group, body)
    before = detail(rules, group)
    spec = group["spec"]
    spec.update({name: body[name] for name in _SETTABLE if name in body})
    if rules.guess("put-labels") == "applied" and ("labels" in body or "taints" in body):
        spec.update({name: body[name] for name in ("labels", "taints") if name in body})
        _relabel(rules, group)
    if "autoScaleConfig" in body and (body["autoScaleConfig"] or rules.guess("autoscale-null") == "deletes"):
        spec["autoScaleConfig"] = body["autoScaleConfig"]
    if wanted != group["count"]:
        life.resize(world, rules, group, wanted)
    life.begin(world, rules, group, "update", before)
    return written(rules, group)


def patch(world: World, rules: Rules, group: Row, body: Row) -> Any:
    """Change labels, tags, taints."""
    if not body:
        raise Problem(400, "at least one of labels, tags, taints must be given")
    checks.free(rules, group)
    before = detail(rules, group)
    for name, value in body.items():
        if value or rules.guess("metadata-empty") == "clears":
            group["spec"][name] = _merged(rules, name, group["spec"][name], value)
    group["spec"]["tags"] = _own_tags(group["spec"]["tags"])
    _relabel(rules, group)
    life.begin(world, rules, group, "metadata", before)
    return written(rules, group)


def upgrade(world: World, rules: Rules, group: Row, body: Row) -> Any:
    """Roll all nodes to the cluster's version, the only one that a group may go to (DOC)."""
    checks.free(rules, group)
    wanted, there = body["kubernetesVersion"], world.clusters[group["cluster"]]["version"]
    if wanted != there:
        raise Problem(400, f"node group can only be upgraded to the version of the control plane, {there}")
    before = detail(rules, group)
    group["version"] = wanted
    group["spec"]["imageId"] = seed.image(group["spec"]["os"], wanted)
    life.replace(world, rules, group)
    life.begin(world, rules, group, "upgrade", before)
    return written(rules, group)


def delete(world: World, rules: Rules, group: Row, *, forced: bool) -> Any:
    """Begin to end a group, with all its nodes."""
    if not forced:
        checks.free(rules, group)
    group["forced"] = forced
    life.leave(group, list(group["nodes"]))
    life.begin(world, rules, group, "delete")
    return written(rules, group)


def find(world: World, rules: Rules, cluster: Row, query: Row) -> Any:
    """A page of a cluster's groups, in their short form."""
    now, search, how = time.time(), query.get("search", ""), rules.guess("search")
    found = [group for group in world.of(cluster["id"]) if not life.hidden(group, now)]
    if search and how != "ignored":
        found = [one for one in found if (search in one["name"] if how == "substring" else search == one["name"])]
    if "status" in query:
        found = [group for group in found if life.shown(rules, group, now) == query["status"]]
    return page(rules, [short(rules, group) for group in found], query)


def nodes(rules: Rules, group: Row, query: Row) -> Any:
    """A page of a group's nodes."""
    now, private, fine = time.time(), group["spec"]["enablePrivateNodes"], rules.guess("node-status")
    rows = []
    for node in group["nodes"]:
        ready = life.ready(rules, group, node, now)
        rows.append(
            {
                "id": node["id"],
                "name": node["name"],
                "status": fine if ready or not group["doing"] else "CREATING",
                "floatingIp": None if private else f"203.0.113.{node['address'].rpartition('.')[2]}",
                "fixedIp": node["address"] if rules.guess("node-ip") == "shown" else None,
                "ready": ready,
            }
        )
    return page(rules, rows, query)


def short(rules: Rules, group: Row) -> Row:
    """A group as lists and writes tell it."""
    return {
        "id": group["id"],
        "clusterId": group["cluster"],
        "name": group["name"],
        "status": life.shown(rules, group, time.time()),
        "numNodes": group["count"],
        "imageId": group["spec"]["imageId"],
        "kubernetesVersion": group["version"],
        "createdAt": group["createdAt"],
        "updatedAt": group["updatedAt"],
    }


def detail(rules: Rules, group: Row) -> Row:
    """A group with all its settings."""
    doing = group["doing"]
    if doing and doing["before"] and time.time() < doing["shown"]:
        kept: Row = doing["before"]
        return kept
    spec = copy.deepcopy(group["spec"])
    system = spec.pop("os")
    if rules.guess("os-shown") != "neither":
        spec[rules.guess("os-shown")] = system
    if rules.guess("system-labels") == "added":
        spec["labels"].update(_SYSTEM_LABEL)
    if rules.guess("system-tags") == "shown":
        spec["tags"].update(_SYSTEM_TAGS)
    if rules.guess("security-groups-shown") == "default-added":
        spec["securityGroups"].append(seed.fixed("secg", "default"))
    empty = rules.guess("empty-shown")
    for name in ("labels", "taints", "tags"):
        if not spec[name] and empty == "left-out":
            del spec[name]
        elif not spec[name] and empty == "null":
            spec[name] = None
    return {**short(rules, group), **spec}


def written(rules: Rules, group: Row) -> Any:
    """What a write on a group answers."""
    return short(rules, group) if rules.guess("write-answer") == "group" else None


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
    """Tags of reserved prefixes are ignored without a word (MCP)."""
    return {key: value for key, value in tags.items() if not key.startswith(_RESERVED_TAGS)}


def _merged(rules: Rules, name: str, live: Any, given: Any) -> Any:
    if not given:
        return [] if name == "taints" else {}
    if rules.guess("metadata-merge") == "replace":
        return given
    if name != "taints":
        return {**live, **given}
    ours = {(taint["key"], taint["effect"]) for taint in given}
    return [*(taint for taint in live if (taint["key"], taint["effect"]) not in ours), *given]


def _relabel(rules: Rules, group: Row) -> None:
    """Let nodes that are there have new labels and taints, where the service does that."""
    if rules.guess("metadata-nodes") == "all":
        for node in group["nodes"]:
            node.update(labels=life.node_labels(rules, group), taints=group["spec"]["taints"])
