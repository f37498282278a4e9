# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The licensing of several clusters as text for a terminal (pure)."""

from __future__ import annotations

import typing as t

from ..report.table import WIDTH, Column, table, wrap
from .targets import NO_OBJECT

Document = t.Mapping[str, t.Any]

_NONE = "-"


def report_problems(report: Document, min_days: int) -> list[str]:
    """Why a monitoring system should raise an alarm for a cluster, as sentences; empty if all is in order."""
    info = report.get("license_info")
    if not isinstance(info, dict):
        return [f"The cluster could not be read: {report.get('msg') or 'unknown error'}"]
    found = []
    counts = info.get("counts") or {}
    nodes, licensed, not_required = (int(counts.get(name) or 0) for name in ("nodes", "licensed", "not_required"))
    missing = nodes - licensed - not_required
    if missing > 0:
        found.append(f"{missing} of {counts.get('nodes')} nodes have no verified license.")
    if outdated := int(counts.get("outdated") or 0):
        found.append(
            f"{outdated} {'node has' if outdated == 1 else 'nodes have'} a token that differs from the one in their Secret. Run the playbook license_rotate."
        )
    if not info.get("objects") and counts.get("nodes"):
        found.append(NO_OBJECT)
    found += [text for item in info.get("objects") or () if (text := _object_problem(item))]
    left = info.get("days_left")
    if left is not None and left < min_days:
        found.append(
            f"A token expires in {left} days, which is less than {min_days}." if left >= 0 else "A token has expired."
        )
    servers, failure = report.get("license_servers"), report.get("license_servers_failure")
    if failure:
        found.append(f"The license servers could not be read: {failure}")
    if servers and missing > 0 and servers.get("total") and servers["in_use"] >= servers["total"]:
        found.append(f"All {servers['total']} licenses in the pools are held.")
    return found


def _object_problem(item: Document) -> str:
    """Why new driver pods get no license from an object; empty for a token that has expired, which the days left show."""
    name = f"{item['kind']} {item['namespace']}/{item['name']}"
    if not item["readable"]:
        return f"This user may not read {name}, so its token is not verified."
    if item["valid"] is None or not item["complete"]:
        return f"{name} does not exist, or has no valid token and gridd.conf. Run the playbook license with a token."
    left = item["days_left"]
    if not item["valid"] and (left is None or left >= 0):
        return f"The token in {name} is not valid before {item['not_before']}. Wait until then, or correct the clock of this machine or of the license server."
    return ""


def report_lines(reports: t.Mapping[str, Document], min_days: int, width: int = WIDTH) -> list[str]:
    """One table with a line for each cluster, and the problems of each cluster below it.

    If licenses and leases of license servers were read, the table has columns for them; several clusters may share them.
    """
    columns = _COLUMNS if any(report.get("license_servers") for report in reports.values()) else _CLUSTER_COLUMNS
    lines = table(columns, sorted(reports.items()), width)
    for name, report in sorted(reports.items()):
        info = report.get("license_info")
        texts = dict.fromkeys([*report_problems(report, min_days), *((info or {}).get("warnings") or ())])
        if texts:
            lines += ["", *wrap([(name, text) for text in texts], width)]
    return lines


def _info(row: tuple[str, Document]) -> Document:
    info = row[1].get("license_info")
    return info if isinstance(info, dict) else {}


def _count(name: str) -> t.Callable[[tuple[str, Document]], t.Any]:
    return lambda row: (_info(row).get("counts") or {}).get(name, _NONE)


def _first_expiry(row: tuple[str, Document]) -> str:
    found = sorted(item["expires"] for item in _info(row).get("objects") or () if item.get("expires"))
    return found[0][:10] if found else _NONE


def _servers(row: tuple[str, Document]) -> str:
    hosts = {
        service["host"]: None for item in _info(row).get("objects") or () for service in item.get("services") or ()
    }
    return ", ".join(hosts) or _NONE


def _days(row: tuple[str, Document]) -> t.Any:
    left = _info(row).get("days_left")
    return _NONE if left is None else left


def _licenses(name: str) -> t.Callable[[tuple[str, Document]], t.Any]:
    return lambda row: (row[1].get("license_servers") or {}).get(name, _NONE)


_CLUSTER_COLUMNS = (
    Column("CLUSTER", lambda row: row[0], cuts=True),
    Column("NODES", _count("nodes"), number=True),
    Column("LICENSED", _count("licensed"), number=True),
    Column("UNLICENSED", _count("unlicensed"), number=True),
    Column("UNKNOWN", _count("unknown"), number=True),
    Column("OUTDATED", _count("outdated"), number=True),
    Column("TOKEN EXPIRES", _first_expiry),
    Column("DAYS LEFT", _days, number=True),
    Column("LICENSE SERVER", _servers, cuts=True),
)
# Between the nodes and the tokens.
_COLUMNS = (
    *_CLUSTER_COLUMNS[:6],
    Column("LICENSES", _licenses("total"), number=True),
    Column("LEASES", _licenses("leases"), number=True),
    *_CLUSTER_COLUMNS[6:],
)
