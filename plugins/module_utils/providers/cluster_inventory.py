# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes the clusters and node groups that the inventory plugin `clusters` discovers in the clouds (pure)."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class DiscoveredNodeGroup:
    """A node group. gpus: the number of GPUs per node; None if the cloud does not return it. models: the possible models, as keys of the catalog."""

    name: str
    status: str
    count: int
    flavor: str
    gpus: int | None = None
    models: tuple[str, ...] = ()

    @property
    def common_model(self) -> str:
        """The common prefix of the names of all possible models, such as H100 for H100-PCIe and H100-NVL; empty if no model is known."""
        words = [model.split("-") for model in self.models]
        common = itertools.takewhile(lambda part: len(set(part)) == 1, zip(*words, strict=False))
        return "-".join(part[0] for part in common)

    def to_variable(self) -> dict[str, t.Any]:
        """The group as the host's variable contains it; `model` is null if several models are possible."""
        model = self.models[0] if len(self.models) == 1 else None
        return {**dataclasses.asdict(self), "models": list(self.models), "model": model}


@dataclass(frozen=True)
class DiscoveredCluster:
    """A cluster. settings: the value for gpu_cluster.cloud. server: the address of its API server; empty if the cloud returns none.

    ready: whether a kubeconfig exists or can be issued. source: the index of its source in the list of sources, which is needed because
    two accounts may have the same provider, cloud and region.
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
    groups: tuple[DiscoveredNodeGroup, ...] = ()
    source: int = 0

    @property
    def place(self) -> str:
        """The cloud and the region, for messages."""
        return f"cloud {self.cloud}{f', region {self.region}' if self.region else ''}"

    @property
    def models(self) -> list[str]:
        """The known GPU models of the cluster's node groups."""
        return sorted({group.common_model for group in self.groups if group.common_model})

    @property
    def gpus(self) -> int:
        """The number of GPUs of all nodes; a node group with an unknown number of GPUs counts as 0."""
        return sum(group.count * (group.gpus or 0) for group in self.groups)

    def to_cache(self) -> dict[str, t.Any]:
        """The cluster as plain values without secrets."""
        return dataclasses.asdict(self)

    @classmethod
    def from_cache(cls, cached: t.Mapping[str, t.Any]) -> DiscoveredCluster:
        """The cluster that to_cache() has converted."""
        groups = tuple(DiscoveredNodeGroup(**{**group, "models": tuple(group["models"])}) for group in cached["groups"])
        return cls(**{**cached, "groups": groups})


class KubeconfigLifetime(t.NamedTuple):
    """How many days new kubeconfigs are valid (if the cloud allows a choice), and how many days before their expiry they are renewed."""

    days: int
    renew_before: float


@dataclass(frozen=True)
class ClusterFilter:
    """The plugin options that select the clusters that become hosts; each set of values has its own cache entry. names: shell patterns."""

    names: t.Sequence[str]

    def includes(self, name: str, status: str, status_in_deletion: str) -> bool:
        """Whether a cluster becomes a host; a cluster that is being deleted does not."""
        return status != status_in_deletion and any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)


class ClusterSource(t.Protocol):
    """One cloud in one region. Each provider's inventory.py has a function `sources(settings, environ, user_agent)` that returns the sources.

    status_in_deletion: the status that the cloud reports for a cluster that is being deleted.
    """

    provider: str
    cloud: str
    region: str
    status_in_deletion: str

    def discover(self, selects: t.Callable[[str, str], bool]) -> list[DiscoveredCluster]:
        """The clusters whose name and status `selects` accepts; the details of other clusters are not requested."""

    def kubeconfig(self, cluster: DiscoveredCluster, lifetime: KubeconfigLifetime) -> str:
        """The text of a kubeconfig for one of the discovered clusters."""

    def explain(self, error: Exception) -> str:
        """The message for an error that this source has raised."""
