# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the objects with licensing tokens that are kept because a kept ClusterPolicy or NVIDIADriver object refers to them (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import DRIVER_LICENSE_FIELDS, LICENSE_FIELDS, LICENSING_CONFIG
from ..common.nested import get_nested

Document = t.Mapping[str, t.Any]


def named_license_objects(
    kept_policies: t.Iterable[Document], kept_drivers: t.Iterable[Document]
) -> dict[tuple[str, str], str]:
    """The reason why each Secret or ConfigMap that a kept object refers to is also kept, by kind and name.

    Without the Secret or ConfigMap, a kept operator starts no driver pod; without the reference, it restarts the driver. Therefore, both are kept.
    """
    users = {
        (kind, str(get_nested(item, "spec", *LICENSING_CONFIG, field))): f"ClusterPolicy {item['metadata']['name']}"
        for item in kept_policies
        for kind, field in LICENSE_FIELDS.items()
    }
    users |= {
        (kind, str(get_nested(item, "spec", "licensingConfig", field))): f"NVIDIADriver {item['metadata']['name']}"
        for item in kept_drivers
        for kind, field in DRIVER_LICENSE_FIELDS.items()
    }
    return {
        named: f"{user}, which this collection did not create, refers to it in licensingConfig, and no driver starts without it. To remove it, "
        "first remove the reference (this restarts the driver on every node), then run the playbook again"
        for named, user in users.items()
    }
