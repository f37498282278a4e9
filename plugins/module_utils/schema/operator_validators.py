# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for images, proxies and the driver in gpu_cluster.operator, as the end of the sentence "<path>: <value> ..."."""

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
# What the operator appends to a driver's tag: ID and VERSION_ID of the node's operating system (gpu-operator
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
    """A registry and optionally a folder in it; the images' paths below nvcr.io and registry.k8s.io are appended."""
    if "://" in value:
        scheme = value.partition("://")[0]
        unwanted = f"{scheme}://" if scheme in _SCHEMES else "a scheme"
        return f"is an address; write it without {unwanted}, as in registry.example.com/mirror"
    host, *folders = value.split("/")
    if _HOST.fullmatch(host) and ("." in host or ":" in host or host == "localhost"):
        invalid = next((folder for folder in folders if not _FOLDER.fullmatch(folder)), None)
        if invalid is None:
            return None
        if not invalid:
            return "has an empty folder; write it without '//' and without '/' at its end"
        return f"has the folder {quote(invalid)}; folders are lower-case letters and digits, with '.', '_' or '-' between them"
    return "is not a registry; write host[:port] and the folder below it, as in registry.example.com/mirror"


def proxy_url(value: str) -> str | None:
    """The address of a proxy; a password would be readable in the ClusterPolicy."""
    try:
        parts = urllib.parse.urlsplit(value)
        host, dummy = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or any(character.isspace() for character in value):
        return "is not a proxy's address; write it as http://host:port"
    if "@" in parts.netloc:
        return (
            "contains a user or password, which would be readable in the ClusterPolicy; "
            "put the variable into a Secret and name that in driver.secret_env"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return "has a path; a proxy is a host and a port, as in http://host:port"
    return None


def without_user(value: str) -> str:
    """An address without user and password, for messages."""
    return re.sub(r"//.*@", "//***@", value)


def no_proxy_entry(value: str) -> str | None:
    """One host, domain or network that is reached directly."""
    if "," in value or any(character.isspace() for character in value):
        return "is more than one entry; give each its own"
    return "is an address; write the host, the domain or the network alone" if "://" in value else None


def driver_version(value: str) -> str | None:
    """A driver's version without the operating system, which the operator appends."""
    if _BARE.fullmatch(value) or _DIGEST.fullmatch(value):
        return None
    return os_tag(value) or (
        "is not a driver's version; write only its numbers, such as 580.105.08, or sha256: and the digest of an image"
    )


def os_tag(value: str) -> str | None:
    """Why a version must not end in an operating system's tag; None for one that does not."""
    match = _SYSTEM.fullmatch(value)
    if not match:
        return None
    return (
        f"ends in the tag of an operating system, which the operator appends: the nodes would look for "
        f"{value}-{match['system']}; write {match['bare']}"
    )
