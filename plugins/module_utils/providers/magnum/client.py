# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client for Magnum's API, including node groups, which openstacksdk does not support; request bodies and responses are dictionaries."""

from __future__ import annotations

import functools
import re
import time
import typing as t
from urllib.parse import quote

from ...common.errors import ConnectionProblem
from ...common.http import HttpResponse
from ...common.parallel import call_all
from ...schema.messages import abbreviate
from .errors import OpenStackError
from .session import Session
from .transport import Object, Service

Version = tuple[int, int]

# Magnum has had node groups since microversion 1.9 (Train); 1.14 (23.0) is the newest version that this client supports.
NODE_GROUPS: Version = (1, 9)
_NEWEST: Version = (1, 14)

# The status of a cluster that is being deleted.
IN_DELETION = "DELETE_IN_PROGRESS"

# The number of parallel requests; the library keeps the same number of connections open.
PARALLEL = 10

# Timeout in seconds for a new object to appear in lists (this takes 0.1 s or more), and seconds between two reads.
_APPEARS_WITHIN = 5.0
_POLL = 0.2
_VERSION = re.compile(r"(\d+)\.(\d+)\s*$")


class Magnum:
    """A client of Magnum; safe for use by many threads after the first response."""

    def __init__(self, session: Session) -> None:
        """Store the arguments; no request is sent yet."""
        self.session = session
        self._service = Service(session, "container-infrastructure-management", "Magnum", "/v1")
        self._spoken: Version | None = None
        self._offered: Version | None = None

    @property
    def version(self) -> Version:
        """The microversion in use; sends a request only if no request was sent before."""
        if self._spoken is None:
            self.clusters(limit=1)
        return t.cast("Version", self._spoken)

    @property
    def offered(self) -> Version | None:
        """The newest microversion that this Magnum supports; None if it is not known."""
        dummy = self.version
        return self._offered

    @property
    def resizes_to_zero(self) -> bool:
        """Whether node groups can have zero nodes (since microversion 1.10)."""
        return self.version >= (1, 10)

    # Clusters

    def cluster(self, name: str) -> Object:
        """The cluster with this name or id; raises ConnectionProblem if there is none, or if several have the name."""
        row = self._lookup(name)
        if row is None:
            clusters = self.clusters()
            # A new cluster may have become visible between the two requests.
            if any(name in (cluster["name"], cluster["uuid"]) for cluster in clusters):
                row = self._lookup(name)
        if row is None:
            names = sorted(str(cluster["name"]) for cluster in clusters)
            known = f"it has {abbreviate(names)}" if names else "it has none"
            raise ConnectionProblem(
                f"Magnum has no cluster {name} ({self.session.origin}): {known}. Clusters of other projects are not visible."
            )
        return row

    def find_cluster(self, name: str) -> Object | None:
        """Like cluster(), but returns None if there is none. Near the end of a cluster's deletion, only its id, name and status are returned."""
        try:
            return self._lookup(name)
        except OpenStackError as error:
            if error.without_groups:
                return {"uuid": name, "name": name, "status": IN_DELETION}
            raise

    def _lookup(self, name: str) -> Object | None:
        try:
            return self._find(f"/clusters/{quote(name, safe='')}")
        except OpenStackError as error:
            if error.conflict:
                raise ConnectionProblem(self._ambiguous(name)) from None
            raise

    def clusters(self, limit: int | None = None) -> list[Object]:
        """All clusters of the project, or the first `limit` of them."""
        deadline = time.monotonic() + _APPEARS_WITHIN
        while True:
            try:
                if limit is not None:
                    return list(self._send("GET", f"/clusters?limit={limit}").json().get("clusters") or [])
                return self._pages("/clusters", "clusters")
            except OpenStackError as error:
                # Magnum returns an error while any cluster has no groups.
                if not error.without_groups or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL)

    def create_cluster(self, body: t.Mapping[str, t.Any]) -> str:
        """Create a cluster; returns its id.

        Magnum accepts a second cluster with the same name, so a request whose response was lost is repeated only after a list shows that the
        request created nothing. Magnum also responds before it has stored the cluster, so this method waits until the cluster is stored;
        otherwise, the next run would create another one.
        """
        name, before = str(body["name"]), {cluster["uuid"] for cluster in self.clusters()}
        while True:
            try:
                cluster_id = str(self._send("POST", "/clusters", body=body, repeatable=False).json()["uuid"])
                self._await_stored(cluster_id)
                return cluster_id
            except OpenStackError as error:
                if not error.outcome_unknown:
                    raise
                made = self._new_cluster(name, before)
                if made is not None:
                    return str(made["uuid"])
                if error.unreachable:
                    raise

    def delete_cluster(self, cluster_id: str) -> None:
        """Request the deletion; does nothing if the cluster does not exist."""
        self._delete(f"/clusters/{cluster_id}")

    def templates(self) -> list[Object]:
        """The cluster templates that the project may use."""
        return self._pages("/clustertemplates", "clustertemplates")

    def template(self, name: str) -> Object | None:
        """The template with this name or id, or None; raises ConnectionProblem if several have the name."""
        try:
            return self._find(f"/clustertemplates/{quote(name, safe='')}")
        except OpenStackError as error:
            if error.conflict:
                ids = [template["uuid"] for template in self.templates() if template["name"] == name]
                raise ConnectionProblem(
                    f"{len(ids)} cluster templates have the name {name}: {', '.join(ids)} ({self.session.origin}). Use the id of one."
                ) from None
            raise

    def quota(self) -> int | None:
        """The project's cluster quota; None if it is unknown."""
        try:
            limit = self._get(f"/quotas/{self.session.project_id()}/Cluster").get("hard_limit")
        except OpenStackError as error:
            if error.fails_every_request and not error.forbidden:
                raise
            return None
        return int(limit) if limit is not None else None

    # Certificates

    def ca(self, cluster_id: str) -> str:
        """The certificate of the cluster's CA, in PEM format."""
        return str(self._get(f"/certificates/{cluster_id}")["pem"])

    def sign(self, cluster_id: str, csr: str) -> str:
        """The certificate that Magnum issues for a signing request, both in PEM format."""
        return str(self._send("POST", "/certificates", body={"cluster_uuid": cluster_id, "csr": csr}).json()["pem"])

    # Node groups

    def nodegroups(self, cluster_id: str) -> list[Object]:
        """All node groups of a cluster; the list lacks labels, addresses and reasons, and its bounds are wrong."""
        return self._pages(f"/clusters/{cluster_id}/nodegroups", "nodegroups")

    def nodegroup(self, cluster_id: str, group: str) -> Object | None:
        """One node group by its id, with all fields; None if there is none."""
        return self._find(f"/clusters/{cluster_id}/nodegroups/{quote(group, safe='')}")

    def complete_nodegroups(self, cluster_id: str, ids: t.Iterable[str]) -> list[Object]:
        """The node groups with these ids, with all fields, read in parallel; deleted ones are left out."""
        calls = [(group, functools.partial(self.nodegroup, cluster_id, group)) for group in ids]
        return [group for group in call_all(calls, PARALLEL) if group is not None]

    def create_nodegroup(self, cluster_id: str, body: t.Mapping[str, t.Any]) -> None:
        """Create a node group. The request is not repeated after a lost response, because the caller must look for the group first."""
        self._send("POST", f"/clusters/{cluster_id}/nodegroups", body=body, repeatable=False)

    def patch_nodegroup(self, cluster_id: str, group: str, edits: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Change bounds, node labels or taints (a JSON patch); Magnum silently ignores it while an operation on the group is in progress."""
        self._send("PATCH", f"/clusters/{cluster_id}/nodegroups/{group}", body=list(edits))

    def resize(self, cluster_id: str, group: str, count: int, servers: t.Sequence[str] = ()) -> None:
        """Change the number of nodes; `servers` (ids in Nova) are removed first. Magnum ignores the request while the cluster is being created."""
        body = {"node_count": count, "nodegroup": group, **({"nodes_to_remove": list(servers)} if servers else {})}
        self._send("POST", f"/clusters/{cluster_id}/actions/resize", body=body)

    def delete_nodegroup(self, cluster_id: str, group: str) -> None:
        """Request the deletion; does nothing if the group does not exist."""
        self._delete(f"/clusters/{cluster_id}/nodegroups/{group}")

    # Requests

    def _get(self, path: str) -> Object:
        return self._send("GET", path).json()

    def _find(self, path: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return self._get(path)
        except OpenStackError as error:
            if error.not_found:
                return None
            raise

    def _delete(self, path: str) -> None:
        try:
            self._send("DELETE", path)
        except OpenStackError as error:
            if not error.not_found:
                raise

    def _pages(self, path: str, key: str) -> list[Object]:
        return self._service.pages(path, key, lambda at: self._send("GET", at))

    def _headers(self) -> dict[str, str]:
        # Magnum before 22 accepts only this name of the service; newer releases also accept it.
        spoken = self._spoken or NODE_GROUPS
        return {"OpenStack-API-Version": f"container-infra {spoken[0]}.{spoken[1]}"}

    def _send(self, method: str, path: str, *, body: t.Any = None, repeatable: bool = True) -> HttpResponse:
        try:
            answer = self._service.send(method, path, body=body, headers=self._headers(), repeatable=repeatable)
        except OpenStackError as error:
            if error.status == 406 and self._spoken is None:
                raise ConnectionProblem(
                    f"This Magnum ({self.session.origin}) has no node groups. They require microversion 1.9 of its API (release 9, Train)."
                ) from None
            raise
        if self._spoken is None:
            self._negotiate(answer.headers.get("OpenStack-API-Maximum-Version"))
        return answer

    def _negotiate(self, newest: str | None) -> None:
        """Use the newest version that both sides support; responses contain Magnum's newest version."""
        match = _VERSION.search(newest or "")
        self._offered = (int(match[1]), int(match[2])) if match else None
        self._spoken = min(self._offered or NODE_GROUPS, _NEWEST)

    def _await_stored(self, cluster_id: str) -> None:
        """Wait up to a few seconds until Magnum returns a new cluster with its groups, which Magnum stores after the cluster."""

        def stored() -> Object | None:
            try:
                return self._lookup(cluster_id)
            except OpenStackError as error:
                if error.without_groups:
                    return None
                raise

        _appearing(stored)

    def _new_cluster(self, name: str, before: set[str]) -> Object | None:
        """The cluster that a request with a lost response created; None if it does not appear within a few seconds."""
        return _appearing(
            lambda: next((one for one in self.clusters() if one["name"] == name and one["uuid"] not in before), None)
        )

    def _ambiguous(self, name: str) -> str:
        twins = [cluster for cluster in self.clusters() if cluster["name"] == name]
        ids = ", ".join(f"{cluster['uuid']} ({cluster['status']})" for cluster in twins)
        return (
            f"{len(twins)} clusters have the name {name} ({self.session.origin}): {ids}. "
            "Use the id of one, or delete the other."
        )


def _appearing(find: t.Callable[[], Object | None]) -> Object | None:
    """The object as soon as it is found; None if it does not appear within a few seconds."""
    deadline = time.monotonic() + _APPEARS_WITHIN
    while True:
        item = find()
        if item is not None or time.monotonic() > deadline:
            return item
        time.sleep(_POLL)
