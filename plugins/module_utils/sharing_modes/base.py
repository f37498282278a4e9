# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base class of sharing modes; each mode is one subclass in its own file of this package, listed in modes.py (pure).

The defaults here describe a mode in which each GPU stays whole and all GPUs are offered as nvidia.com/gpu.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.models import Model
from ..catalog.names import GPU_RESOURCE, PRODUCT_LABEL, REPLICAS_LABEL, SHARED_SUFFIX, STRATEGY_LABEL
from .plugin_settings import SETTINGS, setting_paths

if t.TYPE_CHECKING:
    from .sharing import Sharing

Counts = t.Mapping[str, int]
Problems = t.Iterator[str]


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
