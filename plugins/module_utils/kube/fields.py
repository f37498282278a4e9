# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares objects field by field, and finds who owns and who reverts a field."""

from __future__ import annotations

import base64
import copy
import json
import re
import typing as t
from dataclasses import dataclass, replace
from decimal import Decimal

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER
from ..catalog.openshift import OWNER_KIND_LABEL, OWNER_LABEL
from ..catalog.secrets import NOT_SHOWN

if t.TYPE_CHECKING:
    from ..core.values import Document, Object

# Reads the name of an object, compares versions of an object, and checks whether an object is being deleted (pure).


def name_of(item: Document) -> str:
    """The name of an object."""
    return str(item["metadata"]["name"])


def is_deleting(item: Document | None) -> bool:
    """Whether an object is being deleted."""
    return bool(item and item["metadata"].get("deletionTimestamp"))


def controller_of(item: Document) -> Document | None:
    """The owner reference of an object's controller, or None if no controller manages it."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def is_older_version(version: str, than: str) -> bool:
    """Whether a resource version is older than another. Versions are increasing numbers (comparable since Kubernetes 1.35); other formats count as newer."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


# Finds the fields of an object by owner, according to the managedFields that the API server records (structured-merge-diff, FieldsV1).

Tree = dict[str, t.Any]

_SELF = "."


def owned_by(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """The fields that a manager has applied; a later apply does not remove fields that the manager has written in another way."""
    return _fields(live, lambda entry: _is_applied_by(entry, manager) and not entry.get("subresource"))


def owned_by_others(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """The fields of all other managers and the fields that this manager has written without an apply."""
    return _fields(live, lambda entry: not _is_applied_by(entry, manager))


def known_shape(live: t.Mapping[str, t.Any]) -> Tree:
    """The fields of all managers, which also show which lists are maps, sets or atomic."""
    return _fields(live, lambda entry: True)


def is_created_by_collection(item: t.Mapping[str, t.Any]) -> bool:
    """Whether this collection has created the object, which may be of any kind."""
    return (item["metadata"].get("annotations") or {}).get(CREATED_ANNOTATION) == "true"


def managed_fields(live: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    """The entries of an object's field managers; empty if the server or a user has removed them."""
    return list((live.get("metadata") or {}).get("managedFields") or [])


def is_own_entry(entry: t.Mapping[str, t.Any]) -> bool:
    """Whether an entry is the collection's."""
    return bool(entry.get("manager") == FIELD_MANAGER)


def is_written(item: t.Mapping[str, t.Any]) -> bool:
    """Whether the server has recorded this collection as a field manager; a copy has the labels and annotations of the original, but not this record."""
    return any(map(is_own_entry, managed_fields(item)))


def without_own_entries(item: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    """The managedFields of a patch that removes the collection from the field managers. The server ignores an empty list; one empty entry removes all."""
    return [entry for entry in managed_fields(item) if not is_own_entry(entry)] or [{}]


def owned_keys(configmap: t.Mapping[str, t.Any]) -> set[str]:
    """The keys of `data` that only this collection has written."""
    owned: set[str] = set()
    foreign: set[str] = set()
    for entry in managed_fields(configmap):
        keys = {name[2:] for name in child(entry.get("fieldsV1") or {}, "data") if name.startswith("f:")}
        (owned if is_own_entry(entry) else foreign).update(keys)
    return owned - foreign


def writers(live: t.Mapping[str, t.Any], path: t.Iterable[str]) -> list[str]:
    """The managers that own the field at this path of keys, the most recent writer first; empty if no manager has written it.

    When a different value is written, the previous owners lose the field, so all current owners agree on its value.
    """
    entries = [entry for entry in managed_fields(live) if not entry.get("subresource")]
    entries.sort(key=lambda entry: str(entry.get("time") or ""), reverse=True)
    keys = tuple(path)
    return list(
        dict.fromkeys(str(entry.get("manager")) for entry in entries if _owns(entry.get("fieldsV1") or {}, keys))
    )


def as_applied(live: t.Mapping[str, t.Any], manager: str) -> list[Tree]:
    """The managedFields of an object, changed so that all fields that the manager has written count as applied.

    The server removes a field that an apply no longer contains only if the field counts as applied.
    """
    entries = managed_fields(live)
    own = [entry for entry in entries if entry.get("manager") == manager and not entry.get("subresource")]
    if all(_is_applied_by(entry, manager) for entry in own):
        return [dict(entry) for entry in entries]
    fields = _fields(live, own.__contains__)
    others = [dict(entry) for entry in entries if entry not in own]
    return [*others, {**own[-1], "operation": "Apply", "fieldsV1": fields}]


def has_records(live: t.Mapping[str, t.Any]) -> bool:
    """Whether an object has managedFields; users may remove them."""
    return any(entry.get("fieldsV1") for entry in managed_fields(live))


def _owns(tree: Tree, keys: tuple[str, ...]) -> bool:
    if not keys:
        # An entry with "." alone is a map that was written while it was empty.
        return True
    entry = f"f:{keys[0]}"
    if entry not in tree:
        return False
    below = t.cast("Tree", tree[entry])
    # A leaf is owned with everything below it.
    return not below or _owns(below, keys[1:])


def child(tree: Tree, key: str) -> Tree:
    """The tree below the key of a map; empty if no field below it is owned."""
    return t.cast("Tree", tree.get(f"f:{key}") or {})


def list_keys(tree: Tree) -> tuple[str, ...]:
    """The key fields of an associative list (`name`, or `containerPort` and `protocol`); empty for other lists."""
    for entry in tree:
        if entry.startswith("k:"):
            return tuple(json.loads(entry[2:]))
    return ()


def is_set(tree: Tree) -> bool:
    """Whether the elements of a list are owned individually, by their values."""
    return any(entry.startswith("v:") for entry in tree)


def element_of(tree: Tree, keys: t.Mapping[str, t.Any]) -> Tree:
    """The tree of the element of an associative list that has these key fields."""
    for entry, below in tree.items():
        if entry.startswith("k:") and json.loads(entry[2:]) == dict(keys):
            return t.cast("Tree", below)
    return {}


def is_leaf(tree: Tree) -> bool:
    """Whether a field is owned as a whole."""
    return not any(entry != _SELF for entry in tree)


def has_dropped(live: t.Any, tree: Tree, desired: t.Any) -> bool:
    """Whether `live` has fields that the owner of the tree owns but no longer wants."""
    for entry, below in tree.items():
        exists, live_value = _lookup(live, entry)
        if exists:
            is_wanted, wanted_value = _lookup(desired, entry)
            if not is_wanted or has_dropped(live_value, below, wanted_value):
                return True
    return False


def dropped_elements(live: list[t.Any], tree: Tree, desired: list[t.Any], others: Tree) -> list[t.Any]:
    """The elements of a list that only the owner of the tree owns and no longer wants."""
    entries = [entry for entry in tree if entry not in others and not _lookup(desired, entry)[0]]
    return [value for exists, value in (_lookup(live, entry) for entry in entries) if exists]


def _matches(candidate: t.Any, keys: t.Mapping[str, t.Any]) -> bool:
    """Whether an element of an associative list has these key fields; a missing field is assumed to have the server's default."""
    return (
        isinstance(candidate, dict)
        and all(candidate[key] == value for key, value in keys.items() if key in candidate)
        and any(key in candidate for key in keys)
    )


def _lookup(value: t.Any, entry: str) -> tuple[bool, t.Any]:
    kind, dummy, text = entry.partition(":")
    if kind == "f" and isinstance(value, dict):
        return text in value and value[text] is not None, value.get(text)
    if kind == "k" and isinstance(value, list):
        keys = json.loads(text)
        for candidate in value:
            if _matches(candidate, keys):
                return True, candidate
    if kind == "v" and isinstance(value, list):
        element = json.loads(text)
        return element in value, element
    if kind == "i" and isinstance(value, list) and int(text) < len(value):
        return True, value[int(text)]
    return False, None


def _is_applied_by(entry: t.Mapping[str, t.Any], manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply"


def _fields(live: t.Mapping[str, t.Any], is_included: t.Callable[[t.Mapping[str, t.Any]], bool]) -> Tree:
    merged: Tree = {}
    for entry in managed_fields(live):
        if is_included(entry):
            _merge(merged, entry.get("fieldsV1") or {})
    return merged


def _merge(into: Tree, other: t.Mapping[str, t.Any]) -> None:
    for key, below in other.items():
        _merge(into.setdefault(key, {}), below)


# Compares values that an API server may return in a different form: quantities, numbers as strings, defaults and omitted zeros.

# This is needed because parse_quantity() also accepts strings that an API server rejects, such as "inf" and "1_000".
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?([KMGTPE]i|[numkMGTPE])?")
# Fields whose values, or the values of their keys, are quantities (such as ResourceList in k8s.io/api core/v1).
QUANTITY_FIELDS = frozenset(
    {
        "allocatable",
        "capacity",
        "default",
        "defaultRequest",
        "divisor",
        "hard",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "min",
        "overhead",
        "podFixed",
        "requests",
        "sizeLimit",
        "averageValue",
    }
)

# Maps in which every value is a string, never a number.
TEXT_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector", "data", "binaryData", "selector"})

# Defaults that the API server writes into elements of atomic lists (k8s.io/kubernetes pkg/apis/*/v1/defaults.go).
_DEFAULTS: dict[str, tuple[t.Any, ...]] = {
    "apiGroup": ("", "rbac.authorization.k8s.io"),
    "apiVersion": ("v1",),
    "defaultMode": (420,),
    "divisor": ("0",),
    "listKind": (),
    "pathType": ("ImplementationSpecific",),
    "protocol": ("TCP",),
    "scope": ("*",),
    "singular": (),
}

# API groups of Kubernetes itself, whose objects omit fields that are false, 0 or an empty string.
_BUILT_IN = frozenset(
    {
        "",
        "apps",
        "autoscaling",
        "batch",
        "policy",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)


def is_built_in(api_version: str) -> bool:
    """Whether a kind belongs to Kubernetes itself and not to a CRD."""
    return (api_version.rpartition("/")[0]) in _BUILT_IN


def is_default(key: str, value: t.Any) -> bool:
    """Whether the server may have added the field to an element of an atomic list."""
    return value in (None, "", [], {}) or value in _DEFAULTS.get(key, ())


def quantity(value: t.Any) -> Decimal | None:
    """The amount of a quantity ("500m", "1Gi", 2, "1e3"); None for other values."""
    # Imported here, because this file is also loaded if the library is missing, which kube/module.py reports.
    from kubernetes.utils.quantity import parse_quantity

    if isinstance(value, bool) or not _QUANTITY.fullmatch(str(value)):
        return None
    return t.cast("Decimal", parse_quantity(str(value)))


def same_scalar(live: t.Any, desired: t.Any, *, quantities: bool, text: bool) -> bool:
    """Whether the API server treats both values as equal, in a field that contains quantities, only strings, or neither."""
    if type(live) is type(desired) and live == desired:
        return True
    if text:
        return False
    if quantities:
        live_amount, desired_amount = quantity(live), quantity(desired)
        return live_amount is not None and live_amount == desired_amount
    if isinstance(live, bool) or isinstance(desired, bool):
        return False
    if isinstance(live, (int, float)) and isinstance(desired, (int, float)):
        return live == desired
    # An int-or-string (such as a port or maxUnavailable) can be a number or a string.
    return {type(live), type(desired)} == {int, str} and str(live) == str(desired)


# Compares a desired object with the live object and the fields that the collection owns in it (pure).

_VOLATILE = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


@dataclass(frozen=True)
class Difference:
    """The effect of applying `patch_body`; `before` and `after` are shown to users, without fields that the server maintains."""

    changed: bool
    before: Object
    after: Object
    patch_body: Object


@dataclass(frozen=True)
class _FieldContext:
    """The owners of a field whose values are compared, and the rules for the comparison."""

    built_in: bool
    # The fields below this field that any manager owns, that the applying manager owns, and that other managers own.
    shape: Tree
    owned: Tree
    others: Tree
    quantities: bool = False
    text: bool = False
    atomic: bool = False

    def below(self, key: str) -> _FieldContext:
        return replace(
            self,
            shape=child(self.shape, key),
            owned=child(self.owned, key),
            others=child(self.others, key),
            quantities=not self.text and (self.quantities or key in QUANTITY_FIELDS),
            text=self.text or key in TEXT_MAPS,
        )

    def element(self, keys: Object) -> _FieldContext:
        shape, owned, others = (element_of(tree, keys) for tree in (self.shape, self.owned, self.others))
        return replace(self, shape=shape, owned=owned, others=others)


def difference(live: Object | None, desired: Object, manager: str) -> Difference:
    """The difference, which is `changed` unless `live` contains all fields of `desired` and `desired` contains all fields that the manager has applied."""
    body = normalized(desired)
    if live is None:
        return Difference(True, {}, shown(body), body)
    context = _FieldContext(
        is_built_in(str(body.get("apiVersion", ""))),
        known_shape(live),
        owned_by(live, manager),
        owned_by_others(live, manager),
    )
    changed = not _contains(live, body, context) or has_dropped(live, context.owned, body)
    return Difference(changed, shown(live), shown(_applied(live, body, context) if changed else live), body)


def without(live: Object, owned: Tree, others: Tree) -> Object:
    """A copy of `live` without the fields that are in `owned` but not in `others`."""
    return _map_applied(live, {}, _FieldContext(built_in=False, shape=owned, owned=owned, others=others))


def normalized(desired: Object) -> Object:
    """The body to send, without the status and fields that only the server writes; the `stringData` of a Secret is encoded as `data`."""
    body = copy.deepcopy(desired)
    body.pop("status", None)
    metadata = body.setdefault("metadata", {})
    for name in _VOLATILE:
        metadata.pop(name, None)
    text = body.pop("stringData", None) if body.get("kind") == "Secret" else None
    if text:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
        body["data"] = {**(body.get("data") or {}), **encoded}
    return body


def shown(live: Object | None) -> Object:
    """An object for a diff, without the status, fields that only the server writes, and values of Secrets."""
    view = _bare(live)
    if view.get("kind") == "Secret":
        for name in ("data", "stringData"):
            if view.get(name):
                view[name] = dict.fromkeys(view[name], NOT_SHOWN)
    return view


def same_object(one: Object | None, other: Object | None) -> bool:
    """Whether two versions of an object differ only in fields that the server maintains."""
    return _bare(one) == _bare(other)


def _bare(live: Object | None) -> Object:
    if not live:
        return {}
    return {
        **{key: value for key, value in live.items() if key != "status"},
        "metadata": {key: value for key, value in (live.get("metadata") or {}).items() if key not in _VOLATILE},
    }


def _contains(live: t.Any, desired: t.Any, context: _FieldContext) -> bool:
    """Whether `live` contains `desired`; other fields of `live` are foreign or defaults of the server."""
    if desired is None:
        return live is None
    if isinstance(desired, dict):
        return isinstance(live, dict) and _map_contains(live, desired, context)
    if isinstance(desired, list):
        return isinstance(live, list) and _list_contains(live, desired, context)
    return same_scalar(live, desired, quantities=context.quantities, text=context.text)


def _map_contains(live: Object, desired: Object, context: _FieldContext) -> bool:
    for key, value in desired.items():
        if key in live:
            if not _contains(live[key], value, context.below(key)):
                return False
        elif not _may_be_omitted(key, value, context):
            return False
    # The fields of an atomic value have one owner, so additional fields that are not defaults must be removed.
    return not context.atomic or all(key in desired or is_default(key, live[key]) for key in live)


def _may_be_omitted(key: str, value: t.Any, context: _FieldContext) -> bool:
    if value is None:
        return True
    if value == {} or value == []:
        return key in ("annotations", "labels", "finalizers", "ownerReferences")
    return context.built_in and not context.text and value in (False, 0, "")


def _list_contains(live: list[t.Any], desired: list[t.Any], context: _FieldContext) -> bool:
    names = list_keys(context.shape)
    if names:
        return all(_element_contains(live, value, names, context) for value in desired)
    if is_set(context.shape):
        return all(value in live for value in desired)
    inside = replace(context, shape={}, atomic=True)
    return len(live) == len(desired) and all(map(lambda one, other: _contains(one, other, inside), live, desired))


def _element_contains(live: list[t.Any], value: t.Any, names: tuple[str, ...], context: _FieldContext) -> bool:
    return any(_contains(live[index], value, element) for index, element in _candidates(live, value, names, context))


def _candidates(
    live: list[t.Any], value: t.Any, names: tuple[str, ...], context: _FieldContext
) -> t.Iterator[tuple[int, _FieldContext]]:
    """The indices of list elements with the key fields of the value; there may be several if the value omits a key field that has a default."""
    keys = {name: value[name] for name in names if name in value} if isinstance(value, dict) else {}
    for index, candidate in enumerate(live):
        if keys and isinstance(candidate, dict) and all(candidate.get(name) == key for name, key in keys.items()):
            yield index, context.element({name: candidate.get(name) for name in names})


def _applied(live: t.Any, desired: t.Any, context: _FieldContext) -> t.Any:
    """The live value after an apply; if both values are equal, the spelling of the live value is kept."""
    if isinstance(live, dict) and isinstance(desired, dict):
        return _map_applied(live, desired, context)
    if isinstance(live, list) and isinstance(desired, list):
        return _list_applied(live, desired, context)
    return live if not isinstance(desired, (dict, list)) and _contains(live, desired, context) else desired


def _map_applied(live: Object, desired: Object, context: _FieldContext) -> Object:
    applied: Object = {}
    for key, value in live.items():
        entry, below = f"f:{key}", context.below(key)
        if desired.get(key) is not None:
            applied[key] = _applied(value, desired[key], below)
        elif key in desired:
            # Null removes a field, regardless of its owner.
            continue
        elif entry not in context.owned:
            applied[key] = value
        else:
            is_whole = is_leaf(below.owned)
            rest = value if is_whole else _applied(value, type(value)(), below)
            # Foreign fields below this field are kept; a map that is now empty belonged only to the owner.
            if entry in context.others or (rest and not is_whole):
                applied[key] = rest
    added = {key: value for key, value in desired.items() if key not in live}
    return applied | {key: value for key, value in added.items() if not _may_be_omitted(key, value, context)}


def _list_applied(live: list[t.Any], desired: list[t.Any], context: _FieldContext) -> list[t.Any]:
    names = list_keys(context.shape)
    if not names and not is_set(context.shape):
        return live if _list_contains(live, desired, context) else desired
    dropped = dropped_elements(live, context.owned, desired, context.others)
    applied = [value for value in live if value not in dropped]
    if not names:
        return [*applied, *(value for value in desired if value not in applied)]
    assigned: set[int] = set()
    for value in desired:
        candidates = [
            candidate for candidate in _candidates(applied, value, names, context) if candidate[0] not in assigned
        ]
        if not candidates:
            assigned.add(len(applied))
            applied.append(value)
            continue
        exact = (candidate for candidate in candidates if _contains(applied[candidate[0]], value, candidate[1]))
        index, element = next(exact, candidates[0])
        assigned.add(index)
        applied[index] = _applied(applied[index], value, element)
    return applied


# Finds the defaults that a CustomResourceDefinition sets in its openAPIV3Schema (apiextensions.k8s.io/v1) (pure).


def defaults_at(definition: Document, path: t.Sequence[str]) -> list[t.Any]:
    """The values that the API server may set at this path of keys if none is given: one for each version and level that has a default."""
    defaults: list[t.Any] = []
    for version in (definition.get("spec") or {}).get("versions") or []:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        defaults += [value for value in _defaults(schema, path) if value not in defaults]
    return defaults


def _defaults(schema: Document, path: t.Sequence[str]) -> t.Iterator[t.Any]:
    if "default" in schema:
        yield from _value_at(schema["default"], path)
    if path:
        properties = schema.get("properties") or {}
        below = properties.get(path[0], schema.get("additionalProperties"))
        if isinstance(below, t.Mapping):
            yield from _defaults(below, path[1:])


def _value_at(default: t.Any, path: t.Sequence[str]) -> t.Iterator[t.Any]:
    """The value at this path in the default of a map, if there is one."""
    for key in path:
        if not isinstance(default, t.Mapping) or key not in default:
            return
        default = default[key]
    yield default


# Recognizes, by the marks on an object, the tool that reconciles the object from the tool's own source (pure).
#
# Argo CD marks an object with the annotation argocd.argoproj.io/tracking-id, `<application>:<group>/<kind>:<namespace>/<name>`, or by
# a label: its documentation proposes argocd.argoproj.io/instance in addition to app.kubernetes.io/instance, which every Helm chart sets
# (https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/). Flux marks objects of a
# HelmRelease or a Kustomization with two labels of that kind's API group (fluxcd/helm-controller internal/postrender/origin_labels.go,
# fluxcd/pkg ssa/manager.go SetOwnerLabels).
#
# External Secrets sets its label and annotations on each Secret that it writes, and owns the Secret unless it only adds keys to it
# (external-secrets apis/externalsecrets/v1/externalsecret_types.go). Sealed Secrets owns the Secret, or sets its annotation on Secrets that it
# takes over (bitnami-labs/sealed-secrets README, "Managing existing secrets").
#
# Other tools: OLM labels what belongs to a ClusterServiceVersion (operator-lifecycle-manager pkg/lib/ownerutil), the marketplace operator annotates the
# default CatalogSources (operator-framework/operator-marketplace pkg/operatorhub), Hive labels MachineSets of its MachinePools (openshift/hive
# pkg/controller/machinepool), Config Sync and Rancher (wrangler, which Fleet uses) annotate what they apply. Open Cluster Management owns the objects of a
# ManifestWork through an AppliedManifestWork. A tool without marks is recognized by its field manager. The label app.kubernetes.io/instance is not
# evidence, because every Helm chart sets it; Argo CD's field manager is. If Argo CD has written the object without a tracking id, this label is its default
# mark, and contains the name of the application.

ARGO_CD, FLUX = "argocd", "flux"

_TRACKING_ID, _INSTANCE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"
_DEFAULT_INSTANCE, _ARGO_CD_MANAGER = "app.kubernetes.io/instance", "argocd-"
_APPLICATION, _HELM_RELEASE, _KUSTOMIZATION = "application", "HelmRelease", "Kustomization"
_FLUX_GROUPS = (("helm.toolkit.fluxcd.io", _HELM_RELEASE), ("kustomize.toolkit.fluxcd.io", _KUSTOMIZATION))
# The prefixes of the labels and annotations of tools that only write Secrets.
_PREFIXES = {
    "reconcile.external-secrets.io/": "External Secrets",
    "external-secrets.io/": "External Secrets",
    "sealedsecrets.bitnami.com/": "Sealed Secrets",
}
# Marks of other tools: a label or an annotation, and the tool.
_MARKS = {
    "operatorframework.io/managed-by": "the marketplace operator (OperatorHub cluster)",
    "hive.openshift.io/managed": "Hive (its MachinePool)",
    "configmanagement.gke.io/managed": "Config Sync",
    "configsync.gke.io/manager": "Config Sync",
    "objectset.rio.cattle.io/hash": "Rancher Fleet or an add-on of Rancher",
    "objectset.rio.cattle.io/id": "Rancher Fleet or an add-on of Rancher",
}
# The value of a mark that means that the tool does not manage the object.
_UNMANAGED = ("disabled", "false")
# Beginnings of the names of field managers, and the tools.
_FIELD_MANAGERS = {
    _ARGO_CD_MANAGER: "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "configsync.gke.io": "Config Sync",
    "fleetagent": "Rancher Fleet",
    "config-policy-controller": "a policy of Open Cluster Management",
    "klusterlet-work": "a ManifestWork of Open Cluster Management",
    "work-agent": "a ManifestWork of Open Cluster Management",
    "terraform": "Terraform",
    "pulumi": "Pulumi",
}
# Tools that write single labels and annotations of objects that they do not manage otherwise.
_ENTRY_MANAGERS = {"nfd-master": "a rule of Node Feature Discovery"}
_MANIFEST_WORK = "AppliedManifestWork"
# Helm marks the objects of a release (helm pkg/action/validate.go). An upgrade of the release sets the fields again that its chart contains. How the operator's
# release, and what its pods create, is changed is decided where the installation is examined.
# The name and the namespace of a Helm release.
ReleaseId = tuple[str, str]
HELM_NAME, HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_OF_OPERATOR = ("ClusterPolicy", "NVIDIADriver", "CustomResourceDefinition", "DaemonSet", "Deployment")
# Objects that their controller creates but does not keep as they were.
_NOT_RECONCILED = ("Machine", "Node", "Pod", "Lease", "Event", "Job")


class Resource(t.NamedTuple):
    """A resource of a GitOps tool: its kind, in the form used in messages, and its name."""

    kind: str
    name: str


@dataclass(frozen=True)
class GitOpsTool:
    """A GitOps tool. To add a tool, add an entry to GITOPS_TOOLS.

    name: the value of `manager` in results that describe an installation. resource_of: finds the resource that reconciles an object of the given kind, by
    the object's marks. exclusions: for each kind of resource, how a user keeps that resource from reverting fields of an object.
    helm_managers: the field managers with which the tool applies Helm charts.
    """

    name: str
    title: str
    resource_of: t.Callable[[Document, str], Resource | None]
    exclusions: t.Mapping[str, str]
    helm_managers: tuple[str, ...] = ()


@dataclass(frozen=True)
class GitOpsOwner:
    """The resource of a GitOps tool that reconciles an object."""

    tool: GitOpsTool
    resource: Resource

    def __str__(self) -> str:
        return f"{self.tool.title} {self.resource.kind} {self.resource.name}"

    @property
    def exclusions(self) -> str:
        """How a user keeps the resource from reverting fields of a ClusterPolicy."""
        return self.exclusions_for("ClusterPolicy", "nvidia.com")

    def exclusions_for(self, kind: str, group: str) -> str:
        """How a user keeps the resource from reverting fields of an object of this kind and API group."""
        which = f"group {group}, kind {kind}" if group else f"kind {kind}"
        return self.tool.exclusions[self.resource.kind].format(kind=kind, which=which)


def manager_of(item: Document, kind: str) -> str:
    """The tool or object that reconciles an object of this kind, for messages; empty if there is none."""
    if owner := gitops_owner(item, kind):
        return str(owner)
    metadata = item["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return f"{reference['kind']} {reference['name']}"
    marks = [*(metadata.get("labels") or ()), *(metadata.get("annotations") or ())]
    return next((tool for prefix, tool in _PREFIXES.items() if any(mark.startswith(prefix) for mark in marks)), "")


def reverts_changes(item: Document) -> str:
    """A sentence about the tool that will revert changes to this object, and what to do; empty if no tool is known to do so.

    The object may be the server's answer to a change, so that it contains its apiVersion and its kind.
    """
    kind, metadata = str(item.get("kind") or ""), item.get("metadata") or {}
    if not kind or not metadata.get("name") or kind in _NOT_RECONCILED:
        return ""
    title = f"{kind} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"
    if owner := gitops_owner(item, kind):
        group = str(item.get("apiVersion") or "").rpartition("/")[0]
        how = owner.exclusions_for(kind, group)
        return f"{owner} reconciles {title} from its source. Make the changes of this run there too, or exclude the fields: {how}."
    tool = manager_of(item, kind) or _other_tool(metadata)
    if not tool:
        release = None if kind in _OF_OPERATOR else helm_release_of(item)
        return (
            f"Helm release {release[1]}/{release[0]} contains {title}, and its next upgrade may revert the changes of this run. Make the same changes in "
            "the values of the release."
            if release
            else ""
        )
    return f"{tool} manages {title} and may revert the changes of this run. Make the same changes where {tool} gets its settings."


def owner_of(item: Document, kind: str, manager: str) -> str:
    """The tool, object, Helm release or field managers other than `manager` that an object of this kind belongs to, for messages; empty if unknown."""
    metadata = item["metadata"]
    if tool := manager_of(item, kind) or _other_tool(metadata):
        return tool
    if release := helm_release_of(item):
        return f"Helm release {release[1]}/{release[0]}"
    managers = sorted({name for name in _field_managers(metadata) if name and name != manager})
    return f"field manager {', '.join(managers)}" if managers else ""


def _other_tool(metadata: Document) -> str:
    """The tool without a resource of its own that manages an object, by its marks, its owners and its field managers."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    marks = {**annotations, **labels}
    for mark, tool in _MARKS.items():
        if mark in marks and str(marks[mark]).lower() not in _UNMANAGED:
            return tool
    if labels.get(OWNER_LABEL) and labels.get(OWNER_KIND_LABEL):
        return f"OLM ({labels[OWNER_KIND_LABEL]} {labels[OWNER_LABEL]})"
    for reference in metadata.get("ownerReferences") or ():
        if reference["kind"] == _MANIFEST_WORK:
            return f"Open Cluster Management ({reference['kind']} {reference['name']})"
    return _tool_among(_field_managers(metadata), _FIELD_MANAGERS)


def _tool_among(managers: t.Iterable[str], tools: t.Mapping[str, str]) -> str:
    """The first of the field managers that belongs to one of the tools, with the tool; empty if there is none."""
    for manager in managers:
        tool = next((tool for start, tool in tools.items() if manager.lower().startswith(start)), "")
        if tool:
            return f"{tool} (field manager {manager})"
    return ""


def helm_release_of(item: t.Mapping[str, t.Any]) -> ReleaseId | None:
    """The name and the namespace of the Helm release that an object belongs to, according to its annotations; None if it belongs to none."""
    annotations = item["metadata"].get("annotations") or {}
    name, namespace = annotations.get(HELM_NAME), annotations.get(HELM_NAMESPACE)
    return (name, namespace) if name and namespace else None


def tool_of_entry(item: t.Mapping[str, t.Any], part: str, key: str) -> str:
    """The tool that has set this label or annotation (`part`: labels, annotations) of an object that it does not manage otherwise, such as a node."""
    return _tool_among(writers(item, ("metadata", part, key)), {**_FIELD_MANAGERS, **_ENTRY_MANAGERS})


def tool_of_taints(node: t.Mapping[str, t.Any]) -> str:
    """The tool that has set the list of taints of a node; the list has one owner, which replaces it as a whole."""
    return _tool_among(writers(node, ("spec", "taints")), _FIELD_MANAGERS)


def _field_managers(metadata: Document) -> list[str]:
    """The field managers that have written the object itself, not only a subresource such as its status."""
    return [
        str(entry.get("manager") or "") for entry in metadata.get("managedFields") or () if not entry.get("subresource")
    ]


def gitops_owner(item: Document, kind: str) -> GitOpsOwner | None:
    """The GitOps resource that owns an object of this kind; None if it has no mark, or only a mark copied from another object."""
    owned = (
        GitOpsOwner(tool, resource) for tool in GITOPS_TOOLS.values() if (resource := tool.resource_of(item, kind))
    )
    return next(owned, None)


def _flux_resource(item: Document, _kind: str) -> Resource | None:
    labels = item["metadata"].get("labels") or {}
    for group, owner in _FLUX_GROUPS:
        name, namespace = labels.get(f"{group}/name"), labels.get(f"{group}/namespace")
        if name:
            return Resource(owner, f"{namespace}/{name}" if namespace else name)
    return None


def _argo_cd_resource(item: Document, kind: str) -> Resource | None:
    metadata = item["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    application, dummy, tracked = str(annotations.get(_TRACKING_ID) or "").partition(":")
    if application and _refers_to(tracked, kind, metadata["name"]):
        return Resource(_APPLICATION, application)
    instance = labels.get(_INSTANCE) or annotations.get(_INSTANCE)
    if not instance and not tracked and any(name.startswith(_ARGO_CD_MANAGER) for name in _field_managers(metadata)):
        instance = labels.get(_DEFAULT_INSTANCE)
    return Resource(_APPLICATION, instance) if instance else None


def _refers_to(tracked: str, kind: str, name: str) -> bool:
    """Whether `tracked` (`<group>/<kind>:<namespace>/<name>`) refers to an object of this kind and name."""
    group_kind, dummy, path = tracked.partition(":")
    return group_kind.rpartition("/")[2] == kind and path.rpartition("/")[2] == name


# The instructions are from the documentation of the tools. Argo CD: user-guide/diffing and user-guide/sync-options (RespectIgnoreDifferences).
# Flux: fluxcd.io/flux/components/helm/helmreleases (Drift detection) and .../kustomize/kustomizations (server-side apply).
GITOPS_TOOLS: t.Mapping[str, GitOpsTool] = {
    tool.name: tool
    for tool in (
        GitOpsTool(
            FLUX,
            "Flux",
            _flux_resource,
            {
                _HELM_RELEASE: (
                    "drift detection (spec.driftDetection.mode: enabled) reverts them: list them as paths in spec.driftDetection.ignore of the "
                    "HelmRelease (target.kind: {kind})"
                ),
                _KUSTOMIZATION: (
                    "server-side apply reverts those that the source sets: remove them from the source, or annotate the {kind} there with "
                    "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent"
                ),
            },
            helm_managers=("helm-controller",),
        ),
        GitOpsTool(
            ARGO_CD,
            "Argo CD",
            _argo_cd_resource,
            {
                _APPLICATION: (
                    "automated sync with selfHeal reverts them: list them as jsonPointers in spec.ignoreDifferences of the Application "
                    "({which}) and set the sync option RespectIgnoreDifferences=true"
                ),
            },
        ),
    )
}
