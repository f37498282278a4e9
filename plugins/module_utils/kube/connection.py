# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster is meant: options, a kubeconfig, or the pod's own account, through the kubernetes library."""

from __future__ import annotations

import logging
import os
import re
import traceback
import typing as t
from dataclasses import dataclass, replace

from ..catalog.secrets import masked, without_user_info
from ..common.errors import ConnectionProblem
from .conflicts import require_no_conflict, same_server
from .connection_options import ENVIRONMENT, GPU_CLUSTER, ConnectionOptions
from .errors import WrongCluster
from .key_files import keep_keys_in_memory

KUBERNETES_IMPORT_ERROR: str | None = None
try:
    import kubernetes
    import yaml
    from kubernetes.config.config_exception import ConfigException
except ImportError:
    KUBERNETES_IMPORT_ERROR = traceback.format_exc()

_IN_CLUSTER_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_IN_CLUSTER = "service account of this pod"
_DEFAULT_KUBECONFIG = "~/.kube/config"
# What HTTP can carry; an API server takes no other token (RFC 6750, b64token, is narrower).
_TOKEN = re.compile(r"[!-~]+")
# Characters of what a credential plugin says.
_LONGEST = 200


@dataclass(frozen=True)
class Connection:
    """A loaded configuration of the kubernetes library and what the cluster is called in it."""

    configuration: t.Any
    origin: str
    context_name: str | None = None
    cluster_name: str | None = None
    impersonation: tuple[tuple[str, str], ...] = ()
    # Where the token comes from, if not from the origin.
    token_origin: str = ""

    @property
    def server(self) -> str:
        """URL of the API server, without a slash at its end, and without user information: requests never send that, messages show the URL."""
        return without_user_info(str(self.configuration.host).rstrip("/"))

    def authorization(self) -> dict[str, str]:
        """The header that says who asks; an exec plugin or a token file is asked again when it is due.

        Raises ConnectionProblem where a token cannot be sent, without the token.
        """
        headers: dict[str, str] = {}
        for setting in self.configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = self._sendable(str(setting["value"]))
        return headers

    def _sendable(self, value: str) -> str:
        """A scheme and a token, without the white space that a file or a variable has at its end."""
        scheme, dummy, token = value.partition(" ")
        token = token.strip()
        if _TOKEN.fullmatch(token):
            return f"{scheme} {token}"
        has = "holds white space, a control character or one that is not ASCII" if token else "is empty"
        raise ConnectionProblem(
            f"The token of {self.token_origin or self.origin} cannot be sent: it {has}. Correct it there."
        )

    def expiry(self) -> str:
        """When the client certificate ran out, if it has; an empty string otherwise."""
        return _expired_since(getattr(self.configuration, "cert_file", None))


def connect(options: ConnectionOptions) -> Connection:
    """Load the configuration; raises ConnectionProblem with one clear message, WrongCluster where two sources contradict each other."""
    keep_keys_in_memory(kubernetes.config.kube_config)
    configuration = kubernetes.client.Configuration()
    if options.host and not options.kubeconfig:
        configuration.host = options.host
        found = Connection(configuration, "K8S_AUTH_HOST" if options.source == ENVIRONMENT else "option host")
    else:
        found = _load(options, configuration)
        _require_one_server(options, found)
    _overlay(options, configuration)
    _check_files(configuration, found.origin)
    token_origin = options.name_of("api_key") if options.api_key else ""
    found = replace(found, impersonation=_impersonation(options), token_origin=token_origin)
    # A token that cannot be sent is refused here, and not where a request is made.
    found.authorization()
    require_no_conflict(options, found, os.environ)
    return found


def _require_one_server(options: ConnectionOptions, found: Connection) -> None:
    """The names in a kubeconfig say nothing of a server that another variable names."""
    if options.source == ENVIRONMENT and options.host and not same_server(options.host, found.server):
        raise WrongCluster(
            f"K8S_AUTH_HOST ({without_user_info(options.host)}) and the {found.origin} lead to two servers (the latter to {found.server}). Unset the "
            "variable that is not meant; in AWX, detach one of the two credentials."
        )


def _impersonation(options: ConnectionOptions) -> tuple[tuple[str, str], ...]:
    if not options.impersonate_user:
        return ()
    groups = (("Impersonate-Group", group) for group in options.impersonate_groups)
    return (("Impersonate-User", options.impersonate_user), *groups)


def check_cluster(connection: Connection, name: str, kube_name: str | None = None) -> None:
    """Refuse another cluster than the one that gpu_cluster names; a server named outright cannot be compared."""
    known = [found for found in (connection.context_name, connection.cluster_name) if found]
    wanted = kube_name or name
    if not known or wanted in known:
        return
    said = f"gpu_cluster.kube_name is {kube_name!r}" if kube_name else f"gpu_cluster.name is {name!r}"
    raise WrongCluster(
        f"This is another cluster: {said}, but {connection.origin} leads to cluster {connection.cluster_name!r} "
        f"(context {connection.context_name!r}, {connection.server}). Use the kubeconfig or context of {name!r}, "
        f"or say gpu_cluster.kube_name: {connection.cluster_name} if that is what it calls this cluster."
    )


def _load(options: ConnectionOptions, configuration: t.Any) -> Connection:
    kubeconfig = options.kubeconfig
    if isinstance(kubeconfig, dict):
        origin = "kubeconfig given as a dictionary"
        return _load_document(kubeconfig, origin, options, configuration)
    path = kubeconfig or os.environ.get("KUBECONFIG")
    if not path and not os.path.exists(os.path.expanduser(_DEFAULT_KUBECONFIG)):
        if options.context:
            said = f"{'gpu_cluster.' if options.source == GPU_CLUSTER else ''}context"
            raise ConnectionProblem(
                f"{said} is {options.context!r}, but there is no kubeconfig that has it: KUBECONFIG is not set and there is no "
                f"{_DEFAULT_KUBECONFIG}. Set gpu_cluster.kubeconfig, too."
            )
        if os.path.exists(_IN_CLUSTER_TOKEN):
            with _problems(_IN_CLUSTER, configuration):
                kubernetes.config.load_incluster_config(client_configuration=configuration)
            return Connection(configuration, _IN_CLUSTER)
        raise ConnectionProblem(
            "No cluster is named: there is no kubeconfig option, no K8S_AUTH_KUBECONFIG or KUBECONFIG in the "
            f"environment and no {_DEFAULT_KUBECONFIG}. Set gpu_cluster.kubeconfig or the option kubeconfig."
        )
    path = os.path.expanduser(path or _DEFAULT_KUBECONFIG)
    parts = [part for part in path.split(os.pathsep) if part]
    missing = [part for part in parts if not os.path.exists(os.path.expanduser(part))]
    if missing == parts:
        raise ConnectionProblem(f"The kubeconfig {', '.join(missing)} does not exist.")
    return _load_files(path, f"kubeconfig {path}", options, configuration)


def _load_files(path: str, origin: str, options: ConnectionOptions, configuration: t.Any) -> Connection:
    try:
        contexts, active = kubernetes.config.list_kube_config_contexts(config_file=path)
    except (ConfigException, OSError, yaml.YAMLError, TypeError, AttributeError) as error:
        raise _unreadable(origin, error) from error
    entry = _context(list(contexts), active, options.context, origin)
    with _problems(origin, configuration):
        kubernetes.config.load_kube_config(
            config_file=path, context=entry["name"], client_configuration=configuration, persist_config=False
        )
    return _named(entry, origin, configuration)


def _load_document(
    document: dict[str, t.Any], origin: str, options: ConnectionOptions, configuration: t.Any
) -> Connection:
    contexts = [entry for entry in document.get("contexts") or [] if isinstance(entry, dict)]
    current = document.get("current-context")
    active = next((entry for entry in contexts if entry.get("name") == current), None)
    entry = _context(contexts, active, options.context, origin)
    with _problems(origin, configuration):
        kubernetes.config.load_kube_config_from_dict(
            document, context=entry["name"], client_configuration=configuration, persist_config=False
        )
    return _named(entry, origin, configuration)


def _context(contexts: list[t.Any], active: t.Any, wanted: str | None, origin: str) -> t.Mapping[str, t.Any]:
    names = [str(entry["name"]) for entry in contexts]
    if wanted is None:
        if active is None:
            raise ConnectionProblem(
                f"The {origin} has no current context; set context to one of: {', '.join(names) or '(none)'}."
            )
        return t.cast("t.Mapping[str, t.Any]", active)
    for entry in contexts:
        if entry["name"] == wanted:
            return t.cast("t.Mapping[str, t.Any]", entry)
    raise ConnectionProblem(f"The {origin} has no context {wanted!r}; it has: {', '.join(names) or '(none)'}.")


def _named(entry: t.Mapping[str, t.Any], origin: str, configuration: t.Any) -> Connection:
    context = str(entry["name"])
    return Connection(configuration, f"{origin}, context {context}", context, str(entry["context"]["cluster"]))


class _problems:  # noqa: N801 - reads as a word in a with statement
    """Turn whatever goes wrong while the library reads a kubeconfig into one message.

    A credential plugin that fails is only logged by the library, which then goes on without credentials.
    """

    def __init__(self, origin: str, configuration: t.Any) -> None:
        self._origin = origin
        self._configuration = configuration
        self._logged = _Logged()

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self._logged)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        logging.getLogger().removeHandler(self._logged)
        if isinstance(error, Exception):
            raise _unreadable(self._origin, error) from error
        if error is None and self._logged.said and not _has_credentials(self._configuration):
            raise ConnectionProblem(
                f"The {self._origin} gives no credentials: its plugin failed with: {_one_line('; '.join(self._logged.said))}"
            )


class _Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # The rest of what a plugin prints may be anything, a token or a dump of its environment.
        self.said.append(" ".join(record.getMessage().strip().partition("\n")[0].split()))


def _has_credentials(configuration: t.Any) -> bool:
    return bool(configuration.api_key or configuration.cert_file or getattr(configuration, "username", None))


def _unreadable(origin: str, error: Exception) -> ConnectionProblem:
    if isinstance(error, (TypeError, AttributeError)):
        return ConnectionProblem(f"The {origin} cannot be used: this is no kubeconfig.")
    said = masked(" ".join(str(error).split()))
    return ConnectionProblem(f"The {origin} cannot be used: {said or type(error).__name__}")


def _one_line(text: str) -> str:
    """What another program has said, cut short, and without what looks like a secret."""
    line = masked(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _overlay(options: ConnectionOptions, configuration: t.Any) -> None:
    """What the user said beside the kubeconfig wins over it, also after the library has written all of the kubeconfig again.

    It does so whenever it is asked for the token (kube_config.py, _refresh_api_key).
    """
    _write_options(options, configuration)
    refresh = configuration.refresh_api_key_hook
    if refresh is None:
        return

    def refreshed(target: t.Any) -> None:
        refresh(target)
        _write_options(options, target)
        target.refresh_api_key_hook = refreshed

    configuration.refresh_api_key_hook = refreshed


def _write_options(options: ConnectionOptions, configuration: t.Any) -> None:
    if options.host:
        configuration.host = options.host
    if options.api_key:
        configuration.api_key = {"authorization": f"Bearer {options.api_key}"}
        configuration.refresh_api_key_hook = None
    for name, attribute in (
        ("ca_cert", "ssl_ca_cert"),
        ("client_cert", "cert_file"),
        ("client_key", "key_file"),
        ("proxy", "proxy"),
        ("no_proxy", "no_proxy"),
        ("validate_certs", "verify_ssl"),
    ):
        value = getattr(options, name)
        if value is not None:
            setattr(configuration, attribute, value)


def _check_files(configuration: t.Any, origin: str) -> None:
    for attribute, word in (("ssl_ca_cert", "CA"), ("cert_file", "client certificate"), ("key_file", "client key")):
        path = getattr(configuration, attribute, None)
        if path and not os.path.exists(path):
            raise ConnectionProblem(f"The {word} {path} does not exist ({origin}).")


def _expired_since(path: str | None) -> str:
    if not path:
        return ""
    try:
        import datetime

        from cryptography import x509

        with open(path, "rb") as handle:
            certificate = x509.load_pem_x509_certificate(handle.read())
        # Older releases of cryptography only have the time without its zone.
        end = getattr(certificate, "not_valid_after_utc", None) or certificate.not_valid_after.replace(
            tzinfo=datetime.UTC
        )
    except (ImportError, OSError, ValueError):
        return ""
    expired = end < datetime.datetime.now(datetime.UTC)
    return end.strftime("%Y-%m-%d %H:%M UTC") if expired else ""
