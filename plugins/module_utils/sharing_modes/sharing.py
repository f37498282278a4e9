# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sharing of a node's GPUs, and the labels and resources that result from it (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import NONE_MODE
from ..mig import layout as layouts
from .base import SharingMode, product_suffix
from .modes import MODES
from .plugin_settings import PluginSettings

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
