# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vServer's look-ups: what there is to choose from. Lists come in several envelopes, and whole whatever page is asked for (MCP)."""

from __future__ import annotations

from typing import Any

from . import checks, seed
from .rules import Rules
from .world import Problem, Row, World

_FAMILIES = {"gpu": "GPU", "general": "General purpose"}
_PLATFORM = "skylake"
# Which guess tells the envelope of an operation; the others have one that no source disputes.
_ENVELOPES = {
    "list-projects": "projects-answer",
    "list-subnets": "subnets-answer",
    "list-flavors": "flavors-answer",
    "list-server-flavors": "flavors-answer",
    "list-families": "families-answer",
}
_KNOWN = {
    "list-zones": "data",
    "list-volume-type-zones": "volumeTypeZones",
    "list-volume-types": "volumeTypes",
    "import-ssh-key": "one",
}


def answer(
    world: World, rules: Rules, name: str, path: dict[str, str], query: Row, body: Row | None
) -> tuple[list[Row], Any]:
    """The rows that a look-up finds, and the body of its answer."""
    if path.get("PROJECT", seed.PROJECT) != seed.PROJECT:
        raise Problem(403, f"project {path['PROJECT']} is not yours")
    rows = _rows(world, rules, name, path, query, body)
    envelope = rules.guess(_ENVELOPES[name]) if name in _ENVELOPES else _KNOWN.get(name, "listData")
    if envelope == "one":
        return rows, {"success": True, "errorCode": 0, "errorMsg": None, "data": rows[0]}
    if envelope == "bare":
        return rows, rows
    if envelope == "listData":
        return rows, {"listData": rows, "page": 0, "pageSize": 0, "totalPage": 0, "totalItem": len(rows)}
    return rows, {"success": True, "errorCode": 0, "errorMsg": None, "extra": None, envelope: rows}


def _rows(world: World, rules: Rules, name: str, path: dict[str, str], query: Row, body: Row | None) -> list[Row]:
    zone = query.get("zoneId")
    if name == "list-projects":
        return [{"projectId": seed.PROJECT, "userId": 53461}]
    if name == "list-networks":
        return _named(world.data["networks"], "displayName", query)
    if name == "list-subnets":
        return [row for row in world.data["subnets"] if row["networkUuid"] == path["NETWORK"]]
    if name == "list-zones":
        rows = [{"uuid": zone, "name": zone, "openstackZone": zone.lower(), "isEnabled": True} for zone in seed.ZONES]
        return [*rows, {"uuid": "HCM03-1D", "name": "HCM03-1D", "openstackZone": "hcm03-1d", "isEnabled": False}]
    if name == "list-families":
        return [
            {"key": key, "value": text, "description": text, "condition": {"codes": [_PLATFORM]}}
            for key, text in _FAMILIES.items()
        ]
    if name in ("list-flavors", "list-server-flavors"):
        return _flavors(rules, path, zone)
    if name == "list-volume-type-zones":
        kinds = {
            row["zoneId"]: {"id": row["zoneId"], "name": row["kind"]}
            for row in seed.volume_types()
            if zone in (None, row["zone"])
        }
        return list(kinds.values())
    if name == "list-volume-types":
        rows = [row for row in seed.volume_types() if row["zoneId"] == path["VOLUMEZONE"]]
        return [{key: value for key, value in row.items() if key not in ("zone", "kind")} for row in rows]
    if name == "import-ssh-key":
        return [_import(world, rules, body or {})]
    kind = {"list-ssh-keys": "keys", "list-security-groups": "security_groups", "list-server-groups": "server_groups"}[
        name
    ]
    return _named(world.data[kind], "name", query)


def _flavors(rules: Rules, path: dict[str, str], zone: str | None) -> list[Row]:
    if path["FAMILY"] not in _FAMILIES or path["CODE"] != _PLATFORM:
        return []
    found = []
    for row in seed.offered():
        if (row["gpu"] > 0) == (path["FAMILY"] == "gpu") and zone in (None, row["zoneId"]):
            gone = checks.sold_out(rules, row["flavorId"])
            found.append({**row, "isSoldOut": gone, "remainingVms": 0 if gone else row["remainingVms"]})
    return found


def _named(rows: list[Row], key: str, query: Row) -> list[Row]:
    """Those whose name contains what is asked for (CLI: substring match)."""
    return [row for row in rows if query.get("name", "") in row[key]]


def _import(world: World, rules: Rules, body: Row) -> Row:
    if body["name"] in [row["name"] for row in world.data["keys"]]:
        raise Problem(400, f"ssh key {body['name']} already exists")
    key = {"id": world.new_id(rules, "ssh"), "name": body["name"], "status": "ACTIVE", "pubKey": body["pubKey"]}
    world.data["keys"].append(key)
    return key
