# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How helm reaches the cluster that a module has verified: variables for a task of kubernetes.core.helm, none of which is secret.

kubernetes.core.helm reads K8S_AUTH_* (its helm_args_common.py), and the helm program KUBECONFIG and HELM_KUBE* (helm pkg/cli/environment.go).
A kubeconfig is passed by KUBECONFIG and not by the option, of which kubernetes.core makes a copy in another folder.
"""

from __future__ import annotations

import os
import typing as t

from ..catalog.secrets import without_user_info
from ..common.errors import ConnectionProblem
from .conflicts import bearer_of, same_file, same_server
from .connection_options import ENVIRONMENT, PREFIX, VARIABLES
from .errors import WrongCluster

if t.TYPE_CHECKING:
    from .client import Client
    from .connection import Connection
    from .connection_options import ConnectionOptions

_PREFIX = "HELM_KUBE"
_USE_A_KUBECONFIG = "Name a kubeconfig (gpu_cluster.kubeconfig), which can hold it."


def helm_environment(client: Client, environ: t.Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables; raises WrongCluster where helm would use another cluster or user, or cannot use this one."""
    options, connection = client.options, client.connection
    environ = os.environ if environ is None else environ
    _require_usable(options)
    require_usable_token(environ)
    _require_no_conflict(options, connection, environ)
    found = {
        # Where this collection looks for releases; the values of a release have no place in a ConfigMap.
        "HELM_DRIVER": "secret",
        f"{PREFIX}VERIFY_SSL": "false" if options.validate_certs is False else "true",
        f"{_PREFIX}ASUSER": options.impersonate_user or "",
        f"{_PREFIX}ASGROUPS": ",".join(options.impersonate_groups),
    }
    if isinstance(options.kubeconfig, str):
        found["KUBECONFIG"] = os.path.expanduser(options.kubeconfig)
    elif options.host:
        # Helm would take what the host lacks from the default kubeconfig.
        found["KUBECONFIG"] = os.devnull
    if connection.context_name:
        # The context that was verified, whatever becomes the current one of the file meanwhile.
        found[f"{_PREFIX}CONTEXT"] = connection.context_name
    if options.ca_cert:
        found[f"{_PREFIX}CAFILE"] = options.ca_cert
    return found


def _require_usable(options: ConnectionOptions) -> None:
    """Helm is configured by the inventory or the environment; options of one module do not reach it."""
    if isinstance(options.kubeconfig, dict):
        raise WrongCluster(
            "Helm cannot use a kubeconfig that is given as a dictionary. Write it to a file and set gpu_cluster.kubeconfig."
        )
    by_environment = options.source == ENVIRONMENT
    if options.host and not by_environment:
        raise WrongCluster(
            f"Helm is not reached by option host of a module. Set {PREFIX}HOST and {PREFIX}API_KEY, or gpu_cluster.kubeconfig."
        )
    for name in ("client_cert", "client_key", "proxy", "no_proxy"):
        if getattr(options, name):
            word = f"{PREFIX}{VARIABLES[name][0]}" if by_environment else f"option {name}"
            raise WrongCluster(f"Helm has no setting for {word}. {_USE_A_KUBECONFIG}")
    odd = [group for group in options.impersonate_groups if "," in group]
    if odd:
        raise WrongCluster(
            f"Helm cannot impersonate the group {odd[0]!r}, since it takes groups as a comma-separated list."
        )


def require_usable_token(environ: t.Mapping[str, str]) -> None:
    """Helm takes the token of the environment as it is, so that it could not send one that the modules can."""
    name = f"{PREFIX}API_KEY"
    token = environ.get(name, "")
    if token != token.strip():
        raise ConnectionProblem(
            f"{name} has white space around the token, with which Helm cannot send it. Remove it, such as the line break at the end."
        )


def _require_no_conflict(options: ConnectionOptions, connection: Connection, environ: t.Mapping[str, str]) -> None:
    same: dict[str, t.Callable[[str], bool]] = {
        "CONTEXT": lambda value: value == connection.context_name,
        "APISERVER": lambda value: same_server(value, connection.server),
        "TOKEN": lambda value: value == bearer_of(connection),
        "ASUSER": lambda value: value == options.impersonate_user,
        "ASGROUPS": lambda value: set(value.split(",")) == set(options.impersonate_groups),
        "CAFILE": lambda value: same_file(value, getattr(connection.configuration, "ssl_ca_cert", None)),
        "TLS_SERVER_NAME": lambda value: value == getattr(connection.configuration, "tls_server_name", None),
        "INSECURE_SKIP_TLS_VERIFY": lambda value: (
            (value.lower() in ("1", "t", "true")) is not connection.configuration.verify_ssl
        ),
    }
    wrong = [
        f"{_PREFIX}{name}"
        + ("" if name == "TOKEN" else f" ({without_user_info(value) if name == 'APISERVER' else value})")
        for name, is_same in same.items()
        if (value := environ.get(f"{_PREFIX}{name}")) and not is_same(value)
    ]
    if wrong:
        raise WrongCluster(
            f"{', '.join(wrong)}: the environment of helm contradicts the connection of this run ({connection.origin}, "
            f"{connection.server}). Unset {'it' if len(wrong) == 1 else 'them'}: helm is given the cluster and the user of the run."
        )
