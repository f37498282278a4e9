# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mode `mig`: GPUs are partitioned into MIG devices, either by a layout for each GPU or by the total number of devices that a pool needs."""

from __future__ import annotations

import typing as t

from ..catalog import benchmarks, models
from ..catalog import mig as geometries
from ..catalog.names import (
    COUNT_LABEL,
    GPU_RESOURCE,
    LABEL_LENGTH,
    MIG_MODE,
    MIG_STRATEGY_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
)
from ..mig import layout as layouts
from ..mig.fit_error import fit_error
from .base import Counts, DeclaredSharing, PodExpectation, Problems, SharingMode, product_suffix
from .mps import MPS
from .time_slicing import TIME_SLICING, time_sliced
from .whole_gpus import NONE

if t.TYPE_CHECKING:
    from .sharing import Sharing


class Mig(SharingMode):
    """NVIDIA's Multi-Instance GPU; with `replicas`, pods take turns on each MIG device."""

    name = MIG_MODE
    page_name = "MIG"
    own_options = ("layout", "demand", "strategy", "replicas")
    implied_by = ("layout", "demand")
    plugin_key = TIME_SLICING.plugin_key
    partitions_gpus = True

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
            text += f"; on each, {time_sliced(pods.replicas, 'it')}, and its memory is not divided"
        return text + benchmarks.limit_note(pods.replicas)

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
    if model.key not in benchmarks.SMS:
        return f"{name} has {profile.compute} of {slices} compute slices and {memory}"
    all_sms, sms_of_profile = benchmarks.SMS[model.key]
    sms = sms_of_profile[profile.id]
    if model.key == "H200":
        memory = f"{benchmarks.H200_MIB[profile.id]} MiB"
    unused = 100 * (all_sms - sms) / all_sms if profile.compute == slices else 0
    loss = f" ({unused:.0f} % of the SMs are in no device, and CERN's simulation lost as much)" if unused else ""
    return f"{name} has {sms} of {all_sms} SMs and {memory}{loss}"


MIG = Mig()
