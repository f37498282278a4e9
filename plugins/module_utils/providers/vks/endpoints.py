# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where VNG Cloud's Kubernetes service, its vServer and its IAM are asked; pure.

This VKS is VNG Cloud's (GreenNode's), not the vSphere Kubernetes Service of VMware, which is abbreviated in the same way.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t
from dataclasses import dataclass
from urllib.parse import urlsplit

from ...common.errors import InvalidOptions

DEFAULT_REGION = "HCM-3"
IAM_VERSIONS = ("v2", "v1")
# The command line from 1.11 on, and the one before.
_IAM = {
    "v2": "https://iam.api.vngcloud.vn/accounts-api/v2/auth/token",
    "v1": "https://iamapis.vngcloud.vn/accounts-api/v1/auth/token",
}
# By region the services' addresses: vngcloud/greennode-mcp specs/vks.json, servers; GreenNodeHub/greennode-cli internal/config.
REGIONS: dict[str, tuple[str, str]] = {
    "HCM-3": ("https://vks.api.vngcloud.vn", "https://hcm-3.api.vngcloud.vn/vserver/vserver-gateway"),
    "HAN": ("https://vks-han-1.api.vngcloud.vn", "https://han-1.api.vngcloud.vn/vserver/vserver-gateway"),
}
_TOKEN_PATH = re.compile(r"/(v[12])/auth/token$")


@dataclass(frozen=True)
class Endpoints:
    """Base addresses without a slash at the end; `iam` is the whole address that gives tokens."""

    region: str
    iam: str
    iam_version: str
    vks: str
    vserver: str


def endpoints(params: t.Mapping[str, t.Any]) -> Endpoints:
    """The addresses that the options mean; raises InvalidOptions with all that is wrong in them."""
    region = params.get("region") or DEFAULT_REGION
    vks, vserver = REGIONS.get(region, ("", ""))
    vks = params.get("vks_url") or vks
    vserver = params.get("vserver_url") or vserver
    problems = []
    if region not in REGIONS and not (vks and vserver):
        problems.append(
            f"region: {region!r} is not known; known are {', '.join(REGIONS)}. Of another region give vks_url and vserver_url."
        )
    iam, version, wrong = _iam(params.get("iam_url"), params.get("iam_version"))
    problems += wrong
    for option, url in (("iam_url", iam), ("vks_url", vks), ("vserver_url", vserver)):
        problems += _unsafe(option, url)
    if problems:
        raise InvalidOptions(problems)
    return Endpoints(region, iam, version, _base(vks), vserver.rstrip("/"))


def is_loopback(host: str | None) -> bool:
    """True for what cannot leave this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _base(url: str) -> str:
    """Paths begin with the version; an address that ends with it, as the console's, means the same."""
    return url.rstrip("/").removesuffix("/v1")


def _iam(url: str | None, version: str | None) -> tuple[str, str, list[str]]:
    """The token's address: as given when it is one, else below the given base; the version as asked, or as the address says."""
    url = (url or _IAM[version or IAM_VERSIONS[0]]).rstrip("/")
    found = _TOKEN_PATH.search(url)
    if found is None:
        version = version or IAM_VERSIONS[0]
        base = url if url.endswith("/accounts-api") else f"{url}/accounts-api"
        return f"{base}/{version}/auth/token", version, []
    if version and version != found[1]:
        return url, version, [f"iam_version: {version}, but iam_url ends with {found[0]}. Leave one of them out."]
    return url, found[1], []


def _unsafe(option: str, url: str) -> list[str]:
    """Why a token must not be sent there."""
    if not url:
        return []
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return [f"{option}: {url!r} is no address of the form https://HOST/PATH."]
    if parts.username or parts.password:
        return [f"{option}: an address with credentials in it would show them; use client_id and client_secret."]
    if parts.query or parts.fragment:
        return [f"{option}: {url!r} has a query or a fragment; give the address without it."]
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return [f"{option}: {url!r} would send the token in the clear; http is taken for this machine only. Use https."]
    return []
