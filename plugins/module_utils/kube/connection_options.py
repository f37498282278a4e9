# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the source of the connection: module options, gpu_cluster, K8S_AUTH_* or the default kubeconfig (pure).

Two sources are never combined, because the server from one source and the user or the names from another could lead a run to the wrong cluster.
Impersonation and options that select neither the cluster nor the user (TLS verification, proxy, timeout) may be combined with any source.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass, field

from ..catalog.secrets import without_user_info
from .errors import WrongCluster

OPTIONS, GPU_CLUSTER, ENVIRONMENT, DEFAULT = "options", "gpu_cluster", "environment", "default"
PREFIX = "K8S_AUTH_"
# The variables of kubernetes.core (see AUTH_ARG_MAP in its args_common.py); some of them have two names.
VARIABLES: dict[str, tuple[str, ...]] = {
    "kubeconfig": ("KUBECONFIG",),
    "context": ("CONTEXT",),
    "host": ("HOST",),
    "api_key": ("API_KEY",),
    "client_cert": ("CERT_FILE", "CLIENT_CERT"),
    "client_key": ("KEY_FILE", "CLIENT_KEY"),
    "username": ("USERNAME",),
    "password": ("PASSWORD",),
    "impersonate_user": ("IMPERSONATE_USER",),
    "impersonate_groups": ("IMPERSONATE_GROUPS",),
    "ca_cert": ("SSL_CA_CERT", "CA_CERT"),
    "validate_certs": ("VERIFY_SSL", "VALIDATE_CERTS"),
    "proxy": ("PROXY",),
    "no_proxy": ("NO_PROXY",),
}
# The argument spec of the connection, with the option names of kubernetes.core. No option falls back to its variable
# K8S_AUTH_*, because the variables are used together or not at all.
CONNECTION: dict[str, dict[str, t.Any]] = {
    "gpu_cluster": {"type": "dict"},
    "renamed_from": {"type": "str"},
    "kubeconfig": {"type": "raw", "no_log": False},
    "context": {"type": "str"},
    "host": {"type": "str"},
    "api_key": {"type": "str", "no_log": True},
    "validate_certs": {"type": "bool", "aliases": ["verify_ssl"]},
    "ca_cert": {"type": "path", "aliases": ["ssl_ca_cert"]},
    "client_cert": {"type": "path", "aliases": ["cert_file"]},
    "client_key": {"type": "path", "aliases": ["key_file"], "no_log": False},
    "proxy": {"type": "str"},
    "no_proxy": {"type": "str"},
    "impersonate_user": {"type": "str"},
    "impersonate_groups": {"type": "list", "elements": "str"},
    "request_timeout": {"type": "int", "default": 30},
}
_CLUSTER = ("kubeconfig", "context", "host")
_USER = ("api_key", "client_cert", "client_key")
_TUNING = ("ca_cert", "validate_certs", "proxy", "no_proxy")
IMPERSONATION = ("impersonate_user", "impersonate_groups")
_PATHS = ("ca_cert", "client_cert", "client_key")
_FALSE = ("0", "false", "no", "off", "n", "f")

Values = dict[str, t.Any]


@dataclass(frozen=True)
class ConnectionOptions:
    """The options of a connection (None if not set) and their source."""

    kubeconfig: str | dict[str, t.Any] | None = None
    context: str | None = None
    host: str | None = None
    api_key: str | None = field(default=None, repr=False)
    validate_certs: bool | None = None
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    no_proxy: str | None = None
    impersonate_user: str | None = None
    impersonate_groups: tuple[str, ...] = ()
    request_timeout: float = 30.0
    source: str = OPTIONS

    @classmethod
    def from_params(
        cls,
        params: t.Mapping[str, t.Any],
        cluster: t.Mapping[str, t.Any] | None = None,
        environ: t.Mapping[str, str] | None = None,
    ) -> ConnectionOptions:
        """Create the options from the first source that selects a cluster: options, gpu_cluster, K8S_AUTH_*, or kubectl's defaults.

        Raises WrongCluster if this source is incomplete.
        """
        given, document = _of_params(params), _of_params(cluster or {}, ("kubeconfig", "context", *IMPERSONATION))
        variables = environment(os.environ if environ is None else environ)
        source = _source(given, document, variables)
        chosen = {OPTIONS: given, GPU_CLUSTER: document, ENVIRONMENT: variables, DEFAULT: {}}[source]
        values = {key: chosen[key] for key in (*_CLUSTER, *_USER) if key in chosen}
        if source in (ENVIRONMENT, DEFAULT):
            values |= {key: variables[key] for key in (*_TUNING, *IMPERSONATION) if key in variables}
        for declared in (document, given):
            if any(key in declared for key in IMPERSONATION):
                values |= {key: declared.get(key) for key in IMPERSONATION}
        values |= {key: given[key] for key in _TUNING if key in given}
        groups = values.get("impersonate_groups") or ()
        values["impersonate_groups"] = _listed(groups) if isinstance(groups, str) else tuple(map(str, groups))
        _require_whole(values, source)
        basic_auth = [_name_in(ENVIRONMENT, name) for name in ("username", "password") if name in variables]
        if source == ENVIRONMENT and basic_auth:
            raise WrongCluster(
                f"{' and '.join(basic_auth)}: the Kubernetes API does not support basic authentication. Set {PREFIX}API_KEY in addition to "
                f"{PREFIX}HOST, or use a kubeconfig, and unset them."
            )
        return cls(**values, request_timeout=float(params.get("request_timeout") or 30.0), source=source)

    def names(self) -> list[str]:
        """The names of the options that the source sets, as users write them: gpu_cluster.kubeconfig, option host, K8S_AUTH_HOST."""
        return [self.name_of(name) for name in (*_CLUSTER, *_USER) if getattr(self, name)]

    def name_of(self, option: str) -> str:
        """The name of an option in the source."""
        return _name_in(self.source, option)


def environment(environ: t.Mapping[str, str]) -> Values:
    """The values of the variables K8S_AUTH_* by option; an empty variable counts as unset."""
    values: Values = {}
    for option, names in VARIABLES.items():
        text = next((environ[PREFIX + name] for name in names if environ.get(PREFIX + name)), None)
        if text is None:
            continue
        if option == "validate_certs":
            values[option] = text.strip().lower() not in _FALSE
        elif option == "impersonate_groups":
            values[option] = _listed(text)
        else:
            values[option] = os.path.expanduser(text) if option in _PATHS else text
    return _with_stripped_token(values)


def secret_variables(environ: t.Mapping[str, str]) -> set[str]:
    """The credentials in the environment (K8S_AUTH_* and helm's variables), which must be masked in all output."""
    names = (f"{PREFIX}API_KEY", f"{PREFIX}PASSWORD", "HELM_KUBETOKEN")
    # With and without surrounding white space, because a token is sent without it.
    return {text for name in names if environ.get(name) for text in (environ[name], environ[name].strip()) if text}


def variable_of(option: str, environ: t.Mapping[str, str]) -> str:
    """The name of the variable that sets an option."""
    return PREFIX + next((name for name in VARIABLES[option] if environ.get(PREFIX + name)), VARIABLES[option][0])


def _name_in(source: str, option: str) -> str:
    if source == ENVIRONMENT:
        return PREFIX + VARIABLES[option][0]
    return f"gpu_cluster.{option}" if source == GPU_CLUSTER else f"option {option}"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _of_params(params: t.Mapping[str, t.Any], names: t.Iterable[str] | None = None) -> Values:
    """The options that are set; an empty string or an empty list counts as not set."""
    options = names or (*_CLUSTER, *_USER, *_TUNING, *IMPERSONATION)
    values = {name: params.get(name) for name in options if params.get(name) not in (None, "", [], {}, ())}
    groups = values.get("impersonate_groups", [])
    if not isinstance(groups, str) and not (isinstance(groups, list) and all(isinstance(name, str) for name in groups)):
        raise WrongCluster("impersonate_groups: must be a list of names, or a string with commas between them.")
    return _with_stripped_token(
        {name: os.path.expanduser(str(value)) if name in _PATHS else value for name, value in values.items()}
    )


def _with_stripped_token(values: Values) -> Values:
    """The values with a stripped token, because a token from a file ends with a line break."""
    token = str(values.pop("api_key", "")).strip()
    return {**values, "api_key": token} if token else values


def _source(given: Values, document: Values, variables: Values) -> str:
    in_document = [f"gpu_cluster.{name}" for name in ("kubeconfig", "context") if name in document]
    if "kubeconfig" in given or "host" in given:
        return OPTIONS
    if "context" in given:
        if in_document:
            raise WrongCluster(
                f"Option context ({given['context']}) and {' and '.join(in_document)} both select the cluster. Set "
                "gpu_cluster.context, or set option kubeconfig together with option context."
            )
        return OPTIONS
    users = [name for name in _USER if name in given]
    if users:
        raise WrongCluster(
            f"Option {users[0]} selects a user but no cluster, and is never combined with a cluster from gpu_cluster, the environment or "
            "a default kubeconfig. Also set option host or kubeconfig, or remove it."
        )
    if in_document:
        return GPU_CLUSTER
    named = [name for name in (*_CLUSTER, *_USER, "username", "password") if name in variables]
    return ENVIRONMENT if named else DEFAULT


def is_kubeconfig_text(value: t.Any) -> bool:
    """Whether a value is the content of a kubeconfig instead of its path. It contains secrets, so no message may quote it."""
    return isinstance(value, str) and ("\n" in value or "apiVersion:" in value or value.lstrip().startswith("{"))


def _require_whole(values: Values, source: str) -> None:
    """Raise WrongCluster if the values are incomplete, because values of another source must not complete them."""
    if is_kubeconfig_text(values.get("kubeconfig")):
        raise WrongCluster(
            f"{_name_in(source, 'kubeconfig')}: contains the content of a kubeconfig; write it to a file and set the path of that file, or set a dictionary "
            "(filter from_yaml)."
        )
    located = [name for name in _CLUSTER if values.get(name)]
    users = [name for name in _USER if values.get(name)]
    if source == ENVIRONMENT and not located:
        setting = _name_in(source, users[0]) if users else f"{PREFIX}USERNAME"
        raise WrongCluster(
            f"{setting} selects a user but no cluster. Also set {PREFIX}HOST or {PREFIX}KUBECONFIG, or unset it."
        )
    if values.get("host") and values.get("context") and not values.get("kubeconfig"):
        raise WrongCluster(
            f"{_name_in(source, 'context')} names an entry of a kubeconfig, but with {_name_in(source, 'host')}, no kubeconfig is read. Also set "
            f"{_name_in(source, 'kubeconfig')}, or remove one of them."
        )
    if values["impersonate_groups"] and not values.get("impersonate_user"):
        raise WrongCluster(
            "impersonate_groups is set without impersonate_user, which Kubernetes does not allow. Also set impersonate_user."
        )


# Variables that select neither the cluster nor the user; they are ignored when another source is selected.
IGNORED = ("validate_certs", "proxy", "no_proxy")


def ignored_variables(options: ConnectionOptions, environ: t.Mapping[str, str]) -> list[str]:
    """The variables in IGNORED that have no effect because another source selects the connection."""
    if options.source not in (OPTIONS, GPU_CLUSTER):
        return []
    given = environment(environ)
    return [variable_of(name, environ) for name in IGNORED if name in given and getattr(options, name) is None]


def describe_variable(variable: str, option: str, value: t.Any) -> str:
    """The variable that sets an option, followed by its value unless the value is secret."""
    if option in ("api_key", "password"):
        return variable
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return f"{variable} ({without_user_info(text) if option == 'host' else text})"
