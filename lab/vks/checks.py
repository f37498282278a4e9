# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What VKS refuses: quotas, names that are taken, ids that belong elsewhere, numbers outside of bounds, groups that are busy."""

from __future__ import annotations

from collections.abc import Iterable

from . import seed
from .rules import Rules
from .world import Problem, Row, World


def free(rules: Rules, group: Row) -> None:
    """Refuse while something else is being done on the group; MCP knows the sentence."""
    busy = bool(group["doing"]) and rules.guess("busy-answer") != "accepted"
    if busy or rules.strikes("busy", group["name"]):
        raise Problem(400 if rules.guess("busy-answer") == "400" else 409, "Resource is being processed")


def new_group(world: World, rules: Rules, cluster: Row, body: Row) -> Row:
    """Refuse a group that cannot be; else return its subnet."""
    if cluster["status"] != "ACTIVE":
        raise Problem(400, f"cluster {cluster['name']} is not ACTIVE")
    live = list(world.of(cluster["id"]))
    if len(live) >= rules.number("max-groups"):
        raise Problem(400, f"quota exceeded: at most {rules.number('max-groups'):.0f} node groups per cluster")
    if rules.guess("duplicate-names") == "refused" and body["name"] in [group["name"] for group in live]:
        raise Problem(400, f"node group name {body['name']} already exists")
    subnet = _subnet(world, cluster, body.get("subnetId") or cluster["subnetId"])
    zone = subnet["zone"]["uuid"]
    flavor = _one("flavor", seed.offered(), "flavorId", body["flavorId"])
    if flavor["zoneId"] != zone:
        raise Problem(400, f"flavor {body['flavorId']} is not available in zone {zone}")
    if rules.guess("sold-out") == "refused" and sold_out(rules, body["flavorId"]):
        raise Problem(400, f"flavor {flavor['name']} is sold out in zone {zone}")
    disk = _one("volume type", seed.volume_types(), "id", body["diskType"])
    if disk["zone"] != zone:
        raise Problem(400, f"volume type {body['diskType']} is not available in zone {zone}")
    _one("ssh key", world.data["keys"], "id", body["sshKeyId"])
    _security_groups(world, rules, body["securityGroups"])
    if cluster["networkType"] == "CILIUM_NATIVE_ROUTING" and not body.get("secondarySubnets"):
        raise Problem(400, "secondarySubnets is required for network type CILIUM_NATIVE_ROUTING")
    _count(rules, body["numNodes"], body.get("autoScaleConfig"))
    scale = body.get("autoScaleConfig")
    if scale and not scale["minSize"] <= body["numNodes"] <= scale["maxSize"]:
        raise Problem(400, "numNodes must be between minSize and maxSize")
    return subnet


def changed_group(world: World, rules: Rules, group: Row, body: Row) -> int:
    """Refuse a change that cannot be; else return the number of nodes that the group is to have."""
    if rules.guess("put-needs") == "all":
        for name in ("imageId", "securityGroups", "upgradeConfig"):
            if name not in body:
                raise Problem(400, f"{name} must not be null")
    if rules.guess("put-labels") == "refused" and ("labels" in body or "taints" in body):
        raise Problem(400, "labels and taints cannot be changed here")
    if "securityGroups" in body:
        _security_groups(world, rules, body["securityGroups"])
    scale = group["spec"]["autoScaleConfig"]
    if "autoScaleConfig" in body:
        if body["autoScaleConfig"] is None and rules.guess("autoscale-null") == "refused":
            raise Problem(400, "autoScaleConfig must not be null")
        if body["autoScaleConfig"] or rules.guess("autoscale-null") == "deletes":
            scale = body["autoScaleConfig"]
    count = int(group["count"])
    if body.get("numNodes") is not None:
        how = rules.guess("count-with-autoscale") if scale else "applied"
        if how == "refused" and body["numNodes"] != count:
            raise Problem(400, "numNodes cannot be changed while autoscaling is on")
        count = body["numNodes"] if how != "ignored" else count
    if scale:
        inside = min(max(count, scale["minSize"]), scale["maxSize"])
        if inside != count and rules.guess("autoscale-bounds") == "refused":
            raise Problem(400, "numNodes must be between minSize and maxSize")
        count = inside
    _count(rules, count, scale)
    return count


def sold_out(rules: Rules, flavor_id: str) -> bool:
    """Tell whether no machine of a flavor is to be had."""
    fault = rules.fault("sold-out")
    if fault is None:
        return False
    flavor = _one("flavor", seed.offered(), "flavorId", flavor_id)
    return bool(flavor["name"] == fault.value if fault.value else flavor["gpu"] > 0)


def _count(rules: Rules, count: int, scale: Row | None) -> None:
    limit = rules.value("no-quota", 0)
    limit = rules.number("max-nodes") if limit is None else limit
    most = max(count, scale["maxSize"] if scale else 0)
    if most > limit:
        raise Problem(400, f"quota exceeded: at most {limit:.0f} nodes per node group, asked for {most}")
    if scale and scale["minSize"] > scale["maxSize"]:
        raise Problem(400, "minSize must not be greater than maxSize")
    if scale and scale["minSize"] == 0 and rules.guess("zero-min") == "refused":
        raise Problem(400, "minSize must be greater than or equal to 1")
    if not scale and count == 0 and rules.guess("zero-nodes") == "refused":
        raise Problem(400, "numNodes must be greater than or equal to 1")


def _subnet(world: World, cluster: Row, identity: str) -> Row:
    subnet = _one("subnet", world.data["subnets"], "uuid", identity)
    if subnet["networkUuid"] != cluster["vpcId"] or subnet["status"] != "ACTIVE":
        raise Problem(400, f"subnet {identity} is not an active one of the cluster's VPC")
    return subnet


def _security_groups(world: World, rules: Rules, given: Iterable[str]) -> None:
    wanted = list(given)
    if not wanted and rules.guess("empty-security-groups") == "refused":
        raise Problem(400, "securityGroups: size must be between 1 and 50")
    for identity in wanted:
        if _one("security group", world.data["security_groups"], "id", identity)["status"] != "ACTIVE":
            raise Problem(400, f"security group {identity} is not ACTIVE")


def _one(what: str, rows: Iterable[Row], key: str, value: str) -> Row:
    for row in rows:
        if row[key] == value:
            return row
    raise Problem(400, f"{what} {value} does not exist")
