# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Magnum's API, with node groups, which openstacksdk does not know; bodies and answers are plain dictionaries."""

from __future__ import annotations

import functools
import re
import time
import typing as t
from urllib.parse import quote

from ...common.errors import ConnectionProblem
from ...common.http import HttpResponse
from ...common.parallel import run_bounded
from .errors import OpenStackError
from .session import Session
from .transport import Object, Service

Version = tuple[int, int]

# Node groups came with 1.9 (Train), node_labels and node_taints with 1.14 (23.0); beyond that nothing is known.
NODE_GROUPS: Version = (1, 9)
NODE_LABELS: Version = (1, 14)
_NEWEST: Version = (1, 14)
# To zero nodes Magnum resizes from 1.10 on.
_ZERO: Version = (1, 10)

# Requests at a time: as many connections as the library keeps.
PARALLEL = 10

# A node group that was asked for is no row for 0.1 s or more.
_APPEARS = 5.0
_LOOK = 0.2
_VERSION = re.compile(r"(\d+)\.(\d+)\s*$")


class Magnum:
    """What modules ask of Magnum; safe to be used by many threads after the first answer."""

    def __init__(
        self,
        session: Session,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is sent yet."""
        self.session = session
        self._sleep = sleep
        self._clock = clock
        self._service = Service(
            session, "container-infrastructure-management", "Magnum", "/v1", sleep=sleep, clock=clock
        )
        self._spoken: Version | None = None
        self._offered: Version | None = None

    @property
    def version(self) -> Version:
        """The microversion that is spoken; asks for nothing if anything was asked before."""
        if self._spoken is None:
            self.clusters(limit=1)
        return t.cast("Version", self._spoken)

    @property
    def offered(self) -> Version | None:
        """The newest microversion that this Magnum has; None where it does not tell."""
        dummy = self.version
        return self._offered

    @property
    def has_node_labels(self) -> bool:
        """Whether a node group can be told the labels and taints of its nodes."""
        return self.version >= NODE_LABELS

    @property
    def resizes_to_zero(self) -> bool:
        """Whether a node group can have no nodes."""
        return self.version >= _ZERO

    # Clusters

    def cluster(self, name: str) -> Object:
        """The one cluster of this name or id; ConnectionProblem when there is none, or several of the name, with their ids."""
        path = f"/clusters/{quote(name, safe='')}"
        try:
            return self._get(path)
        except OpenStackError as error:
            if error.not_found:
                clusters = self.clusters()
                if any(name in (cluster["name"], cluster["uuid"]) for cluster in clusters):
                    # It was asked for a moment ago, and became a row between the two requests.
                    return self._get(path)
                raise ConnectionProblem(self._unknown(name, clusters)) from None
            if error.conflict:
                raise ConnectionProblem(self._ambiguous(name)) from None
            raise

    def find_cluster(self, name: str) -> Object | None:
        """The same, or None where there is none; one that is nearly gone has nothing but a status."""
        try:
            return self._get(f"/clusters/{quote(name, safe='')}")
        except OpenStackError as error:
            if error.not_found:
                return None
            if error.nearly_deleted:
                return {"uuid": name, "name": name, "status": "DELETE_IN_PROGRESS"}
            if error.conflict:
                raise ConnectionProblem(self._ambiguous(name)) from None
            raise

    def clusters(self, limit: int | None = None) -> list[Object]:
        """All of the project; with a limit, only the first so many."""
        deadline = self._clock() + _APPEARS
        while True:
            try:
                if limit is not None:
                    return list(self._send("GET", f"/clusters?limit={limit}").json().get("clusters") or [])
                return self._pages("/clusters", "clusters")
            except OpenStackError as error:
                # One that is nearly gone spoils the list for all.
                if not error.nearly_deleted or self._clock() > deadline:
                    raise
            self._sleep(_LOOK)

    def create_cluster(self, body: t.Mapping[str, t.Any]) -> str:
        """Ask for a cluster; its id.

        Magnum makes a second cluster of one name without a word, so that a request whose answer was lost is not repeated before a
        look shows that it did nothing.
        """
        name, before = str(body["name"]), {cluster["uuid"] for cluster in self.clusters()}
        while True:
            try:
                return str(self._send("POST", "/clusters", body=body, repeatable=False).json()["uuid"])
            except OpenStackError as error:
                if not error.outcome_unknown:
                    raise
                made = self._appears(lambda: self._new_cluster(name, before))
                if made is not None:
                    return str(made["uuid"])
                if error.unreachable:
                    raise

    def delete_cluster(self, cluster_id: str) -> None:
        """Ask for its end; nothing happens when it is gone already."""
        self._delete(f"/clusters/{cluster_id}")

    def templates(self) -> list[Object]:
        """Cluster templates that the project may use."""
        return self._pages("/clustertemplates", "clustertemplates")

    def template(self, name: str) -> Object | None:
        """The template of this name or id; None where there is none, ConnectionProblem for several of the name."""
        try:
            return self._get(f"/clustertemplates/{quote(name, safe='')}")
        except OpenStackError as error:
            if error.not_found:
                return None
            if error.conflict:
                ids = [found["uuid"] for found in self.templates() if found["name"] == name]
                raise ConnectionProblem(
                    f"{len(ids)} cluster templates are called {name}: {', '.join(ids)} ({self.session.origin}). Name one by its id."
                ) from None
            raise

    def quota(self) -> int | None:
        """How many clusters the project may have; None where that is not told."""
        try:
            found = self._get(f"/quotas/{self.session.project_id()}/Cluster").get("hard_limit")
        except OpenStackError as error:
            if error.non_retryable and not error.forbidden:
                raise
            return None
        return int(found) if found is not None else None

    # Certificates

    def ca(self, cluster_id: str) -> str:
        """The certificate of the CA that the cluster's API server trusts, as PEM."""
        return str(self._get(f"/certificates/{cluster_id}")["pem"])

    def sign(self, cluster_id: str, csr: str) -> str:
        """A certificate for the request (both PEM)."""
        return str(self._send("POST", "/certificates", body={"cluster_uuid": cluster_id, "csr": csr}).json()["pem"])

    # Node groups

    def nodegroups(self, cluster_id: str) -> list[Object]:
        """All of a cluster, without what the list hides: labels, addresses, reasons; its bounds and labels are not true."""
        return self._pages(f"/clusters/{cluster_id}/nodegroups", "nodegroups")

    def nodegroup(self, cluster_id: str, group: str) -> Object | None:
        """One whole node group by its id; None where there is none."""
        try:
            return self._get(f"/clusters/{cluster_id}/nodegroups/{quote(group, safe='')}")
        except OpenStackError as error:
            if error.not_found:
                return None
            raise

    def whole(self, cluster_id: str, ids: t.Iterable[str]) -> list[Object]:
        """The node groups of these ids whole, read side by side; those that are gone meanwhile are left out."""
        calls = [(group, functools.partial(self.nodegroup, cluster_id, group)) for group in ids]
        outcomes = run_bounded(calls, PARALLEL, fatal=lambda error: True)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [outcome.value for outcome in outcomes if outcome.value is not None]

    def create_nodegroup(self, cluster_id: str, body: t.Mapping[str, t.Any]) -> None:
        """Ask for a node group; whoever gets no answer looks for it before asking again."""
        self._send("POST", f"/clusters/{cluster_id}/nodegroups", body=body, repeatable=False)

    def patch_nodegroup(self, cluster_id: str, group: str, edits: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Change bounds, node labels or taints (a JSON patch); Magnum loses it without a word while the group is not settled."""
        self._send("PATCH", f"/clusters/{cluster_id}/nodegroups/{group}", body=list(edits))

    def resize(self, cluster_id: str, group: str, count: int, servers: t.Sequence[str] = ()) -> None:
        """Ask for another number of nodes, without these servers (ids of Nova); lost while the cluster is being created."""
        body = {"node_count": count, "nodegroup": group, **({"nodes_to_remove": list(servers)} if servers else {})}
        self._send("POST", f"/clusters/{cluster_id}/actions/resize", body=body)

    def delete_nodegroup(self, cluster_id: str, group: str) -> None:
        """Ask for its end; nothing happens when it is gone already."""
        self._delete(f"/clusters/{cluster_id}/nodegroups/{group}")

    # What all of them use

    def _get(self, path: str) -> Object:
        return self._send("GET", path).json()

    def _delete(self, path: str) -> None:
        try:
            self._send("DELETE", path)
        except OpenStackError as error:
            if not error.not_found:
                raise

    def _pages(self, path: str, key: str) -> list[Object]:
        return self._service.pages(path, key, lambda at: self._send("GET", at))

    def _headers(self) -> dict[str, str]:
        # Magnum before 22 knows the service by this name only, and newer ones know it too.
        spoken = self._spoken or NODE_GROUPS
        return {"OpenStack-API-Version": f"container-infra {spoken[0]}.{spoken[1]}"}

    def _send(self, method: str, path: str, *, body: t.Any = None, repeatable: bool = True) -> HttpResponse:
        try:
            answer = self._service.send(method, path, body=body, headers=self._headers(), repeatable=repeatable)
        except OpenStackError as error:
            if error.status == 406 and self._spoken is None:
                raise ConnectionProblem(
                    f"This Magnum ({self.session.origin}) knows no node groups: they came with microversion 1.9 of its API (release 9, Train)."
                ) from None
            raise
        if self._spoken is None:
            self._negotiate(answer.headers.get("OpenStack-API-Maximum-Version"))
        return answer

    def _negotiate(self, newest: str | None) -> None:
        """Speak the newest version that both sides know; an answer says which one Magnum has."""
        found = _VERSION.search(newest or "")
        self._offered = (int(found[1]), int(found[2])) if found else None
        self._spoken = min(self._offered or NODE_GROUPS, _NEWEST)

    def _appears(self, look: t.Callable[[], Object | None]) -> Object | None:
        """What was asked for by a request without an answer, if it is there within seconds."""
        deadline = self._clock() + _APPEARS
        while True:
            found = look()
            if found is not None or self._clock() > deadline:
                return found
            self._sleep(_LOOK)

    def _new_cluster(self, name: str, before: set[str]) -> Object | None:
        return next((found for found in self.clusters() if found["name"] == name and found["uuid"] not in before), None)

    def _unknown(self, name: str, clusters: t.Iterable[Object]) -> str:
        names = sorted(str(cluster["name"]) for cluster in clusters)
        there = f"it has {', '.join(names[:20])}" if names else "it has none"
        return f"Magnum shows no cluster {name} ({self.session.origin}): {there}. A cluster of another project is not shown."

    def _ambiguous(self, name: str) -> str:
        twins = [cluster for cluster in self.clusters() if cluster["name"] == name]
        told = ", ".join(f"{cluster['uuid']} ({cluster['status']})" for cluster in twins)
        return (
            f"{len(twins)} clusters are called {name} ({self.session.origin}): {told}. "
            "Give the id of the one that is meant, or delete the other."
        )
