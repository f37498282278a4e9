# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts the GPU nodes of a cluster to pools: one for each pool label, and one for each group of equal nodes without a pool label (pure)."""

from __future__ import annotations

import functools
import itertools
import json
import re
import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from ..catalog import models
from ..catalog.names import (
    CONFIG_LABEL,
    DRIVER_ANNOTATION,
    INSTANCE_TYPE_LABELS,
    MIG_CONFIG_LABEL,
    NODE_GROUP_LABELS,
    POOL_LABEL,
    PRODUCT_LABEL,
    VOLATILE_LABELS,
    ZONE_LABELS,
)
from ..catalog.taints import STARTUP_TAINT, format_taint, toleration_of
from ..cluster_state.expected_state import is_gpu_resource
from ..cluster_state.nvidia_driver import is_managed
from ..cluster_state.ownership import POOL_OWNER, recorded
from ..cluster_state.pool_edit import recorded_rollout_settings
from ..common.nested import get_nested, parse_json
from ..pools.variables import merge, validate
from ..schema import validators
from ..schema.messages import abbreviate, field_path
from ..schema.operand_labels import is_for_users
from ..sharing_modes.modes import MODES
from .sharing import Inexpressible, NodeSharing

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node

Document = dict[str, t.Any]
Tolerations = t.Sequence[t.Mapping[str, t.Any]]

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_MAX_NAME = 40
# A problem of a pool: its path begins with the index of the pool and a key.
_POOL_PROBLEM = re.compile(
    r"gpu_pools\[(?P<index>\d+)\](?:\.(?P<path>(?P<key>\w+)(?:\['.*?'\]|[^\s:'])*))?(?P<reason>.*)", re.DOTALL
)
# The keys without which the nodes of a pool and their sharing are the same.
_OPTIONAL = ("labels", "taints", "rollout", "driver", "startup_taint", "gpus_per_node")
# The keys of a pool, in their order in the exported file.
_KEYS = ("match", "gpus_per_node", "labels", "taints", "rollout", "sharing")


@dataclass
class ExportedPools:
    """Pools in the format of gpu_pools, and remarks about settings that are not exported."""

    pools: list[Document] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    # The names of the pools that this collection has set on nodes. A run with variables that lack one of them would release its nodes.
    managed: set[str] = field(default_factory=set, compare=False)


@dataclass(frozen=True)
class _Member:
    """A node; if its sharing is unknown, `sharing` is None and `problem` contains the reason."""

    node: Node
    sharing: NodeSharing | None
    taints: tuple[Document, ...]
    problem: str = ""

    @property
    def group_key(self) -> str:
        """A key that is the same for all nodes that can be in one pool."""
        return json.dumps([self.sharing, sorted(map(format_taint, self.taints))], sort_keys=True)

    @property
    def sharing_fields(self) -> Document:
        """The keys of a pool that declare the node's sharing; empty if the sharing is unknown."""
        if self.sharing is None:
            return {}
        sharing, gpus = self.sharing
        return {**({"gpus_per_node": gpus} if gpus else {}), "sharing": sharing}


def add_drivers(exported: ExportedPools, drivers: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Add to each pool the driver that is recorded in its NVIDIADriver object; foreign objects are reported in remarks."""
    by_name = {pool["name"]: pool for pool in exported.pools}
    for item in drivers:
        name = item["metadata"]["name"]
        if not is_managed(item):
            exported.remarks.append(
                f"NVIDIADriver {name}: not exported, because this collection did not create it; it is not changed"
            )
            continue
        pool = by_name.get(get_nested(item, "spec", "nodeSelector", POOL_LABEL))
        driver = parse_json((item["metadata"].get("annotations") or {}).get(DRIVER_ANNOTATION), dict)
        if pool is not None and driver is not None:
            pool["driver"] = driver


def export_pools(
    nodes: t.Sequence[Node], node_sharing: t.Callable[[Node], NodeSharing], tolerations: Tolerations
) -> ExportedPools:
    """Convert the GPU nodes to pools. `node_sharing` returns a node's sharing or raises Inexpressible.

    `tolerations` contains the ClusterPolicy's tolerations for the pools' taints.
    """
    exported = ExportedPools()
    labeled: dict[str, list[_Member]] = defaultdict(list)
    grouped: dict[tuple[str, str], list[_Member]] = defaultdict(list)
    left_out: dict[str, list[str]] = defaultdict(list)
    # By model, the pool labels of its nodes; the empty string stands for a node without the label, and None for a node that is not exported.
    pools_of_model: dict[str, set[str | None]] = defaultdict(set)
    for node in nodes:
        if node.discovered:
            pools_of_model[_model(node)].add(node.labels.get(POOL_LABEL, ""))
    # A node with a pool label is exported even if it is currently not recognized as a GPU node, because a run releases the nodes of undeclared pools.
    # The same applies to a node that offers GPUs without a label of NVIDIA: it is named in a remark.
    for node in sorted(
        (node for node in nodes if node.has_gpu or node.pin or _offers_gpus(node)), key=lambda node: node.name
    ):
        member = _member(node, node_sharing, tolerations)
        if node.pin:
            labeled[node.pin].append(member)
        elif member.problem:
            left_out[member.problem].append(node.name)
            if node.discovered:
                pools_of_model[_model(node)].add(None)
        else:
            grouped[_model(node), member.group_key].append(member)
    exported.remarks += [
        f"{abbreviate(names)}: not exported, because {reason}" for reason, names in sorted(left_out.items())
    ]
    for pool, members in sorted(labeled.items()):
        discovered = [member for member in members if member.node.discovered]
        pool_models = {_model(member.node) for member in discovered}
        only = len(pool_models) == 1 and all(pools_of_model[model] == {pool} for model in pool_models)
        managed = any(map(_is_managed, members))
        _add_labeled_pool(exported, pool, discovered or members, managed=managed, only_pool_of_model=only)
    exported.managed = {pool for pool, members in labeled.items() if any(_is_managed(each) for each in members)}
    taken = set(labeled)
    for (model, key), members in sorted(grouped.items()):
        rivals = [
            member.node
            for (other, other_key), group in grouped.items()
            if other == model and other_key != key
            for member in group
        ]
        name = _pool_name(model, members[0], taken, several=bool(rivals))
        _add_group(exported, name, members, rivals, without_labeled_nodes=pools_of_model[model] == {""})
    _add_startup_taint(exported, tolerations)
    return exported


def _member(node: Node, node_sharing: t.Callable[[Node], NodeSharing], tolerations: Tolerations) -> _Member:
    taints = _pool_taints(node, tolerations, labeled=bool(node.pin))
    if not node.discovered:
        return _Member(node, None, taints, "gpu-feature-discovery has not labeled it")
    try:
        member = _Member(node, node_sharing(node), taints)
    except Inexpressible as reason:
        return _Member(node, None, taints, str(reason))
    if problem := _rejection(json.dumps({"match": _match(node), **member.sharing_fields})):
        return _Member(node, None, taints, f"the variables do not allow its sharing: {problem}")
    return member


def _offers_gpus(node: Node) -> bool:
    return any(count and is_gpu_resource(name) for name, count in node.capacity.items())


def _is_managed(member: _Member) -> bool:
    return bool(recorded(member.node, POOL_OWNER))


@functools.lru_cache(maxsize=1024)
def _rejection(fields: str) -> str:
    """The reason why the plan rejects a pool with these fields (JSON); empty if it accepts the pool."""
    # In JSON, the indices of the GPUs in a layout are strings, which the variables allow, too.
    problems = validate({"name": "any"}, {}, [{"name": "any", **json.loads(fields)}])
    return problems[0].removeprefix("gpu_pools[0].") if problems else ""


def leave_out_rejected(cluster: Document, exported: ExportedPools) -> None:
    """Remove from the pools everything that the plan rejects, with the reason as a remark. Problems of `cluster` remain.

    The name, and what determines the nodes of a pool without a label, cannot be removed, so the pool is not exported. A managed pool is kept whenever this is
    possible, because a run would release its nodes.
    """
    order = [pool["name"] for pool in exported.pools]
    # Managed pools are read first, so that a contradiction between two pools is reported for the other pool.
    exported.pools.sort(key=lambda pool: pool["name"] not in exported.managed)
    # Each pool is first validated alone, so that the other pools are not validated again for each of its rejected entries.
    for checked in [*([pool] for pool in exported.pools), exported.pools]:
        while match := next(filter(None, map(_POOL_PROBLEM.match, validate(cluster, {}, checked))), None):
            _leave_out(exported, checked[int(match["index"])], match)
            checked[:] = [pool for pool in checked if pool in exported.pools]
    exported.pools.sort(key=lambda pool: order.index(pool["name"]))


def _leave_out(exported: ExportedPools, pool: Document, match: re.Match[str]) -> None:
    """Remove from the pool what a problem concerns, or the pool from the export."""
    key, reason = match["key"], match["path"] + match["reason"]
    if key in ("labels", "taints") and (rejected := _rejected_entry(pool, key, match["path"])) is not None:
        del pool[key][rejected]
        _remove_empty(pool, key)
        effect = f"a value of {key} is not exported"
    elif key in pool and (key in _OPTIONAL or (key in ("match", "sharing") and pool["name"] in exported.managed)):
        del pool[key]
        effect = f"without {key}"
    else:
        exported.pools.remove(pool)
        effect = "not exported"
    exported.remarks.append(f"pool {pool['name']}: {effect}, because the variables do not allow it: {reason}")


def _rejected_entry(pool: Document, key: str, path: str) -> t.Any:
    """The key of the label, or the index of the taint, that a problem with this path concerns; None if it concerns all of them."""
    entries = pool.get(key)
    paths = {
        each: field_path(key, each) for each in (entries if isinstance(entries, dict) else range(len(entries or ())))
    }
    matching = [each for each, text in paths.items() if path == text or path.startswith((f"{text}.", f"{text}["))]
    return max(matching, key=lambda each: len(paths[each]), default=None)


def _remove_empty(pool: Document, key: str) -> None:
    if not pool[key]:
        del pool[key]


def _add_startup_taint(exported: ExportedPools, tolerations: Tolerations) -> None:
    """Add the startup taint if the ClusterPolicy tolerates it, because verified nodes no longer have this taint."""
    if toleration_of(STARTUP_TAINT) not in tolerations:
        return
    unclear = [pool["name"] for pool in exported.pools if "sharing" not in pool]
    if unclear:
        exported.remarks.append(
            f"startup_taint: it is unknown whether the pools without sharing declare it: {abbreviate(unclear)}"
        )
    mig_pools = [
        pool for pool in exported.pools if "sharing" in pool and MODES[pool["sharing"]["mode"]].partitions_gpus
    ]
    for pool in mig_pools:
        pool["startup_taint"] = True
    if len(mig_pools) > 1:
        names = abbreviate([pool["name"] for pool in mig_pools])
        exported.remarks.append(
            f"startup_taint: it is unknown which of the pools {names} declare it, so it is exported for all of them"
        )


def _add_labeled_pool(
    exported: ExportedPools, name: str, members: list[_Member], *, managed: bool, only_pool_of_model: bool
) -> None:
    if validators.dns_label(name):
        exported.remarks.append(f"pool {name}: not exported, because its name is not a DNS label")
        return
    unclear = _unclear_sharing(members)
    # If a managed pool were not exported, a run would release its nodes. Without `sharing`, a run refuses to change the sharing of the pool's nodes.
    if unclear:
        exported.remarks.append(f"pool {name}: {'without sharing' if managed else 'not exported'}, because {unclear}")
        if not managed:
            return
    match = _match(members[0].node) if only_pool_of_model else {}
    if not match:
        exported.remarks.append(
            f"pool {name}: without match, because no GPU model distinguishes its nodes; the label {POOL_LABEL} assigns them"
        )
    labels = _common(exported, name, "labels", [_pool_labels(member.node) for member in members])
    taints = _common(
        exported, name, "taints", [{format_taint(taint): taint for taint in member.taints} for member in members]
    )
    rollout = _rollout(exported, name, [member.node for member in members])
    sharing = {} if unclear else members[0].sharing_fields
    metadata = {"match": match, "labels": labels, "taints": list(taints.values()), "rollout": rollout}
    exported.pools.append(_pool(name, {**metadata, **sharing}))


def _unclear_sharing(members: list[_Member]) -> str:
    """The reason why one declaration cannot describe all nodes, with the sharing of each node; empty if all nodes are shared in the same way."""
    ways: dict[str, list[str]] = defaultdict(list)
    texts: dict[str, str] = {}
    problems: dict[str, list[str]] = defaultdict(list)
    for member in members:
        if member.problem:
            problems[member.problem].append(member.node.name)
        else:
            way = json.dumps(member.sharing_fields, sort_keys=True)
            ways[way].append(member.node.name)
            # The text is valid YAML, because no key or value needs quotes.
            texts.setdefault(way, json.dumps(member.sharing_fields).replace('"', "")[1:-1])
    if len(ways) == 1 and not problems:
        return ""
    reason = (
        f"its nodes are shared in {len(ways)} different ways"
        if len(ways) > 1
        else "the sharing of some of its nodes is not known"
    )
    reasons = [
        f"{abbreviate(names)} {'has' if len(names) == 1 else 'have'} {texts[way]}" for way, names in ways.items()
    ]
    reasons += [f"{abbreviate(names)} cannot be described, because {problem}" for problem, names in problems.items()]
    return f"{reason}: {'; '.join(reasons)}"


def _rollout(exported: ExportedPools, pool: str, nodes: list[Node]) -> Document:
    """The settings of `rollout` that are recorded on the nodes of the pool; if the records differ, the result is empty and a remark is added."""
    recorded_settings = [recorded_rollout_settings(node) for node in nodes]
    if all(settings == recorded_settings[0] for settings in recorded_settings):
        return recorded_settings[0]
    exported.remarks.append(f"pool {pool}: without rollout, because its nodes have different records of it")
    return {}


def _add_group(
    exported: ExportedPools, name: str, members: list[_Member], rivals: list[Node], *, without_labeled_nodes: bool
) -> None:
    nodes = [member.node for member in members]
    label = _distinguishing_label(nodes, rivals) if rivals else {}
    match: Document = {}
    if without_labeled_nodes and (label or not rivals):
        match = merge(_match(nodes[0]), {"labels": label} if label else {})
    else:
        exported.remarks.append(
            f"pool {name}: only a pool label can distinguish its nodes from others of their model: "
            f"kubectl label nodes {' '.join(node.name for node in nodes)} {POOL_LABEL}={name}"
        )
    metadata = {"match": match, "taints": list(members[0].taints)}
    exported.pools.append(_pool(name, {**metadata, **members[0].sharing_fields}))


def _pool(name: str, fields: Document) -> Document:
    """A pool with the fields that are not empty."""
    return {"name": name, **{key: fields[key] for key in _KEYS if fields.get(key)}}


def _model(node: Node) -> str:
    """The catalog's key of the node's GPU model, or GFD's product name if the catalog does not contain the model."""
    model = models.find(node.product)
    return model.key if model else models.bare_product(node.product)


def _match(node: Node) -> Document:
    model = _model(node)
    return {"model": model} if models.find(model) else {"labels": {PRODUCT_LABEL: model}}


def _pool_labels(node: Node) -> dict[str, str]:
    """The labels that the node's pool has set, except those that are derived from the pool."""
    return {
        key: node.labels[key]
        for key in sorted(recorded(node, POOL_OWNER).labels)
        if key in node.labels and key not in (POOL_LABEL, CONFIG_LABEL, MIG_CONFIG_LABEL)
    }


def _pool_taints(node: Node, tolerations: Tolerations, *, labeled: bool) -> tuple[Document, ...]:
    """The taints that the node's pool declares: recorded and tolerated taints on a labeled node, otherwise all taints except those of controllers."""
    owned = recorded(node, POOL_OWNER).taints
    taints = []
    for live in node.taints:
        if validators.unowned_taint(live["key"]):
            continue
        taint = {key: live[key] for key in ("key", "value", "effect") if live.get(key)}
        if not labeled or format_taint(taint) in owned or toleration_of(taint) in tolerations:
            taints.append(taint)
    return tuple(sorted(taints, key=format_taint))


def _distinguishing_label(nodes: t.Sequence[Node], others: t.Sequence[Node]) -> dict[str, str]:
    """A label that all nodes in `nodes` and none in `others` have, and that no agent writes; empty if there is none.

    A label that the node's group sets comes first, so that later nodes of the group match, too. A label that identifies one node is not used.
    """
    candidates = [
        (_label_rank(key), key, value)
        for key, value in nodes[0].labels.items()
        if not (validators.unowned_label(key) or validators.not_the_pool_label(key) or is_for_users(key))
        and not _is_volatile(key)
        and all(node.labels.get(key) == value and value not in _identities(node) for node in nodes)
        and all(node.labels.get(key) != value for node in others)
    ]
    return {key: value for dummy, key, value in sorted(candidates)[:1]}


def _is_volatile(key: str) -> bool:
    return any(key == start or (start.endswith("/") and key.startswith(start)) for start in VOLATILE_LABELS)


def _label_rank(key: str) -> int:
    """Lower for labels that describe a node's group: its name, then the type of its machine; zones come last, because they contain other nodes, too."""
    if key in NODE_GROUP_LABELS:
        return 0
    if key in INSTANCE_TYPE_LABELS:
        return 1
    return 3 if key.startswith(ZONE_LABELS) else 2


def _identities(node: Node) -> set[str]:
    """The values that identify this node: its name, with and without domain, its addresses, and the id of its machine."""
    return {node.name, node.name.partition(".")[0], *node.addresses, node.provider_id.rpartition("/")[2]} - {""}


def _common(exported: ExportedPools, pool: str, kind: str, entries: list[Document]) -> Document:
    """The entries that all nodes have; a remark lists the entries that only some nodes have."""
    common = {key: value for key, value in entries[0].items() if all(item.get(key) == value for item in entries)}
    partial = sorted({key for item in entries for key in item} - set(common))
    if partial:
        exported.remarks.append(
            f"pool {pool}: {kind} that only some of its nodes have are not exported: {', '.join(partial)}"
        )
    return common


def _pool_name(model: str, member: _Member, taken: set[str], *, several: bool) -> str:
    text = f"{model}-{member.sharing_fields['sharing']['mode']}" if several else model
    base = _SEPARATORS.sub("-", text.lower()).strip("-")[:_MAX_NAME].strip("-")
    base = base or "gpu"
    candidates = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    name = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(name)
    return name
