# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the objects that are applied: Subscription, OperatorGroup and CatalogSource (pure).

The lists of a Subscription's spec.config are atomic in the CRD, so the collection's entries are merged with the foreign ones. An annotation records
the collection's entries, and only these entries are removed later.
"""

from __future__ import annotations

import json
import typing as t

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER, SUBSCRIPTION_CONFIG_ANNOTATION
from ..catalog.olm import SUBSCRIPTION_FIELDS, V1, V1ALPHA1
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested, parse_json
from ..kube.managed_fields import Tree, child, owned_by
from ..kube.metadata import name_of
from .options import OlmOptions

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# The field that identifies an entry in a list of spec.config; the entries of other lists are compared as a whole.
_IDENTITY = {"env": "name", "volumes": "name", "volumeMounts": "mountPath"}


def subscription_body(
    options: OlmOptions,
    live: Document | None,
    *,
    channel: str,
    source: str,
    starting_csv: str,
    adopts: bool = False,
) -> Object:
    """The Subscription to apply. `live` is the existing Subscription, if any. Empty values for channel, source and startingCSV are omitted.

    adopts: whether a new Subscription replaces the one of a foreign installation. The new Subscription is then not marked as created, so that an
    uninstallation keeps it.
    """
    declared = {field: getattr(options, option) for field, option in SUBSCRIPTION_FIELDS.items()}
    fields = {**declared, "channel": channel, "source": source, "startingCSV": starting_csv}
    content: Object = {field: value for field, value in fields.items() if value}
    annotations = {} if adopts else _created(live)
    config, owned = _config(options.subscription_config, live)
    if config:
        content["config"] = config
    if owned:
        annotations[SUBSCRIPTION_CONFIG_ANNOTATION] = json.dumps(owned, sort_keys=True)
    name = name_of(live) if live is not None else options.name or options.package
    return _object(V1ALPHA1, "Subscription", name, options.namespace, annotations, content)


def group_body(options: OlmOptions, name: str, targets: t.Sequence[str]) -> Object:
    """The OperatorGroup to create; if `targets` is empty, the group selects all namespaces."""
    content: Object = {"targetNamespaces": list(targets)} if targets else {}
    return _object(V1, "OperatorGroup", name, options.namespace, _created(None), content)


def catalog_body(options: OlmOptions, live: Document | None) -> Object:
    """The CatalogSource for the catalog image. Its security context is restricted, which works in every namespace of OpenShift 4.12 and later."""
    name = options.source[0]
    content = {
        "sourceType": "grpc",
        "image": options.catalog_image,
        "displayName": name,
        "grpcPodConfig": {"securityContextConfig": "restricted"},
    }
    return _object(V1ALPHA1, "CatalogSource", name, options.source_namespace, _created(live), content)


def merge_list(
    key: str, current: t.Sequence[t.Any], recorded: t.Sequence[t.Any], desired: t.Sequence[t.Any]
) -> tuple[list[t.Any], list[t.Any]]:
    """The list to write, and the collection's entries in it. Foreign entries keep their order; an entry equal to a foreign one remains foreign."""
    by_identity = {_identity(key, item): item for item in desired}
    own = {_identity(key, item) for item in recorded}
    merged: list[t.Any] = []
    owned: list[t.Any] = []
    for item in current:
        identity = _identity(key, item)
        replacement = by_identity.pop(identity, None)
        if replacement is None:
            if identity not in own:
                merged.append(item)
            continue
        merged.append(replacement)
        if identity in own or replacement != item:
            owned.append(replacement)
    return [*merged, *by_identity.values()], [*owned, *by_identity.values()]


def removed_config(before: Document | None, after: Document | None) -> Object:
    """The tolerations and nodeSelector entries that are removed from spec.config. A later check verifies that Deployments no longer have them."""
    old, new = before or {}, after or {}
    tolerations = [item for item in old.get("tolerations") or () if item not in (new.get("tolerations") or ())]
    selector = {
        key: value
        for key, value in (old.get("nodeSelector") or {}).items()
        if (new.get("nodeSelector") or {}).get(key) != value
    }
    return {"tolerations": tolerations, "nodeSelector": selector}


def _config(desired: t.Mapping[str, t.Any] | None, live: Document | None) -> tuple[Object, Object]:
    """The content of spec.config to apply, and the collection's list entries to record."""
    current = get_nested(live, "spec", "config") or {}
    recorded = recorded_entries(live)
    applied = child(child(owned_by(live, FIELD_MANAGER), "spec"), "config") if live else {}
    if desired is None:
        return owned_part(current, applied), recorded
    config: Object = {key: value for key, value in desired.items() if not isinstance(value, list)}
    owned: Object = {}
    lists = {key for key, value in desired.items() if isinstance(value, list)} | recorded.keys()
    lists |= {key for key in current if isinstance(current[key], list) and f"f:{key}" in applied}
    for key in sorted(lists):
        merged, own = merge_list(key, current.get(key) or [], recorded.get(key) or [], desired.get(key) or [])
        if merged and (merged != current.get(key) or f"f:{key}" in applied):
            config[key] = merged
        if own:
            owned[key] = own
    return config, owned


def recorded_entries(live: Document | None) -> Object:
    """The collection's entries in the lists of spec.config, by the name of the list."""
    text = get_nested(live, "metadata", "annotations", SUBSCRIPTION_CONFIG_ANNOTATION) if live else None
    entries = parse_json(text, dict) or {}
    return {key: value for key, value in entries.items() if isinstance(value, list)}


def owned_part(value: t.Any, applied: Tree) -> t.Any:
    """The part of a value that the collection has applied."""
    below = [entry for entry in applied if entry.startswith("f:")]
    if not isinstance(value, dict) or not below:
        return value if applied or not isinstance(value, dict) else {}
    return {
        entry[2:]: owned_part(value[entry[2:]], applied[entry] or {".": {}}) for entry in below if entry[2:] in value
    }


def _identity(key: str, item: t.Any) -> str:
    field = _IDENTITY.get(key)
    if field and isinstance(item, dict) and field in item:
        return str(item[field])
    return json.dumps(item, sort_keys=True, default=str)


def _created(live: Document | None) -> Object:
    return {CREATED_ANNOTATION: "true"} if live is None or is_created_by_collection(live) else {}


def _object(api_version: str, kind: str, name: str, namespace: str, annotations: Object, spec: Object) -> Object:
    metadata: Object = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
