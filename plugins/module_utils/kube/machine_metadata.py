# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes labels, annotations and taints from the Machine of an OpenShift node before they are removed from the node.

The Machine API copies them from the Machine to its node again and again (openshift/machine-api-operator, pkg/controller/nodelink), so it reverts a
change that is made only to the node. New Machines get the entries of their MachineSet's template.
"""

from __future__ import annotations

import typing as t

from ..catalog.machine_api import machine_sets_path, machines_path
from ..catalog.names import FORMER_TAINTS, REGISTRATION_ANNOTATION
from ..catalog.taints import taint_identity
from ..common.nested import get_nested, parse_json
from ..schema import validators
from .conflict_retry import Patcher, patch_object
from .errors import ApiError
from .metadata import controller_of

Object = dict[str, t.Any]


class Reader(t.Protocol):
    """The request that `obsolete_taints` sends."""

    def get(self, path: str) -> Object | None:
        """The object; None if it does not exist."""


class Removal(t.Protocol):
    """The entries of a node that an edit removes or changes, and the node's Machine as `namespace/name`."""

    @property
    def machine(self) -> str:
        """The value of the node's annotation for its Machine."""

    @property
    def labels(self) -> t.Collection[str]:
        """The keys of the labels."""

    @property
    def annotations(self) -> t.Collection[str]:
        """The keys of the annotations."""

    @property
    def taints(self) -> t.Collection[tuple[str, str]]:
        """The keys and effects of the taints."""


def remove_from_machine(client: Patcher, node: str, removal: Removal, check_lease: t.Callable[[], None]) -> None:
    """Remove the entries from the node's Machine. Call this before changing the node, because otherwise the Machine API would restore them.

    Entries are removed even if the node's are only changed: the Machine API leaves entries alone that the Machine does not have. `check_lease` is called
    before each patch.
    """
    path = _machine_path(removal.machine)
    if not path:
        return

    def compute(machine: Object) -> Object | None:
        if get_nested(machine, "status", "nodeRef", "name") not in (None, node):
            # The annotation refers to the Machine of another node.
            return None
        spec: Object = {}
        taints = get_nested(machine, "spec", "taints") or []
        kept = [taint for taint in taints if taint_identity(taint) not in removal.taints]
        if len(kept) != len(taints):
            spec["taints"] = kept or None
        for part, keys in (("labels", removal.labels), ("annotations", removal.annotations)):
            existing = [key for key in get_nested(machine, "spec", "metadata", part) or () if key in keys]
            if existing:
                spec.setdefault("metadata", {})[part] = dict.fromkeys(sorted(existing))
        if not spec:
            return None
        check_lease()
        return {"spec": spec}

    try:
        patch_object(client, path, client.get(path), compute)
    except ApiError as error:
        # The Machine was deleted after it was read; its node will also be deleted.
        if not error.not_found:
            raise


def obsolete_taints(
    client: Reader,
    machine: str,
    taints: t.Collection[tuple[str, str]],
    read: dict[str, Object | None],
    is_managed: t.Callable[[Object], bool],
) -> set[tuple[str, str]]:
    """The taints of a node that its MachineSet once gave it, and that the collection removes or has removed from the MachineSet.

    A node that joins between two runs has no record of what belongs to its pool. `read` contains the objects that were already read, by path.
    is_managed: whether the collection manages a MachineSet; a copy of a managed one has the same record. Without the permission to read the Machine or its
    MachineSet, the result is empty.
    """

    def get(path: str) -> Object | None:
        if path not in read:
            try:
                read[path] = client.get(path)
            except ApiError as error:
                if not error.lacks_right:
                    raise
                read[path] = None
        return read[path]

    path = _machine_path(machine)
    item = get(path) if path else None
    owner = controller_of(item) if item else None
    if owner is None or owner.get("kind") != "MachineSet":
        return set()
    machine_set = get(f"{machine_sets_path(machine.partition('/')[0])}/{owner['name']}")
    if machine_set is None or machine_set["metadata"].get("uid") != owner.get("uid") or not is_managed(machine_set):
        return set()
    annotations = get_nested(machine_set, "metadata", "annotations") or {}
    record = parse_json(annotations.get(REGISTRATION_ANNOTATION), dict) or {}
    given = {taint_identity(taint) for taint in get_nested(item, "spec", "taints") or ()}
    kept = {taint_identity(taint) for taint in get_nested(machine_set, "spec", "template", "spec", "taints") or ()}

    def is_own(identity: tuple[str, str]) -> bool:
        entries = record.get("taints" if identity in kept else FORMER_TAINTS)
        return isinstance(entries, list) and ":".join(identity) in entries

    return {identity for identity in taints if identity in given and is_own(identity)}


def _machine_path(machine: str) -> str:
    """The path of a Machine; empty if the annotation's value is not a valid name and could yield the path of another object."""
    namespace, dummy, name = machine.partition("/")
    valid = validators.dns_label(namespace) is None and validators.object_name(name) is None
    return f"{machines_path(namespace)}/{name}" if valid else ""
