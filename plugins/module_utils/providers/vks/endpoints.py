# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the URLs of VNG Cloud's Kubernetes service, vServer and IAM (pure).

Here, VKS is the service of VNG Cloud (GreenNode), not VMware's vSphere Kubernetes Service, which has the same abbreviation.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from urllib.parse import urlsplit

from ...common.errors import InvalidOptions
from ...common.http import is_loopback

DEFAULT_REGION = "HCM-3"
IAM_VERSIONS = ("v2", "v1")
# The URL that the vendor's command-line client has used since version 1.11 (v2), and the URL that earlier versions used (v1).
_IAM = {
    "v2": "https://iam.api.vngcloud.vn/accounts-api/v2/auth/token",
    "v1": "https://iamapis.vngcloud.vn/accounts-api/v1/auth/token",
}
# The URLs of VKS and vServer by region (sources: vngcloud/greennode-mcp, specs/vks.json, servers, and GreenNodeHub/greennode-cli, internal/config).
REGIONS: dict[str, tuple[str, str]] = {
    "HCM-3": ("https://vks.api.vngcloud.vn", "https://hcm-3.api.vngcloud.vn/vserver/vserver-gateway"),
    "HAN": ("https://vks-han-1.api.vngcloud.vn", "https://han-1.api.vngcloud.vn/vserver/vserver-gateway"),
}
# The environment variables that are used for options that are not set. Their names are those of the vendor's command-line client
# (such as GRN_ACCESS_KEY_ID) and MCP server (such as GRN_CLIENT_ID).
ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "client_id": ("GRN_CLIENT_ID", "GRN_ACCESS_KEY_ID"),
    "client_secret": ("GRN_CLIENT_SECRET", "GRN_SECRET_ACCESS_KEY"),
    "region": ("GRN_DEFAULT_REGION",),
    "iam_url": ("VKS_IAM_URL",),
    "vks_url": ("VKS_URL",),
    "vserver_url": ("VKS_VSERVER_URL",),
    "project_id": ("GRN_PROJECT_ID", "GRN_DEFAULT_PROJECT_ID"),
}
_TOKEN_PATH = re.compile(r"/(v[12])/auth/token$")


@dataclass(frozen=True)
class Endpoints:
    """The base URLs of the services, without a trailing slash. `iam` is the complete token URL."""

    iam: str
    iam_version: str
    vks: str
    vserver: str


def endpoints(params: t.Mapping[str, t.Any]) -> Endpoints:
    """The URLs for the options of a module. Raises InvalidOptions with all problems."""
    region = params.get("region") or DEFAULT_REGION
    vks, vserver = REGIONS.get(region, ("", ""))
    vks = params.get("vks_url") or vks
    vserver = params.get("vserver_url") or vserver
    problems = []
    if region not in REGIONS and not (vks and vserver):
        problems.append(
            f"region: {region!r} is unknown; known regions: {', '.join(REGIONS)}. For another region, set vks_url and vserver_url."
        )
    iam, version, wrong = _iam(params.get("iam_url"), params.get("iam_version"))
    problems += wrong
    for option, url in (("iam_url", iam), ("vks_url", vks), ("vserver_url", vserver)):
        problems += _unsafe(option, url)
    if problems:
        raise InvalidOptions(problems)
    # The console shows the URL of VKS with the API version, but the paths of requests already begin with the version.
    return Endpoints(iam, version, vks.rstrip("/").removesuffix("/v1"), vserver.rstrip("/"))


def _iam(url: str | None, version: str | None) -> tuple[str, str, list[str]]:
    """The token URL, the version and the problems. `url` can be a base URL, or the token URL, which contains the version."""
    url = (url or _IAM[version or IAM_VERSIONS[0]]).rstrip("/")
    match = _TOKEN_PATH.search(url)
    if match is None:
        version = version or IAM_VERSIONS[0]
        base = url if url.endswith("/accounts-api") else f"{url}/accounts-api"
        return f"{base}/{version}/auth/token", version, []
    if version and version != match[1]:
        return url, version, [f"iam_version: {version}, but iam_url ends with {match[0]}. Remove one of them."]
    return url, match[1], []


def _unsafe(option: str, url: str) -> list[str]:
    """The reasons why a token must not be sent to this URL."""
    if not url:
        return []
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return [f"{option}: {url!r} is not a URL of the form https://HOST/PATH."]
    if parts.username or parts.password:
        return [f"{option}: the URL contains credentials, which would be shown. Use client_id and client_secret."]
    if parts.query or parts.fragment:
        return [f"{option}: {url!r} has a query or a fragment. Remove it."]
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return [
            f"{option}: {url!r} would send the token unencrypted; http is allowed for this machine only. Use https."
        ]
    return []
