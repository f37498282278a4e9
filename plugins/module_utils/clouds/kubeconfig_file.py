# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeconfig files, and the clusters that an inventory finds."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import fnmatch
import itertools
import os
import stat
import traceback
import typing as t
from dataclasses import dataclass

from ..catalog.secrets import without_user_info
from ..core.errors import ConnectionProblem, missing_library
from ..core.values import format_time

if t.TYPE_CHECKING:
    from ..core.values import Object

# Describes the clusters and node groups that the inventory plugin `clusters` discovers in the clouds (pure).


@dataclass(frozen=True)
class DiscoveredNodeGroup:
    """A node group that the inventory plugin has discovered.

    gpus: the number of GPUs per node, or None if the cloud does not return it. models: the possible GPU models, as keys of the catalog.
    """

    name: str
    status: str
    count: int
    flavor: str
    gpus: int | None = None
    models: tuple[str, ...] = ()

    @property
    def common_model(self) -> str:
        """The common prefix of the names of all possible models, such as H100 for H100-PCIe and H100-NVL.

        The prefix is empty if no model is known, or if the names have nothing in common.
        """
        words = [model.split("-") for model in self.models]
        common = itertools.takewhile(lambda part: len(set(part)) == 1, zip(*words, strict=False))
        return "-".join(part[0] for part in common)

    def to_variable(self) -> dict[str, t.Any]:
        """The group in the format of the host variable. `model` is null unless exactly one model is possible."""
        model = self.models[0] if len(self.models) == 1 else None
        return {**dataclasses.asdict(self), "models": list(self.models), "model": model}


@dataclass(frozen=True)
class DiscoveredCluster:
    """A cluster that the inventory plugin has discovered.

    settings: the value for gpu_cluster.cloud. server: the address of the API server, which is empty if the cloud does not return an address.
    ready: whether a kubeconfig exists or can be issued. source: the index of the cluster's source in the list of sources. The index is needed
    because two accounts can have the same provider, cloud and region.
    """

    provider: str
    cloud: str
    region: str
    id: str
    name: str
    status: str
    version: str
    server: str
    ready: bool
    settings: t.Mapping[str, t.Any]
    groups: tuple[DiscoveredNodeGroup, ...] = ()
    source: int = 0

    @property
    def place(self) -> str:
        """The cloud and the region, for messages."""
        return f"cloud {self.cloud}{f', region {self.region}' if self.region else ''}"

    @property
    def models(self) -> list[str]:
        """The known GPU models of the cluster's node groups."""
        return sorted({group.common_model for group in self.groups if group.common_model})

    @property
    def gpus(self) -> int:
        """The total number of GPUs in all nodes. Node groups whose number of GPUs is unknown are not counted."""
        return sum(group.count * (group.gpus or 0) for group in self.groups)

    def to_cache(self) -> dict[str, t.Any]:
        """The cluster as plain values, which contain no secrets."""
        return dataclasses.asdict(self)

    @classmethod
    def from_cache(cls, cached: t.Mapping[str, t.Any]) -> DiscoveredCluster:
        """The cluster, restored from the values that to_cache() returned."""
        groups = tuple(DiscoveredNodeGroup(**{**group, "models": tuple(group["models"])}) for group in cached["groups"])
        return cls(**{**cached, "groups": groups})


class KubeconfigLifetime(t.NamedTuple):
    """The lifetime of kubeconfigs.

    days: the number of days for which a new kubeconfig is valid, if the cloud allows a choice. renew_before: the number of days before its
    expiry at which a kubeconfig is renewed.
    """

    days: int
    renew_before: float


@dataclass(frozen=True)
class ClusterFilter:
    """The plugin options that select which clusters become hosts. Each set of values has its own cache entry. names: shell patterns for cluster names."""

    names: t.Sequence[str]

    def includes(self, name: str, status: str, status_in_deletion: str) -> bool:
        """Whether a cluster becomes a host. A cluster that is being deleted does not become a host."""
        return status != status_in_deletion and any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)


class ClusterSource(t.Protocol):
    """A source of clusters: one cloud in one region.

    Each cloud's _groups.py has a function `sources(settings, environ, user_agent)` that returns the provider's sources.

    status_in_deletion: the status that the cloud reports for a cluster that is being deleted.
    """

    provider: str
    cloud: str
    region: str
    status_in_deletion: str

    def discover(self, selects: t.Callable[[str, str], bool]) -> list[DiscoveredCluster]:
        """The clusters whose name and status `selects` accepts. The details of other clusters are not requested."""

    def kubeconfig(self, cluster: DiscoveredCluster, lifetime: KubeconfigLifetime) -> str:
        """The text of a kubeconfig for one of the discovered clusters."""

    def explain(self, error: Exception) -> str:
        """The message for an error that this source has raised."""


# Reads and checks kubeconfig files, and compares them with the cluster data that a cloud returns.

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

    def to_result(self) -> dict[str, str | None]:
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
