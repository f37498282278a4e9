# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds environment variables that make kubernetes.core.helm use the cluster that a module has verified; none of them contains a secret.

kubernetes.core.helm reads K8S_AUTH_* (its helm_args_common.py), and the helm program reads KUBECONFIG and HELM_KUBE* (helm pkg/cli/environment.go).
A kubeconfig is passed as KUBECONFIG and not as the option, because kubernetes.core copies the option's file to another folder. Paths are
absolute, because helm may start in a folder other than the module's.
"""

from __future__ import annotations

import os
import typing as t

from ..common.errors import ConnectionProblem
from .conflicts import describe, is_same
from .connection_options import ENVIRONMENT, PREFIX, VARIABLES
from .errors import WrongCluster

if t.TYPE_CHECKING:
    from .client import Client
    from .connection import Connection
    from .connection_options import ConnectionOptions

_PREFIX = "HELM_KUBE"
# helm's variables that select the cluster or the user, and the corresponding options.
_OPTIONS = {
    f"{_PREFIX}CONTEXT": "context",
    f"{_PREFIX}APISERVER": "host",
    f"{_PREFIX}TOKEN": "api_key",
    f"{_PREFIX}ASUSER": "impersonate_user",
    f"{_PREFIX}ASGROUPS": "impersonate_groups",
    f"{_PREFIX}CAFILE": "ca_cert",
    f"{_PREFIX}TLS_SERVER_NAME": "tls_server_name",
    f"{_PREFIX}INSECURE_SKIP_TLS_VERIFY": "skip_tls_verify",
}
_USE_A_KUBECONFIG = "Use a kubeconfig (gpu_cluster.kubeconfig), which can contain it."


def helm_environment(client: Client, environ: t.Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables; raises WrongCluster if helm would use another cluster or user, or if helm cannot use this connection."""
    options, connection = client.options, client.connection
    environ = os.environ if environ is None else environ
    _require_usable(options)
    require_usable_token(environ)
    _require_no_conflict(options, connection, environ)
    variables = {
        # The collection reads the records of releases from Secrets, because a ConfigMap is not safe for values.
        "HELM_DRIVER": "secret",
        f"{PREFIX}VERIFY_SSL": "false" if options.validate_certs is False else "true",
        f"{_PREFIX}ASUSER": options.impersonate_user or "",
        f"{_PREFIX}ASGROUPS": ",".join(options.impersonate_groups),
    }
    if isinstance(options.kubeconfig, str):
        variables["KUBECONFIG"] = os.path.abspath(os.path.expanduser(options.kubeconfig))
    elif environ.get("KUBECONFIG") and not options.host:
        paths = environ["KUBECONFIG"].split(os.pathsep)
        variables["KUBECONFIG"] = os.pathsep.join(os.path.abspath(path) for path in paths if path)
    elif options.host:
        # Otherwise, helm would combine the host with the default kubeconfig.
        variables["KUBECONFIG"] = os.devnull
    if not options.host:
        # An address that the modules ignore must not select helm's cluster.
        variables[f"{PREFIX}HOST"] = ""
    if connection.context_name:
        # The verified context, even if the current context of the file changes in the meantime.
        variables[f"{_PREFIX}CONTEXT"] = connection.context_name
    if options.ca_cert:
        variables[f"{_PREFIX}CAFILE"] = os.path.abspath(options.ca_cert)
    return variables


def _require_usable(options: ConnectionOptions) -> None:
    """Check that Helm can use the connection; gpu_cluster and the environment configure Helm, but the options of a module do not."""
    if isinstance(options.kubeconfig, dict):
        raise WrongCluster(
            "Helm cannot use a kubeconfig that is given as a dictionary. Write it to a file and set gpu_cluster.kubeconfig."
        )
    by_environment = options.source == ENVIRONMENT
    if options.host and not by_environment:
        raise WrongCluster(
            f"Helm cannot use the option host of a module. Set {PREFIX}HOST and {PREFIX}API_KEY, or gpu_cluster.kubeconfig."
        )
    for name in ("client_cert", "client_key", "proxy", "no_proxy"):
        if getattr(options, name):
            setting = f"{PREFIX}{VARIABLES[name][0]}" if by_environment else f"option {name}"
            raise WrongCluster(f"Helm has no setting for {setting}. {_USE_A_KUBECONFIG}")
    unusable = [group for group in options.impersonate_groups if "," in group]
    if unusable:
        raise WrongCluster(
            f"Helm cannot impersonate the group {unusable[0]!r}, because it accepts groups only as a comma-separated list."
        )


def require_usable_token(environ: t.Mapping[str, str]) -> None:
    """Raise ConnectionProblem for a token that the modules can send but helm cannot, because helm does not strip it."""
    name = f"{PREFIX}API_KEY"
    token = environ.get(name, "")
    if token != token.strip():
        raise ConnectionProblem(
            f"{name} has white space around the token, so Helm cannot send it. Remove the white space, such as the line break at the end."
        )


def _value(option: str, text: str) -> t.Any:
    if option == "impersonate_groups":
        return text.split(",")
    return text.lower() in ("1", "t", "true") if option == "skip_tls_verify" else text


def _require_no_conflict(options: ConnectionOptions, connection: Connection, environ: t.Mapping[str, str]) -> None:
    wrong = [
        describe(variable, option, environ[variable])
        for variable, option in _OPTIONS.items()
        if environ.get(variable) and not is_same(option, _value(option, environ[variable]), options, connection)
    ]
    if wrong:
        raise WrongCluster(
            f"{', '.join(wrong)}: the environment of helm contradicts the connection of this run ({connection.origin}, "
            f"{connection.server}). Unset {'it' if len(wrong) == 1 else 'them'}: helm uses the cluster and the user of the run."
        )
