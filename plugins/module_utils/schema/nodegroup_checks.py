# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of pools with node groups: what the provider in gpu_cluster.cloud would refuse, or accept and never do."""

from __future__ import annotations

import typing as t

from ..catalog import models
from ..catalog.vks_flavor_names import FlavorGpus
from ..common.nested import get_nested
from ..sharing_modes.mig import MIG
from .messages import field_path, join_words, quote
from .pool import COMMON_NODES_FIELDS
from .providers import PROVIDERS, ProviderDefinition
from .types import INVALID, Document, PoolVariables, Problems
from .validators import kubelet_label

# This collection's own labels and taints of a group: accel.gpu/pool and the names of two configurations; the startup taint.
_OWN_ENTRIES = {"labels": 3, "taints": 1}


def has_nodegroup(pool: PoolVariables) -> bool:
    """Whether the pool declares a node group, be it an invalid one."""
    return get_nested(pool.merged, "nodes") is not None


def provider_of(cluster: t.Any) -> ProviderDefinition | None:
    """The provider of this cluster's node groups; None where there is none, or its declaration is invalid."""
    cloud = get_nested(cluster, "cloud")
    named = [key for key in PROVIDERS if get_nested(cloud, key) is not None]
    return PROVIDERS[named[0]] if len(named) == 1 and cloud[named[0]] is not INVALID else None


def group_name(pool: PoolVariables) -> t.Any:
    """The name of the pool's node group."""
    name = get_nested(pool.merged, "nodes", "name")
    return get_nested(pool.merged, "name") if name is None else name


def cloud_is_one(cluster: Document) -> Problems:
    """A cluster has one provider."""
    cloud = get_nested(cluster, "cloud")
    if not isinstance(cloud, dict):
        return
    named = [key for key in PROVIDERS if cloud.get(key) is not None]
    if len(named) != 1:
        which = f"names {join_words(named)}" if named else "names no provider"
        yield f"gpu_cluster.cloud: {which}; name exactly one of {join_words(PROVIDERS, 'or')}"


def nodes_have_a_cloud(cluster: Document, pool: PoolVariables) -> Problems:
    """A node group needs a provider."""
    if has_nodegroup(pool) and isinstance(cluster, dict) and get_nested(cluster, "cloud") is None:
        yield (
            f"{pool.path}.nodes: needs a cloud that creates the nodes; add it to gpu_cluster.cloud, such as "
            "cloud: {magnum: {cloud: mycloud}}, or remove nodes if they exist already"
        )


def settings_are_the_providers(cluster: Document, pool: PoolVariables) -> Problems:
    """A setting of another provider would be ignored."""
    provider, nodes = provider_of(cluster), get_nested(pool.declared, "nodes")
    if provider is None or not isinstance(nodes, dict):
        return
    for key, value in nodes.items():
        owner = next((other for other in PROVIDERS.values() if key in other.nodes_fields), None)
        if owner is None or value is None or key in (*COMMON_NODES_FIELDS, *provider.nodes_fields):
            continue
        remedy = "the pool's labels are those of its nodes" if key == "labels" else "remove it"
        yield f"{pool.path}.nodes.{key}: is a setting of {owner.title}, and gpu_cluster.cloud is {provider.key}; {remedy}"


def group_name_is_legal(cluster: Document, pool: PoolVariables) -> Problems:
    """Each provider has its own rule for names."""
    provider, name = provider_of(cluster), group_name(pool)
    problem = provider.name_rule(name) if provider and has_nodegroup(pool) and isinstance(name, str) else None
    if problem:
        own = get_nested(pool.merged, "nodes", "name") is not None
        subject = quote(name) if own else f"is missing, and the pool's name {quote(name)}"
        yield f"{pool.path}.nodes.name: {subject} {problem}"


def count_is_declared(pool: PoolVariables) -> Problems:
    """A group without an autoscaler needs a number of nodes."""
    nodes = get_nested(pool.merged, "nodes")
    if isinstance(nodes, dict) and nodes.get("count") is None and get_nested(pool.merged, "autoscale") is None:
        yield f"{pool.path}.nodes.count: is missing; give the number of nodes, or the range of an autoscaler (autoscale)"


def autoscale_is_sound(pool: PoolVariables) -> Problems:
    """An autoscaler needs a node group and a range."""
    scale = get_nested(pool.merged, "autoscale")
    if get_nested(pool.declared, "autoscale") is not None and not has_nodegroup(pool):
        yield f"{pool.path}.autoscale: has no effect without nodes; declare both, or remove it"
        return
    low, high, count = get_nested(scale, "min"), get_nested(scale, "max"), get_nested(pool.merged, "nodes", "count")
    if not has_nodegroup(pool) or not (isinstance(low, int) and isinstance(high, int)):
        return
    if low > high:
        yield f"{pool.path}.autoscale.min: {low} is more than max, {high}; give the lower number first"
    elif isinstance(count, int) and not low <= count <= high:
        yield (
            f"{pool.path}.nodes.count: {count} is outside of autoscale, {low} to {high}; give a number between them, or leave it out to "
            "start with the minimum"
        )


def model_is_declared_once(pool: PoolVariables) -> Problems:
    """`model` describes the nodes of a group, `match.model` selects existing nodes."""
    if get_nested(pool.merged, "model") is None:
        return
    if not has_nodegroup(pool):
        if get_nested(pool.declared, "model") is not None:
            yield f"{pool.path}.model: has no effect without nodes; existing nodes are selected by match.model, so it belongs under match"
    elif get_nested(pool.merged, "match", "model") is not None:
        yield f"{pool.path}.model: is declared beside match.model; remove one, since the nodes of a node group need no match"


def labels_are_a_kubelets(pool: PoolVariables) -> Problems:
    """A group's labels are set by the kubelet, which may not set every label."""
    labels = get_nested(pool.merged, "labels")
    for key in labels if has_nodegroup(pool) and isinstance(labels, dict) else ():
        if isinstance(key, str) and (problem := kubelet_label(key)):
            yield f"{field_path(f'{pool.path}.labels', key)}: {problem}"


def entries_are_few(cluster: Document, pool: PoolVariables) -> Problems:
    """A provider may limit the labels and taints of a group, this collection's among them."""
    provider = provider_of(cluster)
    if provider is None or provider.max_entries is None or not has_nodegroup(pool):
        return
    for field, own in _OWN_ENTRIES.items():
        entries = get_nested(pool.merged, field)
        if isinstance(entries, (dict, list)) and len(entries) > provider.max_entries - own:
            yield (
                f"{pool.path}.{field}: has {len(entries)} entries; a {provider.title} node group has at most {provider.max_entries}, of which "
                f"this collection writes up to {own}, so remove some"
            )


def flavor_matches(cluster: Document, pool: PoolVariables) -> Problems:
    """The pool does not contradict what the flavor's name says about its GPUs."""
    provider, flavor = provider_of(cluster), get_nested(pool.merged, "nodes", "flavor")
    gpus = provider.flavor_gpus(flavor) if provider and isinstance(flavor, str) else None
    if gpus is None:
        return
    gpu_count, model = get_nested(pool.merged, "gpus_per_node"), get_nested(pool.merged, "model")
    found = models.find(model) if isinstance(model, str) else None
    if isinstance(gpu_count, int) and gpu_count != gpus.count:
        yield f"{pool.path}.gpus_per_node: {gpu_count} is not what the flavor {flavor} has; write {gpus.count}, or choose another flavor"
    if found and gpus.keys and found.key not in gpus.keys:
        yield (
            f"{pool.path}.model: {quote(model)} is not what the flavor {flavor} has; write {join_words(gpus.keys, 'or')}, or choose "
            "another flavor"
        )
    elif not found:
        yield from _mig_exists(pool, flavor, gpus)


def _mig_exists(pool: PoolVariables, flavor: str, gpus: FlavorGpus) -> Problems:
    """Where the pool declares a model, its layout is checked against that."""
    if get_nested(pool.merged, "sharing", "mode") == MIG.name and gpus.has_mig is False:
        yield (
            f"{pool.path}.sharing.mode: {MIG.name} does not exist on the {gpus.name} of the flavor {flavor}; use time-slicing or mps, or a "
            "flavor with H100 or newer"
        )


def groups_differ(pools: t.Sequence[PoolVariables]) -> Problems:
    """A node group belongs to one pool."""
    first: dict[str, PoolVariables] = {}
    for pool in pools:
        name = group_name(pool) if has_nodegroup(pool) else None
        if not isinstance(name, str) or first.setdefault(name, pool) is pool:
            continue
        # Two pools of one name are reported already.
        if get_nested(pool.merged, "name") != get_nested(first[name].merged, "name"):
            yield f"{pool.path}.nodes.name: the node group {quote(name)} is that of {first[name].title} already; give each pool its own"


NODE_GROUP_CHECKS = (count_is_declared, autoscale_is_sound, model_is_declared_once, labels_are_a_kubelets)
# These need the cluster, too.
CLOUD_CHECKS = (nodes_have_a_cloud, settings_are_the_providers, group_name_is_legal, entries_are_few, flavor_matches)
