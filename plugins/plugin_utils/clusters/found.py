# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters as clouds tell them, and the hosts of an inventory that they become (pure)."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from collections import Counter
from dataclasses import dataclass

MAGNUM, VKS = "magnum", "vks"
ALL = "gpu_clusters"
# How much of an id tells it from others.
_ID = 8


@dataclass(frozen=True)
class Group:
    """A node group; gpus: of one node, None where the cloud does not tell; models: what they may be, as keys of the catalog."""

    name: str
    status: str
    count: int
    flavor: str
    gpus: int | None = None
    models: tuple[str, ...] = ()

    @property
    def card(self) -> str:
        """What all the models that it may be have in common: H100 of H100-PCIe and H100-NVL; empty where nothing is known."""
        words = [model.split("-") for model in self.models]
        common = itertools.takewhile(lambda at: len(set(at)) == 1, zip(*words, strict=False))
        return "-".join(at[0] for at in common)

    def told(self) -> dict[str, t.Any]:
        """As a variable of the host; `model` only where one alone is meant."""
        model = self.models[0] if len(self.models) == 1 else None
        return {**dataclasses.asdict(self), "models": list(self.models), "model": model}


@dataclass(frozen=True)
class Found:
    """One cluster. settings: what gpu_cluster.cloud says of it. server: the address of its API server, empty where the cloud tells none.

    ready: whether there is, or can be, a kubeconfig.
    """

    provider: str
    cloud: str
    region: str
    id: str
    name: str
    status: str
    version: str
    server: str
    ready: bool
    settings: t.Mapping[str, t.Any]
    groups: tuple[Group, ...] = ()

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"cloud {self.cloud}{f', region {self.region}' if self.region else ''}"

    @property
    def models(self) -> list[str]:
        """The GPU models of its node groups, as far as they are known, be it that only a card's name is."""
        return sorted({group.card for group in self.groups if group.card})

    @property
    def gpus(self) -> int:
        """The GPUs of all its nodes, as far as they are known."""
        return sum(group.count * (group.gpus or 0) for group in self.groups)

    def to_cache(self) -> dict[str, t.Any]:
        """Everything, as plain values; nothing of it is secret."""
        return dataclasses.asdict(self)

    @classmethod
    def of_cache(cls, kept: t.Mapping[str, t.Any]) -> Found:
        """What to_cache() made."""
        groups = tuple(Group(**{**group, "models": tuple(group["models"])}) for group in kept["groups"])
        return cls(**{**kept, "groups": groups})


class Life(t.NamedTuple):
    """How long a new kubeconfig is to be good, where the cloud asks, and when it counts as ended before its end; days."""

    days: int
    renew_before: float


class Source(t.Protocol):
    """One cloud in one region."""

    provider: str
    cloud: str
    region: str

    def discover(self, wanted: t.Callable[[str], bool]) -> list[Found]:
        """The clusters whose names are wanted."""

    def kubeconfig(self, of: Found, life: Life) -> str:
        """The text of a kubeconfig for one of them."""

    def told(self, error: Exception) -> str:
        """An error of this source in words."""


def host_names(clusters: t.Sequence[Found]) -> list[str]:
    """A name for each: its own; of those that share one, as much of region, cloud and id beside it as tells them apart.

    What one is called does not hang on the order in which clouds have answered.
    """
    ways: tuple[t.Callable[[Found], tuple[str, ...]], ...] = (
        lambda found: (found.name,),
        lambda found: (found.name, found.region),
        lambda found: (found.name, found.cloud, found.region),
        lambda found: (found.name, found.id.removeprefix("k8s-")[:_ID]),
        lambda found: (found.name, found.id),
    )
    own = {found.name for found in clusters}
    names: list[str] = [""] * len(clusters)
    left = list(range(len(clusters)))
    for way in ways:
        of_way = {at: "-".join(part for part in way(clusters[at]) if part) for at in left}
        counts = Counter(of_way.values())
        # What one is called by right is nobody else's makeshift.
        taken = set(names) | own if way is not ways[0] else set()
        for at, name in of_way.items():
            if counts[name] == 1 and name not in taken:
                names[at] = name
        left = [at for at in left if not names[at]]
    return names


def host_vars(found: Found, kubeconfig: str, kube_name: str | None, host: str = "") -> dict[str, t.Any]:
    """The variables of a host: gpu_cluster, and gpu_discovered with what the cloud says of it.

    kube_name: what the kubeconfig calls the cluster; None where that is not known. host: the host's name, which tells clusters of one
    name apart, so that each of them remembers another one.
    """
    name = host or found.name
    cluster: dict[str, t.Any] = {
        "name": name,
        "kubeconfig": kubeconfig,
        "cloud": {found.provider: dict(found.settings)},
    }
    in_kubeconfig = kube_name or found.name
    if in_kubeconfig != name:
        cluster["kube_name"] = in_kubeconfig
    return {
        "gpu_cluster": cluster,
        "gpu_discovered": {
            "provider": found.provider,
            "cloud": found.cloud,
            "region": found.region,
            "id": found.id,
            "status": found.status,
            "version": found.version,
            "server": found.server,
            "gpus": found.gpus,
            "models": found.models,
            "node_groups": [group.told() for group in found.groups],
        },
    }


def groups_of(found: Found) -> list[str]:
    """The groups that a cluster's host belongs to, before their names are made safe."""
    parts = [
        found.provider,
        f"cloud_{found.cloud}",
        f"region_{found.region}" if found.region else "",
        *(f"model_{model}" for model in found.models),
    ]
    return [part for part in dict.fromkeys(parts) if part]
