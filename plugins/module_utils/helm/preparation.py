# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepares an upgrade or a removal of a Helm release, repairs what a killed run left, and waits for the pods of a release."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import typing as t
from dataclasses import dataclass, field, replace

from ..core.errors import ConnectionProblem
from ..core.messages import abbreviate
from ..core.values import Document, Object, apply_merge_patch, merge_patch
from ..core.waits import RunCommand, WaitOptions, WaitTimeout, wait_until
from ..kube.connection import connection_uses
from ..kube.connection_options import ENVIRONMENT, PREFIX, VARIABLES, describe_variable
from ..kube.errors import ApiError, WrongCluster
from ..kube.fields import helm_release_of
from ..kube.objects import ExpectedObjects, InvalidObjects, ObjectChange, ObjectWriter
from ..kube.paths import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES
from ..nodes.pods import ContainerFailure, container_failures, is_ready, node_of, with_meaning
from . import release as helm
from .release import (
    Chart,
    Helm,
    ReleaseContent,
    ReleaseRecords,
    ReleaseStep,
    Revision,
    cache_environment,
    custom_resource_definitions,
    deleted_objects,
    is_marked_installed,
    is_written_by_helm,
    matching_documents,
    read_chart,
)

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.connection import Connection
    from ..kube.connection_options import ConnectionOptions

# Builds environment variables that make kubernetes.core.helm use the cluster that a module has verified; none of them contains a secret.
#
# kubernetes.core.helm reads K8S_AUTH_* (its helm_args_common.py), and the helm program reads KUBECONFIG and HELM_KUBE* (helm pkg/cli/environment.go).
# A kubeconfig is passed as KUBECONFIG and not as the option, because kubernetes.core copies the option's file to another folder. Paths are
# absolute, because helm may start in a folder other than the module's.

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
        **cache_environment(),
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
            f"Helm cannot impersonate the group {unusable[0]!r}, because Helm accepts groups only as a comma-separated list."
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
        describe_variable(variable, option, environ[variable])
        for variable, option in _OPTIONS.items()
        if environ.get(variable) and not connection_uses(option, _value(option, environ[variable]), options, connection)
    ]
    if wrong:
        raise WrongCluster(
            f"{', '.join(wrong)}: the environment of helm contradicts the connection of this run ({connection.origin}, "
            f"{connection.server}). Unset {'it' if len(wrong) == 1 else 'them'}: helm uses the cluster and the user of the run."
        )


# Predicts the effect of a Helm upgrade on a custom resource, for example the ClusterPolicy or an NVIDIADriver (pure).
#
# For a kind that helm does not know, helm sends the difference between the manifests of the old and the new revision as a JSON merge patch
# (helm v3 pkg/kube/client.go, createPatch). A manually set field is therefore kept if both manifests have the same value for it, and overwritten or
# removed if they differ.


def upgraded(live: Document, before: Document, after: Document) -> dict[str, t.Any]:
    """The live spec after an upgrade from the spec in the old manifest to the spec in the new one."""
    return t.cast("dict[str, t.Any]", apply_merge_patch(live, merge_patch(before, after)))


def overwritten(live: Document, before: Document, after: Document) -> t.Iterator[tuple[tuple[str, ...], t.Any, t.Any]]:
    """The path, live value and new value (None if removed) of every field of the live spec that the upgrade changes."""
    return _changed_leaves(live, merge_patch(before, after), ())


def _changed_leaves(
    live: t.Any, patch: t.Any, path: tuple[str, ...]
) -> t.Iterator[tuple[tuple[str, ...], t.Any, t.Any]]:
    if live == patch:
        return
    if isinstance(live, dict):
        for key, value in live.items():
            if not isinstance(patch, dict):
                # The patch replaces the whole map.
                yield from _changed_leaves(value, None, (*path, key))
            elif key in patch:
                yield from _changed_leaves(value, patch[key], (*path, key))
    else:
        yield path, live, patch


# Prepares the removal of a Helm release: checks whether this collection has installed the release, and repairs its records before helm uninstalls it.


class ReleaseRemoval:
    """The state of one release; the release's records are read when this object is created."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        run_command: RunCommand,
        waiting: WaitOptions,
        pending_timeout: float,
    ) -> None:
        """Read the marker Lease and the metadata of helm's records."""
        self.name, self.namespace = name, namespace
        self._run = run_command
        self._waiting = waiting
        self._timeout = pending_timeout
        self._records = ReleaseRecords(client, name, namespace)
        # Whether the marker shows that this collection installed the release.
        self.managed = is_marked_installed(self._records.marker())
        self._latest = self._records.latest()
        self.initial_status = self.status

    @property
    def status(self) -> str:
        """The status of the newest revision; `absent` without a revision."""
        return self._latest.status if self._latest else "absent"

    @property
    def exists(self) -> bool:
        """Whether there is a release for helm to uninstall."""
        return self._latest is not None and self._latest.status != helm.UNINSTALLED

    def contains(self, kind: str, item: t.Mapping[str, t.Any]) -> bool:
        """Whether an object is part of this release, and not a copy with the same annotations. `kind` is Kind.full_name.

        Helm has written the object or, if the server has no such record, the object is in the manifest of the release.
        """
        if helm_release_of(item) != (self.name, self.namespace):
            return False
        metadata = item["metadata"]
        identity = (kind, metadata.get("namespace") or self.namespace, metadata["name"])
        return is_written_by_helm(item) or identity in self._deleted_objects

    @functools.cached_property
    def _deleted_objects(self) -> frozenset[tuple[str, str, str]]:
        content = self._records.content(self._latest) if self.exists else None
        return deleted_objects(content.manifest, self.namespace) if content else frozenset()

    def await_other_helm(self) -> None:
        """Wait until no other helm process works on the release; raises WaitTimeout."""
        if self._latest is not None and self._latest.status in helm.UNFINISHED:
            self._records.await_other_helm(self._run, self._timeout, self._waiting)
            self._latest = self._records.latest()

    @property
    def is_superseded(self) -> bool:
        """Whether supersede() has already marked the newest record, or there is no record."""
        return self._latest is None or self._latest.status in (helm.SUPERSEDED, helm.UNINSTALLED)

    def supersede(self, run_id: str) -> None:
        """Mark the newest record as superseded and record the run; call this before any object of the release is deleted.

        Otherwise, if this run were killed while it was deleting objects, a record with the status `deployed` would prevent an installation from restoring
        them. With the status `uninstalling`, kubernetes.core.helm would not finish the removal, because it treats this status as done.
        """
        if self._latest is not None and not self.is_superseded:
            self._records.write_marker(run_id, "uninstall", self._latest.number, self._timeout)
            self._records.supersede(self._latest)
            self._latest = self._records.latest()


# Implements the steps of the module helm_release, in the order in which the module calls them.

_ESTABLISH_TIMEOUT = 30.0
_SCHEMAS = "/openapi/v3"


@dataclass(frozen=True)
class ReleaseOptions:
    """The desired release."""

    name: str
    namespace: str
    chart: str
    repository: str | None
    version: str | None
    desired_values: dict[str, t.Any] = field(repr=False)
    initial_values: dict[str, t.Any] = field(repr=False)
    pending_timeout: float = 600.0

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> ReleaseOptions:
        """Read the module's options; an empty string means that an option is not set."""
        return cls(
            name=params["release_name"],
            namespace=params["release_namespace"],
            chart=params["chart_ref"],
            repository=params["chart_repo_url"] or None,
            version=params["chart_version"] or None,
            desired_values=params["release_values"],
            initial_values=params["initial_values"],
            pending_timeout=float(params["pending_timeout"]),
        )


@dataclass
class ReleasePreparation:
    """Prepares one release for helm and records the findings and changes."""

    client: Client
    release: ReleaseOptions
    run_command: RunCommand
    check: bool
    expected: ExpectedObjects
    run_id: str
    waiting: WaitOptions
    # Called before every change; the first call acquires the lease.
    before_write: t.Callable[[], None]
    # The content of the newest revision after the repair.
    content: ReleaseContent | None = field(default=None, init=False)
    # Values that are set in addition to the user's values, and that the release keeps.
    kept_values: dict[str, t.Any] = field(default_factory=dict, init=False)
    repaired: list[str] = field(default_factory=list, init=False)
    _latest: Revision | None = field(default=None, init=False)
    # The newest revision before the repair.
    _found: Revision | None = field(default=None, init=False)
    _definitions: list[ObjectChange] = field(default_factory=list, init=False)
    _marked: bool = field(default=False, init=False)
    _render: t.Callable[[t.Mapping[str, t.Any]], str] = field(default=lambda release_values: "", init=False)

    def __post_init__(self) -> None:
        """Store the arguments; no request is sent yet."""
        self._records = ReleaseRecords(self.client, self.release.name, self.release.namespace)

    def load_chart(self, binary: str, folder: str) -> tuple[Chart, list[Object]]:
        """Fetch and render the chart. Returns its identity and its CRDs; raises ChartProblem. Usually sends no request to the cluster."""
        release = self.release
        program = Helm(binary, self.run_command, folder)
        path = program.fetch(release.chart, release.repository, release.version)

        def server_version() -> str:
            return str((self.client.get("/version") or {}).get("gitVersion") or "")

        def render(release_values: t.Mapping[str, t.Any]) -> str:
            return program.render(path, release.name, release.namespace, release_values, server_version)

        self._render = render
        rendered = render(helm.merge_values(release.initial_values, release.desired_values))
        return read_chart(path), custom_resource_definitions(rendered)

    def recover_pending(self) -> None:
        """Find the newest valid revision: wait for a running helm process and discard the revisions of killed processes."""
        revisions = self._records.revisions()
        self._found = revisions[0] if revisions else None
        while revisions and revisions[0].status in helm.UNFINISHED:
            revision = revisions[0]
            abandoned, reason = self._records.is_abandoned(revision, self.run_command, self.release.pending_timeout)
            if not abandoned and not self.check:
                self._records.await_other_helm(self.run_command, self.release.pending_timeout, self.waiting)
                revisions = self._records.revisions()
                continue
            self.repaired.append(f"revision {revision.number} ({revision.status}): {reason}")
            # Only the record of a first installation lists the objects that helm has created so far, so the record is
            # kept, and helm upgrades from it.
            first = len(revisions) == 1
            if self.check:
                revisions = [replace(revision, status=helm.SUPERSEDED)] if first else revisions[1:]
            else:
                self.before_write()
                if not (self._records.supersede(revision) if first else self._records.drop(revision)):
                    self.repaired.pop()
                revisions = self._records.revisions()
        self._latest = revisions[0] if revisions else None
        self.content = self._records.content(self._latest)

    def next_step(self, chart: Chart) -> ReleaseStep:
        """The next step for helm, which repeats an interrupted operation. Raises InvalidObjects if helm must run and the namespace does not exist."""
        step = helm.next_step(self._latest, self.content, chart, self.desired_values)
        repeat = step.action == helm.NOTHING and bool(self.repaired) and self._latest is not None
        if repeat:
            step = ReleaseStep(helm.UPGRADE, ("an interrupted operation has left the release partially changed",))
        # Otherwise, kubernetes.core.helm would not replace a failed revision with the same chart and values.
        if self._latest and not self.check and (repeat or self._latest.status == helm.FAILED):
            self.before_write()
            self._records.supersede(self._latest)
        if step.action != helm.NOTHING:
            self._require_namespace()
        return step

    @property
    def initial_values(self) -> dict[str, t.Any]:
        """The kept values and the initial values for this release; the user's release values override them."""
        installed = self.content.config if self.content else None
        initial = helm.select_initial_values(self.release.initial_values, installed)
        return helm.merge_values(self.kept_values, initial)

    def apply_crds(self, definitions: list[Object]) -> None:
        """Create or update the CRDs from the chart and wait until the server serves them."""
        self._definitions = _apply_crds(self.client, definitions, check=self.check, before_write=self.before_write)

    def write_marker(self, step: ReleaseStep) -> None:
        """Record in the marker Lease that helm is about to start, with the machine and the revision."""
        if step.action == helm.NOTHING:
            return
        self._marked = True
        if not self.check:
            self.before_write()
            number = (self._latest.number if self._latest else 0) + 1
            self._records.write_marker(self.run_id, step.action, number, self.release.pending_timeout)

    @property
    def desired_values(self) -> dict[str, t.Any]:
        """All values to pass to helm."""
        return helm.merge_values(self.initial_values, self.release.desired_values)

    def render(self) -> str:
        """The manifest that helm would render with the desired values."""
        return self._render(self.desired_values)

    @property
    def changed(self) -> bool:
        """Whether the preparation itself has changed, or would change, anything."""
        return bool(self.repaired) or self._marked or any(change.changed for change in self._definitions)

    @property
    def manifest(self) -> str:
        """The manifest of the newest valid revision, as YAML."""
        return self.content.manifest if self.content else ""

    def as_dict(self, chart: Chart, step: ReleaseStep) -> Object:
        """The result of the module; of the release's values, it contains only the initial values."""
        return {
            "action": step.action,
            "reasons": list(step.reasons),
            "status": self._found.status if self._found else "absent",
            "revision": self._found.number if self._found else 0,
            "chart_version": chart.version,
            "repaired": self.repaired,
            "crds": {
                action: sorted(change.name for change in self._definitions if change.action == action)
                for action in ("created", "updated", "unchanged")
            },
            "initial_values": self.initial_values,
        }

    def diff(self, chart: Chart, step: ReleaseStep) -> tuple[Object, Object]:
        """The changed CRDs (as summaries) and the release before and after, for a diff."""
        before: Object = {}
        after: Object = {}
        for change in self._definitions:
            if change.changed:
                after.setdefault("crds", {})[change.name] = _crd_summary(change.after)
                if change.before:
                    before.setdefault("crds", {})[change.name] = _crd_summary(change.before)
        if step.action != helm.NOTHING:
            after["release"] = {"chart": chart.label, "app_version": chart.app_version, "reasons": list(step.reasons)}
        if self._found and (step.action != helm.NOTHING or self.repaired):
            installed = self.content.chart.label if self.content else "unknown"
            before["release"] = {"chart": installed, "revision": self._found.number, "status": self._found.status}
        return before, after

    def _require_namespace(self) -> None:
        namespace = self.release.namespace
        expected = self.check and namespace in self.expected.namespaces
        if not expected and self.client.get(f"{NAMESPACES}/{namespace}") is None:
            raise InvalidObjects(
                [f"Namespace {namespace!r} does not exist, and no step of this run creates it (option expected)."]
            )


def _apply_crds(
    client: Client, definitions: list[Object], *, check: bool, before_write: t.Callable[[], None]
) -> list[ObjectChange]:
    """Apply the CRDs that differ and wait until the server serves them; sends nothing in check mode."""
    changes = ObjectWriter(client, check, before_write).apply(definitions)
    for change in changes:
        if change.changed and not check:
            _await_established(client, change.name)
    created = {change.name for change in changes if change.action == "created" and not check}
    _await_schemas(client, [item for item in definitions if item["metadata"]["name"] in created])
    return changes


def _crd_summary(definition: t.Mapping[str, t.Any]) -> Object:
    """The summary of a CRD for a diff: its versions, and a hash of its spec, because a schema is 300 KB long."""
    spec = definition.get("spec") or {}
    content = hashlib.sha256(json.dumps(spec, sort_keys=True).encode("utf-8")).hexdigest()
    return {"versions": [version.get("name") for version in spec.get("versions") or []], "content": content[:12]}


def _await_schemas(client: Client, definitions: t.Sequence[Object]) -> None:
    """Wait until the server has published the schemas of new CRDs; continue after a time limit, because Helm may succeed without them.

    Until then, Helm validates objects itself with an older form of the schema, and rejects objects that lack a required field with a default
    (cli-runtime pkg/resource/query_param_verifier_v3.go, kubectl pkg/validation/schema.go).
    """
    paths = {
        f"apis/{item['spec']['group']}/{version['name']}"
        for item in definitions
        for version in item["spec"]["versions"]
        if version.get("served")
    }
    if not paths:
        return
    with contextlib.suppress(WaitTimeout, ApiError):
        wait_until(
            lambda: client.get(_SCHEMAS),
            # A server without this index publishes no schemas.
            lambda index: index is None or paths <= set(index.get("paths") or ()),
            timeout=_ESTABLISH_TIMEOUT,
            interval=0.2,
            describe=lambda index: f"The API server has not published the schemas of {', '.join(sorted(paths))}",
        )


def _await_established(client: Client, name: str) -> None:
    def conditions(definition: Object) -> list[Object]:
        return (definition.get("status") or {}).get("conditions") or []

    def describe(definition: Object) -> str:
        texts = [
            f"{item.get('type')}={item.get('status')} {item.get('message', '')}" for item in conditions(definition)
        ]
        return f"The API server does not serve CRD {name}: {'; '.join(texts) or 'no status'}"

    wait_until(
        lambda: client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{name}") or {},
        lambda definition: any(
            item.get("type") == "Established" and item.get("status") == "True" for item in conditions(definition)
        ),
        timeout=_ESTABLISH_TIMEOUT,
        interval=0.2,
        describe=describe,
    )


# Waits until the workloads of a Helm release are rolled out, and reports why their pods are not ready.

# The plural of each kind of workload that helm's own --wait waits for, except hooks and Jobs.
WORKLOADS = {"Deployment": "deployments", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets"}
_WORKLOAD = re.compile(rf"^kind:\s*[\"']?({'|'.join(WORKLOADS)})[\"']?\s*$", re.MULTILINE)
_LOG_LINES = 3


@dataclass(frozen=True)
class WorkloadRollout:
    """The state of one workload's rollout."""

    kind: str
    name: str
    desired: int
    ready: int
    done: bool
    selector: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.ready} of {self.desired} pods are ready"


@dataclass(frozen=True)
class _ReleaseRollout:
    rollouts: tuple[WorkloadRollout, ...]
    # The nodes without the annotation and the number of nodes with it. The number is None if no annotation is required, or
    # if it was not counted because pods are missing.
    unannotated: tuple[str, ...] = ()
    annotated: int | None = None

    @property
    def missing_annotations(self) -> int:
        """The number of nodes that still lack the annotation.

        The expected number of nodes with the annotation is the number of nodes on which a DaemonSet runs.
        """
        served = max((item.desired for item in self.rollouts if item.kind == "DaemonSet"), default=0)
        return 0 if self.annotated is None else max(0, served - self.annotated)

    @property
    def done(self) -> bool:
        return all(item.done for item in self.rollouts) and not self.missing_annotations

    @property
    def pods(self) -> dict[str, str]:
        return {f"{item.kind} {item.name}": f"{item.ready}/{item.desired}" for item in self.rollouts}

    def unfinished(self, annotation: str | None) -> list[str]:
        lines = [str(item) for item in self.rollouts if not item.done]
        if not lines and self.missing_annotations:
            nodes = abbreviate(sorted(self.unannotated))
            lines.append(f"{self.missing_annotations} node(s) without annotation {annotation}: {nodes}")
        return lines


def workloads(manifest: str) -> list[tuple[str, str]]:
    """The kind and the name of every workload in a release's manifest."""
    documents = matching_documents(manifest, _WORKLOAD)
    return [(item["kind"], item["metadata"]["name"]) for item in documents if item["kind"] in WORKLOADS]


def workload_rollout(kind: str, live: Document) -> WorkloadRollout:
    """The state of a workload's rollout; the rollout is `done` only if the status is for the current generation."""
    metadata, spec, status = live["metadata"], live["spec"], live.get("status") or {}
    current = int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0)
    if kind == "DaemonSet":
        desired = int(status.get("desiredNumberScheduled") or 0)
        updated, ready = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberAvailable") or 0)
    else:
        desired = int(spec.get("replicas", 1))
        updated = int(status.get("updatedReplicas") or 0)
        ready = int(status.get("availableReplicas", status.get("readyReplicas")) or 0)
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return WorkloadRollout(
        kind=kind,
        name=metadata["name"],
        desired=desired,
        ready=min(ready, updated) if updated < desired else ready,
        done=current and updated >= desired and ready >= desired,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
    )


def await_workloads(
    client: Client, namespace: str, name: str, manifest: str, annotation: str | None, waiting: WaitOptions
) -> dict[str, str]:
    """Wait for the rollout of a Helm release. Returns the numbers of pods as "ready/desired" by workload; raises WaitTimeout."""
    expected = workloads(manifest)
    if annotation is None and not expected:
        return {}
    return await_rollout(
        client, (f"Helm release {namespace}/{name}", name, "helm_release"), namespace, expected, annotation, waiting
    )


def await_rollout(
    client: Client,
    names: tuple[str, str, str],
    namespace: str,
    expected: t.Sequence[tuple[str, str]],
    annotation: str | None,
    waiting: WaitOptions,
) -> dict[str, str]:
    """Wait for these workloads (kind and name), and for the annotation on as many nodes as a DaemonSet runs on; raises WaitTimeout.

    `names` contains the owner of the workloads in messages, the owner's name in progress reports, and the key of the partial result.
    """
    title, short, key = names

    def read() -> _ReleaseRollout:
        live: dict[tuple[str, str], Object] = {}
        for kind in dict.fromkeys(kind for kind, dummy in expected):
            path = f"/apis/apps/v1/namespaces/{namespace}/{WORKLOADS[kind]}"
            live.update({(kind, item["metadata"]["name"]): item for item in client.list(path)})
        rollouts = tuple(
            workload_rollout(kind, live[kind, workload])
            if (kind, workload) in live
            else WorkloadRollout(kind, workload, desired=1, ready=0, done=False, selector="")
            for kind, workload in expected
        )
        if annotation is None or not all(item.done for item in rollouts):
            return _ReleaseRollout(rollouts)
        nodes = [item["metadata"] for item in client.list(NODES, metadata_only=True)]
        unannotated = tuple(node["name"] for node in nodes if annotation not in (node.get("annotations") or {}))
        return _ReleaseRollout(rollouts, unannotated, len(nodes) - len(unannotated))

    def message(state: _ReleaseRollout) -> str:
        selectors = [item.selector for item in state.rollouts if not item.done and item.selector]
        lines = state.unfinished(annotation)
        lines += [format_failure(failure) for failure in diagnose_pods(client, namespace, selectors)]
        lines += _annotation_advice(state, namespace)
        return f"{title}: " + "; ".join(lines) + "."

    state = waiting.until(
        read,
        lambda state: state.done,
        describe=message,
        partial=lambda state: {key: {"workloads": state.pods}},
        progress_text=lambda state: f"{short}: " + ("; ".join(state.unfinished(annotation)) or "ready"),
    )
    return state.pods


def _annotation_advice(state: _ReleaseRollout, namespace: str) -> list[str]:
    if not (state.missing_annotations and state.unannotated):
        return []
    node = min(state.unannotated)
    return [
        "all pods are running, so either the worker on that node publishes nothing, or the master does not read it: check "
        f"kubectl -n {namespace} get nodefeature {node}, and the log of the worker on it "
        f"(kubectl -n {namespace} get pods --field-selector spec.nodeName={node}) or of the master"
    ]


def diagnose_pods(
    client: Client, namespace: str, selectors: t.Iterable[str], last_nodes: t.Collection[str] = ()
) -> list[ContainerFailure]:
    """The failures of the selected pods that are not ready; the first failure includes the end of the container's log, if the log can be read.

    The pods of `last_nodes` are listed after the pods of other nodes.
    """
    pods = [
        pod for selector in selectors for pod in client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=selector)
    ]
    failures = pod_failures(pods, last_nodes=last_nodes)
    return [_with_log(client, namespace, failure) for failure in failures[:1]] + failures[1:]


def pod_failures(
    pods: t.Iterable[Document], limit: int = 5, last_nodes: t.Collection[str] = ()
) -> list[ContainerFailure]:
    """The failures of up to `limit` pods that are not ready; pods on `last_nodes` come last.

    Pods whose container does not start come first, because other pods only wait for them, and then those with the most restarts.
    """
    listed = list(pods)
    failures = [lines[0] for pod in listed if (lines := container_failures([pod]).get(node_of(pod)))]
    failed = {failure.pod for failure in failures}
    failures += [
        ContainerFailure(node_of(pod), pod["metadata"]["name"], *_unready_container(pod))
        for pod in listed
        if pod["metadata"]["name"] not in failed and not is_ready(pod)
    ]
    return sorted(
        failures, key=lambda failure: (failure.node in last_nodes, not failure.in_back_off, -failure.restarts)
    )[:limit]


def unready_reasons(pods: t.Iterable[Document], limit: int = 5) -> list[str]:
    """Why up to `limit` of these pods are not ready: a line for each, with the state of its container and its node."""
    return list(map(format_failure, pod_failures((pod for pod in pods if not is_ready(pod)), limit)))


def _unready_container(pod: Document) -> tuple[str, str]:
    """The name and state of the container that a pod without a failure waits for; "-" if no single container is the cause."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    if all((item.get("state") or {}).get("waiting") for item in containers):
        # Only the last running init container counts, because earlier ones that still run are sidecars.
        for item in reversed(status.get("initContainerStatuses") or ()):
            if "running" in (item.get("state") or {}):
                return item["name"], "the init container is running"
    return "-", "running, but not ready"


def format_failure(failure: ContainerFailure) -> str:
    """The description of a pod's failure, with the pod's node."""
    return with_meaning(f"{failure} on node {failure.node}" if failure.node else f"{failure} (on no node)")


def _with_log(client: Client, namespace: str, failure: ContainerFailure) -> ContainerFailure:
    if failure.container == "-":
        return failure
    query: dict[str, t.Any] = {"container": failure.container, "tailLines": _LOG_LINES}
    if failure.restarts:
        query["previous"] = "true"
    try:
        text = client.text(f"{NAMESPACES}/{namespace}/pods/{failure.pod}/log", query)
    except ApiError:
        return failure
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or lines[-1] in failure.reason:
        return failure
    return replace(failure, reason=f"{failure.reason}; log: {lines[-1][:300]}")
