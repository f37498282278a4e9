# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run may release the nodes that its variables leave without a pool, asked before anything is changed."""

from __future__ import annotations

import typing as t

from ..catalog.names import POOL_LABEL
from ..kube.paths import NODES
from ..running.errors import ReleaseRefused
from .reading import Reader

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan


def require_allowed(client: Client, plan: Plan, allowed: t.Collection[str]) -> None:
    """Raise ReleaseRefused where node_profile would.

    Costs one list that is empty unless a node is labelled with a pool that is not declared. A node that leaves a declared pool,
    because its match has changed, is found by node_profile.
    """
    names = ",".join(sorted(pool.name for pool in plan.pools))
    selector = f"{POOL_LABEL},{POOL_LABEL} notin ({names})" if names else POOL_LABEL
    if not list(client.list(NODES, label_selector=selector, metadata_only=True)):
        return
    refusal = Reader(client, plan).read().profile.releases.refusal(allowed)
    if refusal:
        raise ReleaseRefused(refusal)
