# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts discovered clusters to hosts of an inventory (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter

from ...module_utils.clouds.kubeconfig_file import DiscoveredCluster

ALL = "gpu_clusters"
_ID_PREFIX = 8
_DISCOVERED = ("provider", "cloud", "region", "id", "status", "version", "server", "gpus", "models")


def host_names(clusters: t.Sequence[DiscoveredCluster]) -> list[str]:
    """Return a unique name for each cluster: its own name or, if several clusters share this name, the name with the required parts of region, cloud and ID.

    The names do not depend on the order of the clusters.
    """
    candidates: tuple[t.Callable[[DiscoveredCluster], tuple[str, ...]], ...] = (
        lambda cluster: (cluster.name,),
        lambda cluster: (cluster.name, cluster.region),
        lambda cluster: (cluster.name, cluster.cloud, cluster.region),
        lambda cluster: (cluster.name, cluster.id.removeprefix("k8s-")[:_ID_PREFIX]),
        lambda cluster: (cluster.name, cluster.id),
    )
    own_names = {cluster.name for cluster in clusters}
    names: list[str] = [""] * len(clusters)
    unnamed = list(range(len(clusters)))
    for candidate in candidates:
        proposed = {index: "-".join(part for part in candidate(clusters[index]) if part) for index in unnamed}
        counts = Counter(proposed.values())
        # A longer name must differ from the own names of all other clusters.
        taken = set(names) | own_names if candidate is not candidates[0] else set()
        for index, name in proposed.items():
            if counts[name] == 1 and name not in taken:
                names[index] = name
        unnamed = [index for index in unnamed if not names[index]]
    return names


def host_vars(cluster: DiscoveredCluster, host: str, kubeconfig: str, kube_name: str) -> dict[str, t.Any]:
    """Return the variables of a host: gpu_cluster, and gpu_discovered with the cloud's data about the cluster.

    host: the name of the host, which each cluster records as its name. It is unique even if several clusters share a name. kube_name: the name of the
    cluster in the kubeconfig.
    """
    variable: dict[str, t.Any] = {
        "name": host,
        "kubeconfig": kubeconfig,
        "cloud": {cluster.provider: dict(cluster.settings)},
    }
    if kube_name != host:
        variable["kube_name"] = kube_name
    return {
        "gpu_cluster": variable,
        "gpu_discovered": {
            **{name: getattr(cluster, name) for name in _DISCOVERED},
            "node_groups": [group.to_variable() for group in cluster.groups],
        },
    }


def groups_of(cluster: DiscoveredCluster) -> list[str]:
    """Return the inventory groups of a cluster's host, before their names are sanitized."""
    names = [
        cluster.provider,
        f"cloud_{cluster.cloud}",
        f"region_{cluster.region}" if cluster.region else "",
        *(f"model_{model}" for model in cluster.models),
    ]
    return [name for name in dict.fromkeys(names) if name]
