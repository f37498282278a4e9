# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the two ConfigMaps that NVIDIA's device plugin and MIG manager read."""

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
from ..cluster_state.generated_mig_config import merge_generated, mig_capacity, parse_generated
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
    from .configmap_entries import ConfigMap

EntriesByNode = dict[str, dict[str, mig_parted.Entry]]


class SharingConfigMaps:
    """The device plugin's ConfigMap with one key per entry, and the MIG manager's with one file for all entries.

    The first may belong to another manager; then only the entries of this collection are changed.
    """

    def __init__(self, client: Client, plan: Plan, expected: t.Iterable[t.Mapping[str, t.Any]] = ()) -> None:
        """Read nothing yet. The `expected` ConfigMaps (whole objects) count as present if they do not exist yet."""
        self._client = client
        self._plan = plan
        self._device_plugin = object_path("v1", "ConfigMap", plan.config.name, plan.config.namespace)
        self._mig = object_path("v1", "ConfigMap", plan.mig.name, plan.mig.namespace)
        self._existing: set[str] = set()
        self._published: EntriesByNode | None = None
        self._expected = {
            object_path("v1", "ConfigMap", item["metadata"]["name"], item["metadata"]["namespace"]): item
            for item in expected
        }

    def read(self, nodes: t.Collection[Node], *, to_write: bool = True) -> ConfigMaps:
        """Both ConfigMaps; the MIG manager's only if a pool or a node needs it.

        What the MIG manager has published about the nodes is read once. Without the right to list that, a read that is not `to_write`
        continues with a warning.
        """
        uses_mig = self._plan.mig.needed or any(mig_parted.is_managed(node.mig_config) for node in nodes)
        configmaps = ConfigMaps(self._get(self._device_plugin), self._get(self._mig) if uses_mig else None)
        if not self._plan.mig.needed:
            return configmaps
        published, warnings = self._published_entries(to_write)
        capacity = mig_capacity(nodes, published)
        return replace(
            configmaps,
            generated=merge_generated(self._plan, published, nodes, mig_parted.parse_configmap(configmaps.mig)),
            capacity=replace(capacity, warnings=(*warnings, *capacity.warnings)),
        )

    def _published_entries(self, to_write: bool) -> tuple[EntriesByNode, list[str]]:
        """What the MIG manager has published of each node, and a warning if that is unknown."""
        if self._published is None:
            path = collection_path("v1", "ConfigMap", self._plan.mig.namespace)
            try:
                self._published = parse_generated(self._client.list(path, label_selector=GENERATED_SELECTOR))
            except ApiError as error:
                if to_write or not error.forbidden:
                    raise
                return {}, [
                    "Missing the right to read what the nodes publish about their GPUs (operator v26.3 and later), so the catalog is used: "
                    f"{error.message}"
                ]
        return self._published, []

    def _get(self, path: str) -> ConfigMap | None:
        actual = self._client.get(path)
        if actual is None:
            return self._expected.get(path)
        self._existing.add(path)
        return actual

    def add_entries(self, changes: ChangePlan, lease: Lease | None = None, *, dry_run: bool = False) -> list[str]:
        """Write the entries that node labels are about to name; a dry run skips ConfigMaps that do not exist. Returns the entries."""
        written: list[str] = []
        for path, entries in ((self._device_plugin, changes.device_plugin), (self._mig, changes.mig)):
            if entries.added and (path in self._existing or not dry_run):
                is_file = path == self._mig
                data = (
                    {mig_parted.KEY: mig_parted.render_configuration(entries.applied)} if is_file else entries.applied
                )
                self._apply(path, data, lease, dry_run)
                written += entries.added
        return written

    def remove_entries(self, changes: ChangePlan, lease: Lease) -> list[str]:
        """Remove the entries that no node names any more, after reading again which nodes name one; returns the entries.

        An agent crashes if its entry is missing, and a node may have been labelled, or have failed, in the meantime.
        """
        device_plugin, mig = changes.device_plugin.removed, changes.mig.removed
        if not device_plugin and not mig:
            return []
        lease.check()
        device_plugin = self._unused(CONFIG_LABEL, device_plugin)
        mig = self._unused(MIG_CONFIG_LABEL, mig)
        if device_plugin:
            self._client.patch(self._device_plugin, {"data": dict.fromkeys(sorted(device_plugin))})
        if mig:
            kept = {name: entry for name, entry in changes.mig.applied.items() if name not in mig}
            self._apply(self._mig, {mig_parted.KEY: mig_parted.render_configuration(kept)}, lease, dry_run=False)
        return sorted([*device_plugin, *mig])

    def _unused(self, label: str, entries: tuple[str, ...]) -> tuple[str, ...]:
        """The entries that no node names by the label; lists only nodes that name one, of which there are usually none."""
        if not entries:
            return ()
        nodes = self._client.list(NODES, label_selector=f"{label} in ({','.join(entries)})", metadata_only=True)
        return tuple(set(entries) - {node["metadata"]["labels"][label] for node in nodes})

    def _apply(self, path: str, data: t.Mapping[str, str], lease: Lease | None, dry_run: bool) -> None:
        if lease is not None:
            lease.check()
        name = path.rpartition("/")[2]
        metadata: dict[str, t.Any] = {"name": name, "namespace": self._plan.config.namespace}
        if name in (DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP):
            metadata["labels"] = {"app.kubernetes.io/managed-by": FIELD_MANAGER}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        self._client.apply(path, body, dry_run=dry_run)
