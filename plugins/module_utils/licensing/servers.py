# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads an organization's license servers in the NVIDIA License System, with the licenses in their pools and the leases.

Sources: ui.licensing.nvidia.com/api-doc/nls-api-docs.html (paths, header of the API key); nvidia-license-server-exporter, internal/cls/client.go (fields).
Only GET requests are sent.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field
from urllib.parse import quote as quote_url

from ..core import http
from ..core.errors import ServiceError, missing_library
from ..core.http import URLLIB3_IMPORT_ERROR, HttpResponse, Retrier
from ..core.messages import option_of_role

if URLLIB3_IMPORT_ERROR is None:
    import urllib3
    from urllib3.exceptions import HTTPError

PUBLIC_URL = "https://api.licensing.nvidia.com"
# The names of the options in messages.
API_URL_OPTION = option_of_role("gpu_licensing_api_url", "api_url")
API_KEY_OPTION = option_of_role("gpu_licensing_api_key", "api_key")
_ORG_OPTION = option_of_role("gpu_licensing_org", "org")
_GROUP_OPTION = option_of_role("gpu_licensing_virtual_group", "virtual_group")
_CONNECT_TIMEOUT = 10.0
_INSTANCE = "x-nv-service-instance-id"

Row = dict[str, t.Any]


class LicenseServiceError(ServiceError):
    """An error response of the license service, or a missing response."""

    service = "The license service"
    address_setting = API_URL_OPTION


@dataclass(frozen=True)
class Access:
    """The settings for connections to the service."""

    url: str
    api_key: str
    validate_certs: bool = True
    ca_cert: str | None = None
    timeout: float = 30.0


@dataclass
class Product:
    """One product: the number of its licenses in the pools, and the number of those in use."""

    name: str
    total: int = 0
    in_use: int = 0


@dataclass
class LicenseServers:
    """The names of the license servers, the licenses in their pools by product, and the number of leases."""

    servers: list[str] = field(default_factory=list)
    products: dict[str, Product] = field(default_factory=dict)
    leases: int = 0

    def as_dict(self) -> dict[str, t.Any]:
        """The servers, licenses and leases in the format that the module returns."""
        products = sorted(self.products.values(), key=lambda product: product.name)
        return {
            "servers": self.servers,
            "products": [
                {"name": each.name, "total": each.total, "in_use": each.in_use, "free": each.total - each.in_use}
                for each in products
            ],
            "total": sum(each.total for each in products),
            "in_use": sum(each.in_use for each in products),
            "leases": self.leases,
        }


class LicenseServiceClient:
    """Sends requests to the license service."""

    def __init__(self, access: Access, user_agent: str, retrier: Retrier | None = None) -> None:
        """Store the arguments; no connection is opened yet."""
        if URLLIB3_IMPORT_ERROR is not None:
            raise missing_library("urllib3", "The license service")
        self._access = access
        self._pools = http.ConnectionPools(validate_certs=access.validate_certs, ca_cert=access.ca_cert)
        self._headers = {"User-Agent": user_agent, "Accept": "application/json", "X-API-KEY": access.api_key}
        self._retrier = retrier or Retrier()
        self._connected_before = False

    def read(self, org: str, virtual_group: int | None) -> LicenseServers:
        """The license servers of one virtual group, or of all groups; raises LicenseServiceError."""
        result = LicenseServers()
        base = f"/v1/org/{quote_url(org, safe='', errors='replace')}/virtual-groups"
        groups = [virtual_group] if virtual_group is not None else self._group_ids(base)
        for group in groups:
            servers = _rows(self.get(f"{base}/{group}/license-servers"), "licenseServers")
            for server in servers:
                result.servers.append(str(server.get("name") or server.get("id")))
                identity = quote_url(str(server.get("id")), safe="", errors="replace")
                pools = _rows(self.get(f"{base}/{group}/license-servers/{identity}/license-pools"), "licensePools")
                _add_pools(result, server, pools)
            for instance in dict.fromkeys(str(server.get("serviceInstanceId") or "") for server in servers):
                answer = self.get(f"{base}/{group}/leases", {_INSTANCE: instance} if instance else {})
                result.leases += sum(len(_rows(client, "leases")) for client in _rows(answer, "clients"))
        return result

    def _group_ids(self, base: str) -> list[int]:
        ids = [group.get("id") for group in _rows(self.get(base), "virtualGroups")]
        return [value for value in ids if isinstance(value, int)]

    def get(self, path: str, headers: t.Mapping[str, str] | None = None) -> Row:
        """Send a GET request; returns the JSON object in the response. Raises LicenseServiceError."""
        return self._retrier.send(
            lambda dummy_left: self._attempt(path, headers or {}),
            limit=2 * self._access.timeout,
            repeatable=True,
            is_connected=lambda dummy: self._connected_before,
        )

    def _attempt(self, path: str, headers: t.Mapping[str, str]) -> Row:
        url = self._access.url.rstrip("/") + path
        try:
            response = self._pools.for_url(url).request(
                "GET",
                url,
                headers={**self._headers, **headers},
                timeout=urllib3.Timeout(connect=min(_CONNECT_TIMEOUT, self._access.timeout), read=self._access.timeout),
                retries=False,
                # The key must not be sent to another host.
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise http.no_answer(LicenseServiceError, error, method="GET", path=path) from None
        except ValueError:
            raise http.not_sendable(path, f"Check {API_KEY_OPTION}.") from None
        self._connected_before = True
        if response.status != 200:
            raise LicenseServiceError(
                _explain(response.status, path),
                status=response.status if response.status >= 300 else 400,
                method="GET",
                path=path,
                retry_after=http.retry_after(response.headers.get("Retry-After")),
            )
        try:
            document = HttpResponse(response.status, response.data).json()
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            # The response comes from another service, so a retry does not help.
            text = f"The response to GET {path} is not a JSON object. Check {API_URL_OPTION}."
            raise LicenseServiceError(text, status=400, method="GET", path=path)
        return document


def explain(error: ServiceError) -> str:
    """The error message for users, with the remedy."""
    if error.unreachable:
        return f"{error.service} does not respond to {error.operation}: {error.message}. {error.remedy}"
    return error.message


def _explain(status: int, path: str) -> str:
    """The message for a status; it does not contain the service's own text, which could quote the key."""
    if status in (401, 403):
        return f"The license service does not accept the API key for GET {path}. Create a key with the access type Licensing State for this organization."
    if status == 404:
        return f"The license service cannot find {path}. Check {_ORG_OPTION}, {_GROUP_OPTION} and {API_URL_OPTION}."
    return f"The license service rejected GET {path} with {status}."


def _add_pools(servers: LicenseServers, server: Row, pools: t.Iterable[Row]) -> None:
    names = {
        str(feature.get("id")): str(feature.get("productName") or feature.get("featureName") or "unknown")
        for feature in _rows(server, "licenseServerFeatures")
    }
    for pool in pools:
        for feature in _rows(pool, "licensePoolFeatures"):
            name = names.get(str(feature.get("licenseServerFeatureId")), "unknown")
            product = servers.products.setdefault(name, Product(name))
            product.total += _number(feature.get("totalAllotment"))
            product.in_use += _number(feature.get("inUse"))


def _rows(answer: Row, name: str) -> list[Row]:
    """The objects in the list with this name; entries of other types are ignored."""
    value = answer.get(name)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _number(value: t.Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
