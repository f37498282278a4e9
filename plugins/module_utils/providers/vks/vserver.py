# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the vServer resources of a project. Each list is read only once."""

from __future__ import annotations

import functools
import itertools
import typing as t

from ...common.errors import InvalidOptions
from ...common.parallel import call_all
from . import catalog
from .catalog import CatalogItem, Flavor, flavor_of
from .errors import VksError
from .transport import VKS, VSERVER, Row, VksTransport, rows_of

T = t.TypeVar("T")
_PARALLEL = 8
_SIZE = 1000


class VServer:
    """A client for the resources of one project."""

    def __init__(self, transport: VksTransport, project_id: str | None) -> None:
        """Store the arguments without sending a request. If `project_id` is None, the account's project in the region is looked up."""
        self._transport = transport
        self._given = project_id
        self._known: dict[tuple[t.Any, ...], t.Any] = {}

    @property
    def project(self) -> str:
        """The given project id, or else the id of the project of the account's VKS workspace, or else the id of the only project."""
        return self._given or self._once(("project",), self._find_project)

    def subnets(self, vpc: str) -> list[CatalogItem]:
        """The subnets of a VPC."""
        rows = self._rows(f"/v2/{self.project}/networks/{vpc}/subnets", "subnets")
        return [catalog.subnet_item(row) for row in rows]

    def zones(self) -> list[CatalogItem]:
        """The zones of the region."""
        return [catalog.zone_item(row) for row in self._rows(f"/v1/{self.project}/zones", "zones")]

    def ssh_keys(self) -> list[CatalogItem]:
        """The SSH keys of the project."""
        return [catalog.plain_item(row) for row in self._paged(f"/v2/{self.project}/sshKeys", "sshKeys")]

    def security_groups(self) -> list[CatalogItem]:
        """The security groups of the project."""
        return [catalog.plain_item(row) for row in self._paged(f"/v2/{self.project}/secgroups", "secgroups")]

    def volume_types(self, zone: str) -> list[CatalogItem]:
        """The volume types of all kinds in a zone."""
        kinds = self._rows(f"/v1/{self.project}/volume_type_zones", "volumeTypeZones", zoneId=zone)
        results = self._each(
            [(f"/v1/{self.project}/{kind.get('id')}/volume_types", "volumeTypes", {}) for kind in kinds]
        )
        return [
            catalog.volume_item(row, str(kind.get("name") or ""))
            for kind, rows in zip(kinds, results, strict=True)
            for row in rows
        ]

    def flavors(self, zone: str) -> list[Flavor]:
        """The flavors for workers in a zone, from all families and platforms."""
        families = self._rows(f"/v1/{self.project}/flavor_zones/families", "families")
        pairs = dict.fromkeys(
            (str(family.get("key")), str(code))
            for family in families
            for code in (family.get("condition") or {}).get("codes") or []
        )
        results = self._each(
            [
                (
                    f"/v1/{self.project}/flavors/families/{key}/platforms/{code}/clusters/master/false",
                    "flavors",
                    {"zoneId": zone},
                )
                for key, code in pairs
            ]
        )
        flavors = {
            flavor.id: flavor
            for rows in results
            for flavor in (flavor_of(row, zone) for row in rows)
            # The service may ignore the parameter and return all zones.
            if flavor.zone == zone
        }
        return sorted(flavors.values(), key=lambda flavor: flavor.name)

    def _find_project(self) -> str:
        try:
            workspace = self._transport.get(VKS, "/v1/workspace") or {}
            if workspace.get("projectId"):
                return str(workspace["projectId"])
        except VksError as error:
            if not error.not_found and not error.forbidden:
                raise
        rows = rows_of(self._transport.get(VSERVER, "/v1/projects"), "projects")
        ids = [str(row.get("projectId") or row.get("id")) for row in rows]
        if len(ids) == 1:
            return ids[0]
        projects = f"has the projects {', '.join(ids)}" if ids else "has no project"
        raise InvalidOptions([f"project_id: the account {projects} in this region. Set project_id."])

    def _rows(self, path: str, name: str, *, optional: bool = False, **query: t.Any) -> list[Row]:
        """The rows of a list without pages. optional: whether the result is empty if the list does not exist in the zone or project."""
        read = self._transport.find if optional else self._transport.get
        asked = tuple(sorted(query.items()))
        return self._once((path, asked), lambda: rows_of(read(VSERVER, path, query=query), name))

    def _paged(self, path: str, name: str) -> list[Row]:
        """All rows of a list. According to the documentation, page numbers begin with 1, but clients have received the whole list in one response."""

        def read_pages() -> list[Row]:
            rows: dict[str, Row] = {}
            for page in itertools.count(1):
                body = self._transport.get(VSERVER, path, query={"page": page, "size": _SIZE})
                fresh = {str(row.get("id") or row.get("uuid")): row for row in rows_of(body, name)}
                new = fresh.keys() - rows.keys()
                rows.update(fresh)
                last = body.get("totalPage") if isinstance(body, dict) else None
                if not new or not isinstance(last, int) or page >= last:
                    break
            return list(rows.values())

        return self._once((path,), read_pages)

    def _each(self, lists: t.Iterable[tuple[str, str, dict[str, t.Any]]]) -> list[list[Row]]:
        """The rows of several lists, which are read in parallel. Each list is given by its path, name and query."""
        calls = [
            (path, functools.partial(self._rows, path, name, optional=True, **query)) for path, name, query in lists
        ]
        return call_all(calls, _PARALLEL)

    def _once(self, key: tuple[t.Any, ...], ask: t.Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = ask()
        return t.cast("T", self._known[key])
