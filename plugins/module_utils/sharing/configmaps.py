# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two ConfigMaps that NVIDIA's agents read, as one cluster has them: read, add what is new, collect what is old."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog.names import (
    CONFIG_LABEL,
    DEVICE_PLUGIN_CONFIGMAP,
    FIELD_MANAGER,
    GENERATED_SELECTOR,
    MIG_CONFIG_LABEL,
    MIG_CONFIGMAP,
)
from ..cluster_state.generated_mig_config import by_node, generated
from ..cluster_state.mig_capacity import mig_capacity
from ..kube.errors import ApiError
from ..kube.paths import NODES, collection_path, object_path
from ..nvidia_config import mig_parted
from .change_plan import ConfigMaps

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import Plan
    from .change_plan import ChangePlan
    from .device_plugin_entries import ConfigMap


class SharingConfigMaps:
    """The device plugin's ConfigMap, with a key an entry, and the MIG manager's, with one file for all entries.

    The first may be somebody else's: then nothing but our entries in it is ours.
    """

    def __init__(self, client: Client, plan: Plan, expected: t.Iterable[t.Mapping[str, t.Any]] = ()) -> None:
        """Nothing is asked yet. The `expected` ConfigMaps, whole objects, count as there where they are not yet."""
        self._client = client
        self._plan = plan
        self._plugin = object_path("v1", "ConfigMap", plan.config.name, plan.config.namespace)
        self._mig = object_path("v1", "ConfigMap", plan.mig.name, plan.mig.namespace)
        self._there: set[str] = set()
        self._published: dict[str, dict[str, mig_parted.Entry]] | None = None
        self._expected = {
            object_path("v1", "ConfigMap", of["metadata"]["name"], of["metadata"]["namespace"]): of for of in expected
        }

    def read(self, nodes: t.Collection[Node], *, to_write: bool = True) -> ConfigMaps:
        """Both as they are; the MIG manager's only where a pool or a node has to do with it.

        With it comes what the MIG manager has published of the nodes, once, and not again for a second look. Who is not going to write, and
        may not list that, does without.
        """
        cut = self._plan.mig.wanted or any(mig_parted.is_ours(node.mig_config) for node in nodes)
        configmaps = ConfigMaps(self._get(self._plugin), self._get(self._mig) if cut else None)
        if not self._plan.mig.wanted:
            return configmaps
        published, unknown = self._of_nodes(to_write)
        found = mig_capacity(nodes, published)
        return replace(
            configmaps,
            generated=generated(self._plan, published, nodes, mig_parted.read(configmaps.mig)),
            offered=replace(found, doubts=(*unknown, *found.doubts)),
        )

    def _of_nodes(self, to_write: bool) -> tuple[dict[str, dict[str, mig_parted.Entry]], list[str]]:
        """What the MIG manager has published of each node, and why that is not known."""
        if self._published is None:
            path = collection_path("v1", "ConfigMap", self._plan.mig.namespace)
            try:
                self._published = by_node(self._client.list(path, label_selector=GENERATED_SELECTOR))
            except ApiError as error:
                if to_write or not error.forbidden:
                    raise
                return {}, [
                    f"What the nodes publish of their GPUs (operator v26.3 and later) may not be read, so the catalog counts: {error.message}"
                ]
        return self._published, []

    def _get(self, path: str) -> ConfigMap | None:
        live = self._client.get(path)
        if live is None:
            return self._expected.get(path)
        self._there.add(path)
        return live

    def add(self, changes: ChangePlan, lease: Lease | None = None, *, dry_run: bool = False) -> list[str]:
        """Write the entries that node labels are about to name; in a dry run only into ConfigMaps that exist."""
        plugin, cut = changes.entries, changes.mig_entries
        written: list[str] = []
        if plugin.added and (self._plugin in self._there or not dry_run):
            self._apply(self._plugin, plugin.applied, lease, dry_run)
            written += plugin.added
        if cut.added and (self._mig in self._there or not dry_run):
            self._apply(self._mig, {mig_parted.KEY: mig_parted.document(cut.applied)}, lease, dry_run)
            written += cut.added
        return written

    def collect(self, changes: ChangePlan, lease: Lease) -> list[str]:
        """Take out the entries that no node names any more; the nodes that name one now are asked for again.

        An agent whose entry vanishes crashes, and a node may have been labelled, or have failed, in the meantime.
        """
        plugin, cut = changes.entries.collected, changes.mig_entries.collected
        if not plugin and not cut:
            return []
        lease.check()
        plugin = self._unnamed(CONFIG_LABEL, plugin)
        cut = self._unnamed(MIG_CONFIG_LABEL, cut)
        if plugin:
            self._client.patch(self._plugin, {"data": dict.fromkeys(sorted(plugin))})
        if cut:
            lease.check()
            kept = {name: of for name, of in changes.mig_entries.applied.items() if name not in cut}
            self._apply(self._mig, {mig_parted.KEY: mig_parted.document(kept)}, lease, dry_run=False)
        return sorted([*plugin, *cut])

    def _unnamed(self, label: str, entries: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the entries that no node names by the label; costs no page for each 500 nodes, as there is hardly one."""
        if not entries:
            return ()
        naming = self._client.list(NODES, label_selector=f"{label} in ({','.join(entries)})", metadata_only=True)
        return tuple(set(entries) - {node["metadata"]["labels"][label] for node in naming})

    def _apply(self, path: str, data: t.Mapping[str, str], lease: Lease | None, dry_run: bool) -> None:
        if lease is not None:
            lease.check()
        name = path.rpartition("/")[2]
        metadata: dict[str, t.Any] = {"name": name, "namespace": self._plan.config.namespace}
        if name in (DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP):
            metadata["labels"] = {"app.kubernetes.io/managed-by": FIELD_MANAGER}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        self._client.apply(path, body, dry_run=dry_run)
