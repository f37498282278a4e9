# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of the part, their addresses and files."""

from __future__ import annotations

from pathlib import Path

from ..layout import Lab

NAME = "registry"
PLAIN, TLS, CACHE = "registry-plain", "registry-tls", "registry-cache"
REGISTRIES = (PLAIN, TLS, CACHE)
# Address of toxiproxy -> the registry behind it.
PROXIES = {"registry-plain-proxy": PLAIN, "registry-tls-proxy": TLS}
TOXIPROXY = "toxiproxy"


def is_in(lab: Lab) -> bool:
    """Return whether a lab has this part."""
    return NAME in lab.state().get("parts", ())


def folder(lab: Lab) -> Path:
    """Return the folder of the configuration, the keys and the passwords."""
    return lab.dir / NAME


def config(lab: Lab, registry: str) -> Path:
    """Return the configuration file of a registry."""
    return folder(lab) / f"{registry}.json"


def authority(lab: Lab) -> Path:
    """Return the certificate of the authority that signed the certificate of registry-tls.

    It has a folder of its own, which programs such as skopeo take as the folder of a registry's certificates (`--cert-dir`).
    """
    return folder(lab) / "ca" / "ca.crt"


def address(lab: Lab, service: str) -> str:
    """Return host:port of a registry or a proxy."""
    return f"127.0.0.1:{lab.ports()[service]}"


def is_secure(service: str) -> bool:
    """Return whether clients use HTTPS for a registry, or for a proxy in front of it."""
    return PROXIES.get(service, service) == TLS
