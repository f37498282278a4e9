# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the NVIDIADriver objects of the pools; the API server checks all of them before the first one is written.

Writing only some of the objects would be worse than writing none: while a node is not covered by any object, the operator does not complete its switch
to NVIDIADriver objects.
"""

from __future__ import annotations

import re
import typing as t

from ..catalog.names import POOL_LABEL
from ..cluster_state.node import parse_node
from ..cluster_state.ownership import NodeEdit
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.node_patcher import patch_node
from ..kube.paths import CUSTOM_RESOURCE_DEFINITIONS, NVIDIA_DRIVERS
from ..schema.messages import join_words
from .driver_objects import DriverObjectChange, DriverObjects, pool_label_edit

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

CRD_NAME = "nvidiadrivers.nvidia.com"
# The error messages if the schema lacks a field of an applied (status 500) or created (status 400) object.
_UNKNOWN_FIELD = re.compile(r"field not declared in schema|unknown field")
# The error message if a webhook has side effects; the object itself may be valid.
_NO_DRY_RUN = "does not support dry run"


def refused_objects(client: Client, objects: DriverObjects, version: str, *, check: bool) -> list[str]:
    """The reasons why the API server would reject the changes to the objects; sends dry runs if there are any changes.

    `version` is the operator's release. With `check`, objects for which the user lacks write permission are not checked.
    """
    if not objects.changes:
        return []
    fields = undeclared_fields(_definition(client), [change.body for change in objects.changes])
    if fields:
        return [_old_definition(version, f"it has no {join_words(fields)}")]
    problems: list[str] = []
    for change in objects.changes:
        try:
            _send(client, change, dry_run=True)
        except ApiError as error:
            if error.conflict or (check and error.lacks_right) or _NO_DRY_RUN in error.message:
                continue
            if error.not_found or _UNKNOWN_FIELD.search(error.message):
                problems.append(_old_definition(version, error.message))
            elif error.rejects_object:
                problems.append(f"The API server rejects NVIDIADriver {change.name}: {error.message}")
            else:
                raise
    return list(dict.fromkeys(problems))


def undeclared_fields(definition: Document | None, bodies: t.Iterable[Document]) -> list[str]:
    """The fields of these specs that no version of the CRD declares; empty if the schema is not known."""
    declared: set[str] = set()
    for version in ((definition or {}).get("spec") or {}).get("versions") or ():
        schema = ((version.get("schema") or {}).get("openAPIV3Schema") or {}).get("properties") or {}
        declared |= set((schema.get("spec") or {}).get("properties") or ())
    if not declared:
        return []
    return sorted({f"spec.{key}" for body in bodies for key in body["spec"] if key not in declared})


def apply_driver_objects(client: Client, objects: DriverObjects, lease: t.Callable[[], None], *, check: bool) -> None:
    """Label the nodes of the pools, then write the objects that select them. In check mode, the objects have already been checked."""
    label_nodes(client, objects.label_edits, lease, dry_run=check)
    for change in () if check else objects.changes:
        lease()
        _send(client, change)


def label_nodes(
    client: Client, edits: t.Iterable[NodeEdit], lease: t.Callable[[], None], *, dry_run: bool = False
) -> None:
    """Set the pool label on each of these nodes."""
    for edit in edits:
        patch_node(client, edit, _pool_label_edit(edit), lease, dry_run=dry_run)


def _definition(client: Client) -> Object | None:
    """The CRD; None if the cluster does not have it, or if the user is not allowed to read it."""
    try:
        return client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{CRD_NAME}")
    except ApiError as error:
        if not error.forbidden:
            raise
        return None


def _old_definition(version: str, details: str) -> str:
    release = f"operator {version}" if version else "the operator"
    return f"The CRD {CRD_NAME} is older than {release}: {details}. Apply the CRDs of its chart, and run the playbook again."


def _send(client: Client, change: DriverObjectChange, *, dry_run: bool = False) -> None:
    """Create a new object or apply a change. Creating an object causes a conflict if an object of this name now exists."""
    if change.is_new:
        client.create(NVIDIA_DRIVERS, change.body, dry_run=dry_run, field_validation="Strict")
        return
    path = f"{NVIDIA_DRIVERS}/{change.name}"
    if change.correction and not dry_run:
        client.patch(path, change.correction)
    client.apply(path, change.body, dry_run=dry_run, field_validation="Strict")


def _pool_label_edit(edit: NodeEdit) -> t.Callable[[Object], NodeEdit | None]:
    """A function that computes the same edit for the version of the node that is read after a conflict."""
    pool = edit.labels[POOL_LABEL]
    return lambda raw: pool_label_edit(parse_node(raw), pool)
