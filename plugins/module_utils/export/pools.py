# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU nodes of a live cluster as pools: those that a label pins, and groups of the others that are alike (pure)."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass, field

from ..catalog import models
from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL, POOL_LABEL, PRODUCT_LABEL
from ..catalog.taints import STARTUP_TAINT, format_taint, toleration_of
from ..cluster_state.ownership import POOLS, recorded_keys
from ..nvidia_config.device_plugin import MIG
from ..schema import validators
from ..schema.messages import abbreviate
from ..schema.operand_labels import is_for_users
from .sharing import Inexpressible

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node

Document = dict[str, t.Any]
# What a pool's `sharing` is, and `gpus_per_node` where its layout needs it.
Shared = tuple[Document, "int | None"]

_WORDS = re.compile(r"[^a-z0-9]+")
_LONGEST = 40


@dataclass
class Groups:
    """Pools as documents, and what had to be left out, a sentence each."""

    pools: list[Document] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Member:
    node: Node
    shared: Shared
    taints: tuple[Document, ...]

    @property
    def likeness(self) -> str:
        """Equal for nodes that may be of one pool."""
        taints = sorted(format_taint(taint) for taint in self.taints)
        return json.dumps([self.shared, taints], sort_keys=True)


def groups(
    nodes: t.Sequence[Node], shared: t.Callable[[Node], Shared], ours: t.Sequence[t.Mapping[str, t.Any]]
) -> Groups:
    """Sort the discovered GPU nodes. `shared` tells a node's sharing or raises Inexpressible; `ours` are the tolerations
    that the ClusterPolicy has for pools' taints.
    """
    found = Groups()
    pinned: dict[str, list[_Member]] = {}
    free: dict[tuple[str, str], list[_Member]] = {}
    left_out: dict[str, list[str]] = {}
    lost: set[str] = set()
    for node in sorted((node for node in nodes if node.has_gpu), key=lambda node: node.name):
        pin = node.labels.get(POOL_LABEL, "")
        if not node.discovered:
            left_out.setdefault("gpu-feature-discovery has not labelled it", []).append(node.name)
            continue
        try:
            member = _Member(node, shared(node), _taints(node, ours, pinned=bool(pin)))
        except Inexpressible as reason:
            left_out.setdefault(str(reason), []).append(node.name)
            lost.add(_kind(node))
            continue
        if pin:
            pinned.setdefault(pin, []).append(member)
        else:
            free.setdefault((_kind(node), member.likeness), []).append(member)
    found.remarks += [f"{abbreviate(names)}: left out, since {reason}" for reason, names in sorted(left_out.items())]
    whose = _whose(nodes)
    for pin, members in sorted(pinned.items()):
        products = {_kind(member.node) for member in members}
        alone = len(products) == 1 and not products & lost and all(whose[product] == {pin} for product in products)
        _add_pinned(found, pin, members, alone=alone)
    names = set(pinned)
    for (product, likeness), members in sorted(free.items()):
        rivals = [of.node for (other, like), ofs in free.items() if other == product and like != likeness for of in ofs]
        alone = whose[product] == {""} and product not in lost
        _add_free(found, _name(product, members[0], names, several=bool(rivals)), members, rivals, alone=alone)
    _add_startup_taint(found, ours)
    return found


def _add_startup_taint(found: Groups, ours: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """A startup taint is gone from nodes that are proven: that pools declare it shows in what the ClusterPolicy tolerates."""
    cut = [pool for pool in found.pools if pool["sharing"]["mode"] == MIG]
    if toleration_of(STARTUP_TAINT) not in ours or not cut:
        return
    for pool in cut:
        pool["startup_taint"] = True
    if len(cut) > 1:
        names = abbreviate([pool["name"] for pool in cut])
        found.remarks.append(f"startup_taint: nothing tells which of the pools {names} declare it, so all of them do")


def _whose(nodes: t.Iterable[Node]) -> dict[str, set[str]]:
    """By product, which pins its nodes have; the empty one of nodes without."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        if node.discovered:
            found.setdefault(_kind(node), set()).add(node.labels.get(POOL_LABEL, ""))
    return found


def _add_pinned(found: Groups, name: str, members: list[_Member], *, alone: bool) -> None:
    if validators.dns_label(name):
        found.remarks.append(f"pool {name}: left out, since its name is not a DNS label")
        return
    sharings = {json.dumps(member.shared, sort_keys=True) for member in members}
    if len(sharings) > 1:
        names = abbreviate([member.node.name for member in members])
        found.remarks.append(
            f"pool {name} ({names}): left out, since its nodes are shared in {len(sharings)} different ways"
        )
        return
    pool: Document = {"name": name}
    if alone:
        pool["match"] = _match(members[0].node)
    else:
        found.remarks.append(
            f"pool {name}: without match, since no GPU model is its alone; the label {POOL_LABEL} pins its nodes"
        )
    labels = _common(found, name, "labels", [_labels(member.node) for member in members])
    taints = _common(found, name, "taints", [{format_taint(taint): taint for taint in of.taints} for of in members])
    found.pools.append(_pool(pool, members[0], labels, list(taints.values())))


def _add_free(found: Groups, name: str, members: list[_Member], rivals: list[Node], *, alone: bool) -> None:
    pool: Document = {"name": name}
    nodes = [member.node for member in members]
    apart = _apart(nodes, rivals) if rivals else {}
    if alone and (apart or not rivals):
        match = _match(nodes[0])
        pool["match"] = {**match, "labels": {**match.get("labels", {}), **apart}} if apart else match
    else:
        found.remarks.append(
            f"pool {name}: nothing but a pin tells its nodes from others of their model: "
            f"kubectl label nodes {' '.join(node.name for node in nodes)} {POOL_LABEL}={name}"
        )
    found.pools.append(_pool(pool, members[0], {}, list(members[0].taints)))


def _pool(pool: Document, member: _Member, labels: Document, taints: list[Document]) -> Document:
    sharing, gpus = member.shared
    return {
        **pool,
        **({"gpus_per_node": gpus} if gpus else {}),
        **({"labels": labels} if labels else {}),
        **({"taints": taints} if taints else {}),
        "sharing": sharing,
    }


def _kind(node: Node) -> str:
    """The catalog's key of its model, under whatever name; GFD's product where the catalog has none."""
    model = models.find(node.product)
    return model.key if model else models.bare_product(node.product)


def _match(node: Node) -> Document:
    kind = _kind(node)
    return {"model": kind} if models.find(kind) else {"labels": {PRODUCT_LABEL: kind}}


def _labels(node: Node) -> dict[str, str]:
    """What a pool has put there, but for what follows from it."""
    followers = {POOL_LABEL, CONFIG_LABEL, MIG_CONFIG_LABEL}
    return {
        key: node.labels[key]
        for key in recorded_keys(node.annotations, POOLS.labels)
        if key in node.labels and key not in followers
    }


def _taints(node: Node, ours: t.Sequence[t.Mapping[str, t.Any]], *, pinned: bool) -> tuple[Document, ...]:
    """What a pool declares: on a node of a pool those that are noted or have a toleration of ours, else all of somebody's."""
    mine = recorded_keys(node.annotations, POOLS.taints)
    found = []
    for live in node.taints:
        if validators.free_taint(live["key"]):
            continue
        taint = {key: live[key] for key in ("key", "value", "effect") if live.get(key)}
        if not pinned or format_taint(taint) in mine or toleration_of(taint) in ours:
            found.append(taint)
    return tuple(sorted(found, key=format_taint))


def _apart(nodes: t.Sequence[Node], others: t.Sequence[Node]) -> dict[str, str]:
    """One label that all of the nodes have and none of the others, of those that nobody's agent writes; none if there is none."""
    for key, value in sorted(nodes[0].labels.items()):
        if validators.free_label(key) or validators.not_the_pin(key) or is_for_users(key):
            continue
        if all(node.labels.get(key) == value for node in nodes) and all(
            node.labels.get(key) != value for node in others
        ):
            return {key: value}
    return {}


def _common(found: Groups, pool: str, what: str, of_nodes: list[Document]) -> Document:
    """What all nodes have; what only some have is remarked."""
    common = {key: value for key, value in of_nodes[0].items() if all(of.get(key) == value for of in of_nodes)}
    partly = sorted({key for of in of_nodes for key in of} - set(common))
    if partly:
        found.remarks.append(f"pool {pool}: {what} that only some of its nodes have are left out: {', '.join(partly)}")
    return common


def _name(product: str, member: _Member, taken: set[str], *, several: bool) -> str:
    words = [product, *([member.shared[0]["mode"]] if several else [])]
    name = _WORDS.sub("-", "-".join(words).lower()).strip("-")[:_LONGEST].strip("-")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free)
    return free
