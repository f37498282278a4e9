# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for what gpu_cluster.operator says of images, proxies and the driver, as the end of "<path>: <value> ..."."""

from __future__ import annotations

import re
import urllib.parse

from .messages import quote

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]+)?")
_FOLDER = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*")
_SCHEMES = ("http", "https", "oci", "docker")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BARE = re.compile(r"[0-9]+(\.[0-9]+){0,3}")
# What the operator appends to a driver's tag by itself: ID and VERSION_ID of the node's system (gpu-operator
# controllers/object_controls.go, resolveDriverTag), as in rhcos4.18, rhel9.6 or ubuntu22.04.
_SYSTEM = re.compile(
    r"(?P<bare>[\w.-]+?)-(?P<system>(rhcos|rhel|ubuntu|centos|rocky|sles|sl-micro|ol|debian|fedora)[0-9.X]*)"
)


def object_name(value: str) -> str | None:
    """The name of a ConfigMap or Secret: a DNS subdomain of at most 253 characters (RFC 1123)."""
    if len(value) > 253:
        return f"has {len(value)} characters; an object's name has at most 253"
    if _SUBDOMAIN.fullmatch(value):
        return None
    return "is not an object's name (RFC 1123); use a-z, 0-9, '-' and '.', with a letter or digit at both ends"


def registry(value: str) -> str | None:
    """A registry and, if need be, a folder in it; the images' own paths below nvcr.io and registry.k8s.io follow."""
    if "://" in value:
        scheme = value.partition("://")[0]
        unwanted = f"{scheme}://" if scheme in _SCHEMES else "a scheme"
        return f"is an address; write it without {unwanted}, as in registry.example.com/mirror"
    host, *folders = value.split("/")
    if _HOST.fullmatch(host) and ("." in host or ":" in host or host == "localhost"):
        wrong = next((folder for folder in folders if not _FOLDER.fullmatch(folder)), None)
        if wrong is None:
            return None
        if not wrong:
            return "has an empty folder; write it without '//' and without '/' at its end"
        return f"has the folder {quote(wrong)}; folders are small letters and digits, with '.', '_' or '-' between them"
    return "is not a registry; write host[:port] and the folder below it, as in registry.example.com/mirror"


def proxy_url(value: str) -> str | None:
    """The address of a proxy; a password would stand in the ClusterPolicy for everybody to read."""
    try:
        parts = urllib.parse.urlsplit(value)
        host, dummy = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or any(character.isspace() for character in value):
        return "is not a proxy's address; write it as http://host:port"
    if "@" in parts.netloc:
        return (
            "holds a user or password, which everybody could read in the ClusterPolicy; "
            "put the variable into a Secret and name that in driver.secret_env"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return "has a path; a proxy is a host and a port, as in http://host:port"
    return None


def without_user(value: str) -> str:
    """An address as messages may show it: a password in it is not for logs."""
    return re.sub(r"//.*@", "//***@", value)


def no_proxy_entry(value: str) -> str | None:
    """One host, domain or network that is reached directly."""
    if "," in value or any(character.isspace() for character in value):
        return "is more than one; give each an entry of its own"
    return "is an address; write the host, the domain or the network alone" if "://" in value else None


def driver_version(value: str) -> str | None:
    """A driver's bare version: the operator appends the node's system to it."""
    if _BARE.fullmatch(value) or _DIGEST.fullmatch(value):
        return None
    return os_tag(value) or (
        "is not a driver's version; write its numbers alone, such as 580.105.08, or sha256: and the digest of an image"
    )


def os_tag(value: str) -> str | None:
    """The reason against a version that ends in a system's tag; None for any other."""
    found = _SYSTEM.fullmatch(value)
    if not found:
        return None
    return (
        f"ends in the tag of a system, which the operator appends by itself: the nodes would look for "
        f"{value}-{found['system']}; write {found['bare']}"
    )
