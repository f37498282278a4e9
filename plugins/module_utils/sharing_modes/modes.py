# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sharing modes, what each of them makes of a GPU, and the configuration of the device plugin.

A new mode is a name in catalog/names.py, a subclass of SharingMode in this file, and an entry in MODES.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from dataclasses import dataclass, field, fields

from ..catalog import mig as geometries
from ..catalog import models
from ..catalog.models import (
    MEASURED_MODEL,
    MIB_BY_MODEL,
    MPS_RESERVE_MIB,
    SMS_BY_MODEL,
    Model,
    measured_limit_note,
    measured_share,
    measured_wait_ms,
)
from ..catalog.names import (
    COUNT_LABEL,
    GPU_RESOURCE,
    LABEL_LENGTH,
    MIG_MODE,
    MIG_STRATEGY_LABEL,
    MPS_MODE,
    NONE_MODE,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    SHARED_SUFFIX,
    STRATEGY_LABEL,
    TIME_SLICING_MODE,
)
from ..core.types import Problems, Rule
from ..core.values import set_nested
from . import mig as layouts
from .mig import fit_error

# Defines the keys of `sharing` that are settings of the device plugin's configuration. To add a key, add one field to PluginSettings (pure).
#
# The schema (schema/pool.py), the modes, the configuration and the export (report/export_pools.py) use every
# field. Code that acts on a setting reads it from Sharing, which inherits the fields.

_SECTION = "*"


@dataclass(frozen=True)
class PluginSetting:
    """The definition of a setting.

    `path`: the path in the device plugin's configuration (k8s-device-plugin api/config/v1); `*` is the section that shares a resource.
    A setting with `*` applies only to modes that share a resource; other settings apply to all modes. `modes` restricts a setting to the named modes. If a
    mode allows only one value, its `fixed_options` contains the value. `default`: the value if a pool does not set one; a setting that is None is not
    written. `plugin_default`: the value that the plugin uses if the setting is not written; if `default` is None, the export omits this value.
    `choices`: the valid values of a string with fixed choices. `kind`: the type of all other settings (bool, int, str, or a list or dict of strings).
    `rules`: other checks. `doc`: the description of the key, as in Field (core/types.py).
    """

    path: str
    default: t.Any
    plugin_default: t.Any = None
    choices: tuple[str, ...] = ()
    kind: type = bool
    rules: tuple[Rule, ...] = ()
    modes: tuple[str, ...] = ()
    doc: str = ""


@dataclass(frozen=True, kw_only=True)
class PluginSettings:
    """The settings, named as in `sharing`; the metadata contains the other fields of PluginSetting.

    Give a new setting the default None: if it were always written, the name of every configuration would change.
    """

    rename: bool = field(
        default=False,
        metadata={
            "path": "sharing.*.renameByDefault",
            "plugin_default": False,
            "doc": "Whether the names of shared resources get the suffix C(.shared), as in C(nvidia.com/gpu.shared).",
        },
    )
    fail_requests_greater_than_one: bool = field(
        default=True,
        metadata={
            "path": "sharing.*.failRequestsGreaterThanOne",
            "plugin_default": False,
            "doc": "Whether a container that requests more than one share is rejected. If V(false), such a container is accepted, but still gets the "
            "compute time of only one GPU.",
        },
    )


SETTINGS: dict[str, PluginSetting] = {
    each.name: PluginSetting(default=each.default, **each.metadata) for each in fields(PluginSettings)
}


def setting_paths(mode: str, plugin_key: str) -> dict[str, list[str]]:
    """The path of each setting that applies to a mode. `plugin_key` is the section that shares a resource, or empty if nothing is shared."""
    return {
        key: setting.path.replace(_SECTION, plugin_key).split(".")
        for key, setting in SETTINGS.items()
        if (plugin_key or _SECTION not in setting.path) and (not setting.modes or mode in setting.modes)
    }


# The sharing of a node's GPUs, and the labels and resources that result from it (pure).

# The suffix that the device plugin appends to a resource with renameByDefault (k8s-device-plugin
# api/config/v1/replicas.go).
_RENAMED = ".shared"


@dataclass(frozen=True)
class Sharing(PluginSettings):
    """The sharing of GPUs; `replicas` is the number of shares of a GPU, or of each MIG device (1: not shared).

    `demand` is the minimum number of MIG devices of each profile on all nodes of the pool together; if it is set, `layout` is the layout of one node.
    `extras_named`: whether MIG devices with extras (+me, +gfx) are offered under separate names instead of the name of the plain profile.
    """

    mode: str = NONE_MODE
    replicas: int = 1
    layout: layouts.Layout = ()
    strategy: str = ""
    demand: t.Mapping[str, int] = field(default_factory=dict)
    extras_named: bool = True

    @property
    def definition(self) -> SharingMode:
        """The definition of the mode."""
        return MODES[self.mode]

    @property
    def shared(self) -> bool:
        """Whether several pods use one device."""
        return self.replicas > 1

    @property
    def suffix(self) -> str:
        """The suffix that GFD appends to the product's name."""
        return product_suffix(self.replicas, self.rename)

    @property
    def profiles(self) -> tuple[str, ...]:
        """Every MIG profile that may have devices, sorted."""
        return tuple(sorted({*layouts.profiles(self.layout), *self.demand}))

    @property
    def resources(self) -> tuple[str, ...]:
        """The extended resources that a node may offer, the main resource first."""
        return self.definition.resources(self)

    def offers(self, gpus: int) -> dict[str, int]:
        """The amount of each resource that a node with this number of GPUs offers."""
        return self.definition.offers(self, gpus)

    def devices(self, offered: t.Mapping[str, int]) -> int:
        """The number of devices that provide these amounts of the resources."""
        return self.definition.devices(self, offered)

    def offered_name(self, resource: str) -> str:
        """The name of a resource once it is shared."""
        return resource + _RENAMED if self.shared and self.rename else resource


def sharing_of(options: t.Mapping[str, t.Any], product: str = "", extras_named: bool = True) -> Sharing:
    """The sharing for valid options (`sharing` of a pool) and GPUs with this product name; unset options get their defaults.

    `extras_named`: see Sharing.
    """
    return Sharing(**MODES[options["mode"]].sharing_arguments(options, product, extras_named))


# The base class of sharing modes; each mode is one subclass, listed in MODES (pure).
#
# The defaults here describe a mode in which each GPU stays whole and all GPUs are offered as nvidia.com/gpu.

Counts = t.Mapping[str, int]


@dataclass(frozen=True)
class DeclaredSharing:
    """The sharing that one pool declares, for a mode's checks. An unset value is None; values of a wrong type have already been rejected."""

    path: str
    options: t.Mapping[str, t.Any]
    model: Model | None
    gpus_per_node: t.Any


@dataclass(frozen=True)
class PodExpectation:
    """Known data about the pods of a pool; the input of SharingMode.performance()."""

    replicas: int = 1
    memory_mib_per_share: int | None = None
    profiles: t.Collection[str] = ()
    model: str | None = None


class SharingMode:
    """Defines one value of sharing.mode."""

    name: t.ClassVar[str]
    page_name: t.ClassVar[str] = ""
    """The name on the report page; if empty, the mode's own name is used."""
    own_options: t.ClassVar[tuple[str, ...]] = ()
    """The options of `sharing`, other than `mode` and the settings of the device plugin, that apply to this mode."""
    implied_by: t.ClassVar[tuple[str, ...]] = ()
    """Options that suggest this mode to a user who sets one of them without a mode."""
    fixed_options: t.ClassVar[t.Mapping[str, tuple[t.Any, str]]] = {}
    """Options that must have one fixed value in this mode, each with the value and the reason."""
    plugin_key: t.ClassVar[str] = ""
    """The section of the device plugin's configuration that shares a resource; empty if nothing is shared."""
    partitions_gpus: t.ClassVar[bool] = False
    """Whether GPUs are partitioned into MIG devices. A new node then offers whole GPUs at first, and a startup taint can keep pods away from them."""
    vgpu_problem: t.ClassVar[str] = ""
    """The reason why the GPUs of a node cannot have this mode if they are vGPUs, with the remedy; empty if they can."""
    evicts_all_pods: t.ClassVar[bool] = False
    """Whether a change to this mode, away from it or within it ends every process that uses a GPU of the node."""

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `sharing` other than `mode` that apply to this mode."""
        settings = setting_paths(self.name, self.plugin_key)
        return (*self.own_options, *(key for key in settings if key not in self.fixed_options))

    def plugin_default(self, key: str) -> t.Any:
        """The value that the device plugin uses in this mode for a setting that its configuration does not contain."""
        return self.fixed_options[key][0] if key in self.fixed_options else SETTINGS[key].plugin_default

    def problems(self, declared: DeclaredSharing) -> Problems:
        """The problems in the sharing of a pool that declares this mode."""
        yield from ()

    def sharing_arguments(self, options: t.Mapping[str, t.Any], product: str, extras_named: bool) -> dict[str, t.Any]:
        """The arguments of Sharing for valid options; `product` is GFD's name of the model, or empty if unknown."""
        known = (*self.options, *self.fixed_options)
        return {"mode": self.name, **{key: options[key] for key in known if options.get(key) is not None}}

    def plugin_flags(self, sharing: Sharing) -> dict[str, t.Any]:
        """The `flags` of the device plugin's configuration."""
        return {}

    def shared_resources(self, sharing: Sharing) -> list[str]:
        """The resources that the device plugin shares, with their names before sharing."""
        return [GPU_RESOURCE]

    def resources(self, sharing: Sharing) -> tuple[str, ...]:
        """The extended resources that a node may offer, the main resource first."""
        return (sharing.offered_name(GPU_RESOURCE),)

    def offers(self, sharing: Sharing, gpus: int) -> dict[str, int]:
        """The amount of each resource that a node with this number of GPUs offers."""
        return {sharing.resources[0]: gpus * sharing.replicas}

    def devices(self, sharing: Sharing, offered: Counts) -> int:
        """The number of devices that provide these amounts of the resources."""
        return sum(count // sharing.replicas for count in offered.values())

    def labels(self, sharing: Sharing, product: str, devices: Counts) -> dict[str, str]:
        """The labels that gpu-feature-discovery sets on a node with this bare product name and these MIG devices (k8s-device-plugin internal/lm)."""
        return {
            PRODUCT_LABEL: product + sharing.suffix,
            REPLICAS_LABEL: str(sharing.replicas),
            STRATEGY_LABEL: self.name,
        }

    def accelerator(self, sharing: Sharing, product: str) -> str:
        """The kind of GPU for the cluster autoscaler, as a label value. Shared GPUs are a different kind, because they offer different amounts."""
        return product + (SHARED_SUFFIX if sharing.shared else "")

    def memory_per_share(self, sharing: Sharing, memory_mib: int) -> int | None:
        """The memory of one share in MiB; None if it differs between devices."""
        return memory_mib // sharing.replicas

    def performance(self, pods: PodExpectation) -> str:
        """The performance that the pods of a pool can expect, in one sentence without a full stop; empty if nothing is shared."""
        return ""

    def has_measured_times(self, replicas: int) -> bool:
        """Whether performance() contains times that were measured on one GPU model."""
        return bool(self.plugin_key)


def missing_replicas_problems(mode: SharingMode, declared: DeclaredSharing) -> Problems:
    """The problem if `replicas` is missing in a pool whose mode needs it."""
    if declared.options.get("replicas") is None:
        yield f"{declared.path}.sharing.replicas: is missing; {mode.name} needs the number of shares of a GPU, such as replicas: 4"


def product_suffix(replicas: int, rename: bool) -> str:
    """The suffix that GFD (k8s-device-plugin internal/lm) appends to a shared product's name if the resource's name does not show the sharing."""
    return SHARED_SUFFIX if replicas > 1 and not rename else ""


# The mode `none`: each pod gets whole GPUs.


class WholeGpus(SharingMode):
    """The mode without sharing."""

    name = NONE_MODE
    page_name = "whole GPUs"


NONE = WholeGpus()


# The mode `time-slicing`: the pods of a GPU take turns on it, without memory limits.


class TimeSlicing(SharingMode):
    """The time-slicing of the device plugin."""

    name = TIME_SLICING_MODE
    own_options = ("replicas",)
    implied_by = ("replicas",)
    plugin_key = "timeSlicing"

    def problems(self, declared: DeclaredSharing) -> Problems:
        """The problem of a missing number of shares."""
        yield from missing_replicas_problems(self, declared)

    def performance(self, pods: PodExpectation) -> str:
        """The share, the latency and the memory of a pod."""
        return f"{time_sliced(pods, 'the GPU')}; memory is not divided{measured_limit_note(pods.replicas)}"


def _where_measured(model_name: str | None) -> str:
    """The GPU for which the measured numbers that follow hold, unless the pool has this GPU."""
    model = models.find(model_name) if model_name else None
    return "" if model and model.key == MEASURED_MODEL else f"on an {MEASURED_MODEL}, "


def time_sliced(pods: PodExpectation, device: str) -> str:
    """The share of each pod if the pods take turns on a device."""
    replicas = pods.replicas
    others = f"{replicas - 1} busy pod{'s' if replicas > 2 else ''}"
    return (
        f"{_where_measured(pods.model)}busy pods get {measured_share(TIME_SLICING_MODE, replicas):.3f} of {device} each "
        f"(10 % is lost to switching), a synchronous launch waits up to {measured_wait_ms(replicas)} ms alongside {others}"
    )


TIME_SLICING = TimeSlicing()


# The mode `mps`: the pods of a GPU run on it at the same time, each with an equal part of its memory and its SMs.

# The maximum number of clients that the MPS control daemon accepts (k8s-device-plugin cmd/mps-control-daemon/mps/device.go).
_MAX_CLIENTS, _MAX_CLIENTS_BEFORE_TURING = 48, 16
_TURING = (7, 5)
_CAPABLE_LABEL = "nvidia.com/mps.capable"


class Mps(SharingMode):
    """NVIDIA's Multi-Process Service. Its daemon uses the whole GPU, and its clients end when the daemon ends."""

    name = MPS_MODE
    own_options = ("replicas",)
    fixed_options: t.ClassVar[t.Mapping[str, tuple[t.Any, str]]] = {
        "fail_requests_greater_than_one": (True, "MPS always rejects a request for two shares (NVIDIA device plugin)")
    }
    plugin_key = "mps"
    vgpu_problem = "MPS does not work on vGPUs; choose a smaller profile for more vGPUs, or mode: time-slicing"
    evicts_all_pods = True

    def problems(self, declared: DeclaredSharing) -> Problems:
        """The problems in the number of shares, which MPS limits depending on the GPU's generation."""
        yield from missing_replicas_problems(self, declared)
        replicas, model = declared.options.get("replicas"), declared.model
        if not isinstance(replicas, int):
            return
        is_old = model is not None and tuple(map(int, model.compute.split("."))) < _TURING
        limit = _MAX_CLIENTS_BEFORE_TURING if is_old else _MAX_CLIENTS
        if replicas > limit:
            gpu = f"a {model.key}" if is_old and model else "a GPU"
            yield (
                f"{declared.path}.sharing.replicas: {replicas} is not allowed: the MPS control daemon lets at most {limit} clients share {gpu}; "
                f"use at most {limit}, or mode: {TIME_SLICING.name}"
            )

    def labels(self, sharing: Sharing, product: str, devices: Counts) -> dict[str, str]:
        """The common labels, and the label that shows that MPS can be used."""
        return {**super().labels(sharing, product, devices), _CAPABLE_LABEL: "true"}

    def performance(self, pods: PodExpectation) -> str:
        """The share, the latency and the memory of a pod."""
        return (
            f"{_where_measured(pods.model)}busy pods get {measured_share(self.name, pods.replicas):.3f} of the GPU each, with the same latency "
            "as a pod that runs alone; the share is a hard limit, even while other pods are idle; "
            f"{_memory(pods)}{measured_limit_note(pods.replicas)}"
        )


def _memory(pods: PodExpectation) -> str:
    mib = pods.memory_mib_per_share
    if mib is None:
        return "memory is divided"
    usable = mib - MPS_RESERVE_MIB
    if usable <= 0:
        return f"{mib} MiB of memory each, too little for more than a CUDA context"
    return f"{mib} MiB of memory each; {_where_measured(pods.model)}0.8 GiB of it should stay free ({usable / 1024:.1f} GiB usable)"


MPS = Mps()


# The mode `mig`: GPUs are partitioned into MIG devices, either by a layout for each GPU or by the total number of devices that a pool needs.


class Mig(SharingMode):
    """NVIDIA's Multi-Instance GPU; with `replicas`, pods take turns on each MIG device."""

    name = MIG_MODE
    page_name = "MIG"
    own_options = ("layout", "demand", "strategy", "replicas")
    implied_by = ("layout", "demand")
    plugin_key = TIME_SLICING.plugin_key
    partitions_gpus = True
    vgpu_problem = "a vGPU cannot be partitioned with MIG by its node; choose a MIG-backed profile, and another mode"

    def problems(self, declared: DeclaredSharing) -> Problems:
        """The problems in the layout or the demand, which the GPU model must support if it is in the catalog."""
        layout, demand = declared.options.get("layout"), declared.options.get("demand")
        if layout is None and demand is None:
            yield (
                f"{declared.path}.sharing.layout: is missing; set the MIG devices of each GPU, such as {{3g.20gb: 2}}, or set demand to the "
                "devices that all nodes of the pool provide together"
            )
        if isinstance(layout, (dict, list)):
            yield from _layout_problems(declared, layouts.parse_layout(layout))
        if isinstance(demand, dict):
            yield from _demand_problems(declared, demand)

    def sharing_arguments(self, options: t.Mapping[str, t.Any], product: str, extras_named: bool) -> dict[str, t.Any]:
        """The arguments, including the layout, the demand, and the strategy that they require."""
        values = super().sharing_arguments(options, product, extras_named)
        layout = layouts.parse_layout(options["layout"]) if options.get("layout") else ()
        demand = dict(sorted(options.get("demand", {}).items()))
        suffix = product_suffix(values.get("replicas", 1), values.get("rename", False))
        needed = layouts.MIXED if demand else layouts.strategy_for(layout, product, suffix)
        strategy = options.get("strategy") or needed
        return {**values, "layout": layout, "demand": demand, "strategy": strategy, "extras_named": extras_named}

    def plugin_flags(self, sharing: Sharing) -> dict[str, t.Any]:
        """The flags, including the strategy, which determines the resource names of the devices."""
        return {"migStrategy": sharing.strategy}

    def shared_resources(self, sharing: Sharing) -> list[str]:
        """The resources that are shared; with the strategy mixed, those of all profiles.

        The result includes the full name of a profile with extras, because gpu-feature-discovery always uses it.
        """
        if sharing.strategy != layouts.MIXED:
            return super().shared_resources(sharing)
        return sorted(
            {
                layouts.resource(name)
                for profile in sharing.profiles
                for name in (profile, _offered_profile(sharing, profile))
            }
        )

    def resources(self, sharing: Sharing) -> tuple[str, ...]:
        """The extended resources that a node may offer.

        With the strategy mixed, these are the resources of all profiles, and whole GPUs if some GPUs are not partitioned.
        """
        if sharing.strategy != layouts.MIXED:
            return super().resources(sharing)
        names = dict.fromkeys(layouts.resource(_offered_profile(sharing, profile)) for profile in sharing.profiles)
        has_whole_gpus = bool(sharing.demand) or any(part.devices for part in sharing.layout)
        return (*map(sharing.offered_name, names), *((GPU_RESOURCE,) if has_whole_gpus else ()))

    def offers(self, sharing: Sharing, gpus: int) -> dict[str, int]:
        """The amounts that the MIG devices of all GPUs provide; a GPU without devices in the layout is offered as a whole and is not shared."""
        offered = dict.fromkeys(sharing.resources, 0)
        for index in range(gpus):
            devices = layouts.on_gpu(sharing.layout, index)
            for profile, count in devices.items():
                mixed = sharing.strategy == layouts.MIXED
                resource = layouts.resource(_offered_profile(sharing, profile)) if mixed else GPU_RESOURCE
                offered[sharing.offered_name(resource)] += count * sharing.replicas
            if not devices:
                offered[GPU_RESOURCE] = offered.get(GPU_RESOURCE, 0) + 1
        return offered

    def devices(self, sharing: Sharing, offered: Counts) -> int:
        """The number of devices; whole GPUs next to MIG devices are not shared."""
        whole = GPU_RESOURCE if sharing.strategy == layouts.MIXED else ""
        return sum(count if name == whole else count // sharing.replicas for name, count in offered.items())

    def labels(self, sharing: Sharing, product: str, devices: Counts) -> dict[str, str]:
        """The labels on a node. The strategy single labels the only profile like a GPU; the strategy mixed labels each profile separately."""
        labels = {MIG_STRATEGY_LABEL: sharing.strategy}
        strategy = (TIME_SLICING if sharing.shared else NONE).name
        devices = devices or dict.fromkeys(layouts.profiles(sharing.layout), 0)
        if sharing.strategy == layouts.SINGLE:
            (profile, count), *dummy = devices.items()
            return {
                **labels,
                PRODUCT_LABEL: layouts.single_product(product, profile, sharing.suffix),
                COUNT_LABEL: str(count),
                REPLICAS_LABEL: str(sharing.replicas),
                STRATEGY_LABEL: strategy,
            }
        for profile, count in devices.items():
            prefix = layouts.resource(profile)
            labels[f"{prefix}.count"] = str(count)
            labels[f"{prefix}.replicas"] = str(sharing.replicas)
            labels[f"{prefix}.sharing-strategy"] = strategy
        return labels

    def accelerator(self, sharing: Sharing, product: str) -> str:
        """The kind of GPU for the cluster autoscaler, which differs from that of whole GPUs."""
        return f"{product}-MIG"

    def memory_per_share(self, sharing: Sharing, memory_mib: int) -> int | None:
        """None, because the memory depends on the profile."""
        return None

    def performance(self, pods: PodExpectation) -> str:
        """The SMs and the memory of each device, as text."""
        devices = [_device(name, pods.model) for name in sorted(pods.profiles, reverse=True)]
        text = "; ".join([*devices, "devices do not share compute, memory or bandwidth"])
        if pods.replicas > 1:
            text += f"; on each device, pods take turns: {time_sliced(pods, 'it')}; its memory is not divided"
        return text + measured_limit_note(pods.replicas)

    def has_measured_times(self, replicas: int) -> bool:
        """Whether pods take turns on a device, because performance() contains measured times only in this case."""
        return replicas > 1


def _offered_profile(sharing: Sharing, profile: str) -> str:
    return profile if sharing.extras_named else layouts.plain(profile)


def _layout_problems(declared: DeclaredSharing, layout: layouts.Layout) -> Problems:
    path, gpus = f"{declared.path}.sharing.layout", declared.gpus_per_node
    if gpus is None and any(part.devices for part in layout):
        yield (
            f"{declared.path}.gpus_per_node: is required with a layout by GPU index; set the number of GPUs of each node, so that MIG is "
            "switched off on the GPUs without a layout"
        )
    beyond = [index for part in layout for index in part.devices if isinstance(gpus, int) and index >= gpus]
    if beyond:
        yield f"{path}: names GPU {max(beyond)}, but gpus_per_node is {gpus}; the last GPU of a node is {gpus - 1}"
    if not layouts.profiles(layout):
        yield f"{path}: has no MIG device; set mode: {NONE.name} for whole GPUs"
    if declared.options.get("strategy") == layouts.SINGLE and layouts.uniform(layout) is None:
        yield (
            f'{declared.path}.sharing.strategy: "{layouts.SINGLE}" needs one profile on every GPU of a node (NVIDIA device '
            f"plugin), but the layout has {', '.join(layouts.profiles(layout)) or 'none'}; set {layouts.MIXED}, or omit it"
        )
    if declared.model is not None:
        yield from _label_problems(declared, declared.model, layout)
        yield from _fit_problems(declared, declared.model, path, [part.profiles for part in layout])


def _demand_problems(declared: DeclaredSharing, demand: t.Mapping[t.Any, t.Any]) -> Problems:
    path = f"{declared.path}.sharing.demand"
    if declared.options.get("layout") is not None:
        yield f"{path}: cannot be combined with a layout; remove one: a layout sets the devices of each GPU, a demand leaves them open"
        return
    if not demand:
        yield f"{path}: has no MIG device; set mode: {NONE.name} for whole GPUs"
    if declared.options.get("strategy") == layouts.SINGLE:
        yield (
            f'{declared.path}.sharing.strategy: "{layouts.SINGLE}" needs one profile on every GPU of a node (NVIDIA device plugin), but '
            f"with a demand, GPUs that are not needed stay whole; set {layouts.MIXED}, or omit it"
        )
    if declared.model is not None:
        yield from _fit_problems(
            declared, declared.model, path, [{name: 1} for name in demand if isinstance(name, str)]
        )


def _fit_problems(declared: DeclaredSharing, model: models.Model, path: str, layouts: t.Iterable[Counts]) -> Problems:
    geometry = geometries.geometry(model.key)
    if geometry is None:
        yield f"{declared.path}.sharing.mode: a {model.key} does not support {MIG.name}; use {TIME_SLICING.name} or {MPS.name}"
        return
    for profiles in layouts:
        # If NVIDIA's sources disagree about the names of profiles, only the nodes show which ones exist.
        if geometry.verified or all(geometry.profile(name) for name in profiles):
            reason = fit_error(geometry, profiles)
            if reason:
                yield f"{path}: a {model.key} {reason}"


def _label_problems(declared: DeclaredSharing, model: models.Model, layout: layouts.Layout) -> Problems:
    profile = layouts.uniform(layout)
    if profile is None or declared.options.get("strategy") != layouts.SINGLE:
        return
    replicas = declared.options.get("replicas")
    suffix = product_suffix(replicas if isinstance(replicas, int) else 1, declared.options.get("rename") is True)
    label = layouts.single_product(model.product, profile, suffix)
    if len(label) > LABEL_LENGTH:
        yield (
            f'{declared.path}.sharing.strategy: "{layouts.SINGLE}" makes the label {PRODUCT_LABEL} of a {model.key} "{label}", and NFD drops '
            f"labels that are longer than {LABEL_LENGTH} characters, so the node would lose its product; set {layouts.MIXED}, or omit it"
        )


def _device(name: str, model_name: str | None) -> str:
    """The SMs and the memory of one device; if the model or the profile is not known, the memory in its name."""
    compute, dummy, rest = name.partition("g.")
    memory = f"{rest.partition('gb')[0]} GB"
    model = models.find(model_name) if model_name else None
    geometry = geometries.geometry(model.key) if model else None
    profile = geometry.profile(name) if geometry else None
    if model is None or geometry is None or profile is None:
        return f"{name} has {compute} compute slice{'s' if compute != '1' else ''} and {memory}"
    slices = max(each.compute for each in geometry.profiles)
    if model.key not in SMS_BY_MODEL:
        return f"{name} has {profile.compute} of {slices} compute slices and {memory}"
    all_sms, sms_of_profile = SMS_BY_MODEL[model.key]
    sms = sms_of_profile[profile.id]
    if model.key in MIB_BY_MODEL:
        memory = f"{MIB_BY_MODEL[model.key][profile.id]} MiB"
    unused = 100 * (all_sms - sms) / all_sms if profile.compute == slices else 0
    loss = f" ({unused:.0f} % of the SMs are in no device, and CERN's simulation lost as much)" if unused else ""
    return f"{name} has {sms} of {all_sms} SMs and {memory}{loss}"


MIG = Mig()


# All sharing modes by name. The docstring of this file contains the steps for a new one.

MODES: dict[str, SharingMode] = {mode.name: mode for mode in (NONE, TIME_SLICING, MPS, MIG)}
# The mode of a pool that does not set one.
DEFAULT_MODE = NONE


def find_mode(plugin_key: str, *, partitioned: bool) -> SharingMode | None:
    """The mode of a node whose GPUs this section of the device plugin's configuration shares; the key is empty if no section shares them.

    The result is None if no mode whose `partitions_gpus` equals `partitioned` uses the section.
    """
    modes = [mode for mode in MODES.values() if mode.partitions_gpus == partitioned]
    return next((mode for mode in modes if plugin_key == mode.plugin_key or (partitioned and not plugin_key)), None)


def mode_named(name: t.Any) -> SharingMode | None:
    """The mode with this name; None for any other value."""
    return MODES.get(name) if isinstance(name, str) else None


def current_mode(strategy: str, replicas: int, *, partitioned: bool) -> str:
    """The mode of a node, as shown in tables; `strategy` is the value of gpu-feature-discovery's label."""
    return MIG.name if partitioned else mode_with_replicas(strategy, replicas)


def mode_with_replicas(name: str, replicas: int) -> str:
    """A mode with its number of shares, as shown in tables."""
    return f"{name} x{replicas}" if replicas > 1 else name


# Builds configurations of NVIDIA's device plugin, and the names of their entries in the ConfigMap.

_PLUGIN_ENTRY = re.compile(rf"({'|'.join(MODES)})-(?:.+-)?[0-9a-f]{{8}}")


# The plugin's own values of flags (k8s-device-plugin cmd/nvidia-device-plugin/main.go, cmd/gpu-feature-discovery/main.go, and api/config/v1/consts.go), except
# those that differ between its releases. A flag that has this value has no effect.
_FLAG_DEFAULTS: dict[str, t.Any] = {
    "failOnInitError": True,
    "mpsRoot": "",
    "nvidiaDriverRoot": "/",
    "nvidiaDevRoot": "",
    "deviceDiscoveryStrategy": "auto",
    "plugin": {
        "passDeviceSpecs": False,
        "deviceListStrategy": ["envvar"],
        "deviceIDStrategy": "uuid",
        "cdiAnnotationPrefix": "cdi.k8s.io/",
        "nvidiaCTKPath": "/usr/bin/nvidia-ctk",
        "containerDriverRoot": "/driver-root",
    },
    "gfd": {
        "oneshot": False,
        "noTimestamp": False,
        "sleepInterval": "60s",
        "outputFile": "/etc/kubernetes/node-feature-discovery/features.d/gfd",
        "machineTypeFile": "/sys/class/dmi/id/product_name",
    },
}


def effective_flags(flags: t.Mapping[str, t.Any], defaults: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
    """The flags of a configuration that differ from the plugin's own values, or from the other defaults if they are given."""
    defaults = _FLAG_DEFAULTS if defaults is None else defaults
    effective: dict[str, t.Any] = {}
    for key, value in flags.items():
        default = defaults.get(key)
        if isinstance(value, dict):
            value = effective_flags(value, default if isinstance(default, dict) else {})
        elif isinstance(default, list) and isinstance(value, str):
            # The plugin accepts a list and a single value.
            value = [value]
        # In Python, 0 equals False.
        if value not in (None, {}) and (value != default or isinstance(value, bool) != isinstance(default, bool)):
            effective[key] = value
    return effective


def device_plugin_config(sharing: Sharing) -> dict[str, t.Any]:
    """A configuration in the format of k8s-device-plugin's api/config/v1. For whole GPUs without other settings, it contains only the version."""
    mode = sharing.definition
    flags = mode.plugin_flags(sharing)
    content: dict[str, t.Any] = {"version": "v1", **({"flags": flags} if flags else {})}
    for key, path in setting_paths(mode.name, mode.plugin_key if sharing.shared else "").items():
        if (value := getattr(sharing, key)) is not None:
            set_nested(content, path, value)
    if sharing.shared:
        resources = [{"name": name, "replicas": sharing.replicas} for name in mode.shared_resources(sharing)]
        set_nested(content, ("sharing", mode.plugin_key, "resources"), resources)
    return content


def plugin_entry_name(sharing: Sharing) -> str:
    """The ConfigMap key of a configuration. The key is readable, is a valid label value, and differs for different content.

    The plugin does not read a key again after the content of the key has changed, but it reads a new key that the node's label selects.
    """
    digest = hashlib.sha256(json.dumps(device_plugin_config(sharing), sort_keys=True).encode()).hexdigest()[:8]
    replicas = str(sharing.replicas) if sharing.shared else ""
    return "-".join(filter(None, (sharing.mode, sharing.strategy, replicas, digest)))


def mode_of(name: str) -> SharingMode | None:
    """The sharing mode of an entry whose name has the format of plugin_entry_name(); None for other names."""
    match = _PLUGIN_ENTRY.fullmatch(name)
    return MODES[match[1]] if match else None
