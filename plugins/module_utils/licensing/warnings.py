# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the warnings about the objects that contain the licensing files, and about nodes whose driver pods do not mount these objects."""

from __future__ import annotations

import typing as t

from ..schema.messages import abbreviate_nodes, join_words
from .diagnosis import LicenseObject, expiry_warning
from .objects import LicenseObjectChange
from .option_names import SECRET_NAME_OPTION
from .token import utc_now

if t.TYPE_CHECKING:
    from .cluster import LicenseCluster


def object_warnings(
    cluster: LicenseCluster, changes: t.Sequence[LicenseObjectChange], *, min_days: int, given: bool
) -> t.Iterator[str]:
    """Return all warnings; call this function only after the objects have been written. `given` shows whether the user has provided the token."""
    namespace = cluster.namespace
    written = [change.target.label_with_pools(namespace) for change in changes if not change.managed_by]
    if len(written) > 1 and given and any(change.action == "created" for change in changes):
        yield (
            f"{join_words(written)} contain the same token. If one of them needs a different token, run the playbook with that token, and set "
            f"{SECRET_NAME_OPTION} to the name of that object."
        )
    for change in changes:
        label = change.target.label(namespace)
        yield from change.desired.warnings
        for text in change.desired.token.warnings:
            yield f"The token in {label}: {text}."
        expected = LicenseObject(change.target, namespace, change.desired.files, change.desired.token)
        if text := expiry_warning(expected, utc_now(), min_days):
            yield text
        if change.former is not None and not any(change.former.is_same_object(each.target) for each in changes):
            yield (
                f"{label} replaces {change.former.label(namespace)}, which still contains a token. Delete it once the driver has restarted on every node."
            )
    yield from _node_warnings(cluster, changes)


def _node_warnings(cluster: LicenseCluster, changes: t.Iterable[LicenseObjectChange]) -> t.Iterator[str]:
    for reason, names in cluster.nodes_without_token().items():
        yield f"No licensing Secret is assigned to {abbreviate_nodes(names)}: {reason}."
    declared = [change for change in changes if change.target.pools]
    nodes = cluster.license_nodes() if declared else []
    for change in declared:
        if text := cluster.mount_problem(nodes, change.target, change.desired.files.digests()):
            yield text
