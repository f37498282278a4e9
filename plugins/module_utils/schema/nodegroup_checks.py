# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of pools that make their own nodes: what the cloud of gpu_cluster would refuse, or take and never do."""

from __future__ import annotations

import re
import typing as t

from ..catalog import models
from ..catalog.vks_flavor_names import FlavorGpus, vks_flavor_gpus
from ..common.nested import get_nested
from ..sharing_modes.mig import MIG
from .messages import field_path, join_words, quote
from .nodegroup import COMMON, MAGNUM, ONLY_OF, PROVIDERS, VKS
from .types import INVALID, Document, PoolView, Problems
from .validators import label_value

# VKS: the schema of its node groups (greennode-mcp specs/vks.json, greennode-cli).
_VKS_NAME = re.compile(r"[a-z0-9][a-z0-9-]{3,13}[a-z0-9]")
_VKS_MOST_ENTRIES = 50
# accel.gpu/pool, and the names of the device plugin's and of the MIG manager's configuration.
_OUR_LABELS = 3
# What a kubelet may not put on its own node, so that it does not even start with it (Kubernetes, "NodeRestriction"; Magnum refuses
# them for that reason: magnum/api/controllers/v1/nodegroup.py).
_RESTRICTED = re.compile(r"([^/]+\.)?(kubernetes|k8s)\.io/")
_ALLOWED_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")
_ALLOWED = frozenset(
    {
        *(f"beta.kubernetes.io/{name}" for name in ("arch", "instance-type", "os")),
        *(f"failure-domain.beta.kubernetes.io/{name}" for name in ("region", "zone")),
        *(f"topology.kubernetes.io/{name}" for name in ("region", "zone")),
    }
)


def makes_nodes(pool: PoolView) -> bool:
    """Whether the pool has a node group, be it a wrong one."""
    return get_nested(pool.merged, "nodes") is not None


def provider_of(cluster: t.Any) -> str | None:
    """Who makes the nodes of this cluster; None where nobody does, or what is said of it is wrong."""
    said_of = get_nested(cluster, "cloud")
    named = [name for name in PROVIDERS if get_nested(said_of, name) is not None]
    return named[0] if len(named) == 1 and said_of[named[0]] is not INVALID else None


def group_name(pool: PoolView) -> t.Any:
    """What the pool's node group is called."""
    name = get_nested(pool.merged, "nodes", "name")
    return get_nested(pool.merged, "name") if name is None else name


def cloud_is_one(cluster: Document) -> Problems:
    """The nodes of a cluster come from one cloud."""
    cloud = get_nested(cluster, "cloud")
    if not isinstance(cloud, dict):
        return
    named = [name for name in PROVIDERS if cloud.get(name) is not None]
    if len(named) != 1:
        which = f"names {join_words(named)}" if named else "names no provider"
        yield f"gpu_cluster.cloud: {which}; say exactly one of {join_words(PROVIDERS, 'or')}"


def nodes_have_a_cloud(cluster: Document, pool: PoolView) -> Problems:
    """Somebody has to make them."""
    if makes_nodes(pool) and isinstance(cluster, dict) and get_nested(cluster, "cloud") is None:
        yield (
            f"{pool.path}.nodes: has no cloud that could make them; say which in gpu_cluster.cloud, such as "
            "cloud: {magnum: {cloud: mycloud}}, or take nodes out where they exist already"
        )


def settings_are_the_providers(cluster: Document, pool: PoolView) -> Problems:
    """What another provider knows this one would have to leave out."""
    provider, nodes = provider_of(cluster), get_nested(pool.declared, "nodes")
    if provider is None or not isinstance(nodes, dict):
        return
    for key in nodes:
        others = [other for other, names in ONLY_OF.items() if key in names and other != provider]
        if not others or key in (*COMMON, *ONLY_OF[provider]) or nodes[key] is None:
            continue
        remedy = "the labels of the pool are those of its nodes" if key == "labels" else "take it out"
        yield f"{pool.path}.nodes.{key}: is a setting of {PROVIDERS[others[0]]}, and gpu_cluster.cloud is {provider}; {remedy}"


def group_name_is_legal(cluster: Document, pool: PoolView) -> Problems:
    """Each provider has its own idea of a name."""
    provider, name = provider_of(cluster), group_name(pool)
    if not makes_nodes(pool) or not isinstance(name, str):
        return
    own = get_nested(pool.merged, "nodes", "name") is not None
    path = f"{pool.path}.nodes.name"
    shown = quote(name) if own else f"is missing, and the pool's name {quote(name)}"
    if provider == VKS and not _VKS_NAME.fullmatch(name):
        rule = "5 to 15 of a-z, 0-9 and '-', with a letter or digit at both ends"
        yield f"{path}: {shown} is no name of a VKS node group ({rule}); give the group such a name"
    # Magnum takes any 255 characters, and its drivers make a label's value of them.
    if provider == MAGNUM and own and label_value(name):
        yield f"{path}: {shown} {label_value(name)}"


def count_is_said(pool: PoolView) -> Problems:
    """Of nodes that nobody scales."""
    nodes = get_nested(pool.merged, "nodes")
    if isinstance(nodes, dict) and nodes.get("count") is None and get_nested(pool.merged, "autoscale") is None:
        yield (
            f"{pool.path}.nodes.count: is missing; say how many nodes, or between which numbers an autoscaler may choose (autoscale)"
        )


def autoscale_is_sound(pool: PoolView) -> Problems:
    """An autoscaler needs nodes that are made, and bounds between which there is something."""
    scale = get_nested(pool.merged, "autoscale")
    if get_nested(pool.declared, "autoscale") is not None and not makes_nodes(pool):
        yield f"{pool.path}.autoscale: has no effect without nodes, which says what is to be made; say both, or take it out"
        return
    low, high, count = get_nested(scale, "min"), get_nested(scale, "max"), get_nested(pool.merged, "nodes", "count")
    if not makes_nodes(pool) or not (isinstance(low, int) and isinstance(high, int)):
        return
    if low > high:
        yield f"{pool.path}.autoscale.min: {low} is more than max, {high}; give the lower number first"
    elif isinstance(count, int) and not low <= count <= high:
        yield (
            f"{pool.path}.nodes.count: {count} is outside of autoscale, {low} to {high}; give a number between them, or leave it out to "
            "begin with the least"
        )


def model_is_said_once(pool: PoolView) -> Problems:
    """`model` is what the nodes that we make have, `match.model` what existing nodes are known by."""
    if get_nested(pool.merged, "model") is None:
        return
    if not makes_nodes(pool):
        if get_nested(pool.declared, "model") is not None:
            yield f"{pool.path}.model: has no effect without nodes; existing nodes are known by match.model, so it belongs under match"
    elif get_nested(pool.merged, "match", "model") is not None:
        yield f"{pool.path}.model: stands beside match.model; take one out, since nodes that are made here need no match"


def labels_are_a_kubelets(pool: PoolView) -> Problems:
    """The group's labels are put by the kubelet itself, which may not put every one."""
    labels = get_nested(pool.merged, "labels")
    if not makes_nodes(pool) or not isinstance(labels, dict):
        return
    for key in labels:
        if (
            not isinstance(key, str)
            or not _RESTRICTED.match(key)
            or key in _ALLOWED
            or key.startswith(_ALLOWED_PREFIXES)
        ):
            continue
        yield (
            f"{field_path(f'{pool.path}.labels', key)}: is in a namespace of Kubernetes that a kubelet may not write, so that nodes made with it "
            "would not start; choose a key of your own, such as example.com/team"
        )


def entries_are_few(cluster: Document, pool: PoolView) -> Problems:
    """VKS takes so many labels and taints of a group, ours among them."""
    if provider_of(cluster) != VKS or not makes_nodes(pool):
        return
    for what, ours in (("labels", _OUR_LABELS), ("taints", 1)):
        entries = get_nested(pool.merged, what)
        if isinstance(entries, (dict, list)) and len(entries) > _VKS_MOST_ENTRIES - ours:
            yield (
                f"{pool.path}.{what}: are {len(entries)}; a VKS node group has at most {_VKS_MOST_ENTRIES}, of which up to {ours} "
                "are written by this collection, so leave some out"
            )


def flavor_has_it(cluster: Document, pool: PoolView) -> Problems:
    """What VKS's flavor says of its GPUs by its name is not contradicted by the pool."""
    flavor = get_nested(pool.merged, "nodes", "flavor")
    card = vks_flavor_gpus(flavor) if provider_of(cluster) == VKS and isinstance(flavor, str) else None
    if card is None:
        return
    gpus, model = get_nested(pool.merged, "gpus_per_node"), get_nested(pool.merged, "model")
    found = models.find(model) if isinstance(model, str) else None
    if isinstance(gpus, int) and gpus != card.count:
        yield f"{pool.path}.gpus_per_node: {gpus} is not what the flavor {flavor} has; write {card.count}, or take another flavor"
    if found and card.keys and found.key not in card.keys:
        yield (
            f"{pool.path}.model: {quote(model)} is not what the flavor {flavor} has; write {join_words(card.keys, 'or')}, or take another flavor"
        )
    elif not found:
        yield from _mig_exists(pool, flavor, card)


def _mig_exists(pool: PoolView, flavor: str, card: FlavorGpus) -> Problems:
    """Where the model is said, the layout is judged by it."""
    if get_nested(pool.merged, "sharing", "mode") == MIG.name and card.has_mig is False:
        yield (
            f"{pool.path}.sharing.mode: {MIG.name} does not exist on the {card.name} of the flavor {flavor}; use time-slicing or mps, or a "
            "flavor with H100 or newer"
        )


def groups_differ(pools: t.Sequence[PoolView]) -> Problems:
    """A node group belongs to one pool."""
    first: dict[str, PoolView] = {}
    for pool in pools:
        name = group_name(pool) if makes_nodes(pool) else None
        if not isinstance(name, str) or first.setdefault(name, pool) is pool:
            continue
        # Two pools of one name are told already.
        if get_nested(pool.merged, "name") != get_nested(first[name].merged, "name"):
            yield f"{pool.path}.nodes.name: the node group {quote(name)} is that of {first[name].title} already; give each pool its own"


NODE_GROUP_CHECKS = (count_is_said, autoscale_is_sound, model_is_said_once, labels_are_a_kubelets)
# These look at the cluster, too.
CLOUD_CHECKS = (nodes_have_a_cloud, settings_are_the_providers, group_name_is_legal, entries_are_few, flavor_has_it)
