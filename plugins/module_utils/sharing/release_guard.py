# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuses a run before its first change if it would release nodes or stop their sharing without permission."""

from __future__ import annotations

import typing as t

from ..catalog.names import CONFIG_LABEL, POOL_LABEL
from ..common.errors import ReleaseRefused
from ..kube.paths import NODES
from .reader import StateReader

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan


def require_allowed(client: Client, plan: Plan, allowed: t.Collection[str]) -> None:
    """Raise ReleaseRefused where gpu_sharing would.

    Costs one list of nodes that is empty unless a node has the label of an undeclared pool, and another one if pools do not set
    sharing.mode. Nodes that leave a declared pool because its match has changed are only found by gpu_sharing.
    """
    if not any(list(client.list(NODES, label_selector=selector, metadata_only=True)) for selector in _selectors(plan)):
        return
    refusal = StateReader(client, plan).read().changes.releases.refusal(allowed)
    if refusal:
        raise ReleaseRefused(refusal)


def _selectors(plan: Plan) -> t.Iterator[str]:
    """Label selectors of the nodes that may be released or lose their sharing."""
    names = ",".join(sorted(pool.name for pool in plan.pools))
    yield f"{POOL_LABEL},{POOL_LABEL} notin ({names})" if names else POOL_LABEL
    silent = [pool for pool in plan.pools if not pool.declares_sharing]
    if silent:
        whole = ",".join(sorted({pool.config_key for pool in silent}))
        names = ",".join(sorted(pool.name for pool in silent))
        yield f"{POOL_LABEL} in ({names}),{CONFIG_LABEL},{CONFIG_LABEL} notin ({whole})"
