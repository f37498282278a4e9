# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and checks kubeconfig files, and compares them with the cluster data that a cloud returns."""

from __future__ import annotations

import base64
import datetime
import os
import stat
import traceback
import typing as t
from dataclasses import dataclass

from ..catalog.secrets import without_user_info
from ..common.errors import ConnectionProblem, missing_library

CRYPTOGRAPHY_IMPORT_ERROR: str | None = None
try:
    from cryptography import x509
except ImportError:
    CRYPTOGRAPHY_IMPORT_ERROR = traceback.format_exc()
YAML_IMPORT_ERROR: str | None = None
try:
    import yaml
except ImportError:
    YAML_IMPORT_ERROR = traceback.format_exc()

Object = dict[str, t.Any]


def require_libraries(*, certificates: bool = True) -> None:
    """Raise ConnectionProblem if PyYAML is missing, or if certificates are needed and cryptography is missing."""
    if YAML_IMPORT_ERROR is not None:
        raise missing_library("PyYAML", "A kubeconfig")
    if certificates and CRYPTOGRAPHY_IMPORT_ERROR is not None:
        raise missing_library("cryptography", "A client certificate")


@dataclass(frozen=True)
class ExistingKubeconfig:
    """The current context of a kubeconfig.

    expires_at: the time at which the client certificate of the context's user expires, or None if there is no client certificate.
    """

    context: str
    server: str
    expires_at: datetime.datetime | None

    def to_result(self) -> dict[str, str]:
        """The context in the format of results and diffs, without secrets."""
        return {
            "context": self.context,
            "server": self.server,
            **({"expires_at": format_time(self.expires_at)} if self.expires_at else {}),
        }


def read(path: str) -> Object | None:
    """The parsed content of a file: None if the file does not exist, and an empty map if the content is not a YAML map."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            # Reading a pipe or a device may never end.
            raise ConnectionProblem(f"{path} cannot be read: it is not a regular file. Use a different path.")
        with open(path, encoding="utf-8") as handle:
            return parse(handle.read())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionProblem(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def parse(text: str) -> Object:
    """The parsed kubeconfig, or an empty map if the text is not a YAML map."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return document if isinstance(document, dict) else {}


def existing(config: Object | None) -> ExistingKubeconfig | None:
    """The current context, or None if it is missing or incomplete."""
    context, cluster, user = current_context(config or {})
    if cluster is None or user is None:
        return None
    certificate = client_certificate(user)
    return ExistingKubeconfig(context, server_of(cluster), expiry(certificate) if certificate is not None else None)


def server_of(cluster: Object) -> str:
    """The address of the API server, without a user name and password."""
    return without_user_info(str(cluster.get("server")))


def server_in(text: str) -> str | None:
    """The address of the API server in the text of a kubeconfig, or None if its current context has no cluster."""
    cluster = current_context(parse(text))[1]
    return server_of(cluster) if cluster is not None else None


def obstacle(path: str, config: Object | None) -> str | None:
    """The reason why a file cannot be written or must not be replaced, or None if nothing prevents this."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"its directory {folder} does not exist; create it first"
    if not os.access(folder, os.W_OK):
        return f"its directory {folder} is not writable"
    if config is None:
        return None
    if config.get("kind") != "Config":
        return "the existing file is not a kubeconfig; choose another file"
    names = [str(entry.get("name")) for entry in config.get("contexts") or () if isinstance(entry, dict)]
    if max(len(names), len(config.get("users") or ()), len(config.get("clusters") or ())) > 1:
        return f"the existing kubeconfig has more than one cluster ({', '.join(names)}); choose a file for this cluster alone"
    return None


def mode(path: str) -> str:
    """A file's permissions in octal, such as 0600, or an empty string if there is no file."""
    try:
        return f"{os.stat(path).st_mode & 0o777:04o}"
    except OSError:
        return ""


def too_permissive(path: str) -> bool:
    """Whether users other than the file's owner may read it."""
    actual = mode(path)
    return bool(actual) and not actual.endswith("00")


def format_time(moment: datetime.datetime) -> str:
    """A UTC time in the format that results and messages use."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def current_context(config: Object) -> tuple[str, Object | None, Object | None]:
    """The name, the cluster and the user of the current context."""
    name = str(config.get("current-context") or "")
    context = _entry(config, "contexts", name, "context") or {}
    cluster = _entry(config, "clusters", str(context.get("cluster")), "cluster")
    return name, cluster, _entry(config, "users", str(context.get("user")), "user")


def client_certificate(user: Object) -> x509.Certificate | None:
    """The client certificate of a user, or None if it is missing or invalid."""
    text = decoded(user.get("client-certificate-data"))
    try:
        return x509.load_pem_x509_certificate(text.encode()) if text else None
    except ValueError:
        return None


def expiry(certificate: x509.Certificate) -> datetime.datetime:
    """The time at which a certificate expires, in UTC."""
    # The attribute not_valid_after_utc was added in cryptography 42.
    return (
        certificate.not_valid_after.replace(tzinfo=datetime.UTC)
        if not hasattr(certificate, "not_valid_after_utc")
        else certificate.not_valid_after_utc
    )


def decoded(text: t.Any) -> str | None:
    """The decoded text of a base64 field, or None if the field is empty or invalid."""
    try:
        return base64.b64decode(str(text), validate=True).decode() if text else None
    except ValueError:
        return None


def _entry(config: Object, kind: str, name: str, inner: str) -> Object | None:
    entries = config.get(kind)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(inner), dict):
            return t.cast("Object", entry[inner])
    return None
