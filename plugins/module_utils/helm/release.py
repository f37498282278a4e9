# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm releases: charts, values, the program helm, and the records in the cluster."""

from __future__ import annotations

import base64
import contextlib
import datetime
import gzip
import json
import os
import re
import socket
import stat
import tarfile
import tempfile
import typing as t
import uuid
import zlib
from dataclasses import dataclass, field

from ..core.files import this_machine
from ..core.messages import abbreviate
from ..core.values import Document, Object, get_nested
from ..core.waits import RunCommand, WaitOptions, run_within
from ..core.yaml_text import dump, load_all, load_yaml_documents
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, Kind, object_path

if t.TYPE_CHECKING:
    from ..kube.client import Client

# Reads the identity of Helm charts from their files, and the objects in helm's rendered output.

try:
    import yaml
except ImportError:  # reported by the modules' base class, together with the library that needs it
    yaml = None  # type: ignore[assignment]

_SEPARATOR = re.compile(r"^---\s*$", re.MULTILINE)
# `helm template` writes this line before each file of the chart (helm v3 pkg/action/install.go).
_SOURCE = re.compile(r"^---\n# Source: (\S+)\n", re.MULTILINE)


class ChartProblem(Exception):
    """Raised if a chart cannot be used; the message is one line with the reason and the remedy."""


@dataclass(frozen=True)
class Chart:
    """The identity of a chart: the fields that helm compares."""

    name: str
    version: str
    app_version: str

    @property
    def label(self) -> str:
        """The name and the version, in the same format as in the output of `helm list`."""
        return f"{self.name}-{self.version}"

    @classmethod
    def from_metadata(cls, metadata: t.Mapping[str, t.Any]) -> Chart:
        """Read a Chart.yaml or the chart.metadata of a release."""
        return cls(*(str(metadata.get(key) or "") for key in ("name", "version", "appVersion")))


def is_local_chart(reference: str) -> bool:
    """Whether a chart reference is a path on this machine, either by its form or because the path exists."""
    if "://" in reference:
        return False
    return reference.startswith(("/", "./", "../", "~")) or reference.endswith(".tgz") or os.path.exists(reference)


def read_chart(path: str) -> Chart:
    """The identity of an unpacked or packed chart; raises ChartProblem if there is none."""
    try:
        if os.path.isdir(path):
            with open(os.path.join(path, "Chart.yaml"), encoding="utf-8") as handle:
                text = handle.read()
        else:
            text = _read_from_archive(path)
        metadata = load_yaml_documents(text)
    except FileNotFoundError:
        problem = "has no Chart.yaml: it is not a Helm chart" if os.path.isdir(path) else "does not exist"
        raise ChartProblem(f"The chart {path} {problem}.") from None
    except (OSError, tarfile.TarError) as error:
        raise ChartProblem(f"The chart {path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise ChartProblem(f"The Chart.yaml of {path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ChartProblem(f"The Chart.yaml of {path} has no chart name.")
    return Chart.from_metadata(metadata)


def _read_from_archive(path: str) -> str:
    with tarfile.open(path) as archive:
        for member in archive:
            parts = member.name.lstrip("./").split("/")
            if len(parts) == 2 and parts[1] == "Chart.yaml" and (file := archive.extractfile(member)):
                return file.read().decode("utf-8")
    raise FileNotFoundError(path)


def custom_resource_definitions(rendered: str) -> list[dict[str, t.Any]]:
    """The CRDs of all `crds/` folders in the output of `helm template --include-crds`.

    Sub-charts that the values disable are not in the output. CRDs in the templates are not returned, because they are part of the release.
    """
    # The result contains the text before the first source, then alternately a path and the text of its documents.
    dummy, *parts = _SOURCE.split(rendered)
    texts = [text for source, text in zip(parts[::2], parts[1::2], strict=True) if "/crds/" in source]
    return [item for text in texts for item in definitions_of(text)]


def definitions_of(text: str) -> list[dict[str, t.Any]]:
    """The CRDs among the YAML documents in a string."""
    objects = [_without_nulls(item) for item in load_all(text) if isinstance(item, dict)]
    return [item for item in objects if item.get("kind") == "CustomResourceDefinition"]


def matching_documents(manifest: str, pattern: re.Pattern[str]) -> t.Iterator[dict[str, t.Any]]:
    """The documents of a manifest whose text matches the pattern; other documents are not parsed, because manifests are long."""
    for text in _SEPARATOR.split(manifest):
        if pattern.search(text):
            yield from (item for item in load_all(text) if isinstance(item, dict))


def _without_nulls(value: t.Any) -> t.Any:
    """The value without fields such as `creationTimestamp: null`, which the API server does not keep."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


# Decodes Helm's records of a release and derives the next step from them (pure).
#
# Helm keeps one Secret for each revision (helm v3 pkg/storage/driver/secrets.go). The Secret's labels contain the name, the status and the version, and its
# only key contains the release as gzipped JSON, encoded twice in base64. Only the names of differing values are returned, never the values.

INSTALL, UPGRADE, NOTHING = "install", "upgrade", "none"
DEPLOYED, FAILED, SUPERSEDED, UNINSTALLED = "deployed", "failed", "superseded", "uninstalled"
# The statuses of a revision that helm is working on, or was working on when it was killed; helm then refuses all other
# operations.
UNFINISHED = frozenset({"pending-install", "pending-upgrade", "pending-rollback", "uninstalling"})

# The field manager of everything that helm writes (helm v3 cmd/helm/helm.go), whatever the name of the program.
_MANAGER = "helm"
# Helm does not delete objects with this annotation (helm v3 pkg/kube/resource_policy.go).
_POLICY_ANNOTATION, _KEEP = "helm.sh/resource-policy", "keep"

_MISSING = object()


@dataclass(frozen=True)
class Revision:
    """One revision, read from the metadata of its Secret; `created` is the time at which the API server created the Secret."""

    secret: str
    uid: str
    resource_version: str
    number: int
    status: str
    created: datetime.datetime


@dataclass(frozen=True)
class ReleaseContent:
    """The content of a revision; the values may contain secrets and must not be returned in results."""

    chart: Chart
    config: dict[str, t.Any] = field(repr=False)
    manifest: str = field(repr=False)
    # The files of the chart's folder crds/, in base64.
    crd_files: tuple[str, ...] = field(default=(), repr=False)

    def definitions(self) -> list[dict[str, t.Any]]:
        """Parse the chart's CRDs, which are long and rarely needed. Helm's record does not contain the CRDs of sub-charts."""
        texts = (base64.b64decode(data).decode("utf-8", "replace") for data in self.crd_files)
        return [item for text in texts for item in definitions_of(text)]


@dataclass(frozen=True)
class ReleaseStep:
    """The next step for helm, and the reasons, which contain no values."""

    action: str
    reasons: tuple[str, ...] = ()


def sort_revisions(secrets: t.Iterable[t.Mapping[str, t.Any]]) -> list[Revision]:
    """The release's revisions, newest first, from the metadata of its Secrets."""
    revisions = []
    for secret in secrets:
        metadata = secret["metadata"]
        labels = metadata.get("labels") or {}
        revisions.append(
            Revision(
                secret=metadata["name"],
                uid=metadata.get("uid", ""),
                resource_version=metadata.get("resourceVersion", ""),
                number=int(labels.get("version") or 0),
                status=str(labels.get("status") or "unknown"),
                created=datetime.datetime.fromisoformat(metadata["creationTimestamp"]),
            )
        )
    return sorted(revisions, key=lambda revision: revision.number, reverse=True)


def decode_content(secret: t.Mapping[str, t.Any]) -> ReleaseContent | None:
    """The content of a revision's Secret; None if it is not in helm's format."""
    document = _decode(secret)
    if document is None:
        return None
    return ReleaseContent(
        Chart.from_metadata(document["chart"]["metadata"]),
        dict(document.get("config") or {}),
        str(document.get("manifest") or ""),
        tuple(
            str(file.get("data") or "")
            for file in document["chart"].get("files") or ()
            if str(file.get("name")).startswith("crds/")
        ),
    )


def supersede_patch(secret: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """The merge patch that marks a revision as superseded, as helm does when a newer revision replaces it; None if the Secret is not in helm's format.

    After an interrupted upgrade, the deployed revision no longer matches the cluster, even if it equals the desired one. Helm still upgrades
    from a superseded revision, but the revision no longer counts as the current state.
    """
    document = _decode(secret)
    if document is None:
        return None
    document["info"] = {**(document.get("info") or {}), "status": SUPERSEDED}
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(document).encode("utf-8")))).decode("ascii")
    return {
        "metadata": {"labels": {"status": SUPERSEDED}, "resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": {"release": packed},
    }


def _decode(secret: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        document = json.loads(gzip.decompress(packed))
        return dict(document) if isinstance(document["chart"]["metadata"], dict) else None
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error):
        return None


def next_step(
    latest: Revision | None, installed: ReleaseContent | None, chart: Chart, desired: t.Mapping[str, t.Any]
) -> ReleaseStep:
    """The next step once unfinished revisions have been handled; `installed` is the content of `latest`."""
    if latest is None or latest.status == UNINSTALLED:
        return ReleaseStep(INSTALL, ("the release does not exist",))
    if installed is None:
        return ReleaseStep(UPGRADE, (f"revision {latest.number} cannot be read",))
    reasons = []
    if latest.status != DEPLOYED:
        reasons.append(f"revision {latest.number} is {latest.status}")
    if installed.chart != chart:
        reasons.append(f"chart {installed.chart.label} becomes {chart.label}")
    paths = differing_values(installed.config, desired)
    if paths:
        reasons.append("values differ: " + abbreviate(paths))
    return ReleaseStep(UPGRADE, tuple(reasons)) if reasons else ReleaseStep(NOTHING)


def differing_values(installed: t.Any, desired: t.Any, path: str = "") -> list[str]:
    """The paths at which two sets of values differ, without the values; lists are compared as a whole."""
    # If a map is missing on one side, all paths in it differ.
    installed, desired = (
        {} if one is _MISSING and isinstance(other, dict) and other else one
        for one, other in ((installed, desired), (desired, installed))
    )
    if isinstance(installed, dict) and isinstance(desired, dict):
        return [
            difference
            for key in sorted({*installed, *desired}, key=str)
            for difference in differing_values(
                installed.get(key, _MISSING), desired.get(key, _MISSING), f"{path}.{key}" if path else str(key)
            )
        ]
    return [] if installed == desired and isinstance(installed, bool) == isinstance(desired, bool) else [path]


def merge_values(base: t.Mapping[str, t.Any], override: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Merge two sets of values in the same way as helm: maps are merged recursively, and everything else is replaced."""
    result = dict(base)
    for key, value in override.items():
        below = result.get(key)
        result[key] = merge_values(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def select_initial_values(initial: t.Mapping[str, t.Any], installed: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """The initial values to pass to helm: all of them for a new release, otherwise only those that the release has, with the release's values.

    A later run therefore neither removes nor resets the initial values of the first installation.
    """
    if installed is None:
        return dict(initial)
    kept: dict[str, t.Any] = {}
    for key in filter(installed.__contains__, initial):
        if not (isinstance(initial[key], dict) and isinstance(installed[key], dict)):
            kept[key] = installed[key]
        elif below := select_initial_values(initial[key], installed[key]):
            kept[key] = below
    return kept


def is_written_by_helm(item: Document) -> bool:
    """Whether the server has recorded Helm as a field manager, and Helm may delete the object; a copy has the same annotations, but not this record."""
    managers = {entry.get("manager") for entry in item["metadata"].get("managedFields") or ()}
    return _MANAGER in managers and not _is_kept_by_helm(item)


def deleted_objects(manifest: str, namespace: str) -> frozenset[tuple[str, str, str]]:
    """The objects that Helm deletes with a release: Kind.full_name, namespace and name. An object without a namespace has the release's `namespace`.

    Empty if the manifest cannot be parsed.
    """
    try:
        documents = [item for item in load_all(manifest) if isinstance(item, dict)]
    except yaml.YAMLError:
        return frozenset()
    objects = [
        each for item in documents for each in (item.get("items") if item.get("kind") == "List" else [item]) or ()
    ]
    return frozenset(
        (
            Kind(str(item.get("apiVersion") or ""), str(item.get("kind") or ""), "", namespaced=True).full_name,
            str(item["metadata"].get("namespace") or namespace),
            str(item["metadata"].get("name")),
        )
        for item in objects
        if isinstance(item, dict) and isinstance(item.get("metadata"), dict) and not _is_kept_by_helm(item)
    )


def _is_kept_by_helm(item: Document) -> bool:
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get(_POLICY_ANNOTATION) or "").strip().lower() == _KEEP


# Runs helm to fetch and render charts, without a connection to the cluster.

INSTALL_HELM = (
    "Install Helm from https://helm.sh/docs/intro/install/ so that it is on PATH, or set the option binary_path."
)

_PREFIX = re.compile(r"^(Error:\s*|WARNING:.*\n)+", re.IGNORECASE)
_INCOMPATIBLE = "incompatible with Kubernetes"
# Parts of helm's error messages and the remedy for each.
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("connection refused", "Nothing listens at this address: check the address, or use a chart from a local path."),
    ("no such host", "The name does not resolve from this machine: check the address, the DNS or a proxy, "
                     "or use a chart from a local path."),
    ("i/o timeout", "There was no response: check the network or a proxy, or use a chart from a local path."),
    ("not a valid chart repository", "Check chart_repo_url: it must be the directory that contains index.yaml."),
    ("certificate", "This machine does not trust the server's certificate."),
    ("unauthorized", "Log in first: helm registry login, or helm repo add with a user."),
    ("401", "Log in first: helm registry login, or helm repo add with a user."),
    ("403", "Access is denied: check the credentials (helm registry login, helm repo add)."),
    ("not found", "Check the name and version of the chart."),
    ("should be in form of repo_name/path_to_chart", "A bare chart name needs chart_repo_url; a path starts with / or ./ ."),
)  # fmt: skip

# The time limit for one command in seconds, which is sufficient because charts have at most a few MB.
_TIMEOUT = 300.0


class HelmMissing(Exception):
    """Raised if helm was not found; the message says where helm was searched for and contains the remedy."""


class HelmUnsupported(Exception):
    """Raised for a release of helm with which the roles cannot install anything; the message contains the version and the remedy."""


# kubernetes.core.helm calls `helm list --all`, which Helm 4 refuses (kubernetes.core 6.2); the charts need Helm 3.12.
_OLDEST, _TOO_NEW = (3, 12), (4, 0)


def require_supported_helm(binary: str, run: RunCommand) -> None:
    """Raise HelmUnsupported unless the roles work with this release of helm; a version that cannot be read is accepted."""
    dummy_status, output, dummy_errors = run([binary, "version", "--template", "{{.Version}}"], handle_exceptions=False)
    match = re.match(r"v(\d+)\.(\d+)", output.strip())
    if match and not _OLDEST <= (int(match[1]), int(match[2])) < _TOO_NEW:
        raise HelmUnsupported(
            f"{binary} is Helm {match[0]}, but Helm 3.12 or a later Helm 3 is needed. Install one beside it, and set gpu_helm_binary (in the module: "
            "binary_path) to its path."
        )


def find_helm(path: str | None, search: t.Callable[[str], str | None]) -> str:
    """The path to helm: the given path if it is set, otherwise the first helm on PATH; raises HelmMissing."""
    if path and not os.access(path, os.X_OK):
        raise HelmMissing(f"There is no executable at binary_path {path}. {INSTALL_HELM}")
    binary = path or search("helm")
    if not binary:
        raise HelmMissing(f"helm is not installed on this machine. {INSTALL_HELM}")
    return str(binary)


def cache_environment() -> dict[str, str]:
    """The variable for helm's cache, if the user has no home that can be written to, as in a container of OpenShift; empty otherwise.

    Without a home, helm writes below the working directory, which is a read-only project there (helm pkg/helmpath/lazypath.go).
    """
    if os.environ.get("HELM_CACHE_HOME") or os.environ.get("XDG_CACHE_HOME"):
        return {}
    path = os.environ.get("HOME", "")
    for part in (".cache", "helm"):
        if path and os.path.exists(os.path.join(path, part)):
            path = os.path.join(path, part)
    if path and os.access(path, os.W_OK | os.X_OK):
        return {}
    folder = os.path.join(tempfile.gettempdir(), f"accel-gpu-helm-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    # Another user could have created it to supply a chart.
    status = os.lstat(folder)
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return {"HELM_CACHE_HOME": folder} if own else {}


class Helm:
    """One helm binary; only names, versions and file paths appear on its command lines."""

    def __init__(self, binary: str, run: RunCommand, folder: str) -> None:
        """`folder` is the directory for downloaded charts."""
        self._binary = binary
        self._run = run
        self._folder = folder

    def fetch(self, reference: str, repository: str | None, version: str | None) -> str:
        """Return the local path of a chart; a remote chart is downloaded. Raises ChartProblem."""
        if is_local_chart(reference):
            path = os.path.expanduser(reference)
            if not os.path.exists(path):
                raise ChartProblem(f"The chart {path} does not exist on this machine: check chart_ref.")
            return path
        command = ["pull", reference, "--destination", self._folder]
        command += ["--repo", repository] if repository else []
        command += ["--version", version] if version else []
        status, dummy, errors = self._call(command)
        if status:
            chart = (
                reference + (f" in {repository}" if repository else "") + (f" at version {version}" if version else "")
            )
            raise ChartProblem(f"Cannot fetch chart {chart}. {error_summary(errors)}")
        archive = next(name for name in sorted(os.listdir(self._folder)) if name.endswith(".tgz"))
        return os.path.join(self._folder, archive)

    def render(
        self,
        path: str,
        release: str,
        namespace: str,
        release_values: t.Mapping[str, t.Any],
        server_version: t.Callable[[], str],
    ) -> str:
        """The chart rendered with these values, including CRDs; raises ChartProblem with helm's own reason.

        `server_version` is only called if the chart is incompatible with the Kubernetes version that helm assumes.
        """
        # Values are passed through standard input, because a file with values would remain after a killed run.
        command = ["template", release, path, "--namespace", namespace, "--include-crds", "--skip-tests"]
        command, text = [*command, "--values", "-"], dump(dict(release_values))
        status, output, errors = self._call(command, text)
        if status and _INCOMPATIBLE in errors:
            status, output, errors = self._call([*command, "--kube-version", server_version()], text)
        if status:
            raise ChartProblem(f"The chart {path} does not accept these values. {error_summary(errors)}")
        return output

    def _call(self, command: list[str], data: str | None = None) -> tuple[int, str, str]:
        # Neither `helm pull` nor `helm template` needs a cluster; without a kubeconfig, helm cannot connect to the wrong cluster.
        environment = {"KUBECONFIG": os.devnull, "HELM_DEBUG": "false", **cache_environment()}
        try:
            return run_within(
                self._run,
                [self._binary, *command],
                _TIMEOUT,
                environ_update=environment,
                data=data,
                handle_exceptions=False,
            )
        except TimeoutError:
            raise ChartProblem(
                f"helm {' '.join(command[:2])} was stopped because it did not finish within {_TIMEOUT:g} seconds. Check the network or a proxy, or use a "
                "chart from a local path."
            ) from None
        except OSError as error:
            raise HelmMissing(f"{self._binary} cannot be started: {error.strerror}. {INSTALL_HELM}") from None


def error_summary(errors: str) -> str:
    """Helm's own error message in one line, with the remedy if it is known."""
    lines = [line.strip() for line in _PREFIX.sub("", errors.strip()).splitlines() if line.strip()]
    reason = " ".join(lines)[:600] or "helm gave no reason"
    remedy = next((remedy for text, remedy in _REMEDIES if text in reason.lower()), "")
    return f"helm says: {reason.rstrip('.')}." + (f" {remedy}" if remedy else "")


def is_running(release: str, processes: t.Iterable[t.Sequence[str]]) -> bool:
    """Whether one of these command lines is a helm process that works on the release."""
    return any(args and os.path.basename(args[0]).startswith("helm") and release in args[1:] for args in processes)


def processes(run: RunCommand) -> list[list[str]] | None:
    """The command lines of this machine's processes; None if they cannot be read."""
    if not os.path.isdir("/proc/self"):
        status, output, dummy = run(["ps", "-axo", "command="])
        return None if status else [line.split() for line in output.splitlines()]
    commands = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as handle:
                commands.append(handle.read().decode("utf-8", "replace").rstrip("\0").split("\0"))
        except OSError:
            continue  # The process has exited since the folder was listed.
    return commands


# Reads and writes Helm's records of a release, and the marker Lease, which is written before helm starts.

INSTALLED_ANNOTATION = "accel.gpu/installed"
HELM_MACHINE_ANNOTATION = "accel.gpu/machine"
REVISION_ANNOTATION = "accel.gpu/revision"


class ReleaseRecords:
    """Accesses the Secrets of one release. List requests return only metadata; the content of each Secret is read separately."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self.name, self.namespace = name, namespace
        self._secrets = f"{NAMESPACES}/{namespace}/secrets"

    def revisions(self) -> list[Revision]:
        """All revisions, newest first; empty if the namespace does not exist."""
        selector = f"owner=helm,name={self.name}"
        return sort_revisions(self._client.list(self._secrets, label_selector=selector, metadata_only=True))

    def latest(self) -> Revision | None:
        """The newest revision; None if there is none."""
        return next(iter(self.revisions()), None)

    def content(self, revision: Revision | None) -> ReleaseContent | None:
        """The content of a revision; None without a revision, or if its Secret is gone or not in helm's format."""
        secret = self._client.get(f"{self._secrets}/{revision.secret}") if revision else None
        return decode_content(secret) if secret else None

    def drop(self, revision: Revision) -> bool:
        """Delete a revision; False if it has changed since it was read."""
        preconditions = {"uid": revision.uid, "resourceVersion": revision.resource_version}
        try:
            self._client.delete(f"{self._secrets}/{revision.secret}", body={"preconditions": preconditions})
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def supersede(self, revision: Revision) -> bool:
        """Mark a revision as superseded, so that helm handles the release again; False if it has changed since it was read."""
        path = f"{self._secrets}/{revision.secret}"
        secret = self._client.get(path)
        if secret is None or secret["metadata"]["resourceVersion"] != revision.resource_version:
            return False
        patch = supersede_patch(secret)
        if patch is None:
            return self.drop(revision)
        try:
            self._client.patch(path, patch)
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def marker(self) -> Object | None:
        """The Lease that records this collection's last run that started helm; None if there is none."""
        return self._client.get(marker_path(self.name, self.namespace))

    def write_marker(self, run_id: str, action: str, revision: int, timeout: float) -> None:
        """Record the run, the machine and the revision that helm will write; call this before helm starts."""
        installed = action == INSTALL or is_marked_installed(self.marker())
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        path = marker_path(self.name, self.namespace)
        body: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": path.rpartition("/")[2],
                "namespace": self.namespace,
                "annotations": {
                    HELM_MACHINE_ANNOTATION: machine_id(),
                    REVISION_ANNOTATION: str(revision),
                    INSTALLED_ANNOTATION: str(installed).lower(),
                },
            },
            "spec": {"holderIdentity": run_id, "acquireTime": now, "leaseDurationSeconds": max(1, int(timeout))},
        }
        self._client.apply(path, body)

    def is_abandoned(self, revision: Revision, run: RunCommand, pending_timeout: float) -> tuple[bool, str]:
        """Whether this unfinished revision is abandoned, so that no helm process works on it any longer; also returns the reason."""
        running = processes(run)
        return is_abandoned(
            revision,
            self.marker(),
            machine=machine_id(),
            helm_here=None if running is None else is_running(self.name, running),
            # The API server has set the creation time; the clock of this machine may differ.
            age=(self._client.server_time() - revision.created).total_seconds(),
            timeout=pending_timeout,
        )

    def await_other_helm(self, run: RunCommand, pending_timeout: float, waiting: WaitOptions) -> None:
        """Wait until the newest revision is finished or abandoned; raises WaitTimeout."""
        label = f"{self.namespace}/{self.name}"

        def read() -> tuple[Revision | None, bool, str]:
            latest = self.latest()
            if latest is None or latest.status not in UNFINISHED:
                return latest, True, "finished"
            return latest, *self.is_abandoned(latest, run, pending_timeout)

        def status(latest: Revision | None) -> str:
            return f"revision {latest.number} is {latest.status}" if latest else "has no revision"

        waiting.until(
            read,
            lambda state: state[1],
            describe=lambda state: (
                f"Helm release {label}: {status(state[0])}, and {state[2]}. Let that helm process finish, or wait longer "
                "(wait_timeout). If no helm process is working on the release any longer, lower pending_timeout."
            ),
            progress_text=lambda state: f"Helm release {label}: {status(state[0])}: {state[2]}",
        )


def is_abandoned(
    revision: Revision,
    marker: t.Mapping[str, t.Any] | None,
    *,
    machine: str,
    helm_here: bool | None,
    age: float,
    timeout: float,
) -> tuple[bool, str]:
    """Whether an unfinished revision of this age is abandoned, so that no helm process works on it any longer; also returns the reason.

    `helm_here` is true if a helm process on this `machine` works on the release, and None if this is unknown.

    1. If a helm process on this machine works on the release, the revision is not abandoned, regardless of its age.
    2. If, according to the marker, helm was started on this machine for this revision, and that process no longer exists, the revision is abandoned.
    3. Otherwise (another machine or another tool), the revision is abandoned if it is older than pending_timeout.
    """
    if helm_here:
        return False, "a helm process on this machine is working on it"
    annotations = get_nested(marker, "metadata", "annotations") or {}
    written = annotations.get(HELM_MACHINE_ANNOTATION), annotations.get(REVISION_ANNOTATION)
    if helm_here is False and written == (machine, str(revision.number)):
        run = get_nested(marker, "spec", "holderIdentity") or "unknown"
        return True, f"the helm process of run {run} that wrote it is no longer running"
    if age > timeout:
        return True, f"it has been unfinished for {age:.0f} s (pending_timeout {timeout:.0f} s)"
    return (
        False,
        f"it is {age:.0f} s old; a helm process on another machine may be working on it until it is {timeout:.0f} s old",
    )


def marker_path(release: str, namespace: str) -> str:
    """The path of the marker Lease of a release."""
    return object_path("coordination.k8s.io/v1", "Lease", f"accel-gpu-helm-{release}", namespace)


def is_marked_installed(marker: t.Mapping[str, t.Any] | None) -> bool:
    """Whether the marker shows that this collection first installed the release."""
    return bool(get_nested(marker, "metadata", "annotations", INSTALLED_ANNOTATION) == "true")


def machine_id() -> str:
    """An id of this machine that changes with each boot; each container counts as a separate machine, because it sees only its own processes."""
    return f"{socket.gethostname()}/{this_machine() or f'{uuid.getnode():x}'}"
