# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies or deletes a list of objects: reads and compares them, and sends only differences (in check mode, as a dry run on the server)."""

from __future__ import annotations

import functools
import time
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER
from ..common.errors import InvalidOptions
from ..common.parallel import call_all
from .diff import Difference, Object, difference, same_object, shown
from .errors import ApiError
from .metadata import is_deleting
from .paths import NAMESPACES, Discovery, Kind, UnknownKind

if t.TYPE_CHECKING:
    from .client import Client
    from .lease import Lease

_TITLE = "These objects cannot be applied:"
_ESTABLISH_TIMEOUT, _ESTABLISH_POLL = 30.0, 0.1
NOT_CHECKED = "not checked by the server: this user is not allowed to send a dry run"
# Kinds that other objects in the same list depend on come first.
_ORDER = {"Namespace": 0, "CustomResourceDefinition": 1}

Action = t.Literal["created", "updated", "unchanged", "deleted"]


def write_or_dry_run(request: t.Callable[[], t.Any], *, check: bool) -> str | None:
    """Send a write request; in check mode, send only its dry run. Returns NOT_CHECKED if this user is not allowed to send a dry run."""
    try:
        request()
    except ApiError as error:
        if not (check and error.lacks_right):
            raise
        return NOT_CHECKED
    return None


class InvalidObjects(InvalidOptions):
    """Objects that cannot exist in the cluster, because of an unknown kind or a missing namespace."""


@dataclass(frozen=True)
class ExpectedObjects:
    """Namespaces and kinds (apiVersion, kind) that this run creates before the objects are applied."""

    namespaces: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def from_dict(cls, option: t.Mapping[str, t.Any] | None) -> ExpectedObjects:
        """Create an instance from the option `{namespaces: [..], kinds: [{api_version, kind}]}`."""
        given = option or {}
        return cls(
            frozenset(given.get("namespaces") or ()),
            frozenset((kind["api_version"], kind["kind"]) for kind in given.get("kinds") or ()),
        )


@dataclass(frozen=True)
class ObjectChange:
    """The change to one object or the change that check mode predicts."""

    api_version: str
    kind: str
    name: str
    namespace: str | None
    action: Action
    before: Object = field(default_factory=dict)
    after: Object = field(default_factory=dict)
    unchecked: str | None = None

    @property
    def changed(self) -> bool:
        """Whether the object was or will be changed."""
        return self.action != "unchanged"

    @property
    def label(self) -> str:
        """The kind, namespace and name, for messages."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def summary(self) -> dict[str, t.Any]:
        """The change without the objects, formatted for a module's result."""
        summary = {
            "api_version": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "action": self.action,
        }
        return {**summary, "unchecked": self.unchecked} if self.unchecked else summary


@dataclass(frozen=True)
class _ObjectTarget:
    """A definition; `kind` is None until the server has the kind."""

    desired: Object
    kind: Kind | None

    @property
    def api_version(self) -> str:
        return str(self.desired["apiVersion"])

    @property
    def kind_name(self) -> str:
        return str(self.desired["kind"])

    @property
    def name(self) -> str:
        return str(self.desired["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        return self.desired["metadata"].get("namespace") if self.kind is None or self.kind.namespaced else None

    def change(self, action: Action, before: Object, after: Object, unchecked: str | None = None) -> ObjectChange:
        return ObjectChange(
            self.api_version, self.kind_name, self.name, self.namespace, action, before, after, unchecked
        )


@dataclass
class ObjectWriter:
    """Creates, updates or deletes objects; for an object that needs no change, it sends one read request.

    `before_write` acquires the lease; it is called once, before the first change. All objects are then read again, and the
    lease is checked before each change. `on_done` is called for each finished object, even if a later object fails.
    `confirm_deletion` is called with the labels of existing objects before they are deleted, in check mode as well; it raises an error if they must not be
    deleted. With `record_creation`, an object that the writer creates gets a permanent annotation.
    """

    client: Client
    check: bool
    before_write: t.Callable[[], Lease | None]
    expected: ExpectedObjects = field(default_factory=ExpectedObjects)
    force_conflicts: bool = True
    record_creation: bool = False
    on_done: t.Callable[[ObjectChange], None] = lambda change: None
    confirm_deletion: t.Callable[[t.Sequence[str]], None] = lambda labels: None

    def __post_init__(self) -> None:
        self._discovery = Discovery(self.client)
        self._lease: Lease | None = None
        # The namespaces and kinds that the list itself creates.
        self._own = ExpectedObjects()
        self._namespaces: dict[str, bool] = {}

    def apply(self, desired: t.Sequence[Object]) -> list[ObjectChange]:
        """Create or update the objects; if a kind or namespace is missing, raises InvalidObjects before any change."""
        targets = self._targets(desired)
        live = self._read(targets)
        self._require_namespaces(targets, live)
        planned = self._planned(targets, live)
        if not self.check and any(plan.changed for plan in planned):
            self._lease = self.before_write()
            live = self._read(targets)
            planned = self._planned(targets, live)
        return [
            self._report(self._apply_one(target, item, plan))
            for target, item, plan in zip(targets, live, planned, strict=True)
        ]

    def delete(self, unwanted: t.Sequence[Object]) -> list[ObjectChange]:
        """Delete the objects; if a kind is missing, raises InvalidObjects before any change."""
        targets = self._targets(unwanted)
        live = self._read(targets)
        existing = [
            target.change("deleted", {}, {}).label
            for target, item in zip(targets, live, strict=True)
            if item is not None and not is_deleting(item)
        ]
        if existing:
            self.confirm_deletion(existing)
        if not self.check and any(item is not None for item in live):
            self._lease = self.before_write()
        # In the reverse order, so that a namespace or CRD is deleted after its objects.
        changes = [
            self._report(self._delete_one(target, item))
            for target, item in reversed(list(zip(targets, live, strict=True)))
        ]
        return changes[::-1]

    def _targets(self, desired: t.Sequence[Object]) -> list[_ObjectTarget]:
        """The objects with their kinds, in the order in which they are applied; raises InvalidObjects with all problems."""
        self._own = _objects_created_by(desired)
        problems: list[str] = []
        targets: list[_ObjectTarget] = []
        for index, body in enumerate(desired):
            path = f"definitions[{index}]"
            problem = _definition_problem(body)
            if problem:
                problems.append(f"{path}: {problem}")
                continue
            api_version, kind_name = str(body["apiVersion"]), str(body["kind"])
            path += f" ({kind_name} {body['metadata']['name']})"
            kind: Kind | None = None
            try:
                kind = self._discovery.get(api_version, kind_name)
            except UnknownKind as error:
                if (api_version, kind_name) not in self.expected.kinds | self._own.kinds:
                    problems.append(f"{path}: {error}")
            if kind is not None and kind.namespaced and not body["metadata"].get("namespace"):
                problems.append(f"{path}: metadata.namespace is missing")
            targets.append(_ObjectTarget(body, kind))
        if problems:
            raise InvalidObjects(problems, _TITLE)
        return sorted(targets, key=lambda target: _ORDER.get(target.kind_name, 2))

    def _read(self, targets: list[_ObjectTarget]) -> list[Object | None]:
        paths = [target.kind.path(target.name, target.namespace) if target.kind else "" for target in targets]
        outcomes = call_all([(path, functools.partial(self.client.get, path)) for path in paths if path])
        live = dict(zip(filter(None, paths), outcomes, strict=True))
        return [live.get(path) for path in paths]

    def _require_namespaces(self, targets: list[_ObjectTarget], live: list[Object | None]) -> None:
        """Raise InvalidObjects if the namespace of a new object neither exists nor is expected."""
        new = {target.namespace for target, item in zip(targets, live, strict=True) if item is None}
        needed = {name for name in new if name} - self.expected.namespaces - self._own.namespaces
        problems = [
            f"Namespace {name!r} does not exist, and no step of this run creates it. Create it, or list it in the option expected."
            for name in sorted(needed)
            if not self._has_namespace(name)
        ]
        if problems:
            raise InvalidObjects(problems, _TITLE)

    def _has_namespace(self, name: str) -> bool:
        if name not in self._namespaces:
            try:
                self._namespaces[name] = self.client.get(f"{NAMESPACES}/{name}") is not None
            except ApiError as error:
                if not error.forbidden:
                    raise
                # A user with write permission may lack permission to read namespaces, so the check is left to the
                # server.
                self._namespaces[name] = True
        return self._namespaces[name]

    def _planned(self, targets: list[_ObjectTarget], live: list[Object | None]) -> list[Difference]:
        return [
            difference(item, self._with_record(target.desired, item), FIELD_MANAGER)
            for target, item in zip(targets, live, strict=True)
        ]

    def _with_record(self, desired: Object, live: Object | None) -> Object:
        """The object with the annotation if it is new; an existing annotation is kept, because the next apply would otherwise remove it."""
        is_managed = live is None or CREATED_ANNOTATION in (live["metadata"].get("annotations") or {})
        if not (self.record_creation and is_managed):
            return desired
        metadata = desired["metadata"]
        annotations = {**(metadata.get("annotations") or {}), CREATED_ANNOTATION: "true"}
        return {**desired, "metadata": {**metadata, "annotations": annotations}}

    def _report(self, change: ObjectChange) -> ObjectChange:
        self.on_done(change)
        return change

    def _send(self, request: t.Callable[[], t.Any]) -> t.Any:
        """The response to a write or its dry run; NOT_CHECKED if this user is not allowed to send a dry run."""
        if self._lease is not None:
            self._lease.check()
        try:
            return request()
        except ApiError as error:
            if not (self.check and error.lacks_right):
                raise
            return NOT_CHECKED

    def _delete_one(self, target: _ObjectTarget, live: Object | None) -> ObjectChange:
        if live is None or target.kind is None or is_deleting(live):
            return target.change("unchanged", {}, {})
        path = target.kind.path(target.name, target.namespace)
        answer = self._send(lambda: self.client.delete(path, dry_run=self.check))
        return target.change("deleted", shown(live), {}, NOT_CHECKED if answer == NOT_CHECKED else None)

    def _apply_one(self, target: _ObjectTarget, live: Object | None, plan: Difference) -> ObjectChange:
        if not plan.changed:
            return target.change("unchanged", plan.before, plan.after)
        action: Action = "created" if live is None else "updated"
        if self.check and not self._can_dry_run(target, live):
            return target.change(action, plan.before, plan.after)
        kind = target.kind or self._await_kind(target)
        result = self._send(
            lambda: self.client.apply(
                kind.path(target.name, target.namespace),
                plan.patch_body,
                dry_run=self.check,
                force_conflicts=self.force_conflicts,
                field_validation="Strict",
            )
        )
        if result == NOT_CHECKED:
            return target.change(action, plan.before, plan.after, NOT_CHECKED)
        if live is not None and same_object(live, result):
            # Only the server's formats and defaults differed.
            return target.change("unchanged", plan.before, plan.before)
        # A new object is shown as declared, so that a preview without the server looks the same.
        return target.change(action, plan.before, plan.after if live is None else shown(result))

    def _can_dry_run(self, target: _ObjectTarget, live: Object | None) -> bool:
        """Whether a dry run is possible; the kind and the namespace must exist on the server."""
        if target.kind is None:
            return False
        return live is not None or not target.namespace or self._has_namespace(target.namespace)

    def _await_kind(self, target: _ObjectTarget) -> Kind:
        """The kind; if a CRD in the same list defines it, waits for a limited time until the server has it."""
        deadline = time.monotonic() + _ESTABLISH_TIMEOUT
        while True:
            self._discovery.forget()
            try:
                return self._discovery.get(target.api_version, target.kind_name)
            except UnknownKind as error:
                is_own = (target.api_version, target.kind_name) in self._own.kinds
                if not is_own or time.monotonic() > deadline:
                    raise InvalidObjects([f"{target.kind_name} {target.name}: {error}"]) from error
                time.sleep(_ESTABLISH_POLL)


def _objects_created_by(desired: t.Sequence[Object]) -> ExpectedObjects:
    """The namespaces and kinds that the list itself creates."""
    namespaces: set[str] = set()
    kinds: set[tuple[str, str]] = set()
    for body in desired:
        if _definition_problem(body):
            continue
        if body["kind"] == "Namespace":
            namespaces.add(body["metadata"]["name"])
        elif body["kind"] == "CustomResourceDefinition":
            spec = body.get("spec") or {}
            kind = str((spec.get("names") or {}).get("kind"))
            kinds.update((f"{spec.get('group')}/{version.get('name')}", kind) for version in spec.get("versions") or [])
    return ExpectedObjects(frozenset(namespaces), frozenset(kinds))


def _definition_problem(body: t.Any) -> str | None:
    """The reason why a definition is not an object; None if it is an object."""
    if not isinstance(body, dict):
        return "is not an object"
    for name in ("apiVersion", "kind"):
        if not isinstance(body.get(name), str) or not body[name]:
            return f"{name} is missing"
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return "metadata.name is missing"
    return None
