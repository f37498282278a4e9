# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifecycle of node groups: their operations, the status during an operation, and its outcome.

CREATING, UPDATING and DELETING are from OAS and the clients; DEGRADED means missing nodes (DOC, release notes of 2024-07-02).
"""

from __future__ import annotations

import time

from .rules import VksRules
from .state import AccountState, Row, stamp

_STATUS = {"create": "CREATING", "delete": "DELETING"}
_FAILS = {"create": "create-failed", "delete": "delete-failed"}
_FLAP_SECONDS = 0.3


def begin(state: AccountState, rules: VksRules, group: Row, what: str, before: Row | None = None) -> None:
    """Start create, update, metadata, upgrade, autoscale or delete; the alternative 'late-values' shows `before` at first."""
    now = time.time()
    late = rules.guess("create-shown") if what == "create" else rules.guess("update-shown")
    lag = rules.number("lag") if late != "at-once" else 0
    delay = rules.delay(f"{group['name']} {what} {group['serial']}")
    group["serial"] += 1
    group["operation"] = {
        "what": what,
        "shown": now + lag,
        "until": now + lag + delay,
        "before": before if late == "late-values" else None,
    }
    if what != "create":
        group["updatedAt"] = stamp(now)


def is_hidden(group: Row, now: float) -> bool:
    """Return whether a new group is not visible yet."""
    operation = group["operation"]
    return bool(operation) and operation["what"] == "create" and now < operation["shown"]


def shown_status(rules: VksRules, group: Row, now: float) -> str:
    """Return the status of a group that the service reports."""
    operation = group["operation"]
    if not operation or (now < operation["shown"] and operation["what"] != "create"):
        return str(group["status"])
    what, name = operation["what"], group["name"]
    quiet = {"metadata": "metadata-status", "autoscale": "autoscaler-status"}.get(what)
    if quiet and rules.guess(quiet) == "ACTIVE":
        return str(group["status"])
    if fault := rules.fault("unknown-status", name):
        return fault.value or "RECONCILING"
    missing = now >= operation["until"] and what not in ("delete", "metadata")
    if missing and (rules.guess("degraded") == "shown" or rules.fault("degraded", name)):
        return "DEGRADED"
    return _STATUS.get(what, "UPDATING")


def advance(state: AccountState, rules: VksRules, group: Row, now: float) -> bool:
    """Complete the operation on a group if it is done; return whether anything changed."""
    operation, name = group["operation"], group["name"]
    if not operation or now < operation["until"] or rules.fault("in-progress", name):
        return False
    what = operation["what"]
    if what == "delete":
        return _deleted(state, rules, group)
    if now < operation["until"] + (rules.value("degraded", _FLAP_SECONDS, name) or 0):
        return False
    fails = _FAILS.get(what, "update-failed")
    if rules.fault(fails, name) or (what == "create" and group["will_fail"]):
        _fail(state, group, what, "not enough resources to run the machines of the node group")
    elif all(is_ready(rules, group, node, now) for node in group["nodes"]) and not group["nodes_to_delete"]:
        group.update(status="ACTIVE", operation=None)
        state.add_event(group["cluster"], "NORMAL", what.upper(), f"node group {name}: {what} succeeded", group["id"])
    else:
        return False
    return True


def is_ready(rules: VksRules, group: Row, node: Row, now: float) -> bool:
    """Return whether a node is ready: the lab's cluster reports it; in other clusters it follows from the elapsed time."""
    if rules.fault("nodes-pending", group["name"]):
        return False
    if group["real"]:
        return node["name"] in group["ready"]
    return now >= float(node["created"]) + rules.number("node-delay")


def resize(state: AccountState, rules: VksRules, group: Row, count: int) -> None:
    """Add nodes to a group, or remove some."""
    group["count"] = count
    nodes: list[Row] = group["nodes"]
    nodes += [new_node(state, rules, group) for dummy in range(count - len(nodes))]
    if (surplus := len(nodes) - count) > 0:
        how = rules.guess("shrink")
        gone = nodes[count:] if how == "newest" else nodes[:surplus]
        remove_nodes(
            group, rules.chance(f"shrink {group['id']} {count}").sample(nodes, surplus) if how == "random" else gone
        )


def replace(state: AccountState, rules: VksRules, group: Row) -> None:
    """Replace all nodes with new ones."""
    remove_nodes(group, list(group["nodes"]))
    resize(state, rules, group, group["count"])


def remove_nodes(group: Row, gone: list[Row]) -> None:
    """Remove nodes from a group; the nodes of the lab's cluster are deleted later (node_sync)."""
    names = [node["name"] for node in gone]
    group["nodes"] = [node for node in group["nodes"] if node["name"] not in names]
    if group["real"]:
        group["nodes_to_delete"] += names


def new_node(state: AccountState, rules: VksRules, group: Row) -> Row:
    """Return a new node with a unique name and address, and the group's labels and taints."""
    identity = state.new_id(rules, "ins")
    cluster = state.clusters[group["cluster"]]["name"]
    prefix = f"vks-{cluster}-{group['name']}" if rules.guess("node-names") == "cluster-group" else group["id"]
    state.data["addresses"] = number = state.data.get("addresses", 0) + 1
    base = group["network"].split(".")
    return {
        "id": identity,
        "name": f"{prefix}-{identity[-5:]}",
        "address": f"{base[0]}.{base[1]}.{int(base[2]) + number // 250 % 16}.{number % 250 + 4}",
        "created": time.time(),
        "labels": node_labels(rules, group),
        "taints": group["spec"]["taints"],
    }


def node_labels(rules: VksRules, group: Row) -> dict[str, str]:
    """Return the labels that a group sets on its nodes."""
    own = rules.guess("node-group-label")
    return {**group["spec"]["labels"], **({} if own == "none" else {own: group["name"]})}


def _deleted(state: AccountState, rules: VksRules, group: Row) -> bool:
    if rules.fault("delete-failed", group["name"]) and not group["forced"]:
        _fail(state, group, "delete", "resources of the node group are still in use")
    elif group["nodes_to_delete"]:
        return False
    else:
        del state.groups[group["id"]]
        state.add_event(group["cluster"], "NORMAL", "DELETE", f"node group {group['name']}: deleted", group["id"])
    return True


def _fail(state: AccountState, group: Row, what: str, why: str) -> None:
    group.update(status="ERROR", operation=None)
    state.add_event(
        group["cluster"], "ERROR", what.upper(), f"node group {group['name']}: {what} failed: {why}", group["id"]
    )
