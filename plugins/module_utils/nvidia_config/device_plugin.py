# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of NVIDIA's device plugin: their content and the name of their ConfigMap entry."""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import dataclass, field

try:
    import yaml
except ImportError:  # told by the modules' base, together with the library that brings it
    yaml = None  # type: ignore[assignment]

from ..catalog.names import GPU_RESOURCE, SHARED_SUFFIX
from ..mig import layout as mig

EXCLUSIVE = "none"
TIME_SLICING = "time-slicing"
MPS = "mps"
MIG = "mig"
MODES = (EXCLUSIVE, TIME_SLICING, MPS, MIG)

# What the plugin appends to a resource under renameByDefault (k8s-device-plugin api/config/v1/replicas.go).
_RENAMED = ".shared"


@dataclass(frozen=True)
class Sharing:
    """How the GPUs of a node are shared; `replicas` are the shares of a GPU, or of each MIG device (1: not shared).

    `demand` is how many MIG devices of each profile all nodes of the pool have together, at least; the layout is then that of one node.
    `extras_named`: MIG devices with extras (+me, +gfx) are offered under a name of their own, else under that of the plain profile.
    """

    mode: str = EXCLUSIVE
    replicas: int = 1
    rename: bool = False
    fail_requests: bool = True
    layout: mig.Layout = ()
    strategy: str = ""
    demand: t.Mapping[str, int] = field(default_factory=dict)
    extras_named: bool = True

    @property
    def shared(self) -> bool:
        """Whether several pods hold one device."""
        return self.replicas > 1

    @property
    def suffix(self) -> str:
        """What GFD hangs on the product's name (k8s-device-plugin internal/lm): that it is shared, unless the resource says so."""
        return SHARED_SUFFIX if self.shared and not self.rename else ""

    @property
    def profiles(self) -> tuple[str, ...]:
        """Every MIG profile of which there may be devices, sorted."""
        return tuple(sorted({*mig.profiles(self.layout), *self.demand}))

    @property
    def resources(self) -> tuple[str, ...]:
        """The extended resources that a node may offer, the one that most is made of first."""
        if self.mode == MIG and self.strategy == mig.MIXED:
            names = tuple(dict.fromkeys(map(self._named, self.profiles)))
            whole = bool(self.demand) or any(part.devices for part in self.layout)
            return (*map(self._offered_as, names), *((GPU_RESOURCE,) if whole else ()))
        return (self._offered_as(GPU_RESOURCE),)

    def offers(self, gpus: int) -> dict[str, int]:
        """How much of each resource a node with so many GPUs offers."""
        if self.mode != MIG:
            return {self.resources[0]: gpus * self.replicas}
        found = dict.fromkeys(self.resources, 0)
        for index in range(gpus):
            cut = mig.on_gpu(self.layout, index)
            for profile, count in cut.items():
                name = self._named(profile) if self.strategy == mig.MIXED else GPU_RESOURCE
                found[self._offered_as(name)] += count * self.replicas
            if not cut:
                found[GPU_RESOURCE] = found.get(GPU_RESOURCE, 0) + 1
        return found

    def devices(self, offered: t.Mapping[str, int]) -> int:
        """How many devices are behind so much of each resource: beside MIG devices that are shared, whole GPUs are not."""
        whole = GPU_RESOURCE if self.mode == MIG and self.strategy == mig.MIXED else ""
        return sum(count if name == whole else count // self.replicas for name, count in offered.items())

    def _named(self, profile: str) -> str:
        return mig.resource(_served(profile, self))

    def _offered_as(self, resource: str) -> str:
        return resource + _RENAMED if self.shared and self.rename else resource


def config(sharing: Sharing) -> dict[str, t.Any]:
    """A configuration as api/config/v1 of k8s-device-plugin knows it; an exclusive GPU needs nothing but the version."""
    content: dict[str, t.Any] = {"version": "v1"}
    if sharing.mode == MIG:
        content["flags"] = {"migStrategy": sharing.strategy}
    if sharing.shared:
        content["sharing"] = {
            "mps" if sharing.mode == MPS else "timeSlicing": {
                "renameByDefault": sharing.rename,
                "failRequestsGreaterThanOne": sharing.fail_requests,
                "resources": [{"name": name, "replicas": sharing.replicas} for name in _shared_resources(sharing)],
            }
        }
    return content


def read(text: str) -> t.Any:
    """A live configuration as data; None where it cannot be read, which the plugin cannot do either."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def entry_name(sharing: Sharing) -> str:
    """The ConfigMap key of a configuration: readable, a legal label value, and different for different content.

    A key whose content changed is not read again by the plugin; a new key, named by the node's label, is.
    """
    digest = hashlib.sha256(json.dumps(config(sharing), sort_keys=True).encode()).hexdigest()[:8]
    words = [sharing.mode, *([sharing.strategy] if sharing.strategy else [])]
    return "-".join([*words, *([str(sharing.replicas)] if sharing.shared else []), digest])


def _shared_resources(sharing: Sharing) -> list[str]:
    if sharing.mode == MIG and sharing.strategy == mig.MIXED:
        # GFD knows a device with extras by its own name in any case, whatever the plugin offers it as.
        return sorted(
            {mig.resource(name) for profile in sharing.profiles for name in (profile, _served(profile, sharing))}
        )
    return [GPU_RESOURCE]


def _served(profile: str, sharing: Sharing) -> str:
    return profile if sharing.extras_named else mig.plain(profile)
