# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeats a write after a conflict with another writer, with a body that is computed from the latest version of the object."""

from __future__ import annotations

import typing as t

from .errors import ApiError

# Each conflict costs one read. Nodes (kubelet, operators, administrators) and the status of a ClusterPolicy have the
# most writers.
MAX_ATTEMPTS = 8

Object = dict[str, t.Any]
D = t.TypeVar("D")
R = t.TypeVar("R")


class Patcher(t.Protocol):
    """The requests that `patch_object` sends."""

    def get(self, path: str) -> Object | None:
        """The object; None if it does not exist."""

    def patch(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Merge the body into the object."""


def retry_conflicts(
    send: t.Callable[[D], R],
    desired: D,
    recompute: t.Callable[[], D | None],
    is_repeatable: t.Callable[[ApiError], bool] = lambda error: error.conflict,
) -> R | None:
    """The result of `send`; None if `recompute`, which reads the object again after a conflict, finds nothing to send.

    The error of the last attempt is raised.
    """
    for dummy in range(MAX_ATTEMPTS - 1):
        try:
            return send(desired)
        except ApiError as error:
            if not is_repeatable(error):
                raise
        following = recompute()
        if following is None:
            return None
        desired = following
    return send(desired)


def patch_object(
    client: Patcher,
    path: str,
    live: Object | None,
    compute: t.Callable[[Object], Object | None],
    *,
    dry_run: bool = False,
) -> Object | None:
    """Send the merge patch that `compute` returns for the object, and return the patched object; None if the object does not exist.

    If there is no patch, the object is returned unchanged. Each patch applies only to the version of the object from which it was computed.
    """
    current = live

    def compute_versioned() -> Object | None:
        patch = compute(current) if current is not None else None
        if patch is None or current is None:
            return None
        return {**patch, "metadata": {**(patch.get("metadata") or {}), "resourceVersion": _version(current)}}

    def read_again() -> Object | None:
        nonlocal current
        current = client.get(path)
        return compute_versioned()

    patch = compute_versioned()
    if patch is None:
        return current
    patched = retry_conflicts(lambda body: client.patch(path, body, dry_run=dry_run), patch, read_again)
    return current if patched is None else patched


def _version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])
