# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of helm_release, in the order in which the module takes them."""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass, field, replace

from ..common.progress import Progress
from ..common.wait import wait_until
from ..kube.client import Client
from ..kube.objects import ExpectedObjects, InvalidObjects, ObjectChange
from ..kube.paths import NAMESPACES
from . import release as helm
from .chart import Chart, custom_resource_definitions, read
from .cli import Helm, is_running, processes
from .crds import apply_crds, crd_summary
from .release import ReleaseContent, ReleaseStep, Revision
from .release_records import ReleaseRecords, machine

Object = dict[str, t.Any]


@dataclass(frozen=True)
class ReleaseOptions:
    """The release as the user wants it."""

    name: str
    namespace: str
    chart: str
    repository: str | None
    version: str | None
    wanted: dict[str, t.Any] = field(repr=False)
    initial: dict[str, t.Any] = field(repr=False)
    pending_timeout: float = 600.0

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> ReleaseOptions:
        """From the module's options; an empty text is nothing said."""
        return cls(
            name=params["release_name"],
            namespace=params["release_namespace"],
            chart=params["chart_ref"],
            repository=params["chart_repo_url"] or None,
            version=params["chart_version"] or None,
            wanted=params["release_values"],
            initial=params["initial_values"],
            pending_timeout=float(params["pending_timeout"]),
        )


@dataclass(frozen=True)
class WaitOptions:
    """How long to wait, how often to look, and where to tell of it."""

    timeout: float
    interval: float
    progress: Progress


class ReleasePreparation:
    """Holds what has been found and done so far."""

    def __init__(
        self,
        client: Client,
        release: ReleaseOptions,
        run_command: t.Callable[..., tuple[int, str, str]],
        *,
        check: bool,
        expected: ExpectedObjects,
        run_id: str,
        waiting: WaitOptions,
        before_write: t.Callable[[], object],
    ) -> None:
        """`before_write` is called before the first change, once."""
        self._client = client
        self._release = release
        self._run = run_command
        self._check = check
        self._expected = expected
        self._run_id = run_id
        self._waiting = waiting
        self._before_write = before_write
        self._may_write = False
        self._records = ReleaseRecords(client, release.name, release.namespace)
        self._latest: Revision | None = None
        self._found: Revision | None = None
        self._content: ReleaseContent | None = None
        self._definitions: list[ObjectChange] = []
        self._render: t.Callable[[t.Mapping[str, t.Any]], str] = lambda given: ""
        self.repaired: list[str] = []
        self.announced = False

    def chart(self, binary: str, folder: str) -> tuple[Chart, list[Object]]:
        """The chart's identity and its CRDs, without a word to the cluster; raises ChartProblem."""
        release = self._release
        program = Helm(binary, self._run, folder)
        path = program.fetch(release.chart, release.repository, release.version)

        def render(given: t.Mapping[str, t.Any]) -> str:
            return program.render(path, release.name, release.namespace, given, self._server_version)

        self._render = render
        return read(path), custom_resource_definitions(render(helm.merged(release.initial, release.wanted)))

    def settle(self) -> None:
        """Find the newest revision that counts; wait for a living helm, give a dead one's revision up."""
        revisions = self._records.revisions()
        self._found = self._latest = revisions[0] if revisions else None
        while revisions and revisions[0].status in helm.UNFINISHED:
            revision = revisions[0]
            dead, reason = self._judge(revision)
            if not dead and not self._check:
                self._await_helm(revision)
                revisions = self._records.revisions()
                continue
            self.repaired.append(f"revision {revision.number} ({revision.status}): {reason}")
            # Of a first installation the record is all that tells helm what it has created so far: it stays, for helm to upgrade from.
            first = len(revisions) == 1
            if self._check:
                revisions = [replace(revision, status=helm.SUPERSEDED)] if first else revisions[1:]
            else:
                self.begin()
                if not (self._records.supersede(revision) if first else self._records.drop(revision)):
                    self.repaired.pop()
                revisions = self._records.revisions()
        self._latest = revisions[0] if revisions else None
        self._content = self._records.content(self._latest)

    def decide(self, chart: Chart) -> ReleaseStep:
        """What helm has to do next, in a namespace that is there; a revision that a dead one had begun to replace is gone over again."""
        step = helm.next_step(self._latest, self._content, chart, self.wanted)
        if step.action == helm.NOTHING and self.repaired and self._latest:
            if not self._check:
                self.begin()
                self._records.supersede(self._latest)
            step = ReleaseStep(helm.UPGRADE, ("an operation that broke off has left the release half changed",))
        elif self._latest and self._latest.status == helm.FAILED and not self._check:
            # Where chart and values are equal, kubernetes.core.helm would leave the failed revision as it is.
            self.begin()
            self._records.supersede(self._latest)
        if step.action != helm.NOTHING:
            self._require_namespace()
        return step

    @property
    def initial_values(self) -> dict[str, t.Any]:
        """What of the initial values this release is to have; values said outright win."""
        held = self._content.config if self._content else None
        return helm.seeded(self._release.initial, held)

    def apply_definitions(self, definitions: list[Object]) -> None:
        """Bring the CRDs to the chart's content and wait until the server serves new ones."""
        self._definitions = apply_crds(self._client, definitions, check=self._check, before_write=self.begin)

    def announce(self, step: ReleaseStep) -> None:
        """Say that helm is about to work, from which machine and on which revision."""
        if step.action == helm.NOTHING:
            return
        self.announced = True
        if not self._check:
            self.begin()
            self._records.announce(self._run_id, step.action, self._next_number(), self._release.pending_timeout)

    @property
    def held(self) -> ReleaseContent | None:
        """What the newest revision that counts consists of."""
        return self._content

    @property
    def wanted(self) -> dict[str, t.Any]:
        """All values that helm is to be given."""
        return helm.merged(self.initial_values, self._release.wanted)

    def rendered(self) -> str:
        """What helm is about to make of the chart and these values."""
        return self._render(self.wanted)

    @property
    def changed(self) -> bool:
        """Whether this step has changed, or would change, anything of its own."""
        return bool(self.repaired) or self.announced or any(change.changed for change in self._definitions)

    @property
    def manifest(self) -> str:
        """What the newest revision that counts has brought, as YAML."""
        return self._content.manifest if self._content else ""

    def told(self, chart: Chart, step: ReleaseStep) -> Object:
        """The result, which holds no value of the release."""
        by_action = {
            action: sorted(change.name for change in self._definitions if change.action == action)
            for action in ("created", "updated", "unchanged")
        }
        return {
            "action": step.action,
            "reasons": list(step.reasons),
            "status": self._found.status if self._found else "absent",
            "revision": self._found.number if self._found else 0,
            "chart_version": chart.version,
            "repaired": self.repaired,
            "crds": by_action,
            "initial_values": self.initial_values,
        }

    def shown(self, chart: Chart, step: ReleaseStep) -> tuple[Object, Object]:
        """Before and after: CRDs by name, versions and a hash of their content (a schema has 300 KB), and the release."""
        before: Object = {}
        after: Object = {}
        for change in self._definitions:
            if change.changed:
                after.setdefault("crds", {})[change.name] = crd_summary(change.after)
                if change.before:
                    before.setdefault("crds", {})[change.name] = crd_summary(change.before)
        if step.action != helm.NOTHING:
            after["release"] = {"chart": chart.label, "app_version": chart.app_version, "reasons": list(step.reasons)}
        if self._found and (step.action != helm.NOTHING or self.repaired):
            held = self._content.chart.label if self._content else "unknown"
            before["release"] = {"chart": held, "revision": self._found.number, "status": self._found.status}
        return before, after

    def begin(self) -> None:
        """To be called before every change; the first time takes the lease."""
        if not self._may_write:
            self._before_write()
            self._may_write = True

    def _require_namespace(self) -> None:
        namespace = self._release.namespace
        expected = self._check and namespace in self._expected.namespaces
        if not expected and self._client.get(f"{NAMESPACES}/{namespace}") is None:
            raise InvalidObjects(
                [f"Namespace {namespace!r} does not exist, and no step of this run creates it (option expected)."]
            )

    def _server_version(self) -> str:
        return str((self._client.get("/version") or {}).get("gitVersion") or "")

    def _next_number(self) -> int:
        return (self._latest.number if self._latest else 0) + 1

    def _judge(self, revision: Revision) -> tuple[bool, str]:
        running = processes(self._run)
        watch = helm.PendingWatch(
            here=machine(),
            helm_here=None if running is None else is_running(self._release.name, running),
            note=self._records.note(),
            now=datetime.datetime.now(datetime.UTC),
            timeout=self._release.pending_timeout,
        )
        return helm.abandoned(revision, watch)

    def _await_helm(self, revision: Revision) -> None:
        """Until the helm at work on a revision has finished it or is found dead; raises TimeoutStory."""
        label = f"{self._release.namespace}/{self._release.name}"

        def read_again() -> tuple[bool, str]:
            newest = next(iter(self._records.revisions()), None)
            same = newest is not None and (newest.number, newest.status) == (revision.number, revision.status)
            return self._judge(revision) if same else (True, "it has been finished")

        wait_until(
            read_again,
            lambda state: state[0],
            timeout=self._waiting.timeout,
            interval=self._waiting.interval,
            story=lambda state: (
                f"Helm release {label}: revision {revision.number} is {revision.status}, and {state[1]}. Let that helm end, "
                f"or wait longer (wait_timeout); if no helm works on it any more, lower pending_timeout."
            ),
            say=lambda state: f"release {label} is {revision.status}: {state[1]}",
            progress=self._waiting.progress,
        )
