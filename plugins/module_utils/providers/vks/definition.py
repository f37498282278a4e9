# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be declared for VNG Cloud's VKS (pure); limits from the schema of its node groups (greennode-mcp specs/vks.json, greennode-cli)."""

from __future__ import annotations

import re

from ...catalog.vks_flavor_names import vks_flavor_gpus
from ...schema import validators
from ...schema.types import Boolean, Integer, MapOf, OptionalList, OptionalSection, Text
from ..definition import ProviderDefinition

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{3,13}[a-z0-9]")


def nodegroup_name(value: str) -> str | None:
    """The name of a node group."""
    if _NAME.fullmatch(value):
        return None
    return (
        "is not a VKS node group name; use 5 to 15 characters of a-z, 0-9 and '-', with a letter or digit at both ends"
    )


_ADDRESS = Text((validators.http_address,))

VKS = ProviderDefinition(
    key="vks",
    title="VKS",
    cloud_fields={
        "cluster": Text(),
        "region": Text(),
        "project_id": Text(),
        "iam_url": _ADDRESS,
        "vks_url": _ADDRESS,
        "vserver_url": _ADDRESS,
    },
    connection_options=("region", "project_id", "iam_url", "vks_url", "vserver_url"),
    nodes_fields={
        "os": Text(),
        "disk_size": Integer(
            (
                validators.between(
                    20, 5000, "VKS requires at least 20 GiB; give more", "VKS allows at most 5000 GiB; give less"
                ),
            )
        ),
        "disk_type": Text(),
        "ssh_key": Text(),
        "subnet": Text(),
        "secondary_subnets": OptionalList(item=Text()),
        "security_groups": OptionalList(item=Text()),
        "private_nodes": Boolean(),
        "encrypted_volume": Boolean(),
        "tags": MapOf(item=Text(empty=True)),
        "upgrade_strategy": OptionalSection(
            fields={
                "max_surge": Integer(
                    (
                        validators.between(
                            1, 100, "VKS requires at least 1; give more", "VKS allows at most 100; give less"
                        ),
                    )
                ),
                "max_unavailable": Integer(
                    (
                        validators.between(
                            0, 100, "it must not be negative; give 0 or more", "VKS allows at most 100; give less"
                        ),
                    )
                ),
            }
        ),
        "kubernetes_version": Text(),
    },
    max_name_length=15,
    name_rule=nodegroup_name,
    max_entries=50,
    flavor_gpus=vks_flavor_gpus,
    inventory_options={
        "region": str,
        "project_id": str,
        "iam_url": str,
        "iam_version": str,
        "vks_url": str,
        "vserver_url": str,
        "ca_cert": str,
        "validate_certs": bool,
        "client_id_env": str,
        "client_secret_env": str,
    },
)
