# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that the environment does not select a cluster or a user other than those of the connection."""

from __future__ import annotations

import os
import typing as t
from urllib.parse import urlsplit

from ..catalog.secrets import without_user_info
from .connection_options import GPU_CLUSTER, IMPERSONATION, OPTIONS, environment, variable_of
from .errors import WrongCluster

if t.TYPE_CHECKING:
    from .connection import Connection
    from .connection_options import ConnectionOptions

_FILES = {"client_cert": "cert_file", "client_key": "key_file", "ca_cert": "ssl_ca_cert"}
# Variables that select neither the cluster nor the user; they are ignored when another source is selected.
IGNORED = ("validate_certs", "proxy", "no_proxy")
_DEFAULT_PORTS = {"https": 443, "http": 80}


def require_no_conflict(options: ConnectionOptions, connection: Connection) -> None:
    """Raise WrongCluster if a variable contradicts the options or gpu_cluster; an equal value is not a conflict."""
    selected = options.source in (OPTIONS, GPU_CLUSTER)
    wrong = {
        name: value
        for name, value in environment(os.environ).items()
        if name not in IGNORED and (selected or name in IMPERSONATION)
        if not is_same(name, value, options, connection)
    }
    if not wrong:
        return
    shown = [describe(variable_of(name, os.environ), name, value) for name, value in wrong.items()]
    names = options.names() if selected else []
    if wrong.keys() & set(IMPERSONATION):
        user = options.impersonate_user
        names.append(f"impersonate_user {user}" if user else "no impersonate_user")
    them = "it" if len(wrong) == 1 else "them"
    remove = f", or remove {options.names()[0]} to use only the environment" if selected and options.names() else ""
    raise WrongCluster(
        f"{', '.join(shown)}: the environment contradicts {' and '.join(names)} ({connection.origin}, {connection.server}). A run uses one "
        f"source for the cluster and the user, never two. Unset {them} (in AWX, detach the credential that sets {them}){remove}."
    )


def ignored_variables(options: ConnectionOptions, environ: t.Mapping[str, str]) -> list[str]:
    """The variables in IGNORED that have no effect because another source selects the connection."""
    if options.source not in (OPTIONS, GPU_CLUSTER):
        return []
    given = environment(environ)
    return [variable_of(name, environ) for name in IGNORED if name in given and getattr(options, name) is None]


def is_same(option: str, value: t.Any, options: ConnectionOptions, connection: Connection) -> bool:
    """Whether the connection uses this value of an option."""
    if option == "kubeconfig":
        return _same_kubeconfig(value, options)
    if option == "host":
        return same_server(value, connection.server)
    if option in _FILES:
        return _same_file(value, getattr(connection.configuration, _FILES[option], None))
    if option == "impersonate_groups":
        return set(value) == set(options.impersonate_groups)
    used = {
        "context": connection.context_name,
        "api_key": _bearer_of(connection),
        "impersonate_user": options.impersonate_user,
        "tls_server_name": getattr(connection.configuration, "tls_server_name", None),
        "skip_tls_verify": not connection.configuration.verify_ssl,
    }
    return bool(value == used.get(option))


def describe(variable: str, option: str, value: t.Any) -> str:
    """The variable that sets an option, followed by its value unless the value is secret."""
    if option in ("api_key", "password"):
        return variable
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return f"{variable} ({without_user_info(text) if option == 'host' else text})"


def same_server(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host, port and path; a host name and its IP address are different."""
    return _address(one) == _address(other)


def _same_file(one: str | None, other: str | None) -> bool:
    """Whether two paths lead to the same file or to files with equal content."""
    if not one or not other:
        return False
    if os.path.realpath(os.path.expanduser(one)) == os.path.realpath(os.path.expanduser(other)):
        return True
    try:
        with open(os.path.expanduser(one), "rb") as first, open(os.path.expanduser(other), "rb") as second:
            return first.read() == second.read()
    except OSError:
        return False


def _bearer_of(connection: Connection) -> str:
    """The token of the connection; empty if it has none."""
    return connection.authorization().get("authorization", "").removeprefix("Bearer ").strip()


def _same_kubeconfig(value: str, options: ConnectionOptions) -> bool:
    if isinstance(options.kubeconfig, dict) or (options.host and not options.kubeconfig):
        return False
    used = options.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    one, other = (os.path.realpath(os.path.expanduser(text)) for text in (value, used))
    return one == other


def _address(url: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme.lower())
    except ValueError:
        # The port is not a number, so this address only equals itself.
        return url, "", None, ""
    return parts.scheme.lower(), (parts.hostname or "").lower(), port, parts.path.rstrip("/")
