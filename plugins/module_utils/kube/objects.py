# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates and corrects single objects, reads what the cluster accepts, and keeps watched collections."""

from __future__ import annotations

import difflib
import functools
import queue
import threading
import time
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER
from ..core.errors import InvalidOptions
from ..core.values import Document, Object, get_nested
from ..core.waits import call_all
from .errors import ApiError
from .fields import (
    Difference,
    difference,
    is_created_by_collection,
    is_deleting,
    is_older_version,
    owner_of,
    same_object,
    shown,
)
from .paths import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Kind, known_paths

if t.TYPE_CHECKING:
    from .client import Client
    from .lease import Lease

# Asks the API server whether this user has a permission (SelfSubjectAccessReview), before a run needs it.

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Permission:
    """A verb on a resource of an API group, as in an RBAC rule; the resource can include a subresource, as in pods/eviction."""

    verb: str
    resource: str
    group: str = ""

    def is_granted(self, client: Client, namespace: str = "") -> bool:
        """Whether this user has the permission in the namespace, by default in all namespaces; True if this user is not allowed to ask."""
        resource, dummy, subresource = self.resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            review = client.create(_REVIEWS, body, dry_run=True)
        except ApiError as error:
            # Every user may ask by default (ClusterRole system:basic-user), but an administrator can change that.
            if not error.lacks_right:
                raise
            return True
        return bool(review["status"].get("allowed"))


class MissingPermission(ApiError):
    """The API server has answered that this user lacks a permission; no request that needs the permission was sent."""

    lacks_right = True

    def __init__(self, permission: Permission, namespace: str, purpose: str) -> None:
        """Use the wording of the server's message for a forbidden request, from which explain() derives the missing rule."""
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        super().__init__(
            f'This user cannot {permission.verb} resource "{permission.resource}" in API group "{permission.group}" {scope}, {purpose}',
            status=403,
            reason="Forbidden",
            method="POST",
            path=_REVIEWS,
        )


# Reads CustomResourceDefinitions and finds the fields that they define in their openAPIV3Schema (apiextensions.k8s.io/v1).


def read_definition(client: Client, name: str) -> Object | None:
    """A CRD; None if the user is not allowed to read it."""
    try:
        return client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{name}")
    except ApiError as error:
        if not error.forbidden:
            raise
        return None


def spec_schema(definition: Document | None, api_version: str) -> Object:
    """The schema of `spec` in this version of a CRD; empty if it is not known."""
    for item in get_nested(definition, "spec", "versions") or ():
        if item.get("name") == api_version.rpartition("/")[2]:
            return get_nested(item, "schema", "openAPIV3Schema", "properties", "spec") or {}
    return {}


def known_fields(value: t.Any, schema: Document) -> t.Any:
    """The part of a value that the schema defines; the whole value if the schema is empty.

    The example objects of operators contain fields that their CRDs do not define: `customConfig` of NFD 4.12,
    `driver.upgradePolicy.kernelModuleType` of the GPU operator v25.3.
    """
    properties = schema.get("properties")
    if isinstance(value, list):
        return [known_fields(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, dict) or not properties or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    return {key: known_fields(item, properties[key]) for key, item in value.items() if key in properties}


# Applies or deletes a list of objects: reads and compares them, and sends only differences (in check mode, as a dry run on the server).

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
    deleted. With `record_creation`, an object that the writer creates gets a permanent annotation, and an object of another owner is not taken over.
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
        self._require_own(targets, live)
        planned = self._planned(targets, live)
        if not self.check and any(plan.changed for plan in planned):
            self._lease = self.before_write()
            live = self._read(targets)
            self._require_own(targets, live)
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

    def _require_own(self, targets: list[_ObjectTarget], live: list[Object | None]) -> None:
        """Raise InvalidObjects if `record_creation` is set and an object exists that the collection did not create.

        A field manager's record does not prove the creation: after a takeover with force, the collection may be the only manager. A namespace may have
        another owner, because only its declared labels are changed, and it is not deleted.
        """
        if not self.record_creation:
            return
        problems = [
            _foreign_problem(target, item)
            for target, item in zip(targets, live, strict=True)
            if item is not None and target.kind_name != "Namespace" and not is_created_by_collection(item)
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
        if not (self.record_creation and (live is None or is_created_by_collection(live))):
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


def _foreign_problem(target: _ObjectTarget, live: Object) -> str:
    owner = owner_of(live, target.kind_name, FIELD_MANAGER)
    scope = f"-n {target.namespace} " if target.namespace else ""
    return (
        f"{target.change('unchanged', {}, {}).label} already exists, and this collection did not create it"
        f"{f' (owner: {owner})' if owner else ''}. Rename or delete that object. To hand it over to this collection, which then changes and deletes it, run: "
        f"kubectl {scope}annotate {target.kind_name.lower()} {target.name} {CREATED_ANNOTATION}=true"
    )


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


class UnknownKind(Exception):
    """The server does not have the kind; the message lists the kinds of its group."""


class Discovery:
    """Finds kinds; for kinds without a fixed path, it reads each group and version once."""

    def __init__(self, client: Client) -> None:
        """Store the client; no request is sent yet."""
        self._client = client
        self._groups: dict[str, dict[str, Kind]] = {}

    def get(self, api_version: str, kind: str) -> Kind:
        """The kind; raises UnknownKind with similar names."""
        known = known_paths(api_version, kind)
        discovered = Kind(api_version, kind, *known) if known else self._kinds(api_version).get(kind)
        if discovered is None:
            raise UnknownKind(self._why_unknown(api_version, kind))
        return discovered

    def forget(self) -> None:
        """Discard the kinds that were read, so that they are read again after a CRD was applied."""
        self._groups.clear()

    def _kinds(self, api_version: str) -> dict[str, Kind]:
        if api_version not in self._groups:
            resources = self._client.get(f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}") or {}
            self._groups[api_version] = {
                resource["kind"]: Kind(api_version, resource["kind"], resource["name"], bool(resource["namespaced"]))
                for resource in resources.get("resources") or []
                if "/" not in resource["name"]
            }
        return self._groups[api_version]

    def _why_unknown(self, api_version: str, kind: str) -> str:
        kinds = self._kinds(api_version)
        if kinds:
            near = difflib.get_close_matches(kind, kinds, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            return f"{api_version} has no kind {kind!r}; it has: {', '.join(sorted(kinds))}.{hint}"
        return f"The cluster has no API {api_version!r} (needed for kind {kind!r}).{self._near_versions(api_version)}"

    def _near_versions(self, api_version: str) -> str:
        try:
            groups = (self._client.get("/apis") or {}).get("groups") or []
        except ApiError:
            return ""
        versions = [version["groupVersion"] for group in groups for version in group.get("versions") or []]
        group = api_version.rpartition("/")[0]
        same = [version for version in versions if version.rpartition("/")[0] == group]
        near = same or difflib.get_close_matches(api_version, [*versions, "v1"], n=2)
        return f" The most similar APIs that it has: {', '.join(near)}." if near else ""


# Keeps several collections of objects current, with one watch for each.

# Seconds after which the server ends a watch, so that its thread ends within this time after close().
_WATCH_SECONDS = 60.0


@dataclass(frozen=True)
class Collection:
    """A collection. It counts as empty if the cluster does not have its kind (`optional`) or listing is forbidden (`may_be_forbidden`)."""

    path: str
    label_selector: str | None = None
    field_selector: str | None = None
    optional: bool = False
    may_be_forbidden: bool = False


@dataclass(frozen=True)
class _Change:
    """An event of a watch, the objects of a new list, or the error that ended a watch."""

    name: str
    event: Object | None = None
    objects: t.Sequence[Object] | None = None
    error: Exception | None = None


class WatchCache:
    """The objects of the collections; read() lists them, and follow() starts the watches."""

    def __init__(self, client: Client, collections: t.Mapping[str, Collection]) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._collections = dict(collections)
        self._objects: dict[str, dict[tuple[str, str], Object]] = {name: {} for name in collections}
        self._versions: dict[str, str] = {}
        self._changes: queue.SimpleQueue[_Change] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._following = False

    def __enter__(self) -> WatchCache:
        """Return itself."""
        return self

    def __exit__(self, *dummy: object) -> None:
        """End the watches."""
        self.close()

    def close(self) -> None:
        """Make each watch's thread end with its next event."""
        self._closed.set()

    def read(self) -> None:
        """List all collections."""
        names = list(self._collections)
        for name, objects in zip(
            names, call_all([(name, functools.partial(self._list, name)) for name in names]), strict=True
        ):
            self._replace(name, objects)

    def objects(self, name: str) -> tuple[Object, ...]:
        """The current objects of a collection, sorted by name."""
        objects = self._objects[name]
        return tuple(objects[key] for key in sorted(objects))

    def is_known(self, name: str) -> bool:
        """Whether the collection could be listed."""
        return name in self._versions

    def follow(self) -> None:
        """Start a watch for each collection, beginning at the version of its last list."""
        if self._following:
            return
        self._following = True
        for name in self._collections:
            if name in self._versions:
                threading.Thread(target=self._watch, args=(name,), name=f"watch {name}", daemon=True).start()

    def await_change(self, timeout: float) -> bool:
        """Wait until an object changes and apply all changes that have arrived. Returns False if nothing has changed; raises the error of a watch."""
        try:
            change: _Change | None = self._changes.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return False
        while change is not None:
            self._apply(change)
            try:
                change = self._changes.get_nowait()
            except queue.Empty:
                change = None
        return True

    def put(self, name: str, changed: Object) -> None:
        """Store the response to a write before its event arrives."""
        self._objects[name][_key(changed)] = changed

    def _apply(self, change: _Change) -> None:
        if change.error is not None:
            raise change.error
        if change.objects is not None:
            self._replace(change.name, change.objects)
        if change.event is None:
            return
        item = change.event["object"]
        if change.event["type"] == "DELETED":
            self._objects[change.name].pop(_key(item), None)
        elif not _is_older(item, self._objects[change.name].get(_key(item))):
            self._objects[change.name][_key(item)] = item

    def _replace(self, name: str, objects: t.Iterable[Object]) -> None:
        self._objects[name] = {_key(item): item for item in objects}

    def _list(self, name: str) -> tuple[Object, ...]:
        collection = self._collections[name]
        listing = self._client.list(
            collection.path, label_selector=collection.label_selector, field_selector=collection.field_selector
        )
        try:
            objects = tuple(listing)
        except ApiError as error:
            if not ((collection.optional and error.not_found) or (collection.may_be_forbidden and error.forbidden)):
                raise
            self._versions.pop(name, None)
            return ()
        self._versions[name] = listing.resource_version
        return objects

    def _watch(self, name: str) -> None:
        collection = self._collections[name]

        def relist() -> tuple[t.Sequence[Object], str]:
            objects = self._list(name)
            return objects, self._versions[name]

        try:
            for event, objects in follow(
                self._client,
                collection.path,
                self._versions[name],
                relist,
                self._closed,
                label_selector=collection.label_selector,
                field_selector=collection.field_selector,
            ):
                self._changes.put(_Change(name, event=event, objects=objects))
        except Exception as error:
            self._changes.put(_Change(name, error=error))


def follow(
    client: Client,
    path: str,
    version: str,
    relist: t.Callable[[], tuple[t.Sequence[Object], str]],
    stop: threading.Event,
    **selectors: str | None,
) -> t.Iterator[tuple[Object | None, t.Sequence[Object] | None]]:
    """Watch a collection from a version until `stop` is set: yield each event or, if the server no longer has the version, the objects of a new list.

    relist: lists the objects again, and returns them with the version of the list. An error of the watch or of the list is raised.
    """
    while not stop.is_set():
        try:
            for event in client.watch(path, resource_version=version, timeout=_WATCH_SECONDS, stop=stop, **selectors):
                version = event["object"]["metadata"]["resourceVersion"]
                yield event, None
                if stop.is_set():
                    return
        except ApiError as error:
            if not error.gone:
                raise
            objects, version = relist()
            yield None, objects


def _key(item: t.Mapping[str, t.Any]) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _is_older(item: Object, known: Object | None) -> bool:
    """Whether an event contains an older version than the known object, which can be the response to a write."""
    versions = [str((version or {}).get("metadata", {}).get("resourceVersion") or "") for version in (item, known)]
    same = known is not None and item["metadata"].get("uid") == known["metadata"].get("uid")
    return same and is_older_version(*versions)
