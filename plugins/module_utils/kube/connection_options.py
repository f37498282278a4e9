# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which source names the cluster: module options, gpu_cluster, K8S_AUTH_* or the default kubeconfig; one of them, as a whole (pure).

Two sources are never combined, since the server of one with the user or the names of another is how a run reaches the wrong cluster.
What neither names a cluster nor a user (TLS verification, proxy, time-out) may be an option beside any source, and so may impersonation.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass, field, fields

from .errors import WrongCluster

OPTIONS, GPU_CLUSTER, ENVIRONMENT, DEFAULT = "options", "gpu_cluster", "environment", "default"
PREFIX = "K8S_AUTH_"
# The variables of kubernetes.core, which knows some under two names (its args_common.py, AUTH_ARG_MAP).
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
# The argument spec of the connection, with the names of kubernetes.core. No option falls back to its variable K8S_AUTH_*: the variables are
# used together or not at all.
CONNECTION: dict[str, dict[str, t.Any]] = {
    "gpu_cluster": {"type": "dict"},
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
_IMPERSONATION = ("impersonate_user", "impersonate_groups")
_PATHS = ("ca_cert", "client_cert", "client_key")
_FALSE = ("0", "false", "no", "off", "n", "f")

Values = dict[str, t.Any]


@dataclass(frozen=True)
class ConnectionOptions:
    """How to reach a cluster; None means not given. `source` says where that is declared."""

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
        """The one source that counts: options, then gpu_cluster, then K8S_AUTH_*, then the defaults of kubectl.

        Raises WrongCluster where a source is incomplete, so that another one would have to complete it.
        """
        given, document = _of_params(params), _of_params(cluster or {}, ("kubeconfig", "context", *_IMPERSONATION))
        variables = environment(os.environ if environ is None else environ)
        source = _source(given, document, variables)
        chosen = {OPTIONS: given, GPU_CLUSTER: document, ENVIRONMENT: variables, DEFAULT: {}}[source]
        values = {key: chosen[key] for key in (*_CLUSTER, *_USER) if key in chosen}
        if source in (ENVIRONMENT, DEFAULT):
            values |= {key: variables[key] for key in (*_TUNING, *_IMPERSONATION) if key in variables}
        if any(key in document for key in _IMPERSONATION):
            values |= {key: document.get(key) for key in _IMPERSONATION}
        if any(key in given for key in _IMPERSONATION):
            values |= {key: given.get(key) for key in _IMPERSONATION}
        values |= {key: given[key] for key in _TUNING if key in given}
        groups = values.get("impersonate_groups") or ()
        values["impersonate_groups"] = _listed(groups) if isinstance(groups, str) else tuple(map(str, groups))
        _require_whole(values, source)
        if source == ENVIRONMENT:
            _require_no_basic_auth(variables)
        return cls(**values, request_timeout=float(params.get("request_timeout") or 30.0), source=source)

    def names(self) -> list[str]:
        """What the source gives, as the user finds it there: gpu_cluster.kubeconfig, option host, K8S_AUTH_HOST."""
        given = [entry.name for entry in fields(self) if entry.name in (*_CLUSTER, *_USER)]
        return [self.name_of(name) for name in given if getattr(self, name)]

    def name_of(self, option: str) -> str:
        """One of them."""
        if self.source == ENVIRONMENT:
            return PREFIX + VARIABLES[option][0]
        return f"gpu_cluster.{option}" if self.source == GPU_CLUSTER else f"option {option}"


def environment(environ: t.Mapping[str, str]) -> Values:
    """What the variables K8S_AUTH_* say, under the names of the options; an empty variable counts as unset."""
    found: Values = {}
    for option, names in VARIABLES.items():
        text = next((environ[PREFIX + name] for name in names if environ.get(PREFIX + name)), None)
        if text is None:
            continue
        if option == "validate_certs":
            found[option] = text.strip().lower() not in _FALSE
        elif option == "impersonate_groups":
            found[option] = _listed(text)
        else:
            found[option] = os.path.expanduser(text) if option in _PATHS else text
    return _trimmed(found)


def secret_variables(environ: t.Mapping[str, str]) -> set[str]:
    """The credentials in the environment, of K8S_AUTH_* and of helm: to be masked in whatever is printed."""
    names = (f"{PREFIX}API_KEY", f"{PREFIX}PASSWORD", "HELM_KUBETOKEN")
    # Also as it is sent.
    return {text for name in names if environ.get(name) for text in (environ[name], environ[name].strip()) if text}


def variable_of(option: str, environ: t.Mapping[str, str]) -> str:
    """The name of the variable that says an option."""
    return PREFIX + next((name for name in VARIABLES[option] if environ.get(PREFIX + name)), VARIABLES[option][0])


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _of_params(params: t.Mapping[str, t.Any], names: t.Iterable[str] | None = None) -> Values:
    """Options that are given; an empty text or list is not."""
    wanted = names or (*_CLUSTER, *_USER, *_TUNING, *_IMPERSONATION)
    found = {name: params.get(name) for name in wanted if params.get(name) not in (None, "", [], {}, ())}
    groups = found.get("impersonate_groups", [])
    if not isinstance(groups, str) and not (isinstance(groups, list) and all(isinstance(name, str) for name in groups)):
        raise WrongCluster("impersonate_groups: is neither a list of names nor text with commas between them.")
    return _trimmed(
        {name: os.path.expanduser(str(value)) if name in _PATHS else value for name, value in found.items()}
    )


def _trimmed(values: Values) -> Values:
    """The same with a token that has no white space around it: a file that it was read from ends with a line break."""
    token = str(values.pop("api_key", "")).strip()
    return {**values, "api_key": token} if token else values


def _source(given: Values, document: Values, variables: Values) -> str:
    in_document = [f"gpu_cluster.{name}" for name in ("kubeconfig", "context") if name in document]
    if "kubeconfig" in given or "host" in given:
        return OPTIONS
    if "context" in given:
        if in_document:
            raise WrongCluster(
                f"Option context ({given['context']}) and {' and '.join(in_document)} both say which cluster is meant. Set "
                "gpu_cluster.context, or give option kubeconfig beside option context."
            )
        return OPTIONS
    lonely = [name for name in _USER if name in given]
    if lonely:
        raise WrongCluster(
            f"Option {lonely[0]} names a user and no cluster, and is never combined with a cluster from gpu_cluster, the environment or "
            f"a default kubeconfig. Give option host or kubeconfig beside it, or leave it out."
        )
    if in_document:
        return GPU_CLUSTER
    named = [name for name in (*_CLUSTER, *_USER, "username", "password") if name in variables]
    return ENVIRONMENT if named else DEFAULT


def _require_no_basic_auth(variables: Values) -> None:
    given = [PREFIX + VARIABLES[name][0] for name in ("username", "password") if name in variables]
    if given:
        raise WrongCluster(
            f"{' and '.join(given)}: the Kubernetes API has no basic authentication. Set {PREFIX}API_KEY beside {PREFIX}HOST, or use a "
            "kubeconfig, and unset them."
        )


def _require_whole(values: Values, source: str) -> None:
    """Refuse what only another source, or a guess, could complete."""
    say = {GPU_CLUSTER: "gpu_cluster.{}", OPTIONS: "option {}"}.get(source, "{}")

    def named(option: str) -> str:
        return PREFIX + VARIABLES[option][0] if source == ENVIRONMENT else say.format(option)

    located = [name for name in _CLUSTER if values.get(name)]
    lonely = [name for name in _USER if values.get(name)]
    if source == ENVIRONMENT and not located:
        what = named(lonely[0]) if lonely else f"{PREFIX}USERNAME"
        raise WrongCluster(
            f"{what} names a user and no cluster. Set {PREFIX}HOST or {PREFIX}KUBECONFIG beside it, or unset it."
        )
    if values.get("host") and values.get("context") and not values.get("kubeconfig"):
        raise WrongCluster(
            f"{named('context')} names an entry of a kubeconfig, and with {named('host')} none is read. Give "
            f"{named('kubeconfig')} beside them, or leave one of them out."
        )
    if values["impersonate_groups"] and not values.get("impersonate_user"):
        raise WrongCluster(
            "impersonate_groups is set without impersonate_user, which Kubernetes does not allow. Say which user, too."
        )
