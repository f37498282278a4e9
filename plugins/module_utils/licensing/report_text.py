# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats the licensing states of several clusters as text for a terminal (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..report.table import WIDTH, Column, table, wrap

Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class ClusterReport:
    """One cluster: its name, and the results of license_info and license_server_info, either of which may have failed."""

    name: str
    result: Document

    @property
    def info(self) -> Document | None:
        """The result of license_info; None if the cluster could not be read."""
        result = self.result.get("license_info")
        return result if isinstance(result, dict) else None

    @property
    def objects(self) -> t.Sequence[Document]:
        """The objects that contain the tokens."""
        return (self.info or {}).get("objects") or ()

    @property
    def servers(self) -> Document:
        """The licenses and leases of the organization; empty if they were not read."""
        return self.result.get("license_servers") or {}

    @property
    def days_left(self) -> int | None:
        """Whole days until the first token expires; None if no token expires."""
        return (self.info or {}).get("days_left")

    @property
    def first_expiry(self) -> str:
        """The day on which the first token expires; empty if no token expires."""
        return min((item["expires"][:10] for item in self.objects if item.get("expires")), default="")

    @property
    def hosts(self) -> list[str]:
        """The license servers of all tokens."""
        return list(dict.fromkeys(each["host"] for item in self.objects for each in item.get("services") or ()))

    def count(self, state: str) -> int | None:
        """The number of nodes in a state; None if the cluster could not be read."""
        return None if self.info is None else int((self.info.get("counts") or {}).get(state) or 0)

    @property
    def problems(self) -> list[str]:
        """The reasons for an alarm in a monitoring system, as sentences; empty if there are none."""
        if self.info is None:
            return [f"The cluster could not be read: {self.result.get('msg') or 'unknown error'}"]
        nodes, licensed, not_required = (self.count(state) or 0 for state in ("nodes", "licensed", "not_required"))
        problems = list(self.info.get("problems") or ())
        if failure := self.result.get("license_servers_failure"):
            problems.append(f"The license servers could not be read: {failure}")
        if nodes > licensed + not_required:
            # The result does not name the product that the unlicensed nodes need.
            exhausted = [each for each in self.servers.get("products") or () if each["total"] and each["free"] <= 0]
            problems += [
                f"All {each['total']} licenses of {each['name']} in the license pools are in use." for each in exhausted
            ]
        return problems

    @property
    def texts(self) -> list[str]:
        """The problems and the warnings of license_info, without duplicates."""
        return list(dict.fromkeys([*self.problems, *((self.info or {}).get("warnings") or ())]))


def report_problems(result: Document) -> list[str]:
    """The reasons for an alarm about a cluster in a monitoring system, as sentences; empty if there are none."""
    return ClusterReport("", result).problems


def report_lines(results: t.Mapping[str, Document], width: int = WIDTH) -> list[str]:
    """One table with a line for each cluster, followed by the problems of each cluster.

    If the licenses and leases of the license servers were read, the table has columns for them. Several clusters may share these licenses.
    """
    reports = [ClusterReport(name, result) for name, result in sorted(results.items())]
    servers = _SERVER_COLUMNS if any(report.servers for report in reports) else ()
    columns = (*_NODE_COLUMNS, *servers, *_TOKEN_COLUMNS)
    lines = table(columns, reports, width)
    for report in reports:
        if texts := report.texts:
            lines += ["", *wrap([(report.name, text) for text in texts], width)]
    return lines


def _column(
    head: str, value: t.Callable[[ClusterReport], t.Any], *, number: bool = False, cuts: bool = False
) -> Column:
    """A column that shows a dash for a value that could not be read or does not exist."""

    def shown(report: ClusterReport) -> t.Any:
        text = value(report)
        return "-" if text is None or text == "" else text

    return Column(head, shown, number, cuts)


_NODE_COLUMNS = (
    _column("CLUSTER", lambda report: report.name, cuts=True),
    _column("NODES", lambda report: report.count("nodes"), number=True),
    _column("LICENSED", lambda report: report.count("licensed"), number=True),
    _column("UNLICENSED", lambda report: report.count("unlicensed"), number=True),
    _column("UNKNOWN", lambda report: report.count("unknown"), number=True),
    _column("OUTDATED", lambda report: report.count("outdated"), number=True),
)
_SERVER_COLUMNS = (
    _column("LICENSES", lambda report: report.servers.get("total"), number=True),
    _column("LEASES", lambda report: report.servers.get("leases"), number=True),
)
_TOKEN_COLUMNS = (
    _column("TOKEN EXPIRES", lambda report: report.first_expiry),
    _column("DAYS LEFT", lambda report: report.days_left, number=True),
    _column("LICENSE SERVER", lambda report: ", ".join(report.hosts), cuts=True),
)
