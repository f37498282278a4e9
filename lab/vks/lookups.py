# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vServer's lookups. Lists have several envelopes, and are complete regardless of the requested page (MCP)."""

from __future__ import annotations

from typing import Any

from . import checks, seed
from .rules import VksRules
from .state import AccountState, RequestRefused, Row

_FAMILIES = {"gpu": "GPU", "general": "General purpose"}
_PLATFORM = "skylake"
# The guess that determines the envelope of an operation; for the others all sources agree.
_ENVELOPES = {
    "list-projects": "projects-response",
    "list-subnets": "subnets-response",
    "list-flavors": "flavors-response",
    "list-server-flavors": "flavors-response",
    "list-families": "families-response",
}
_KNOWN = {
    "list-zones": "data",
    "list-volume-type-zones": "volumeTypeZones",
    "list-volume-types": "volumeTypes",
    "import-ssh-key": "one",
}


def answer(
    state: AccountState, rules: VksRules, name: str, path: dict[str, str], query: Row, body: Row | None
) -> tuple[list[Row], Any]:
    """Return the rows of a lookup, and the response body."""
    if path.get("PROJECT", seed.PROJECT) != seed.PROJECT:
        raise RequestRefused(403, f"project {path['PROJECT']} belongs to another account")
    rows = _rows(state, rules, name, path, query, body)
    envelope = rules.guess(_ENVELOPES[name]) if name in _ENVELOPES else _KNOWN.get(name, "listData")
    if envelope == "one":
        return rows, {"success": True, "errorCode": 0, "errorMsg": None, "data": rows[0]}
    if envelope == "bare":
        return rows, rows
    if envelope == "listData":
        return rows, {"listData": rows, "page": 0, "pageSize": 0, "totalPage": 0, "totalItem": len(rows)}
    return rows, {"success": True, "errorCode": 0, "errorMsg": None, "extra": None, envelope: rows}


def _rows(
    state: AccountState, rules: VksRules, name: str, path: dict[str, str], query: Row, body: Row | None
) -> list[Row]:
    zone = query.get("zoneId")
    if name == "list-projects":
        return [{"projectId": seed.PROJECT, "userId": 53461}]
    if name == "list-networks":
        return _named(state.data["networks"], "displayName", query)
    if name == "list-subnets":
        return [row for row in state.data["subnets"] if row["networkUuid"] == path["NETWORK"]]
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
        return [_import(state, rules, body or {})]
    kind = {"list-ssh-keys": "keys", "list-security-groups": "security_groups", "list-server-groups": "server_groups"}[
        name
    ]
    return _named(state.data[kind], "name", query)


def _flavors(rules: VksRules, path: dict[str, str], zone: str | None) -> list[Row]:
    if path["FAMILY"] not in _FAMILIES or path["CODE"] != _PLATFORM:
        return []
    rows = []
    for row in seed.flavors_offered():
        if (row["gpu"] > 0) == (path["FAMILY"] == "gpu") and zone in (None, row["zoneId"]):
            gone = checks.sold_out(rules, row["flavorId"])
            rows.append({**row, "isSoldOut": gone, "remainingVms": 0 if gone else row["remainingVms"]})
    return rows


def _named(rows: list[Row], key: str, query: Row) -> list[Row]:
    """Return the rows whose name contains the query's (CLI: substring match)."""
    return [row for row in rows if query.get("name", "") in row[key]]


def _import(state: AccountState, rules: VksRules, body: Row) -> Row:
    if body["name"] in [row["name"] for row in state.data["keys"]]:
        raise RequestRefused(400, f"ssh key {body['name']} already exists")
    key = {"id": state.new_id(rules, "ssh"), "name": body["name"], "status": "ACTIVE", "pubKey": body["pubKey"]}
    state.data["keys"].append(key)
    return key
