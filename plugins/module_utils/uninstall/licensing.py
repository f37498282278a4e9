# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects with licensing tokens that are kept, because a kept ClusterPolicy or NVIDIADriver object names them (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import DRIVER_LICENSE_FIELDS, LICENSE_FIELDS, LICENSING_CONFIG
from ..common.nested import get_nested

Document = t.Mapping[str, t.Any]


def named_license_objects(
    kept_policies: t.Iterable[Document], kept_drivers: t.Iterable[Document]
) -> dict[tuple[str, str], str]:
    """The reason by kind and name why each Secret or ConfigMap is kept that a kept object names.

    Without an object that it names, a kept operator starts no driver pod, and without its name, it restarts the driver: neither is changed.
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
        named: f"{user}, which this collection did not create, names it in licensingConfig, and starts no driver without it. To remove it, remove the name "
        "(this restarts the driver on every node), and run again"
        for named, user in users.items()
    }
