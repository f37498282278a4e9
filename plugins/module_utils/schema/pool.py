# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pool, as it is declared, and the rules between its keys."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from collections import Counter

from ..catalog import models
from ..catalog.openshift import PLATFORMS
from ..catalog.taints import TAINT_EFFECTS
from ..catalog.vgpu import MAX_MMIO_GIB, MAX_TEMPLATE_NAME, MAX_VGPUS, mmio_problem, profile_problem
from ..core.messages import abbreviate, field_path, is_whole, join_words, quote, type_name
from ..core.types import (
    INVALID,
    MAX_NODES,
    Anything,
    Boolean,
    Choice,
    Field,
    Integer,
    ListOf,
    MapOf,
    PoolVariables,
    Problems,
    Section,
    Text,
    integer_between,
    pool_secret_problems,
    to_elements,
    unrendered_template,
)
from ..core.values import Object, get_nested
from ..sharing_modes.mig import INDEX, STRATEGIES
from ..sharing_modes.modes import DEFAULT_MODE, MODES, SETTINGS, DeclaredSharing, PluginSetting, mode_named
from . import validators
from .driver import DRIVER, VGPU_TYPE
from .providers import MACHINESET, PRIORITY, PROVIDERS, ProviderDefinition, priority_problems, provider_spec_problems
from .validators import ROLLOUT, MatchTerms, invalid_value, kubelet_label, mig_profile, resolve_match

# The field `layout` of a pool's sharing, in its three forms.

_FORMS = "write {profile: count}, a list of profiles, or one of these for each GPU index"
MAX_GPUS = 64
# NVIDIA partitions a GPU into at most seven devices; a model that is not in the catalog yet may allow more.
_MAX_DEVICES = 64


@dataclasses.dataclass(frozen=True)
class LayoutField(Field):
    """A MIG layout; whether it fits a GPU is checked with the whole pool, because the check needs the model."""

    blank_is_unset: bool = False

    def coerce(self, value: t.Any) -> t.Any:
        """Convert a list of profiles that is written as text, and counts that are written as text."""
        if isinstance(value, str) and not unrendered_template(value):
            names = to_elements(value)
            return names if names and not any(mig_profile(item) for item in names if isinstance(item, str)) else value
        return _counted(value)

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, (dict, list)):
            return None if value else f"is empty; {_FORMS}"
        return unrendered_template(value) or f"is {type_name(value)}, not a layout; {_FORMS}"

    def inner(self, value: t.Any, path: str) -> Problems:
        indices = {key: index for key in value if (index := _index(key)) is not None} if isinstance(value, dict) else {}
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            for position, of_gpu in enumerate(value):
                yield from _of_gpu(of_gpu, field_path(path, position))
        elif not indices:
            yield from _of_gpu(value, path)
        elif len(indices) < len(value):
            others = ", ".join(quote(key) for key in value if key not in indices)
            yield f"{path}: mixes GPU indices with {others}; {_FORMS}"
        else:
            for index, times in Counter(indices.values()).items():
                if times > 1:
                    yield f"{path}: names GPU {index} twice; use one entry for each GPU"
            for key, index in indices.items():
                if index >= MAX_GPUS:
                    yield f"{field_path(path, key)}: is not the index of a GPU; the first GPU of a node is 0"
                yield from _of_gpu(value[key], field_path(path, key))


def _counted(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _counted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if isinstance(item, str) else _counted(item) for item in value]
    return Integer().coerce(value)


def _of_gpu(of_gpu: t.Any, path: str) -> Problems:
    if of_gpu is None or of_gpu in ({}, []):
        return
    if not isinstance(of_gpu, (dict, list)):
        yield f"{path}: is {type_name(of_gpu)}, not the MIG devices of a GPU; write {{profile: count}} or a list of profiles"
        return
    if len(of_gpu) > _MAX_DEVICES:
        yield f"{path}: names {len(of_gpu)} devices; no GPU has more than {_MAX_DEVICES}, so list fewer"
        return
    for key in of_gpu:
        at = field_path(path, key) if isinstance(of_gpu, dict) else path
        reason = mig_profile(key if isinstance(key, str) else "")
        if reason:
            yield f"{at}: {quote(key)} {reason}"
        elif isinstance(of_gpu, dict) and (not is_whole(of_gpu[key]) or of_gpu[key] < 1):
            yield f"{at}: {quote(of_gpu[key])} is not a count; use a whole number of at least 1, or omit the profile"
        elif isinstance(of_gpu, dict) and of_gpu[key] > _MAX_DEVICES:
            yield f"{at}: {quote(of_gpu[key])} is not allowed: no GPU has more than {_MAX_DEVICES} devices; set a smaller number"


def _index(key: t.Any) -> int | None:
    if isinstance(key, bool):
        return None
    if isinstance(key, int):
        return key if key >= 0 else None
    return int(key) if isinstance(key, str) and INDEX.fullmatch(key) else None


# The schema of gpu_defaults and gpu_pools. To add a key, add one entry here and a field of PoolPlan (pools/plan.py).

# The kubelet runs 110 pods on a node by default, and 250 on OpenShift, so more shares could never be used.
MAX_SHARES = 250
# The maximum number of devices in the largest cluster, with at most 16 GPUs per node and 7 devices per GPU.
MAX_DEVICES = MAX_NODES * 16 * 7


def _nodes(low: int, too_low: str, **more: t.Any) -> Integer:
    return integer_between(
        low, MAX_NODES, too_low, f"a cluster has at most {MAX_NODES} nodes; set a smaller number", **more
    )


_NEGATIVE = "the number of nodes must not be negative; set 0 or more"
# Settings that every provider has; other settings are in the provider's definition.
COMMON_NODES_FIELDS: dict[str, Field] = {
    "name": Text(
        doc="Name of the node group. By default, the name of the pool. With VKS, it must consist of 5 to 15 characters from C(a-z), C(0-9) and C(-). Not "
        "allowed in C(gpu_defaults)."
    ),
    "flavor": Text(
        doc="Flavor of the nodes, which determines their GPUs. Required, except on vSphere, where C(nodes.template) is set instead. With MachineSets, "
        "the flavor is the machine type on AWS, Azure and Google Cloud."
    ),
    "count": _nodes(
        0,
        _NEGATIVE,
        doc="Number of nodes. Required without C(autoscale). With C(autoscale), this is the initial number of nodes.",
    ),
    "recreate": Boolean(
        doc="Whether the group is replaced with a new one if the cloud cannot make a change in place. The old nodes are drained before they are deleted. "
        "If V(false) (the default), a run rejects this kind of change."
    ),
}
_COUNT, _RANGE = "use count", "use autoscale: {min, max} in the pool"
_LABELS, _TAINTS = (
    "use labels of the pool for the labels of its nodes",
    "use taints of the pool for the taints of its nodes",
)
# Options of the providers' modules that a pool declares elsewhere.
_HINTS = {
    **dict.fromkeys(("node_count", "num_nodes"), _COUNT),
    **dict.fromkeys(("min_node_count", "max_node_count", "min_size", "max_size", "autoscaling"), _RANGE),
    "node_labels": _LABELS,
    **dict.fromkeys(("node_taints", "taints"), _TAINTS),
    "cluster": "it belongs under gpu_cluster.cloud",
}

NODES = Section(
    doc="The node group that a run creates for the pool. Its nodes belong to the pool even if C(match) is not set. If this key is not set, the nodes "
    "must already exist.",
    default=None,
    fields={
        **COMMON_NODES_FIELDS,
        **{name: field for provider in PROVIDERS.values() for name, field in provider.nodes_fields.items()},
    },
    hints=_HINTS,
)
VGPU = Section(
    doc="(MachineSets) The vGPUs of each node on vSphere. A run builds a template with these vGPUs from the RHCOS image of the cluster's release, in each of "
    "C(nodes.zones), and the nodes are cloned from it. Set this key instead of C(nodes.template).",
    default=None,
    fields={
        "profile": Text(
            doc="The vGPU profile, such as C(grid_a100-10c). M(accel.gpu.vgpu_profile_info) lists the profiles that the ESXi hosts offer.",
            required=True,
            missing="set a vGPU profile, such as grid_a100-10c",
        ),
        "count": integer_between(
            1,
            MAX_VGPUS,
            "a node without a vGPU needs no template; set 1 or more, or remove vgpu",
            f"no virtual machine has more than {MAX_VGPUS}; set a smaller number",
            doc=f"Number of vGPUs of each node, from 1 to {MAX_VGPUS}.",
            default=1,
        ),
        "mmio_gib": integer_between(
            1,
            MAX_MMIO_GIB,
            "the MMIO space has at least 1 GiB; set a larger size",
            "no virtual machine has an MMIO space of that size; set a smaller one",
            doc="Size of the 64-bit MMIO space in GiB, a power of two. By default, it is computed from the memory of the physical GPUs.",
        ),
    },
)
AUTOSCALE = Section(
    doc="The range within which the cloud's autoscaler chooses the number of nodes. Only allowed with C(nodes). The autoscaler counts the resource "
    "C(nvidia.com/gpu). Nodes do not advertise this resource if C(sharing.strategy) is V(mixed).",
    default=None,
    fields={
        "min": _nodes(
            0,
            _NEGATIVE,
            doc="The minimum number of nodes. V(0) is allowed.",
            required=True,
            missing="set the minimum number of nodes",
        ),
        "max": _nodes(
            1,
            "a group without nodes does not need an autoscaler; set 1 or more, or omit autoscale",
            doc="The maximum number of nodes.",
            required=True,
            missing="set the maximum number of nodes",
        ),
        "priority": PRIORITY,
    },
)
_TAINT = Section(
    fields={
        "key": Text(
            (validators.label_key, validators.unowned_taint),
            doc="Key of the taint. Keys with the prefix C(accel.gpu/), C(node.kubernetes.io/), C(node.cloudprovider.kubernetes.io/) or "
            "C(startup-taint.cluster-autoscaler.kubernetes.io/) are not allowed. C(nvidia.com/gpu) is allowed.",
            required=True,
            missing="a taint has a key and an effect",
        ),
        "value": Text(
            (validators.label_value, validators.stays_text_in_helm),
            doc='Value of the taint. Write V("yes") and V("no") in quotes, so that they are not read as booleans.',
            empty=True,
        ),
        "effect": Choice(
            doc="Effect of the taint.",
            known=TAINT_EFFECTS,
            required=True,
            missing=f"choose one of {', '.join(TAINT_EFFECTS)}",
        ),
    }
)


# The class of a field, by the type of its values.
_PLUGIN_SETTING_FIELDS: dict[type, type[Field]] = {bool: Boolean, int: Integer, str: Text, list: ListOf, dict: MapOf}


def plugin_setting_field(setting: PluginSetting) -> Field:
    """The field that accepts the values of a device plugin setting."""
    if setting.choices:
        return Choice(
            setting.rules, doc=setting.doc, known=setting.choices, default=setting.default, blank_is_unset=False
        )
    return _PLUGIN_SETTING_FIELDS[setting.kind](
        setting.rules, doc=setting.doc, default=setting.default, blank_is_unset=False
    )


_SHARING = Section(
    doc="How GPUs are exposed to containers.",
    fields={
        "mode": Choice(
            doc="V(none) exposes whole GPUs. V(time-slicing) and V(mps) advertise each GPU C(replicas) times. V(mig) partitions each GPU into MIG "
            "devices. Without this key, a run fails if it would turn off existing sharing, or if it would replace a device plugin configuration that "
            "another tool has selected with a node label.",
            known=tuple(MODES),
            default=DEFAULT_MODE.name,
            blank_is_unset=False,
        ),
        "replicas": integer_between(
            2,
            MAX_SHARES,
            "sharing needs at least 2 (NVIDIA device plugin); for whole GPUs, remove it and set mode: none",
            f"a node cannot run more than {MAX_SHARES} pods (kubelet); share each GPU among fewer",
            doc="Number of shares of each GPU, from 2 to 250. Required with V(time-slicing) and V(mps). With V(mps), at most 48 (16 on GPUs older than "
            "Turing). With V(mig), this is the number of shares of each MIG device. Not allowed with V(none).",
            blank_is_unset=False,
        ),
        "layout": LayoutField(
            doc="The MIG devices of each GPU, as a map of counts (C({3g.20gb: 1, 2g.10gb: 2})) or a list of profiles. V(mig) requires either this key or "
            "C(demand). To partition the GPUs of a node differently, set a map or list for each GPU index (C({0: {7g.40gb: 1}, 1: {3g.20gb: 2}})); a GPU "
            "whose index is missing is not partitioned. Not allowed in C(gpu_defaults)."
        ),
        "demand": MapOf(
            doc="The number of MIG devices of each profile that all nodes of the pool provide together. V(mig) requires either this key or C(layout). "
            "Not allowed in C(gpu_defaults).",
            keys=(validators.mig_profile,),
            item=integer_between(
                1,
                MAX_DEVICES,
                "a demand is for at least one device; omit the profile",
                f"no cluster has more than {MAX_DEVICES} MIG devices; set a smaller number",
            ),
        ),
        "strategy": Choice(
            doc="With V(single), MIG devices are advertised as C(nvidia.com/gpu), and with V(mixed) as C(nvidia.com/mig-<profile>). By default, "
            "V(single) if all GPUs have the same devices of one profile, otherwise V(mixed).",
            known=STRATEGIES,
            blank_is_unset=False,
        ),
        **{key: plugin_setting_field(setting) for key, setting in SETTINGS.items()},
    },
)

POOL = Section(
    fields={
        "name": Text(
            (validators.dns_label,),
            doc="Name of the pool. It must be a DNS label and must be unique in the list. The node label C(accel.gpu/pool) pins a node to the pool with "
            "that name.",
            required=True,
            missing="every pool needs its own name, a DNS label",
        ),
        "match": Section(
            doc="The nodes that belong to the pool. Without C(match), only the nodes of the pool's node group (C(nodes)) and pinned nodes belong to the "
            "pool.",
            fields={
                "model": Text(
                    (validators.known_model,),
                    doc="A GPU model, either as published by gpu-feature-discovery (V(Tesla-T4), V(NVIDIA-A100-SXM4-80GB)) or in short form (V(T4)).",
                    blank_is_unset=False,
                ),
                "labels": MapOf(
                    doc="Labels that a node must have, in addition to C(model). All of them must match. To match a model that is not in the catalog, use "
                    "the label C(nvidia.com/gpu.product).",
                    keys=(validators.label_key, validators.not_the_pool_label),
                    item=Text((validators.label_value,), empty=True),
                ),
            },
        ),
        "model": Text(
            (validators.known_model,),
            doc="The GPU model that C(nodes.flavor) provides. Set this key so that the model is known before the first node exists. Only allowed with "
            "C(nodes) and without C(match.model). If the model is unknown, a MIG layout is not checked until the first node has been discovered.",
        ),
        "nodes": NODES,
        "vgpu": VGPU,
        "autoscale": AUTOSCALE,
        "gpus_per_node": integer_between(
            1,
            MAX_GPUS,
            "a pool without GPUs has no effect; omit it",
            f"no node has more than {MAX_GPUS} GPUs; set the number of GPUs on one node",
            doc="Number of GPUs on each node, from 1 to 64. A node with a different number is reported as drift. By default, the number is not checked.",
        ),
        "labels": MapOf(
            doc="Labels for the nodes. Labels with a prefix that other components use (C(accel.gpu/), C(nvidia.com/), C(feature.node.kubernetes.io/)) "
            "are not allowed. The only exceptions are the labels that select which of the operator's workloads run on a node.",
            keys=(validators.label_key, validators.unowned_label),
            item=Text((validators.label_value,), empty=True),
            default={},
        ),
        "taints": ListOf(
            doc="Taints for the nodes, at most one for each combination of key and effect.",
            item=_TAINT,
            blank_is_unset=False,
        ),
        "sharing": _SHARING,
        "rollout": ROLLOUT,
        "driver": DRIVER,
        "startup_taint": Boolean(
            doc="Whether new nodes get a taint that keeps workloads away until the partitioning of their GPUs is verified. Only allowed if "
            "C(sharing.mode) is V(mig). The role C(accel.gpu.new_nodes) removes the taint after the verification. With C(autoscale), install the CronJob "
            "of that role. Without the CronJob, an added node keeps the taint until the next run.",
            default=False,
        ),
    }
)


def _any_part_of(section: Section, **own: Field) -> Section:
    """A section with the same keys, none of which is required; `own` replaces the fields of some keys."""
    return dataclasses.replace(
        section,
        fields={**{key: dataclasses.replace(field, required=False) for key, field in section.fields.items()}, **own},
    )


# The defaults can contain any part of a pool except its names, layout and demand.
DEFAULTS = _any_part_of(
    POOL,
    name=Text((validators.not_in_defaults("every pool has its own name"),)),
    nodes=_any_part_of(NODES, name=Text((validators.not_in_defaults("each node group has its own name"),))),
    vgpu=_any_part_of(VGPU),
    autoscale=_any_part_of(AUTOSCALE),
    sharing=_any_part_of(
        _SHARING,
        layout=LayoutField((validators.not_in_defaults("set the layout in each pool"),)),
        demand=Anything((validators.not_in_defaults("set the demand in each pool"),)),
    ),
)
POOLS = ListOf(item=POOL)


# Checks pools with node groups for settings that the provider in gpu_cluster.cloud would reject, or accept but never apply.

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


def provider_problems(cluster: Object) -> Problems:
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
        if get_nested(pool.declared, "vgpu") is not None:
            yield f"{pool.path}.vgpu: has no effect without nodes; declare both, or remove it"
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
            vgpu_problems,
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
    if get_nested(pool.merged, "vgpu") is not None:
        for key in given:
            yield f"{pool.path}.nodes.{key}: cannot be combined with vgpu, from which the template of the nodes is built; remove one of them"
        return
    if isinstance(nodes, dict) and not given:
        choice = f", or set {other}" if other else ""
        yield f"{pool.path}.nodes.flavor: is missing; set the flavor of the nodes, which determines their GPUs{choice}"
    if len(given) > 1:
        yield f"{pool.path}.nodes.{other}: cannot be combined with flavor; remove one of them, because each determines the GPUs of the nodes"


def vgpu_problems(provider: ProviderDefinition, pool: PoolVariables) -> Problems:
    """A pool with vGPUs needs MachineSets, vGPUs on which CUDA runs, and the driver of vGPU guests."""
    vgpu, path = get_nested(pool.merged, "vgpu"), f"{pool.path}.vgpu"
    if not isinstance(vgpu, dict):
        return
    if provider.key != MACHINESET.key:
        yield f"{path}: templates are built for OpenShift on vSphere (cloud: {{{MACHINESET.key}: {{}}}}), but gpu_cluster.cloud is {provider.key}; remove it"
    if isinstance(profile := vgpu.get("profile"), str) and (problem := profile_problem(profile)):
        yield f"{path}.profile: {problem}"
    kind = get_nested(pool.merged, "driver", "type")
    if isinstance(kind, str) and kind != VGPU_TYPE:
        yield f"{pool.path}.driver.type: {quote(kind)} does not work with vGPUs; set type: {VGPU_TYPE}"
    gpus, count, mmio = get_nested(pool.merged, "gpus_per_node"), vgpu.get("count"), vgpu.get("mmio_gib")
    count = VGPU.fields["count"].default if count is None else count
    if isinstance(gpus, int) and isinstance(count, int) and gpus != count:
        yield f"{pool.path}.gpus_per_node: {gpus} differs from vgpu.count, {count}; remove it"
    if isinstance(mmio, int) and 0 < mmio <= MAX_MMIO_GIB and (problem := mmio_problem(mmio)):
        yield f"{path}.mmio_gib: {problem}"
    name, zones = group_name(pool), get_nested(pool.merged, "nodes", "zones")
    for zone in zones if isinstance(zones, list) else (None,):
        member = member_name(name, zone) if isinstance(name, str) and isinstance(zone, (str, type(None))) else ""
        if len(member) > MAX_TEMPLATE_NAME:
            yield (
                f"{pool.path}.nodes.name: the template would be called {quote(member)}, which is longer than {MAX_TEMPLATE_NAME} characters; shorten the name "
                "or the zone"
            )


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


# Checks several fields of a pool, or several pools, together; INVALID replaces each value that is invalid on its own.

_DISTINGUISH = (
    "distinguish them by match.labels, or omit match in one of them and pin its nodes with the label accel.gpu/pool"
)


def mode_problems(pool: PoolVariables) -> Problems:
    """A pool must meet the requirements of its mode."""
    mode = mode_named(get_nested(pool.merged, "sharing", "mode"))
    if mode:
        names = (get_nested(pool.merged, "match", "model"), get_nested(pool.merged, "model"))
        model = next((models.find(name) for name in names if isinstance(name, str)), None)
        gpus = get_nested(pool.merged, "gpus_per_node")
        yield from mode.problems(DeclaredSharing(pool.path, get_nested(pool.merged, "sharing"), model, gpus))


def vgpu_mode_problems(pool: PoolVariables) -> Problems:
    """The mode of a pool whose nodes have vGPUs must be possible on vGPUs."""
    mode = mode_named(get_nested(pool.merged, "sharing", "mode"))
    has_vgpus = get_nested(pool.merged, "vgpu") is not None or get_nested(pool.merged, "driver", "type") == VGPU_TYPE
    if mode and mode.vgpu_problem and has_vgpus:
        yield f"{pool.path}.sharing.mode: {mode.vgpu_problem}"


def missing_mode_problems(pool: PoolVariables) -> Problems:
    """`mode` must be set if an option is set that implies a mode."""
    if get_nested(pool.merged, "sharing", "mode") is not None:
        return
    for mode in reversed(MODES.values()):
        for key in mode.implied_by:
            if get_nested(pool.declared, "sharing", key) is not None:
                yield f"{pool.path}.sharing.mode: is missing, but {key} is set; set mode: {mode.name} to share the GPUs"
                return


def ineffective_option_problems(pool: PoolVariables) -> Problems:
    """Options that the pool's mode ignores must not be set."""
    sharing = get_nested(pool.declared, "sharing")
    mode = mode_named(get_nested(sharing, "mode"))
    if mode is None:
        return
    for key in dict.fromkeys(option for each in MODES.values() for option in each.options):
        if get_nested(sharing, key) is None or key in (*mode.options, *mode.fixed_options):
            continue
        modes = [each.name for each in MODES.values() if key in each.options]
        remedy = f"remove it, or set mode: {' or '.join(modes)}"
        yield f"{pool.path}.sharing.{key}: has no effect with mode: {mode.name}; {remedy}"


def startup_taint_problems(pool: PoolVariables) -> Problems:
    """startup_taint needs a mode that partitions GPUs, because only then does a node first offer whole GPUs that are later removed."""
    name = get_nested(pool.merged, "sharing", "mode")
    mode = DEFAULT_MODE if name is None else mode_named(name)
    if get_nested(pool.declared, "startup_taint") is True and mode and not mode.partitions_gpus:
        modes = " or ".join(each.name for each in MODES.values() if each.partitions_gpus)
        yield (
            f"{pool.path}.startup_taint: has no effect with mode: {mode.name}; it keeps workloads away from a new node until its GPUs are "
            f"partitioned, so remove it, or set mode: {modes}"
        )


def duplicate_taint_problems(pool: PoolVariables) -> Problems:
    """Taints must not repeat a key and effect, because a node can have only one taint with the same key and effect."""
    first_index: dict[tuple[str, str], int] = {}
    taints = get_nested(pool.merged, "taints")
    for index, taint in enumerate(taints if isinstance(taints, list) else ()):
        key, effect = get_nested(taint, "key"), get_nested(taint, "effect")
        if not (isinstance(key, str) and isinstance(effect, str)):
            continue
        first = first_index.setdefault((key, effect), index)
        if first != index:
            yield (
                f"{pool.path}.taints[{index}]: repeats key {key} and effect {effect} of taints[{first}]; "
                "a node can have only one taint with this key and effect, so keep only one"
            )


def label_match_problems(pool: PoolVariables) -> Problems:
    """A pool's labels must not contradict the labels in its match."""
    for key, value in pool.labels.items():
        matched = get_nested(pool.merged, "match", "labels", key)
        if isinstance(matched, str) and matched != value:
            yield (
                f"{field_path(f'{pool.path}.labels', key)}: {quote(value)} contradicts match.labels, which requires "
                f"{quote(matched)}; a node would leave the pool once it is labeled"
            )


def operand_label_problems(pool: PoolVariables) -> Problems:
    """The GPU operator's labels must have valid values, because the operator silently treats an unknown value as its default."""
    for key, value in pool.labels.items():
        if reason := invalid_value(key, value):
            yield f"{field_path(f'{pool.path}.labels', key)}: {quote(value)} {reason}"


def duplicate_name_problems(pools: t.Sequence[PoolVariables]) -> Problems:
    """Each pool must have a unique name, which identifies it."""
    first: dict[str, PoolVariables] = {}
    for pool in pools:
        name = get_nested(pool.merged, "name")
        if isinstance(name, str) and first.setdefault(name, pool) is not pool:
            yield f"{pool.path}.name: {quote(name)} is already the name of {first[name].path}; use a unique name for each pool"


def _match_terms(pool: PoolVariables) -> MatchTerms | None:
    """The terms of a pool's match; None for an invalid match, and for a pool without a match, whose nodes are pinned."""
    match = get_nested(pool.merged, "match")
    if not isinstance(match, dict):
        return None
    model, labels = match.get("model"), match.get("labels")
    if not isinstance(model, (str, type(None))) or not isinstance(labels, (dict, type(None))):
        return None
    if not all(isinstance(value, str) for value in (labels or {}).values()):
        return None
    resolved = resolve_match(match)
    return None if resolved.pins_only else MatchTerms.of(resolved)


def fixed_option_problems(pools: t.Sequence[PoolVariables]) -> Problems:
    """A pool must not set an option to a value that its mode forbids (`fixed_options`); an inherited value is reported once for all pools."""
    inheriting: dict[tuple[str, str, str], list[str]] = {}
    for pool in pools:
        mode = mode_named(get_nested(pool.merged, "sharing", "mode"))
        for key, (allowed, reason) in mode.fixed_options.items() if mode else ():
            value = get_nested(pool.merged, "sharing", key)
            if value in (None, INVALID, allowed):
                continue
            if get_nested(pool.declared, "sharing", key) is None:
                inheriting.setdefault((key, reason, quote(value)), []).append(pool.title)
            else:
                yield f"{pool.path}.sharing.{key}: {reason}; remove it"
    for (key, reason, text), titles in inheriting.items():
        verb = "inherits" if len(titles) == 1 else "inherit"
        yield f"gpu_defaults.sharing.{key}: {reason}, but {abbreviate(titles)} {verb} {text}; remove it"


def overlapping_match_problems(pools: t.Sequence[PoolVariables]) -> Problems:
    """A pool must not match every node of another pool. Partial overlaps are not checked here, because they depend on the nodes."""
    matching = [(pool, terms) for pool in pools if (terms := _match_terms(pool))]
    # Only pools that share a label or product can contain each other, so not every pair is compared.
    by_term: dict[t.Any, list[tuple[PoolVariables, MatchTerms]]] = collections.defaultdict(list)
    for pool, terms in matching:
        for term in (*terms.products, *terms.labels):
            by_term[term].append((pool, terms))
    first: dict[MatchTerms, PoolVariables] = {}
    for pool, terms in matching:
        if first.setdefault(terms, pool) is not pool:
            yield f"{pool.path}.match: is the same as that of {first[terms].title}; {_DISTINGUISH}"
            continue
        candidates = min((by_term[term] for term in terms.labels or terms.products), key=len)
        within = [other.title for other, its_terms in candidates if its_terms != terms and its_terms.implies(terms)]
        if within:
            yield f"{pool.path}.match: also matches every node of {abbreviate(within)}; {_DISTINGUISH}"


POOL_CHECKS = (
    mode_problems,
    vgpu_mode_problems,
    missing_mode_problems,
    ineffective_option_problems,
    startup_taint_problems,
    duplicate_taint_problems,
    label_match_problems,
    operand_label_problems,
    pool_secret_problems,
)
ALL_POOLS_CHECKS = (
    duplicate_name_problems,
    fixed_option_problems,
    overlapping_match_problems,
    duplicate_group_problems,
)
