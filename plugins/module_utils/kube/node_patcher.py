# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patches a node; after a conflict, reads the node and computes the patch again.

Every change to a node's metadata is sent here, so this is where a node's Machine is changed first (see machine_metadata.py).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .conflict_retry import retry_conflicts
from .errors import ApiError
from .machine_metadata import Removal, remove_from_machine
from .paths import NODES

if t.TYPE_CHECKING:
    from .client import Client

Object = dict[str, t.Any]
PatchStatus = t.Literal["changed", "unchanged", "gone", "unchecked"]


class Edit(t.Protocol):
    """A merge patch for one node; it contains the resourceVersion if it depends on the node that was read."""

    @property
    def name(self) -> str:
        """The name of the node."""

    @property
    def patch(self) -> Object:
        """The body of the request."""

    @property
    def removal(self) -> Removal | None:
        """The entries that must be removed from the node's Machine first; None if there are none."""


E = t.TypeVar("E", bound=Edit)


@dataclass(frozen=True)
class PatchResult(t.Generic[E]):
    """The last edit that was sent, with its effect; `node` is the changed node if the caller requested it.

    `status` is `unchanged` if nothing was left to change after a conflict, `gone` if the node does not exist, and `unchecked` if this user is not
    allowed to send a dry run.
    """

    status: PatchStatus
    edit: E
    node: Object | None = None


def patch_node(
    client: Client,
    edit: E,
    compute: t.Callable[[Object], E | None],
    check_lease: t.Callable[[], None],
    *,
    dry_run: bool = False,
    answer: bool = False,
) -> PatchResult[E]:
    """Send the edit; after a conflict, `compute` gets the current node and returns a new edit, or None.

    If the response to a patch is lost and `compute` then finds nothing to change, the patch was applied, so the status is `changed`.
    What the edit removes from the node is first removed from the node's Machine; a dry run does not read the Machine.
    `check_lease` is called before each patch and raises when the lease is lost. Without `answer`, the server does not return the node.
    """
    path = f"{NODES}/{edit.name}"
    sent, maybe_applied = edit, False
    node: Object | None = None

    def send(current: E) -> PatchResult[E]:
        nonlocal sent, maybe_applied
        sent = current
        if current.removal is not None and not dry_run:
            remove_from_machine(client, current.name, current.removal, check_lease)
        check_lease()
        try:
            if answer:
                return PatchResult("changed", current, client.patch(path, current.patch, dry_run=dry_run))
            client.strategic_merge(path, current.patch, dry_run=dry_run)
            return PatchResult("changed", current)
        except ApiError as error:
            if error.not_found:
                return PatchResult("gone", current)
            if dry_run and error.lacks_right:
                return PatchResult("unchecked", current)
            maybe_applied = maybe_applied or (error.maybe_applied and not dry_run)
            error.earlier_outcome_unknown = maybe_applied
            raise

    def recompute() -> E | None:
        nonlocal node
        node = client.get(path)
        return compute(node) if node is not None else None

    try:
        result = retry_conflicts(send, edit, recompute)
    except ApiError as error:
        if not maybe_applied or error.fails_every_request or recompute() is not None:
            raise
        result = None
    if result is not None:
        return result
    if node is None:
        return PatchResult("gone", sent)
    return PatchResult("changed", sent, node if answer else None) if maybe_applied else PatchResult("unchanged", sent)
