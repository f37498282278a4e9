# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requests that VKS rejects: exceeded quotas, duplicate names, unknown ids, numbers out of bounds, busy groups."""

from __future__ import annotations

from collections.abc import Iterable

from . import seed
from .rules import VksRules
from .state import AccountState, RequestRefused, Row


def free(rules: VksRules, group: Row) -> None:
    """Reject the request if another operation on the group is in progress; the message is from MCP."""
    busy = bool(group["operation"]) and rules.guess("busy-response") != "accepted"
    if busy or rules.consume("busy", group["name"]):
        raise RequestRefused(400 if rules.guess("busy-response") == "400" else 409, "Resource is being processed")


def new_group(state: AccountState, rules: VksRules, cluster: Row, body: Row) -> Row:
    """Reject an invalid new group; otherwise return its subnet."""
    if cluster["status"] != "ACTIVE":
        raise RequestRefused(400, f"cluster {cluster['name']} is not ACTIVE")
    live = list(state.groups_of(cluster["id"]))
    if len(live) >= rules.number("max-groups"):
        raise RequestRefused(400, f"quota exceeded: at most {rules.number('max-groups'):.0f} node groups per cluster")
    if rules.guess("duplicate-names") == "refused" and body["name"] in [group["name"] for group in live]:
        raise RequestRefused(400, f"node group name {body['name']} already exists")
    subnet = _subnet(state, cluster, body.get("subnetId") or cluster["subnetId"])
    zone = subnet["zone"]["uuid"]
    flavor = _one("flavor", seed.flavors_offered(), "flavorId", body["flavorId"])
    if flavor["zoneId"] != zone:
        raise RequestRefused(400, f"flavor {body['flavorId']} is not available in zone {zone}")
    if rules.guess("sold-out") == "refused" and sold_out(rules, body["flavorId"]):
        raise RequestRefused(400, f"flavor {flavor['name']} is sold out in zone {zone}")
    disk = _one("volume type", seed.volume_types(), "id", body["diskType"])
    if disk["zone"] != zone:
        raise RequestRefused(400, f"volume type {body['diskType']} is not available in zone {zone}")
    _one("ssh key", state.data["keys"], "id", body["sshKeyId"])
    _security_groups(state, rules, body["securityGroups"])
    if cluster["networkType"] == "CILIUM_NATIVE_ROUTING" and not body.get("secondarySubnets"):
        raise RequestRefused(400, "secondarySubnets is required for network type CILIUM_NATIVE_ROUTING")
    _count(rules, body["numNodes"], body.get("autoScaleConfig"))
    scale = body.get("autoScaleConfig")
    if scale and not scale["minSize"] <= body["numNodes"] <= scale["maxSize"]:
        raise RequestRefused(400, "numNodes must be between minSize and maxSize")
    return subnet


def changed_group(state: AccountState, rules: VksRules, group: Row, body: Row) -> int:
    """Reject an invalid change; otherwise return the new number of nodes."""
    if "securityGroups" in body:
        _security_groups(state, rules, body["securityGroups"])
    scale = group["spec"]["autoScaleConfig"]
    if "autoScaleConfig" in body:
        scale = body["autoScaleConfig"]
    count = int(group["count"])
    if body.get("numNodes") is not None:
        how = rules.guess("count-with-autoscale") if scale else "applied"
        count = body["numNodes"] if how != "ignored" else count
    if scale:
        inside = min(max(count, scale["minSize"]), scale["maxSize"])
        if inside != count and rules.guess("autoscale-bounds") == "refused":
            raise RequestRefused(400, "numNodes must be between minSize and maxSize")
        count = inside
    _count(rules, count, scale)
    return count


def sold_out(rules: VksRules, flavor_id: str) -> bool:
    """Return whether a flavor is sold out."""
    fault = rules.fault("sold-out")
    if fault is None:
        return False
    flavor = _one("flavor", seed.flavors_offered(), "flavorId", flavor_id)
    return bool(flavor["name"] == fault.value if fault.value else flavor["gpu"] > 0)


def _count(rules: VksRules, count: int, scale: Row | None) -> None:
    limit = rules.value("no-quota", 0)
    limit = rules.number("max-nodes") if limit is None else limit
    most = max(count, scale["maxSize"] if scale else 0)
    if most > limit:
        raise RequestRefused(400, f"quota exceeded: at most {limit:.0f} nodes per node group, requested {most}")
    if scale and scale["minSize"] > scale["maxSize"]:
        raise RequestRefused(400, "minSize must not be greater than maxSize")
    if scale and scale["minSize"] == 0 and rules.guess("zero-min") == "refused":
        raise RequestRefused(400, "minSize must be greater than or equal to 1")
    if not scale and count == 0 and rules.guess("zero-nodes") == "refused":
        raise RequestRefused(400, "numNodes must be greater than or equal to 1")


def _subnet(state: AccountState, cluster: Row, identity: str) -> Row:
    subnet = _one("subnet", state.data["subnets"], "uuid", identity)
    if subnet["networkUuid"] != cluster["vpcId"] or subnet["status"] != "ACTIVE":
        raise RequestRefused(400, f"subnet {identity} is not an active subnet of the cluster's VPC")
    return subnet


def _security_groups(state: AccountState, rules: VksRules, given: Iterable[str]) -> None:
    requested = list(given)
    if not requested and rules.guess("empty-security-groups") == "refused":
        raise RequestRefused(400, "securityGroups: size must be between 1 and 50")
    for identity in requested:
        if _one("security group", state.data["security_groups"], "id", identity)["status"] != "ACTIVE":
            raise RequestRefused(400, f"security group {identity} is not ACTIVE")


def _one(what: str, rows: Iterable[Row], key: str, value: str) -> Row:
    for row in rows:
        if row[key] == value:
            return row
    raise RequestRefused(400, f"{what} {value} does not exist")
