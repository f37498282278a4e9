# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the GPUs of a node are shared, by what its agents are told: its labels, the ClusterPolicy and two ConfigMaps (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog import mig as geometries
from ..catalog import models
from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL, MIG_INFIX, OWNED_TOLERATIONS_ANNOTATION
from ..common.nested import get_nested
from ..nvidia_config import device_plugin, mig_parted
from .layouts import Cut, layout
from .sharing import Inexpressible, sharing

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from .pools import Shared

Object = t.Mapping[str, t.Any]

# What the MIG manager reads where nobody names another one (gpu-operator assets/state-mig-manager).
DEFAULT_MIG_CONFIGMAP = "default-mig-parted-config"


@dataclass(frozen=True)
class Live:
    """The ClusterPolicy that counts, and the ConfigMaps that it names; each None where there is none."""

    policy: Object | None = None
    plugin: Object | None = None
    mig: Object | None = None

    @property
    def tolerations(self) -> list[t.Any]:
        """Those that pools of this collection have put into the ClusterPolicy."""
        annotations = ((self.policy or {}).get("metadata") or {}).get("annotations") or {}
        try:
            found = json.loads(annotations.get(OWNED_TOLERATIONS_ANNOTATION) or "[]")
        except ValueError:
            return []
        return found if isinstance(found, list) else []

    def shared(self, node: Node) -> Shared:
        """The `sharing` of a pool that has this node as it is, and the GPUs of a node where that needs them.

        Raises Inexpressible with the reason.
        """
        cut = self._cut(node)
        strategy = str(get_nested(self.policy, "spec", "mig", "strategy") or "")
        return sharing(self._content(node), cut.layout, "" if strategy == "none" else strategy), cut.gpus_per_node

    def _content(self, node: Node) -> t.Any:
        """The device plugin's configuration; without a ConfigMap the label is read by nobody."""
        if not plugin_configmap(self.policy):
            return {"version": "v1"}
        name = node.labels.get(CONFIG_LABEL) or get_nested(self.policy, "spec", "devicePlugin", "config", "default")
        if not name:
            return {"version": "v1"}
        data = (self.plugin or {}).get("data") or {}
        if name not in data:
            raise Inexpressible(f"it is to follow the configuration {name}, which the device plugin's ConfigMap lacks")
        return device_plugin.read(data[name])

    def _cut(self, node: Node) -> Cut:
        name = node.mig_config
        if not name or name == mig_parted.DISABLED:
            if node.mig_devices:
                raise Inexpressible(f"its GPUs are cut, and not by its label {MIG_CONFIG_LABEL}")
            return Cut()
        model = models.of_gpu(node.product, None if MIG_INFIX in node.product else node.memory_mib)
        geometry = geometries.geometry(model.key) if model else None
        usual = mig_parted.usual([(model.pci_ids, geometry)] if model and geometry else [])
        entries = {**usual, **mig_parted.read(self.mig)}
        if name not in entries:
            raise Inexpressible(
                f"it is to follow the MIG configuration {name}, which the MIG manager's ConfigMap lacks"
            )
        gpus = node.noted_gpus or (0 if MIG_INFIX in node.product else node.gpus)
        return layout(entries[name], gpus, model.pci_ids if model else ())


def plugin_configmap(policy: Object | None) -> str:
    """The ConfigMap of the device plugin; empty where the ClusterPolicy names none."""
    return str(get_nested(policy, "spec", "devicePlugin", "config", "name") or "")


def mig_configmap(policy: Object | None) -> str:
    """The ConfigMap of the MIG manager."""
    return str(get_nested(policy, "spec", "migManager", "config", "name") or DEFAULT_MIG_CONFIGMAP)
