# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks pools with node groups for settings that the provider in gpu_cluster.cloud would reject, or accept but never apply."""

from __future__ import annotations

import typing as t

from ..catalog import models
from ..catalog.machine_api import PLATFORMS
from ..common.nested import get_nested
from ..sharing_modes.modes import MODES, mode_named
from .autoscaler import priority_problems
from .messages import field_path, join_words, quote
from .provider_spec import provider_spec_problems
from .providers import PROVIDERS, ProviderDefinition
from .types import INVALID, Document, PoolVariables, Problems
from .validators import kubelet_label

# The numbers of labels (accel.gpu/pool and the names of two configurations) and taints (the startup taint) that this collection adds to a group.
_OWN_ENTRIES = {"labels": 3, "taints": 1}


def provider_of(cluster: t.Any) -> ProviderDefinition | None:
    """The provider of this cluster's node groups; None if there is none, or its declaration is invalid."""
    cloud = get_nested(cluster, "cloud")
    named = [key for key in PROVIDERS if get_nested(cloud, key) is not None]
    return PROVIDERS[named[0]] if len(named) == 1 and cloud[named[0]] is not INVALID else None


def group_name(pool: PoolVariables) -> t.Any:
    """The name of the pool's node group."""
    name = get_nested(pool.merged, "nodes", "name")
    return get_nested(pool.merged, "name") if name is None else name


def member_name(group: str, zone: str | None) -> str:
    """The name of a pool's node group in a zone; without zones, the pool has one node group."""
    return f"{group}-{zone.lower()}" if zone else group


def provider_problems(cluster: Document) -> Problems:
    """gpu_cluster.cloud must name exactly one provider."""
    cloud = get_nested(cluster, "cloud")
    if not isinstance(cloud, dict):
        return
    named = [key for key in PROVIDERS if cloud.get(key) is not None]
    if len(named) != 1:
        which = f"names {join_words(named)}" if named else "names no provider"
        yield f"gpu_cluster.cloud: {which}; set exactly one of {join_words(PROVIDERS, 'or')}"
    distribution = cluster.get("distribution")
    for key in named:
        needed = PROVIDERS[key].distribution
        if needed and isinstance(distribution, str) and distribution != needed:
            yield (
                f"gpu_cluster.cloud.{key}: this API exists only on {needed}, but gpu_cluster.distribution is {quote(distribution)}; correct one of them"
            )


def node_group_problems(cluster: t.Any, pool: PoolVariables) -> Problems:
    """The problems in a pool's node group, or in the node group settings of a pool that has no node group."""
    if get_nested(pool.merged, "nodes") is None:
        if get_nested(pool.declared, "autoscale") is not None:
            yield f"{pool.path}.autoscale: has no effect without nodes; declare both, or remove it"
        if get_nested(pool.declared, "model") is not None:
            yield f"{pool.path}.model: has no effect without nodes; existing nodes are selected by match.model, so move it to match"
        return
    provider = provider_of(cluster)
    for check in (size_problems, model_problems):
        yield from check(pool)
    if provider is None or provider.kubelet_labels:
        yield from kubelet_label_problems(pool)
    yield from flavor_problems(provider, pool)
    if provider is not None:
        for provider_check in (
            foreign_setting_problems,
            group_name_problems,
            zone_problems,
            provider_spec_key_problems,
            zone_label_problems,
            entry_limit_problems,
            flavor_mismatch_problems,
        ):
            yield from provider_check(provider, pool)
        yield from priority_problems(cluster, pool, provider.key)
    elif isinstance(cluster, dict) and get_nested(cluster, "cloud") is None:
        yield (
            f"{pool.path}.nodes: needs a cloud that creates the nodes; add it to gpu_cluster.cloud, such as "
            "cloud: {magnum: {cloud: mycloud}}, or remove nodes if they exist already"
        )


def size_problems(pool: PoolVariables) -> Problems:
    """A node group must have a number of nodes, the range of an autoscaler, or both."""
    nodes, scale = get_nested(pool.merged, "nodes"), get_nested(pool.merged, "autoscale")
    low, high, count = get_nested(scale, "min"), get_nested(scale, "max"), get_nested(nodes, "count")
    if isinstance(nodes, dict) and count is None and scale is None:
        yield f"{pool.path}.nodes.count: is missing; set the number of nodes, or the range of an autoscaler (autoscale)"
    if not (isinstance(low, int) and isinstance(high, int)):
        return
    if low > high:
        yield f"{pool.path}.autoscale.min: {low} is greater than max, {high}; set min to at most max"
    elif isinstance(count, int) and not low <= count <= high:
        yield (
            f"{pool.path}.nodes.count: {count} is outside autoscale, {low} to {high}; set a number within this range, or omit it to "
            "start with the minimum"
        )


def model_problems(pool: PoolVariables) -> Problems:
    """`model`, which describes the nodes of a group, and `match.model`, which selects existing nodes, must not be combined."""
    if get_nested(pool.merged, "model") is not None and get_nested(pool.merged, "match", "model") is not None:
        yield f"{pool.path}.model: cannot be combined with match.model; remove one of them; the nodes of a node group do not need a match"


def kubelet_label_problems(pool: PoolVariables) -> Problems:
    """A pool with a node group must only have labels that a kubelet is allowed to set, because the kubelet sets them."""
    for key in pool.labels:
        if problem := kubelet_label(key):
            yield f"{field_path(f'{pool.path}.labels', key)}: {problem}"


def flavor_problems(provider: ProviderDefinition | None, pool: PoolVariables) -> Problems:
    """Exactly one setting must determine the GPUs of a node: the flavor, or the setting that replaces it for some providers."""
    nodes = get_nested(pool.merged, "nodes")
    other = provider.flavor_instead if provider else ""
    given = [key for key in ("flavor", other) if key and get_nested(nodes, key) is not None]
    if isinstance(nodes, dict) and not given:
        choice = f", or set {other}" if other else ""
        yield f"{pool.path}.nodes.flavor: is missing; set the flavor of the nodes, which determines their GPUs{choice}"
    if len(given) > 1:
        yield f"{pool.path}.nodes.{other}: cannot be combined with flavor; remove one of them, because each determines the GPUs of the nodes"


def zone_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """Zones must be unique, and valid as the suffix of a node group's name (each zone has its own group); autoscale.max must allow a node in each."""
    zones = get_nested(pool.merged, "nodes", "zones")
    if not isinstance(zones, list) or "zones" not in provider.nodes_fields:
        return
    path, known = f"{pool.path}.nodes.zones", [zone for zone in zones if isinstance(zone, str)]
    if not zones:
        yield f"{path}: is empty; add a zone, or remove it"
    for zone in sorted({zone for zone in known if known.count(zone) > 1}):
        yield f"{path}: contains {quote(zone)} more than once; list each zone once"
    name = group_name(pool)
    for zone in dict.fromkeys(known) if isinstance(name, str) else ():
        member = member_name(name, zone)
        if not provider.name_rule(name) and (problem := provider.name_rule(member)):
            yield f"{path}: the node group in zone {quote(zone)} would be {quote(member)}, which {problem}; shorten nodes.name"
    high = get_nested(pool.merged, "autoscale", "max")
    if isinstance(high, int) and high < len(set(known)):
        yield f"{pool.path}.autoscale.max: {high} is less than the number of zones, {len(set(known))}; increase it, or remove a zone"


def provider_spec_key_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """provider_spec must contain neither fields that have their own key nor secrets."""
    nodes = get_nested(pool.merged, "nodes")
    if isinstance(nodes, dict) and "provider_spec" in provider.nodes_fields:
        path = f"{pool.path}.nodes.provider_spec"
        yield from provider_spec_problems(nodes.get("provider_spec"), path, has_zones=bool(nodes.get("zones")))


def zone_label_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """Labels must not set a zone or region: they do not choose a machine's zone, but the autoscaler relies on them when it places pods."""
    labels = get_nested(pool.merged, "labels")
    if not isinstance(labels, dict) or not provider.scaled_by_openshift:
        return
    for key in sorted(
        {key for platform in PLATFORMS for key in (*platform.zone_label_keys, *platform.region_label_keys)}
    ):
        if key in labels:
            yield f"{pool.path}.labels.{key}: is derived from the zone of the MachineSet; set nodes.zones instead"


def foreign_setting_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """The node group must not have settings of another provider, which would be ignored."""
    nodes = get_nested(pool.declared, "nodes")
    for key, value in nodes.items() if isinstance(nodes, dict) else ():
        owner = next((other for other in PROVIDERS.values() if key in other.nodes_fields), provider)
        if value is not None and owner is not provider and key not in provider.nodes_fields:
            remedy = "use labels of the pool for the labels of its nodes" if key == "labels" else "remove it"
            yield f"{pool.path}.nodes.{key}: is a setting of {owner.title}, but gpu_cluster.cloud is {provider.key}; {remedy}"


def group_name_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """The name of the node group must follow the provider's naming rule."""
    name = group_name(pool)
    problem = provider.name_rule(name) if isinstance(name, str) else None
    if problem:
        own = get_nested(pool.merged, "nodes", "name") is not None
        subject = quote(name) if own else f"is missing, and the pool's name {quote(name)}"
        yield f"{pool.path}.nodes.name: {subject} {problem}"


def entry_limit_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """The labels and taints of a group, including those that this collection adds, must not exceed the provider's limit."""
    if provider.max_entries is None:
        return
    for field, own in _OWN_ENTRIES.items():
        entries = get_nested(pool.merged, field)
        if isinstance(entries, (dict, list)) and len(entries) > provider.max_entries - own:
            yield (
                f"{pool.path}.{field}: has {len(entries)} entries; a {provider.title} node group has at most {provider.max_entries}, and "
                f"this collection writes up to {own} of them, so remove some"
            )


def flavor_mismatch_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """The pool's model and GPU count must match the name of the flavor."""
    flavor = get_nested(pool.merged, "nodes", "flavor")
    gpus = provider.flavor_gpus(flavor) if isinstance(flavor, str) else None
    if gpus is None:
        return
    gpu_count, model = get_nested(pool.merged, "gpus_per_node"), get_nested(pool.merged, "model")
    known = models.find(model) if isinstance(model, str) else None
    if isinstance(gpu_count, int) and gpu_count != gpus.count:
        yield f"{pool.path}.gpus_per_node: the flavor {flavor} has {gpus.count}, not {gpu_count}; set {gpus.count}, or choose a different flavor"
    if known and gpus.keys and known.key not in gpus.keys:
        yield (
            f"{pool.path}.model: the flavor {flavor} does not have {quote(model)}; set {join_words(gpus.keys, 'or')}, or choose "
            "a different flavor"
        )
    # The layout of a pool with a model is checked against that model.
    mode = mode_named(get_nested(pool.merged, "sharing", "mode"))
    if not known and gpus.has_mig is False and mode and mode.partitions_gpus:
        others = join_words(
            [each.name for each in MODES.values() if each.plugin_key and not each.partitions_gpus], "or"
        )
        yield (
            f"{pool.path}.sharing.mode: {mode.name} does not exist on the {gpus.name} of the flavor {flavor}; use {others}, or a flavor with "
            "H100 or newer"
        )


def duplicate_group_problems(pools: t.Sequence[PoolVariables]) -> Problems:
    """Two pools must not have the same node group."""
    first: dict[str, PoolVariables] = {}
    for pool in pools:
        group = group_name(pool) if get_nested(pool.merged, "nodes") is not None else None
        zones = get_nested(pool.merged, "nodes", "zones")
        zones = [zone for zone in zones if isinstance(zone, str)] if isinstance(zones, list) else []
        for name in [member_name(group, zone) for zone in zones or (None,)] if isinstance(group, str) else ():
            if first.setdefault(name, pool) is pool:
                continue
            # Two pools with the same name are already reported.
            if get_nested(pool.merged, "name") != get_nested(first[name].merged, "name"):
                yield f"{pool.path}.nodes.name: the node group {quote(name)} is already used by {first[name].title}; use a unique name for each pool"
                break
