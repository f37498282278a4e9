# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a MachineSet that the module machineset changes (pure)."""

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
# The settings of machines, each with the remedy for a platform that does not have the setting; `having` stands for the platforms that have it. The
# corresponding fields are in Platform.settings (catalog/machine_api.py).
MACHINE_SETTINGS = {
    "flavor": "{platform} machines are clones of a virtual machine; set template instead",
    "template": "{platform} machines have a machine type; set flavor instead",
    "accelerators": "only {having} machines have them; on {platform}, flavor or template determines the GPUs",
}
# A change of these settings only affects Machines that are created afterwards (machine-api-operator pkg/controller/machineset).
MACHINE_FIELDS = frozenset({*MACHINE_SETTINGS, "provider_spec"})
# Settings without an option: the annotations that describe a future node to the autoscaler and record the collection's own entries, and whether the
# MachineSet is marked as managed by this collection.
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
    # The name of the field in a MachineSet.
    aliases={"node_count": "replicas"},
    location_options={},
)
