# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the schema, the pools and the inventory plugin need to know of a provider of node groups (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..schema.types import Field, Rule

if t.TYPE_CHECKING:
    from ..catalog.vks_flavor_names import FlavorGpus


def _unknown_gpus(dummy: str) -> None:
    """A provider whose flavor names say nothing about GPUs."""


@dataclass(frozen=True)
class ProviderDefinition:
    """One provider.

    key: its name in gpu_cluster.cloud, in the inventory plugin, in its modules (KEY_nodegroup, KEY_kubeconfig), and of its package here;
    title: its name in messages.
    cloud_fields: the schema of gpu_cluster.cloud.KEY. connection_options: those of these fields that are options of all its modules.
    nodes_fields: the settings of a pool's `nodes` that only this provider has; each is an option of KEY_nodegroup.
    max_name_length, name_rule: the limits of a node group's name. max_entries: the most labels, and the most taints, of a group.
    autoscaling_option: whether KEY_nodegroup has a switch beside min_node_count and max_node_count.
    flavor_gpus: the GPUs of a flavor with this name, None where the name does not say.
    inventory_options: the settings of the inventory plugin, with their types.
    """

    key: str
    title: str
    cloud_fields: t.Mapping[str, Field]
    connection_options: tuple[str, ...]
    nodes_fields: t.Mapping[str, Field]
    max_name_length: int
    name_rule: Rule
    inventory_options: t.Mapping[str, type]
    required_inventory_options: t.Mapping[str, str] = field(default_factory=dict)
    max_entries: int | None = None
    autoscaling_option: bool = False
    flavor_gpus: t.Callable[[str], FlavorGpus | None] = _unknown_gpus
