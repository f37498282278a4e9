# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The responses of the look-ups.

Sources: NVIDIA's documentation of the licensing state API (ui.licensing.nvidia.com/api-doc/nls-api-docs.html) names the paths and
the header of the key; the fields are those that the Prometheus exporter nvidia-license-server-exporter (internal/cls/client.go)
decodes. Feature names: NV_GRID_LICENSE_FEATURE_* in NVIDIA/open-gpu-kernel-modules. Other paths, and fields without a source, do not
exist here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .leases import LeaseBook

ORG = "lic-lab"
GROUP = 1
SERVER = "11111111-2222-4333-8444-555555555555"
SERVICE_INSTANCE = "66666666-7777-4888-8999-aaaaaaaaaaaa"
# Product -> its feature.
_FEATURES = {
    "NVIDIA RTX Virtual Workstation": "GRID-Virtual-WS",
    "NVIDIA Virtual Compute Server": "NVIDIA-vComputeServer",
    "NVIDIA Virtual PC": "GRID-Virtual-PC",
    "NVIDIA Virtual Applications": "GRID-Virtual-Apps",
}
_PATH = re.compile(r"/v1/org/(?P<org>[^/]+)/virtual-groups(?P<rest>/.*)?")


class Lookups:
    """The look-ups of one organization with one virtual group and one license server."""

    def __init__(self, leases: LeaseBook, licenses: Callable[[], int]) -> None:
        """Take the leases, and a function that returns the number of licenses of each product."""
        self._leases, self._licenses = leases, licenses

    def answer(self, path: str, instance: str) -> dict[str, Any] | None:
        """Return the response to a GET with this id of a service instance (or none), or None if the path does not exist."""
        match = _PATH.fullmatch(path)
        if match is None or match["org"] != ORG:
            return None
        group, server = f"/{GROUP}", f"/{GROUP}/license-servers/{SERVER}"
        rest = match["rest"] or ""
        known = {
            "": self._groups,
            f"{group}/license-servers": lambda: {"licenseServers": [self._server()]},
            f"{server}/license-pools": self._pools,
            f"{group}/leases": self._clients,
        }
        if rest not in known or ("/leases" in rest and instance not in ("", SERVICE_INSTANCE)):
            return None
        return known[rest]()

    def _groups(self) -> dict[str, Any]:
        in_use, total = self._in_use(), self._licenses()
        features = [
            {
                "featureName": feature,
                "productName": product,
                "totalQuantity": total,
                "inUseQuantity": in_use[product],
                "unassignedQuantity": 0,
            }
            for product, feature in _FEATURES.items()
        ]
        entitlements = [{"entitlementProductKeys": [{"entitlementFeatures": features}]}]
        return {"virtualGroups": [{"id": GROUP, "name": "lab", "entitlements": entitlements}]}

    def _server(self) -> dict[str, Any]:
        features = [
            {"id": _feature_id(product), "featureName": name, "productName": product, "totalQuantity": self._licenses()}
            for product, name in _FEATURES.items()
        ]
        return {
            "id": SERVER,
            "name": "lab-server",
            "status": "ENABLED",
            "virtualGroupId": GROUP,
            "virtualGroupName": "lab",
            "serviceInstanceId": SERVICE_INSTANCE,
            "licenseServerFeatures": features,
        }

    def _pools(self) -> dict[str, Any]:
        in_use, total = self._in_use(), self._licenses()
        features = [
            {"licenseServerFeatureId": _feature_id(product), "totalAllotment": total, "inUse": in_use[product]}
            for product in _FEATURES
        ]
        return {"licensePools": [{"id": f"{SERVER}-pool", "name": "default", "licensePoolFeatures": features}]}

    def _clients(self) -> dict[str, Any]:
        server = {"license_server_id": SERVER, "license_server_name": "lab-server"}
        clients = []
        for lease in self._leases.current():
            product = lease["product"]
            entry = {
                "leaseId": lease["id"],
                "featureName": _FEATURES[product],
                "leaseCount": 1,
                "licenseAllotmentFeatureId": _feature_id(product),
            }
            clients.append({"leases": [entry], "additionalProperties": server})
        return {"clients": clients}

    def _in_use(self) -> dict[str, int]:
        products = [lease["product"] for lease in self._leases.current()]
        return {product: products.count(product) for product in _FEATURES}


def _feature_id(product: str) -> str:
    return f"{SERVER}-{list(_FEATURES).index(product)}"
