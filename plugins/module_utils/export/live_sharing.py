# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sharing of a node's GPUs, from its labels, the ClusterPolicy and two ConfigMaps (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog import mig as geometries
from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL, MIG_INFIX
from ..cluster_state.cluster_policy import plugin_configmap, recorded_tolerations
from ..common.nested import get_nested
from ..nvidia_config import device_plugin, mig_parted
from .layouts import ExportedLayout, export_layout
from .sharing import Inexpressible, export_sharing

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from .pools import NodeSharing

Object = t.Mapping[str, t.Any]

# The MIG manager's default (gpu-operator assets/state-mig-manager).
DEFAULT_MIG_CONFIGMAP = "default-mig-parted-config"


@dataclass(frozen=True)
class LiveConfig:
    """The active ClusterPolicy and the ConfigMaps that it names; None where one does not exist."""

    policy: Object | None = None
    plugin: Object | None = None
    mig: Object | None = None

    @property
    def tolerations(self) -> list[dict[str, t.Any]]:
        """The tolerations that this collection has set in the ClusterPolicy for pools."""
        return (recorded_tolerations(self.policy) if self.policy else None) or []

    def node_sharing(self, node: Node) -> NodeSharing:
        """The `sharing` of a pool with this node, and the number of GPUs of a node if it depends on it; raises Inexpressible."""
        exported = self._layout(node)
        strategy = str(get_nested(self.policy, "spec", "mig", "strategy") or "")
        sharing = export_sharing(self._plugin_config(node), exported.layout, "" if strategy == "none" else strategy)
        return sharing, exported.gpus_per_node

    def _plugin_config(self, node: Node) -> t.Any:
        """The device plugin's configuration; without a ConfigMap the label has no effect."""
        if not plugin_configmap(self.policy):
            return {"version": "v1"}
        name = node.labels.get(CONFIG_LABEL) or get_nested(self.policy, "spec", "devicePlugin", "config", "default")
        if not name:
            return {"version": "v1"}
        data = (self.plugin or {}).get("data") or {}
        if name not in data:
            raise Inexpressible(
                f"its label names the configuration {name}, which the device plugin's ConfigMap does not contain"
            )
        return device_plugin.parse(data[name])

    def _layout(self, node: Node) -> ExportedLayout:
        name = node.mig_config
        if not name or name == mig_parted.DISABLED:
            if node.mig_devices:
                raise Inexpressible(f"its GPUs are partitioned, but not by its label {MIG_CONFIG_LABEL}")
            return ExportedLayout()
        model = node.catalog_model
        geometry = geometries.geometry(model.key) if model else None
        usual = mig_parted.default_entries([(model.pci_ids, geometry)] if model and geometry else [])
        entries = {**usual, **mig_parted.parse_configmap(self.mig)}
        if name not in entries:
            raise Inexpressible(
                f"its label names the MIG configuration {name}, which the MIG manager's ConfigMap does not contain"
            )
        gpus = node.recorded_gpus or (0 if MIG_INFIX in node.product else node.gpus)
        return export_layout(entries[name], gpus, model.pci_ids if model else ())


def mig_configmap(policy: Object | None) -> str:
    """The ConfigMap of the MIG manager."""
    return str(get_nested(policy, "spec", "migManager", "config", "name") or DEFAULT_MIG_CONFIGMAP)
