# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that the environment names no other cluster or user than the selected connection."""

from __future__ import annotations

import os
import typing as t
from urllib.parse import urlsplit

from ..catalog.secrets import without_user_info
from .connection_options import GPU_CLUSTER, OPTIONS, VARIABLES, environment, variable_of
from .errors import WrongCluster

if t.TYPE_CHECKING:
    from .connection import Connection
    from .connection_options import ConnectionOptions

_SECRET = ("api_key", "password")
_FILES = {"client_cert": "cert_file", "client_key": "key_file", "ca_cert": "ssl_ca_cert"}
_IMPERSONATION = ("impersonate_user", "impersonate_groups")
# Variables that select neither the cluster nor the user; they are ignored when another source is selected.
IGNORED = ("validate_certs", "proxy", "no_proxy")
_DEFAULT_PORTS = {"https": 443, "http": 80}


def require_no_conflict(options: ConnectionOptions, connection: Connection, environ: t.Mapping[str, str]) -> None:
    """Raise WrongCluster where a variable contradicts the options or gpu_cluster; an equal value is no conflict."""
    selected = options.source in (OPTIONS, GPU_CLUSTER)
    given = environment(environ)
    given_names = [
        name for name in VARIABLES if name in given and name not in IGNORED and (selected or name in _IMPERSONATION)
    ]
    default = environ.get("KUBECONFIG") or "~/.kube/config"
    wrong = [name for name in given_names if not _is_equal(name, given[name], options, connection, default)]
    if not wrong:
        return
    shown = [
        variable_of(name, environ) + ("" if name in _SECRET else f" ({_text(name, given[name])})") for name in wrong
    ]
    names = options.names() if selected else []
    if any(name in _IMPERSONATION for name in wrong):
        user = options.impersonate_user
        names.append(f"impersonate_user {user}" if user else "no impersonate_user")
    where = f"{' and '.join(names)} ({connection.origin}, {connection.server})"
    remove = f"remove {options.names()[0]} to use only the environment" if selected and options.names() else ""
    raise WrongCluster(
        f"{', '.join(shown)}: the environment contradicts {where}. A run uses one source for the cluster and the user, never two. "
        f"Unset {'it' if len(wrong) == 1 else 'them'} (in AWX, detach the credential that sets "
        f"{'it' if len(wrong) == 1 else 'them'})" + (f", or {remove}." if remove else ".")
    )


def ignored_variables(options: ConnectionOptions, environ: t.Mapping[str, str]) -> list[str]:
    """Variables of IGNORED that have no effect, since another source names the connection."""
    if options.source not in (OPTIONS, GPU_CLUSTER):
        return []
    given = environment(environ)
    return [variable_of(name, environ) for name in IGNORED if name in given and getattr(options, name) is None]


def same_server(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host, port and path; a host name and its IP address are different."""
    return _address(one) == _address(other)


def same_file(one: str | None, other: str | None) -> bool:
    """Whether two paths lead to the same file, or to files with equal content."""
    if not one or not other:
        return False
    if os.path.realpath(os.path.expanduser(one)) == os.path.realpath(os.path.expanduser(other)):
        return True
    try:
        with open(os.path.expanduser(one), "rb") as first, open(os.path.expanduser(other), "rb") as second:
            return first.read() == second.read()
    except OSError:
        return False


def bearer_of(connection: Connection) -> str:
    """The token of the connection; empty where it has none."""
    return connection.authorization().get("authorization", "").removeprefix("Bearer ").strip()


def _is_equal(
    name: str, value: t.Any, options: ConnectionOptions, connection: Connection, default_kubeconfig: str
) -> bool:
    if name == "kubeconfig":
        return _same_kubeconfig(value, options, default_kubeconfig)
    if name == "context":
        return bool(value == connection.context_name)
    if name == "host":
        return same_server(value, connection.server)
    if name == "api_key":
        return bool(value == bearer_of(connection))
    if name in _FILES:
        return same_file(value, getattr(connection.configuration, _FILES[name], None))
    if name == "impersonate_user":
        return bool(value == options.impersonate_user)
    if name == "impersonate_groups":
        return set(value) == set(options.impersonate_groups)
    return False


def _same_kubeconfig(value: str, options: ConnectionOptions, default: str) -> bool:
    if isinstance(options.kubeconfig, dict) or (options.host and not options.kubeconfig):
        return False
    one, other = (os.path.realpath(os.path.expanduser(text)) for text in (value, options.kubeconfig or default))
    return one == other


def _address(url: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme.lower())
    except ValueError:
        # The port is not a number: such an address equals only itself.
        return url, "", None, ""
    return parts.scheme.lower(), (parts.hostname or "").lower(), port, parts.path.rstrip("/")


def _text(name: str, value: t.Any) -> str:
    if name == "host":
        return without_user_info(str(value))
    return ",".join(value) if isinstance(value, tuple) else str(value)
