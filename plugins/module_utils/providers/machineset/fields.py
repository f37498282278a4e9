# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the settings of a MachineSet that the module machineset changes (pure)."""

from __future__ import annotations

import typing as t

from ...catalog.machine_api import MACHINE_API_NAMESPACE
from ...schema.providers import MACHINESET
from ...schema.types import Text
from ..fields import NodeGroupField, node_labels_field, node_taints_field
from ..nodegroup_module import NodeGroupFields

NAMESPACE: dict[str, dict[str, t.Any]] = {"namespace": {"type": "str", "default": MACHINE_API_NAMESPACE}}
# Every change is one patch of the object.
PATCH = ("PATCH", "")
# The settings of machines, each with the remedy for a platform that does not have the setting. In a remedy, `having` is replaced with the names of the
# platforms that have the setting. Platform.settings (catalog/machine_api.py) contains the corresponding fields.
MACHINE_SETTINGS = {
    "flavor": "{platform} machines are clones of a virtual machine; set template instead",
    "template": "{platform} machines have a machine type; set flavor instead",
    "accelerators": "only {having} machines have them; on {platform}, flavor or template determines the GPUs",
}
# A change to these settings affects only Machines that are created afterwards (machine-api-operator pkg/controller/machineset).
MACHINE_FIELDS = frozenset({*MACHINE_SETTINGS, "provider_spec"})
# Two settings have no option. ANNOTATIONS contains the annotations that describe a future node to the autoscaler, and the annotation that records the
# collection's own entries. MANAGED is whether the MachineSet is marked as managed by this collection.
ANNOTATIONS, MANAGED = "annotations", "managed"

FIELDS = NodeGroupFields(
    MACHINESET,
    (
        NodeGroupField("flavor", "", PATCH, type=Text()),
        NodeGroupField("template", "", PATCH),
        NodeGroupField("accelerators", "", PATCH),
        NodeGroupField("provider_spec", "", PATCH),
        node_labels_field("", PATCH),
        node_taints_field("", PATCH),
    ),
    other_options={
        "like": {"type": "str"},
        "zone": {"type": "str"},
        "capacity": {
            "type": "dict",
            "options": {"resources": {"type": "dict"}, "labels": {"type": "dict"}},
        },
        "adopt": {"type": "bool"},
    },
    # The field of a MachineSet has this name.
    aliases={"node_count": "replicas"},
    location_options={},
)
