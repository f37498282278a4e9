# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be declared for OpenStack Magnum (pure)."""

from __future__ import annotations

import re

from ...schema import validators
from ...schema.types import Boolean, Integer, MapOf, Text
from ..definition import ProviderDefinition

# By this label Magnum names a node's group (magnum, doc/source/user/node-groups.rst).
NODEGROUP_LABEL = "magnum.openstack.org/nodegroup"
# The name becomes the value of a node label (drivers of Heat, and the cluster autoscaler).
_MAX_NAME_LENGTH = 63
_ID = re.compile(r"\d+|[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def nodegroup_name(value: str) -> str | None:
    """The name of a node group."""
    if not value:
        return "is empty; a node group needs a name (Magnum answers 500 without one)"
    if _ID.fullmatch(value):
        return "looks like an id, by which Magnum would never find the group; begin it with a letter"
    return validators.label_value(value)


def _not_master(value: str) -> str | None:
    return (
        "is the control plane's role, and Magnum creates no more groups of it; choose another role"
        if value == "master"
        else None
    )


MAGNUM = ProviderDefinition(
    key="magnum",
    title="Magnum",
    cloud_fields={
        "cloud": Text(),
        "region_name": Text(),
        "cluster": Text(),
        "template": Text(),
        "nodegroup_label": Text((validators.label_key,), default=NODEGROUP_LABEL),
    },
    connection_options=("cloud", "region_name"),
    nodes_fields={
        "image": Text(),
        "role": Text((_not_master,)),
        "labels": MapOf(item=Text(empty=True)),
        "merge_labels": Boolean(),
        "docker_volume_size": Integer(
            (
                validators.between(
                    1, 2**31 - 1, "a volume has at least 1 GiB; give more", "no volume is so large; give less"
                ),
            )
        ),
    },
    max_name_length=_MAX_NAME_LENGTH,
    name_rule=nodegroup_name,
    autoscaling_option=True,
    inventory_options={"cloud": str, "region_names": list, "gpu_aliases": dict},
    required_inventory_options={"cloud": "give the name that the cloud has in clouds.yaml"},
)
