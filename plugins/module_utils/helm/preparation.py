# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements the steps of the module helm_release, in the order in which the module calls them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import typing as t
from dataclasses import dataclass, field, replace

from ..common.time_limit import RunCommand
from ..common.wait import WaitOptions, WaitTimeout, wait_until
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.objects import ExpectedObjects, InvalidObjects, ObjectChange, ObjectWriter
from ..kube.paths import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from . import release as helm
from .chart import Chart, custom_resource_definitions, read_chart
from .cli import Helm
from .release import ReleaseContent, ReleaseStep, Revision
from .release_records import ReleaseRecords

Object = dict[str, t.Any]
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
