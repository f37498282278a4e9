# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of node groups: what is begun on one, which status it shows meanwhile, and how it ends.

CREATING, UPDATING and DELETING are OAS's and the clients'; DEGRADED is when nodes are missing (DOC, release notes of 2024-07-02).
"""

from __future__ import annotations

import time

from .rules import Rules
from .world import Row, World, stamp

_STATUS = {"create": "CREATING", "delete": "DELETING"}
_FAILS = {"create": "create-failed", "delete": "delete-failed"}
_FLAP_SECONDS = 0.3


def begin(world: World, rules: Rules, group: Row, what: str, before: Row | None = None) -> None:
    """Begin create, update, metadata, upgrade, autoscale or delete; `before` is what 'late-values' shows at first."""
    now = time.time()
    late = rules.guess("create-shown") if what == "create" else rules.guess("update-shown")
    lag = rules.number("lag") if late != "at-once" else 0
    delay = rules.delay(f"{group['name']} {what} {group['serial']}")
    group["serial"] += 1
    group["doing"] = {
        "what": what,
        "shown": now + lag,
        "until": now + lag + delay,
        "before": before if late == "late-values" else None,
    }
    if what != "create":
        group["updatedAt"] = stamp(now)


def hidden(group: Row, now: float) -> bool:
    """Tell whether a new group is not yet to be seen."""
    doing = group["doing"]
    return bool(doing) and doing["what"] == "create" and now < doing["shown"]


def shown(rules: Rules, group: Row, now: float) -> str:
    """The status of a group as the service tells it."""
    doing = group["doing"]
    if not doing or (now < doing["shown"] and doing["what"] != "create"):
        return str(group["status"])
    what, name = doing["what"], group["name"]
    quiet = {"metadata": "metadata-status", "autoscale": "autoscaler-status"}.get(what)
    if quiet and rules.guess(quiet) == "ACTIVE":
        return str(group["status"])
    if odd := rules.fault("unknown-status", name):
        return odd.value or "RECONCILING"
    missing = now >= doing["until"] and what not in ("delete", "metadata")
    if missing and (rules.guess("degraded") == "shown" or rules.fault("degraded", name)):
        return "DEGRADED"
    return _STATUS.get(what, "UPDATING")


def settle(world: World, rules: Rules, group: Row, now: float) -> bool:
    """End what is being done on a group if it is done; tell whether anything changed."""
    doing, name = group["doing"], group["name"]
    if not doing or now < doing["until"] or rules.fault("in-progress", name):
        return False
    what = doing["what"]
    if what == "delete":
        return _deleted(world, rules, group)
    if now < doing["until"] + (rules.value("degraded", _FLAP_SECONDS, name) or 0):
        return False
    fails = _FAILS.get(what, "update-failed")
    if rules.fault(fails, name) or (what == "create" and group["doomed"]):
        _fail(world, group, what, "not enough resources to run the machines of the node group")
    elif all(ready(rules, group, node, now) for node in group["nodes"]) and not group["leaving"]:
        group.update(status="ACTIVE", doing=None)
        world.tell(group["cluster"], "NORMAL", what.upper(), f"node group {name}: {what} succeeded", group["id"])
    else:
        return False
    return True


def ready(rules: Rules, group: Row, node: Row, now: float) -> bool:
    """Tell whether a node of a group takes pods: the lab's cluster says so itself, elsewhere it is a matter of time."""
    if rules.fault("nodes-pending", group["name"]):
        return False
    if group["real"]:
        return node["name"] in group["ready"]
    return now >= float(node["born"]) + rules.number("node-delay")


def resize(world: World, rules: Rules, group: Row, count: int) -> None:
    """Give a group new nodes, or take some away."""
    group["count"] = count
    nodes: list[Row] = group["nodes"]
    nodes += [new_node(world, rules, group) for dummy in range(count - len(nodes))]
    if (surplus := len(nodes) - count) > 0:
        how = rules.guess("shrink")
        gone = nodes[count:] if how == "newest" else nodes[:surplus]
        leave(group, rules.chance(f"shrink {group['id']} {count}").sample(nodes, surplus) if how == "random" else gone)


def replace(world: World, rules: Rules, group: Row) -> None:
    """Put new nodes in the place of all."""
    leave(group, list(group["nodes"]))
    resize(world, rules, group, group["count"])


def leave(group: Row, gone: list[Row]) -> None:
    """Take nodes from a group; those of the lab's cluster are still to be ended."""
    names = [node["name"] for node in gone]
    group["nodes"] = [node for node in group["nodes"] if node["name"] not in names]
    if group["real"]:
        group["leaving"] += names


def new_node(world: World, rules: Rules, group: Row) -> Row:
    """A node that is to come, with a name and an address that no other has, born with the group's labels and taints."""
    identity = world.new_id(rules, "ins")
    cluster = world.clusters[group["cluster"]]["name"]
    prefix = f"vks-{cluster}-{group['name']}" if rules.guess("node-names") == "cluster-group" else group["id"]
    world.data["addresses"] = number = world.data.get("addresses", 0) + 1
    base = group["network"].split(".")
    return {
        "id": identity,
        "name": f"{prefix}-{identity[-5:]}",
        "address": f"{base[0]}.{base[1]}.{int(base[2]) + number // 250 % 16}.{number % 250 + 4}",
        "born": time.time(),
        "labels": node_labels(rules, group),
        "taints": group["spec"]["taints"],
    }


def node_labels(rules: Rules, group: Row) -> dict[str, str]:
    """The labels that a group gives its nodes."""
    own = rules.guess("node-group-label")
    return {**group["spec"]["labels"], **({} if own == "none" else {own: group["name"]})}


def _deleted(world: World, rules: Rules, group: Row) -> bool:
    if rules.fault("delete-failed", group["name"]) and not group["forced"]:
        _fail(world, group, "delete", "resources of the node group are still in use")
    elif group["leaving"]:
        return False
    else:
        del world.groups[group["id"]]
        world.tell(group["cluster"], "NORMAL", "DELETE", f"node group {group['name']}: deleted", group["id"])
    return True


def _fail(world: World, group: Row, what: str, why: str) -> None:
    group.update(status="ERROR", doing=None)
    world.tell(
        group["cluster"], "ERROR", what.upper(), f"node group {group['name']}: {what} failed: {why}", group["id"]
    )
