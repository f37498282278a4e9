# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies or deletes a list of objects: reads, compares, and sends only differences; in check mode as a dry run on the server."""

from __future__ import annotations

import functools
import time
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER
from ..common.parallel import call_all
from .client import Client
from .diff import Difference, Object, difference, same_object, shown
from .errors import ApiError
from .lease import Lease
from .object_changes import (
    Action,
    ExpectedObjects,
    InvalidObjects,
    ObjectChange,
    malformed_definitions,
    objects_created_by,
)
from .paths import NAMESPACES, Discovery, Kind, UnknownKind

__all__ = ["NOT_CHECKED", "ExpectedObjects", "InvalidObjects", "ObjectChange", "apply_objects", "same_object"]

_TITLE = "These objects cannot be applied:"
_ESTABLISH_TIMEOUT, _ESTABLISH_POLL = 30.0, 0.1
NOT_CHECKED = "not checked by the server: no right to a dry run"
# Objects that others in the same list need come first.
_ORDER = {"Namespace": 0, "CustomResourceDefinition": 1}


@dataclass(frozen=True)
class _ObjectTarget:
    wanted: Object
    kind: Kind | None
    namespace: str | None

    @property
    def api_version(self) -> str:
        return str(self.wanted["apiVersion"])

    @property
    def kind_name(self) -> str:
        return str(self.wanted["kind"])

    @property
    def name(self) -> str:
        return str(self.wanted["metadata"]["name"])

    @property
    def path(self) -> str:
        """The path of the object; empty as long as the server does not have its kind."""
        return self.kind.path(self.name, self.namespace) if self.kind is not None else ""

    def change(self, action: Action, before: Object, after: Object, note: str | None = None) -> ObjectChange:
        return ObjectChange(self.api_version, self.kind_name, self.name, self.namespace, action, before, after, note)


def apply_objects(
    client: Client,
    wanted: t.Sequence[Object],
    *,
    check: bool,
    expected: ExpectedObjects | None = None,
    state: t.Literal["present", "absent"] = "present",
    force: bool = True,
    note_creation: bool = False,
    manager: str = FIELD_MANAGER,
    discovery: Discovery | None = None,
    before_write: t.Callable[[], Lease | None] | None = None,
    on_done: t.Callable[[ObjectChange], None] = lambda change: None,
) -> list[ObjectChange]:
    """Give objects their desired content, or delete them; an object without a difference costs one read.

    `before_write` is called once before the first change, to acquire the lease; after that all objects are read again, and the
    lease is checked before each change. `on_done` is called for each object, also when a later one fails.
    With `note_creation` an object that this function creates gets an annotation, which stays.
    Raises InvalidObjects before anything is sent when a kind or namespace neither exists nor is expected.
    """
    run = _Run(
        client,
        expected or ExpectedObjects(),
        check,
        force,
        note_creation,
        manager,
        discovery or Discovery(client),
        before_write,
        on_done,
    )
    targets = run.targets(wanted)
    return run.delete(targets) if state == "absent" else run.apply(targets)


@dataclass
class _Run:
    client: Client
    expected: ExpectedObjects
    check: bool
    force: bool
    note_creation: bool
    manager: str
    discovery: Discovery
    before_write: t.Callable[[], Lease | None] | None
    on_done: t.Callable[[ObjectChange], None]
    _lease: Lease | None = None
    _namespaces: dict[str, bool] = field(default_factory=dict)
    # The kinds of CRDs in the list.
    _own_kinds: frozenset[tuple[str, str]] = frozenset()

    def targets(self, wanted: t.Sequence[Object]) -> list[_ObjectTarget]:
        """The paths of the objects; raises all problems together."""
        own = objects_created_by(wanted)
        self._own_kinds = own.kinds
        problems: list[str] = []
        found: list[_ObjectTarget] = []
        for index, body in enumerate(wanted):
            problem = malformed_definitions(body)
            if problem:
                problems.append(f"definitions[{index}]: {problem}")
                continue
            api_version, kind_name = str(body["apiVersion"]), str(body["kind"])
            namespace = body["metadata"].get("namespace")
            kind: Kind | None = None
            try:
                kind = self.discovery.get(api_version, kind_name)
            except UnknownKind as error:
                if (api_version, kind_name) not in (self.expected.kinds | own.kinds):
                    problems.append(f"definitions[{index}] ({kind_name} {body['metadata']['name']}): {error}")
                    continue
            if kind is not None and kind.namespaced and not namespace:
                problems.append(
                    f"definitions[{index}] ({kind_name} {body['metadata']['name']}): metadata.namespace is missing"
                )
                continue
            found.append(_ObjectTarget(body, kind, namespace if kind is None or kind.namespaced else None))
        if problems:
            raise InvalidObjects(problems, _TITLE)
        return sorted(found, key=lambda target: _ORDER.get(target.kind_name, 2))

    def apply(self, targets: list[_ObjectTarget]) -> list[ObjectChange]:
        live = self._read(targets)
        self._check_namespaces(targets, live)
        planned = self._planned(targets, live)
        if self.before_write is not None and not self.check and any(plan.changed for plan in planned):
            self._lease = self.before_write()
            live = self._read(targets)
            planned = self._planned(targets, live)
        return [
            self._report(self._apply_one(target, found, plan))
            for target, found, plan in zip(targets, live, planned, strict=True)
        ]

    def _planned(self, targets: list[_ObjectTarget], live: list[Object | None]) -> list[Difference]:
        return [
            difference(found, self._with_note(target.wanted, found), self.manager)
            for target, found in zip(targets, live, strict=True)
        ]

    def _with_note(self, wanted: Object, found: Object | None) -> Object:
        """Only a new object gets the note; one that has it keeps it, or the next apply would remove it."""
        is_managed = found is None or CREATED_ANNOTATION in (found["metadata"].get("annotations") or {})
        if not (self.note_creation and is_managed):
            return wanted
        metadata = wanted["metadata"]
        annotations = {**(metadata.get("annotations") or {}), CREATED_ANNOTATION: "true"}
        return {**wanted, "metadata": {**metadata, "annotations": annotations}}

    def delete(self, targets: list[_ObjectTarget]) -> list[ObjectChange]:
        live = self._read(targets)
        if self.before_write is not None and not self.check and any(found is not None for found in live):
            self._lease = self.before_write()
        changes: list[ObjectChange] = []
        # In the opposite order: a namespace or CRD is deleted after its objects.
        for target, found in reversed(list(zip(targets, live, strict=True))):
            if found is None or found["metadata"].get("deletionTimestamp"):
                changes.append(self._report(target.change("unchanged", {}, {})))
                continue
            note = self._delete_one(target)
            changes.append(self._report(target.change("deleted", shown(found), {}, note)))
        return list(reversed(changes))

    def _report(self, change: ObjectChange) -> ObjectChange:
        self.on_done(change)
        return change

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _delete_one(self, target: _ObjectTarget) -> str | None:
        self._check_lease()
        try:
            self.client.delete(target.path, dry_run=self.check)
        except ApiError as error:
            if not (self.check and error.forbidden):
                raise
            return NOT_CHECKED
        return None

    def _read(self, targets: list[_ObjectTarget]) -> list[Object | None]:
        paths = [target.path for target in targets if target.kind is not None]
        calls = [(path, functools.partial(self.client.get, path)) for path in paths]
        values = iter(call_all(calls))
        return [next(values) if target.kind is not None else None for target in targets]

    def _check_namespaces(self, targets: list[_ObjectTarget], live: list[Object | None]) -> None:
        """Only new objects need their namespace."""
        own = objects_created_by([target.wanted for target in targets])
        needed = {
            target.namespace
            for target, found in zip(targets, live, strict=True)
            if found is None
            and target.namespace
            and target.namespace not in (self.expected.namespaces | own.namespaces)
        }
        problems = [
            f"Namespace {name!r} does not exist, and no step of this run creates it. Create it, or name it in the option expected."
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
                # The right to write there does not include the right to read namespaces; the server checks.
                self._namespaces[name] = True
        return self._namespaces[name]

    def _apply_one(self, target: _ObjectTarget, live: Object | None, plan: Difference) -> ObjectChange:
        if not plan.changed:
            return target.change("unchanged", plan.before, plan.after)
        action: Action = "created" if live is None else "updated"
        if self.check and not self._can_dry_run(target, live):
            return target.change(action, plan.before, plan.after)
        located = target if target.kind is not None else self._locate(target)
        self._check_lease()
        try:
            result = self.client.apply(
                located.path,
                plan.patch_body,
                dry_run=self.check,
                force=self.force,
                field_validation="Strict",
                manager=self.manager,
            )
        except ApiError as error:
            if not (self.check and error.forbidden):
                raise
            return target.change(action, plan.before, plan.after, NOT_CHECKED)
        if live is not None and same_object(live, result):
            # Only forms and defaults of the server differed.
            return target.change("unchanged", plan.before, plan.before)
        # A new object is shown as declared, so that a preview without the server is the same.
        return target.change(action, plan.before, plan.after if live is None else shown(result))

    def _can_dry_run(self, target: _ObjectTarget, live: Object | None) -> bool:
        """A dry run needs the kind and the namespace on the server."""
        if target.kind is None:
            return False
        return live is not None or not target.namespace or self._has_namespace(target.namespace)

    def _locate(self, target: _ObjectTarget) -> _ObjectTarget:
        """The target once the server has its kind; the kind of a CRD in the same list is served a moment later."""
        deadline = time.monotonic() + _ESTABLISH_TIMEOUT
        while True:
            self.discovery.forget()
            try:
                kind = self.discovery.get(target.api_version, target.kind_name)
            except UnknownKind as error:
                if (target.api_version, target.kind_name) not in self._own_kinds or time.monotonic() > deadline:
                    raise InvalidObjects([f"{target.kind_name} {target.name}: {error}"]) from error
                time.sleep(_ESTABLISH_POLL)
                continue
            return _ObjectTarget(target.wanted, kind, target.namespace if kind.namespaced else None)
