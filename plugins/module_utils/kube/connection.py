# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connects to a Kubernetes API server: options, kubeconfig, environment, conflicts between them, and the explanation of errors."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import importlib.util
import logging
import logging.handlers
import os
import re
import sys
import traceback
import types
import typing as t
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from ..catalog.secrets import masked, without_user_info
from ..core.errors import ConnectionProblem
from .connection_options import (
    ENVIRONMENT,
    GPU_CLUSTER,
    IGNORED,
    IMPERSONATION,
    OPTIONS,
    ConnectionOptions,
    describe_variable,
    environment,
    variable_of,
)
from .errors import ApiError, WrongCluster

# Postpones imports that a library makes for features that are rarely used.
#
# Python 3.15 has lazy imports (PEP 810). importlib.util.LazyLoader does not help, because `from X import Y` executes X immediately.


class _Postponed:
    """Stands for an attribute of a module; the module is imported when the placeholder is called, or one of its attributes is read."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def _import(self) -> t.Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *args: t.Any, **options: t.Any) -> t.Any:
        return self._import()(*args, **options)

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._import(), name)


class _Placeholder(types.ModuleType):
    def __getattr__(self, name: str) -> t.Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            return _Postponed(self.__name__, name)
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def postponed_imports(*names: str) -> t.Iterator[None]:
    """Imports of these modules within the context get placeholders; modules that are already loaded are not affected.

    `from X import Y` gets an object that can be called and whose attributes can be read, but that is not a class. After the context, code that imports
    these modules, or reads an attribute of a placeholder, gets the real modules and attributes.
    """
    placeholders = {name: _Placeholder(name) for name in names if name not in sys.modules}
    sys.modules.update(placeholders)
    try:
        yield
    finally:
        for name, placeholder in placeholders.items():
            if sys.modules.get(name) is placeholder:
                del sys.modules[name]


# Keeps keys and certificates in memory if a kubeconfig or its credential plugin contains them as data.
#
# OpenSSL needs files, so the kubernetes library writes the data to temporary files and deletes these when the process ends, unless the process is
# killed (kubernetes/config/kube_config.py, _create_temp_file_with_content). The same process can read an anonymous
# file in memory (memfd_create) through /proc/self/fd, and the file does not outlive the process.

_WRITER = "_create_temp_file_with_content"
_paths: dict[bytes, str] = {}


def keep_keys_in_memory(library: t.Any) -> None:
    """Replace the function in the library's module kube_config that writes these files, unless the system has no memfd_create (macOS)."""
    original = getattr(library, _WRITER, None)
    if original is None or getattr(original, "in_memory", False) or not hasattr(os, "memfd_create"):
        return

    def write(content: str | bytes, *args: t.Any, **kwargs: t.Any) -> str:
        data = content.encode() if isinstance(content, str) else bytes(content)
        return in_memory(data) or str(original(content, *args, **kwargs))

    write.in_memory = True  # type: ignore[attr-defined]
    setattr(library, _WRITER, write)


def in_memory(data: bytes) -> str | None:
    """The path of an in-memory file with this content, valid only in this process; None if this is not possible."""
    if data not in _paths:
        with contextlib.suppress(OSError):
            # Programs that this process starts do not inherit the file, because close-on-exec is Python's default.
            handle = os.memfd_create("accel-gpu-key")
            with open(handle, "wb", closefd=False) as file:
                file.write(data)
            path = f"/proc/self/fd/{handle}"
            if os.path.isfile(path):
                _paths[data] = path
    return _paths.get(data)


# Checks that the environment does not select a cluster or a user other than those of the connection.

_FILES = {"client_cert": "cert_file", "client_key": "key_file", "ca_cert": "ssl_ca_cert"}
_DEFAULT_PORTS = {"https": 443, "http": 80}


def require_no_conflict(options: ConnectionOptions, connection: Connection) -> None:
    """Raise WrongCluster if a variable contradicts the options or gpu_cluster; an equal value is not a conflict."""
    selected = options.source in (OPTIONS, GPU_CLUSTER)
    wrong = {
        name: value
        for name, value in environment(os.environ).items()
        if name not in IGNORED and (selected or name in IMPERSONATION)
        if not connection_uses(name, value, options, connection)
    }
    if not wrong:
        return
    shown = [describe_variable(variable_of(name, os.environ), name, value) for name, value in wrong.items()]
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


def connection_uses(option: str, value: t.Any, options: ConnectionOptions, connection: Connection) -> bool:
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


# Loads the connection's configuration with the kubernetes library, from options, a kubeconfig, or the service account of the pod.

# Modules that `import kubernetes` imports, but that a connection does not use (only the auth-provider `oidc` needs those for OAuth). Without
# these modules, the import takes half of the usual 0.5 s (kubernetes 37).
_UNUSED = (
    "kubernetes.dynamic",
    "kubernetes.informer",
    "kubernetes.leaderelection",
    "kubernetes.stream",
    "kubernetes.watch",
    "oauthlib.oauth2",
    "requests_oauthlib",
)
# The module imports pydantic. kubernetes 37 and later, which contain the file, import the module only when it is used.
_API_CLIENT, _SINCE = "kubernetes.client.api_client", "client/api_response.py"


def _unused_modules() -> tuple[str, ...]:
    spec = importlib.util.find_spec("kubernetes")
    folder = os.path.dirname(spec.origin or "") if spec else ""
    return (*_UNUSED, _API_CLIENT) if os.path.exists(os.path.join(folder, _SINCE)) else _UNUSED


KUBERNETES_IMPORT_ERROR: str | None = None
try:
    with postponed_imports(*_unused_modules()):
        import kubernetes
    # kubernetes.client keeps references to the objects that it has imported.
    if _API_CLIENT not in sys.modules:
        vars(kubernetes.client).pop("ApiClient", None)
    import yaml
    from kubernetes.config.config_exception import ConfigException
except ImportError:
    KUBERNETES_IMPORT_ERROR = traceback.format_exc()

_IN_CLUSTER_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_IN_CLUSTER = "service account of this pod"
_DEFAULT_KUBECONFIG = "~/.kube/config"
# Characters that HTTP can transmit; API servers accept no other tokens (b64token of RFC 6750 is narrower).
_TOKEN = re.compile(r"[!-~]+")
# Maximum number of characters from the error output of a credential plugin.
_MAX_LENGTH = 200


@dataclass(frozen=True)
class Connection:
    """A loaded configuration of the kubernetes library, with the names of its context and its cluster."""

    configuration: t.Any
    origin: str
    context_name: str | None = None
    cluster_name: str | None = None
    impersonation: tuple[tuple[str, str], ...] = ()
    # The source of the token, if it differs from `origin`.
    token_origin: str = ""

    @property
    def server(self) -> str:
        """The URL of the API server, without a trailing slash and without user information, which is neither sent nor shown."""
        return without_user_info(str(self.configuration.host).rstrip("/"))

    @property
    def address(self) -> str:
        """The server and the source of the connection, for messages."""
        return f"{self.server} ({self.origin})"

    def authorization(self) -> dict[str, str]:
        """The header with the credentials; an exec plugin is run again, or a token file is read again, when necessary.

        Raises ConnectionProblem, without the token in the message, if a token cannot be sent.
        """
        headers: dict[str, str] = {}
        for setting in self.configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = self._sendable(str(setting["value"]))
        return headers

    def _sendable(self, value: str) -> str:
        """The scheme and the token, without white space around the token, such as the line break at the end of a file."""
        scheme, dummy, token = value.partition(" ")
        token = token.strip()
        if _TOKEN.fullmatch(token):
            return f"{scheme} {token}"
        problem = "contains white space, a control character or a non-ASCII character" if token else "is empty"
        raise ConnectionProblem(
            f"The token of {self.token_origin or self.origin} cannot be sent: it {problem}. Correct it there."
        )

    def expiry(self) -> str:
        """The time at which the client certificate expired; empty if it is valid."""
        path = getattr(self.configuration, "cert_file", None)
        if not path:
            return ""
        try:
            from cryptography import x509

            with open(path, "rb") as handle:
                certificate = x509.load_pem_x509_certificate(handle.read())
        except (ImportError, OSError, ValueError):
            return ""
        # Older releases of cryptography only provide the time without a time zone.
        end = getattr(certificate, "not_valid_after_utc", None) or certificate.not_valid_after.replace(
            tzinfo=datetime.UTC
        )
        return end.strftime("%Y-%m-%d %H:%M UTC") if end < datetime.datetime.now(datetime.UTC) else ""


def connect(options: ConnectionOptions) -> Connection:
    """Load the configuration; raises ConnectionProblem, and WrongCluster if two sources contradict each other."""
    keep_keys_in_memory(kubernetes.config.kube_config)
    configuration = kubernetes.client.Configuration()
    if options.host and not options.kubeconfig:
        configuration.host = options.host
        connection = Connection(configuration, "K8S_AUTH_HOST" if options.source == ENVIRONMENT else "option host")
    else:
        connection = _load(options, configuration)
        _require_one_server(options, connection)
    _overlay(options, configuration)
    _check_files(configuration, connection.origin)
    token_origin = options.name_of("api_key") if options.api_key else ""
    connection = replace(connection, impersonation=_impersonation(options), token_origin=token_origin)
    # Check the token before the first request.
    connection.authorization()
    require_no_conflict(options, connection)
    return connection


def _require_one_server(options: ConnectionOptions, connection: Connection) -> None:
    """Check that a kubeconfig and K8S_AUTH_HOST point to the same server, because the kubeconfig's names apply only to its own server."""
    if options.source == ENVIRONMENT and options.host and not same_server(options.host, connection.server):
        raise WrongCluster(
            f"K8S_AUTH_HOST ({without_user_info(options.host)}) and the {connection.origin} point to different servers (the latter to "
            f"{connection.server}). Unset the wrong variable; in AWX, detach one of the two credentials."
        )


def _impersonation(options: ConnectionOptions) -> tuple[tuple[str, str], ...]:
    if not options.impersonate_user:
        return ()
    groups = (("Impersonate-Group", group) for group in options.impersonate_groups)
    return (("Impersonate-User", options.impersonate_user), *groups)


def check_cluster(connection: Connection, name: str, kube_name: str | None = None) -> None:
    """Raise WrongCluster if the kubeconfig points to a cluster other than the declared one; without a kubeconfig, nothing is compared."""
    known = [
        name_in_kubeconfig
        for name_in_kubeconfig in (connection.context_name, connection.cluster_name)
        if name_in_kubeconfig
    ]
    expected = kube_name or name
    if not known or expected in known:
        return
    declared = f"gpu_cluster.kube_name is {kube_name!r}" if kube_name else f"gpu_cluster.name is {name!r}"
    raise WrongCluster(
        f"This is a different cluster: {declared}, but {connection.origin} points to cluster {connection.cluster_name!r} "
        f"(context {connection.context_name!r}, {connection.server}). Use the kubeconfig or context of {name!r}, "
        f"or set gpu_cluster.kube_name: {connection.cluster_name} if that is its name for this cluster."
    )


def _load(options: ConnectionOptions, configuration: t.Any) -> Connection:
    if isinstance(options.kubeconfig, dict):
        document, origin = options.kubeconfig, "kubeconfig given as a dictionary"
        contexts = [entry for entry in document.get("contexts") or [] if isinstance(entry, dict)]
        active = next((entry for entry in contexts if entry.get("name") == document.get("current-context")), None)
        load = functools.partial(kubernetes.config.load_kube_config_from_dict, document)
    elif path := _kubeconfig_path(options):
        origin = f"kubeconfig {path}"
        try:
            contexts, active = _contexts(path)
        except (ConfigException, OSError, yaml.YAMLError, TypeError, AttributeError) as error:
            raise _unreadable(origin, error) from error
        load = functools.partial(kubernetes.config.load_kube_config, path)
    else:
        with _problems(_IN_CLUSTER, configuration):
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        return Connection(configuration, _IN_CLUSTER)
    entry = _context(contexts, active, options.context, origin)
    name = str(entry["name"])
    with _problems(origin, configuration):
        load(context=name, client_configuration=configuration, persist_config=False)
    return Connection(configuration, f"{origin}, context {name}", name, str(entry["context"]["cluster"]))


def _contexts(path: str) -> tuple[list[t.Any], t.Any]:
    """The contexts in a kubeconfig, and the current one or None.

    list_kube_config_contexts() of the library requires a current context, also if another context is selected. A kubeconfig with the contexts of many
    clusters may have none.
    """
    config = kubernetes.config.kube_config.KubeConfigMerger(path).config
    if config is None:
        raise ConfigException("it is empty")
    contexts = [context.value for context in config["contexts"]]
    current = config.value.get("current-context")
    return contexts, next((context for context in contexts if context["name"] == current), None)


def _kubeconfig_path(options: ConnectionOptions) -> str | None:
    """The path or paths of the kubeconfig; None if the service account of this pod is used."""
    path = str(options.kubeconfig or os.environ.get("KUBECONFIG") or "")
    if not path and not os.path.exists(os.path.expanduser(_DEFAULT_KUBECONFIG)):
        if options.context:
            option = f"{'gpu_cluster.' if options.source == GPU_CLUSTER else ''}context"
            raise ConnectionProblem(
                f"{option} is {options.context!r}, but there is no kubeconfig: KUBECONFIG is not set, and {_DEFAULT_KUBECONFIG} does not "
                "exist. Also set gpu_cluster.kubeconfig."
            )
        if os.path.exists(_IN_CLUSTER_TOKEN):
            return None
        raise ConnectionProblem(
            "No cluster is selected: the option kubeconfig and the variables K8S_AUTH_KUBECONFIG and KUBECONFIG are not set, and "
            f"{_DEFAULT_KUBECONFIG} does not exist. Set gpu_cluster.kubeconfig or the option kubeconfig."
        )
    path = os.path.expanduser(path or _DEFAULT_KUBECONFIG)
    parts = [part for part in path.split(os.pathsep) if part]
    if not any(os.path.exists(os.path.expanduser(part)) for part in parts):
        raise ConnectionProblem(f"The kubeconfig {', '.join(parts)} does not exist.")
    return path


def _context(contexts: t.Iterable[t.Any], active: t.Any, requested: str | None, origin: str) -> t.Mapping[str, t.Any]:
    """The context with the wanted name, or the current context if no name is given."""
    by_name = {str(entry["name"]): entry for entry in contexts}
    context = active if requested is None else by_name.get(requested)
    if context is None:
        names = ", ".join(by_name) or "(none)"
        if requested is None:
            raise ConnectionProblem(f"The {origin} has no current context; set context to one of: {names}.")
        raise ConnectionProblem(f"The {origin} has no context {requested!r}; it has: {names}.")
    return t.cast("t.Mapping[str, t.Any]", context)


@contextlib.contextmanager
def _problems(origin: str, configuration: t.Any) -> t.Iterator[None]:
    """Convert all errors that the library raises or logs while it reads a kubeconfig into one ConnectionProblem.

    If a credential plugin fails, the library only logs the failure and continues without credentials.
    """
    logged = logging.handlers.BufferingHandler(sys.maxsize)
    logged.setLevel(logging.ERROR)
    logging.getLogger().addHandler(logged)
    try:
        yield
    except Exception as error:
        raise _unreadable(origin, error) from error
    finally:
        logging.getLogger().removeHandler(logged)
    if logged.buffer and not _has_credentials(configuration):
        # Other lines of a plugin's output may contain anything, such as a token or the plugin's environment.
        lines = [" ".join(record.getMessage().strip().partition("\n")[0].split()) for record in logged.buffer]
        raise ConnectionProblem(
            f"The {origin} provides no credentials: its plugin failed with: {_one_line('; '.join(lines))}"
        )


def _has_credentials(configuration: t.Any) -> bool:
    return bool(configuration.api_key or configuration.cert_file or getattr(configuration, "username", None))


def _unreadable(origin: str, error: Exception) -> ConnectionProblem:
    if isinstance(error, (TypeError, AttributeError)):
        return ConnectionProblem(f"The {origin} cannot be used: it is not a kubeconfig.")
    text = masked(" ".join(str(error).split()))
    return ConnectionProblem(f"The {origin} cannot be used: {text or type(error).__name__}")


def _one_line(text: str) -> str:
    """The shortened output of another program, without text that looks like a secret."""
    line = masked(text)
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 3]}..."


def _overlay(options: ConnectionOptions, configuration: t.Any) -> None:
    """Let options override the kubeconfig, even after the library has loaded the kubeconfig again.

    The library loads the kubeconfig again whenever it refreshes the token (kube_config.py, _refresh_api_key).
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


_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# The message about a role that grants more than the user's own permissions (kubernetes pkg/registry/rbac/validation/rule.go, ConfirmNoEscalation).
_ESCALATION = "attempting to grant RBAC permissions not currently held"
_FORBIDDEN = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


def explain(error: ApiError, connection: Connection) -> str:
    """One message with the request, the response and the remedy."""
    if error.unreachable:
        return f"Cannot reach the Kubernetes API at {connection.address}: {error.message}. {error.remedy}"
    if error.status == 401:
        return _unauthorized(error, connection)
    if error.forbidden and "system:anonymous" in error.message:
        return f"The request to {connection.server} had no credentials ({connection.origin}): {error.message}. Log in again."
    if error.forbidden:
        return f"{error.message} ({connection.origin}).{_forbidden_remedy(error)}"
    if error.status == 429:
        return f"{connection.server} rejects more requests for now: {error.message}. Run the playbook again when the server is less busy."
    return f"{error.operation} on {connection.server} failed with {error.status} {error.reason}: {error.message}"


def _unauthorized(error: ApiError, connection: Connection) -> str:
    expiry = connection.expiry()
    if expiry:
        return (
            f"{connection.server} does not accept the client certificate ({connection.origin}): it expired at {expiry}. "
            "Renew the kubeconfig."
        )
    return (
        f"{connection.server} does not know this user (401 {error.message}; {connection.origin}). "
        "Log in again or renew the token or certificate."
    )


def _forbidden_remedy(error: ApiError) -> str:
    if error.lacks_right:
        return f" {_missing_right(error)}"
    if _ESCALATION in error.message:
        verb = "bind" if "bindings" in error.path else "escalate"
        return f" The user must have all permissions that the role grants, or the verb {verb} for the role."
    return f" Raise the limit of ResourceQuota {error.quota}, or delete objects that it counts." if error.quota else ""


def _missing_right(error: ApiError) -> str:
    match = _FORBIDDEN.search(error.message)
    if match:
        group, resource, verb = match["group"], match["resource"], match["verb"]
        scope = f"a Role in namespace {match['namespace']} or a ClusterRole" if match["namespace"] else "a ClusterRole"
    else:
        group, resource = _resource_of(error.path)
        verb, scope = _VERBS.get(error.method, error.method.lower()), "a ClusterRole"
    return f'The user needs {scope} with the rule apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"].'


def _resource_of(path: str) -> tuple[str, str]:
    parts = path.split("?")[0].strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return group, rest[0] if rest else "*"
