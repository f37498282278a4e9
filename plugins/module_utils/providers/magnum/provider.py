# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's node groups as the engine sees them (nodegroups.provider.Cloud), over Magnum."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...common.errors import InvalidOptions, ServiceError
from ...nodegroups.names import is_of
from ...nodegroups.plan import field_edits, merge_field
from ...nodegroups.provider import CloudRequest, ClusterNode, ListedGroup
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from . import decode
from .checks import MagnumChecks
from .client import Magnum
from .errors import OpenStackError
from .nova_glance import Glance, Nova
from .size_steps import Size, next_size
from .specs import UNCHANGEABLE, WORDS, DeclaredGroup, body_of

Object = dict[str, t.Any]

# Labels by which nodes tell their group: of Heat's drivers and the cluster autoscaler's provider, and of magnum-capi-helm.
GROUP_LABELS = ("magnum.openstack.org/nodegroup", "capi.stackhpc.com/node-group")
# Drivers that leave it to Cluster API which nodes of a group go; it drains them itself.
_CHOOSE_THEMSELVES = ("capi", "cluster_api")
_SERVER = "openstack://"


class MagnumProvider:
    """The node groups of one cluster."""

    words = WORDS
    unchangeable = UNCHANGEABLE
    longest_name = decode.LONGEST_NAME
    # A driver writes what it was asked for when it has handed it on: a call to Heat or Helm, of some seconds.
    patience = 20.0

    def __init__(
        self, magnum: Magnum, nova: Nova, glance: Glance, cluster: Object, declared: t.Sequence[DeclaredGroup]
    ) -> None:
        """Ask nothing; `cluster` is as Magnum's client read it."""
        self._magnum = magnum
        self._nova = nova
        self._glance = glance
        self._cluster = cluster
        self._declared = {one.wish.name: one for one in declared}
        self._checks = MagnumChecks(magnum, nova, glance, cluster)
        self._found: list[NodeGroupState] = []
        # Groups that were found failed: each is tried again once.
        self._failed: set[str] = set()

    @property
    def cluster_id(self) -> str:
        """Of the cluster."""
        return str(self._cluster["uuid"])

    @property
    def defaults(self) -> frozenset[str]:
        """Names of the groups that the cluster was made with, of those that were surveyed."""
        return self._checks.defaults

    @functools.cached_property
    def removes_chosen(self) -> bool:
        """Whether the cluster's driver lets somebody say which nodes go."""
        driver = str((self._checks.template or {}).get("driver") or "")
        return not any(word in driver for word in _CHOOSE_THEMSELVES)

    def survey(self, wanted: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose names are wanted: one list, which lies about bounds and labels, and then each of them whole."""
        named = [group["uuid"] for group in self._magnum.nodegroups(self.cluster_id) if wanted(group["name"])]
        whole = self._magnum.whole(self.cluster_id, named)
        defaults = [group["name"] for group in whole if group.get("is_default")]
        self._checks.defaults = frozenset(defaults)
        doomed = [name for name in defaults if name in self._declared and not self._declared[name].wish.present]
        if doomed:
            raise InvalidOptions([self._checks.undeletable(name) for name in doomed])
        self._found = [self._live(group) for group in whole]
        self._failed = {live.id for live in self._found if live.failed}
        return self._found

    def check(self, wishes: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """What of these wishes cannot be (checks.py)."""
        return self._checks.problems([(wish if live else self._whole(wish), live) for wish, live in wishes])

    def listed(self) -> list[ListedGroup]:
        """Magnum's list, whose statuses are true."""
        rows = self._magnum.nodegroups(self.cluster_id)
        return [ListedGroup(row["uuid"], row["name"], _status(row), _is_settled(row)) for row in rows]

    def get(self, group: str) -> NodeGroupState | None:
        """The group as it is now."""
        found = self._magnum.nodegroup(self.cluster_id, group)
        return self._live(found) if found else None

    def create(self, wish: NodeGroupSpec, name: str, count: int | None) -> None:
        """Ask for a group; one that takes another's place has from it whatever is not declared."""
        whole = self._whole(wish)
        declared = dataclasses.replace(self._declared[wish.name], wish=whole)
        self._magnum.create_nodegroup(self.cluster_id, body_of(declared, name, whole.count if count is None else count))

    def steps(self, live: NodeGroupState, wish: NodeGroupSpec, leaving: t.Sequence[ClusterNode]) -> list[CloudRequest]:
        """The next request alone: what comes after it follows from what there is then."""
        now = Size(live.count, live.low, live.high)
        count = wish.count_of(live.count)
        wanted = Size(
            live.count if count is None else count,
            live.low if wish.low is None else wish.low,
            live.high if wish.high is None else wish.high,
        )
        found = field_edits(wish, live, WORDS)
        fields = {name: after for name, (dummy, after) in found.items() if name in ("node_labels", "node_taints")}
        there = next_size(now, wanted)
        if there.count != now.count:
            return [self._resize(live, there.count, leaving)]
        if there != now or fields:
            return [self._patch(live, now, there, fields)]
        if live.id in self._failed and live.failed and live.fields.get("role") != "master":
            # What had failed before is tried again, by the one request that every driver answers with a whole update.
            return [self._resize(live, live.count, ())]
        return []

    def delete(self, live: NodeGroupState) -> None:
        """Ask for the end of a group."""
        self._magnum.delete_nodegroup(self.cluster_id, live.id)

    def members(self, live: NodeGroupState, machines: t.Sequence[ClusterNode]) -> list[ClusterNode]:
        """By the addresses that Magnum tells, or by the label of the group."""
        addresses = set(live.addresses)
        return [
            machine
            for machine in machines
            if addresses & set(machine.addresses) or any(machine.labels.get(key) == live.name for key in GROUP_LABELS)
        ]

    def busy(self, error: ServiceError) -> bool:
        """While the cluster is being made its API server has no address."""
        return isinstance(error, OpenStackError) and (error.no_address_yet or error.in_progress)

    def events(self, live: NodeGroupState) -> list[str]:
        """What the cluster tells of its own trouble."""
        cluster = self._magnum.find_cluster(self.cluster_id) or {}
        faults = [f"{name}: {text}" for name, text in sorted((cluster.get("faults") or {}).items())]
        reason = str(cluster.get("status_reason") or "")
        state = f"The cluster is {cluster.get('status')}"
        return [*faults, f"{state}: {reason}" if reason else state]

    def _whole(self, wish: NodeGroupSpec) -> NodeGroupSpec:
        """A wish of which what is not declared is as it is in the group that there is, if there is one."""
        its = [live for live in self._found if is_of(live.name, wish.name, self.longest_name)]
        old = min(its, key=lambda live: (live.name != wish.name, live.name), default=None)
        if old is None:
            return wish
        fields = {name: value for name, value in old.fields.items() if value is not None}
        for name, value in wish.fields.items():
            fields[name] = merge_field(fields.get(name) or {}, value) if isinstance(value, t.Mapping) else value
        return dataclasses.replace(
            wish,
            count=old.count if wish.count is None else wish.count,
            low=old.low if wish.low is None else wish.low,
            high=old.high if wish.high is None else wish.high,
            fields=fields,
        )

    def _resize(self, live: NodeGroupState, count: int, leaving: t.Sequence[ClusterNode]) -> CloudRequest:
        servers = [machine.provider_id.rpartition("/")[2] for machine in leaving if _is_server(machine)]
        what = (
            f"have {count} instead of {live.count} nodes" if count != live.count else f"try again after {live.status}"
        )

        def send() -> None:
            self._failed.discard(live.id)
            self._magnum.resize(self.cluster_id, live.id, count, servers)

        return CloudRequest(what, send, lambda seen: seen.count == count and not seen.failed)

    def _patch(self, live: NodeGroupState, now: Size, there: Size, fields: t.Mapping[str, t.Any]) -> CloudRequest:
        patch: list[Object] = []
        if there.high != now.high:
            patch.append(_replace("max_node_count", there.high))
        if there.low != now.low:
            patch.append(_replace("min_node_count", there.low))
        if "node_labels" in fields:
            patch.append(_replace("node_labels", decode.patch_text(fields["node_labels"])))
        if "node_taints" in fields:
            patch.append(_replace("node_taints", decode.patch_text(decode.taint_list(fields["node_taints"]))))
        return CloudRequest(
            "change " + ", ".join(edit["path"][1:] for edit in patch),
            lambda: self._magnum.patch_nodegroup(self.cluster_id, live.id, patch),
            lambda seen: (
                (seen.low, seen.high) == (there.low, there.high)
                and all(seen.fields.get(name) == value for name, value in fields.items())
            ),
        )

    def _live(self, group: Object) -> NodeGroupState:
        status = _status(group)
        fields: Object = {
            "flavor": self._spelt("flavor", group),
            "image": self._spelt("image", group),
            "role": group.get("role"),
            "docker_volume_size": group.get("docker_volume_size"),
            "labels": {key: decode.label_value(value) for key, value in (group.get("labels") or {}).items()},
        }
        if self._magnum.has_node_labels:
            fields["node_labels"] = dict(group.get("node_labels") or {})
            fields["node_taints"] = decode.taint_map(group.get("node_taints"))
        return NodeGroupState(
            id=str(group["uuid"]),
            name=str(group["name"]),
            status=status,
            settled=_is_settled(group),
            failed=status.endswith("_FAILED"),
            count=int(group.get("node_count") or 0),
            reason=str(group.get("status_reason") or ""),
            low=int(group.get("min_node_count") or 0),
            # 0 is no limit, too.
            high=group.get("max_node_count") or None,
            fields=fields,
            addresses=tuple(group.get("node_addresses") or ()),
        )

    def _spelt(self, kind: str, group: Object) -> t.Any:
        """The flavor or image as its wish spells it, where both mean the same: Magnum keeps the name or id that it was given."""
        stored = group.get(f"{kind}_id")
        declared = next(
            (one for name, one in self._declared.items() if is_of(group["name"], name, self.longest_name)), None
        )
        wanted = declared.wish.fields.get(kind) if declared else None
        if wanted in (None, stored) or stored is None:
            return stored
        alike = self._same_flavor if kind == "flavor" else self._same_image
        return wanted if alike(str(stored), str(wanted)) else stored

    def _same_flavor(self, stored: str, wanted: str) -> bool:
        one, other = self._nova.flavor(stored), self._nova.flavor(wanted)
        return one is not None and other is not None and one["id"] == other["id"]

    def _same_image(self, stored: str, wanted: str) -> bool:
        ids = {image["id"] for image in self._glance.named(stored)} & {
            image["id"] for image in self._glance.named(wanted)
        }
        return bool(ids)


def _status(group: Object) -> str:
    return str(group.get("status") or "CREATE_IN_PROGRESS")


def _is_settled(group: Object) -> bool:
    return not _status(group).endswith("_IN_PROGRESS")


def _replace(name: str, value: t.Any) -> Object:
    return {"op": "replace", "path": f"/{name}", "value": value}


def _is_server(machine: ClusterNode) -> bool:
    return machine.provider_id.startswith(_SERVER)
