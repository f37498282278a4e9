# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a validation proved, as a hash: while it stays the same there is nothing to prove again (pure)."""

from __future__ import annotations

import hashlib
import json
import typing as t

from ..cluster_state import expected_state
from ..cluster_state.node import Node

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan


def facts(pool: PoolPlan, nodes: t.Iterable[Node], image: str) -> dict[str, t.Any]:
    """What the proof stands on: the pool's declaration and each kind of node in it, not the nodes' names.

    A pool is a set of nodes that are alike, so that one more of them is no reason to prove it again.
    """
    kinds = {
        (
            node.model,
            node.driver,
            expected_state.expected_gpus(node, pool),
            tuple((name, node.allocatable.get(name, 0)) for name in pool.resources),
            node.mode,
            node.replicas,
        )
        for node in nodes
    }
    return {
        "image": image,
        "mode": pool.mode,
        "replicas": pool.sharing.replicas,
        "mig": pool.mig_key,
        **({"demand": dict(pool.sharing.demand)} if pool.sharing.demand else {}),
        "tolerations": list(pool.tolerations),
        "nodes": [
            {
                "model": model,
                "driver": driver,
                "gpus": gpus,
                "allocatable": dict(allocatable),
                "mode": mode,
                "replicas": replicas,
            }
            for model, driver, gpus, allocatable, mode, replicas in sorted(kinds)
        ],
    }


def fingerprint(of_pool: t.Mapping[str, t.Any]) -> str:
    """The hash of such facts."""
    return hashlib.sha256(json.dumps(of_pool, sort_keys=True, default=dict).encode()).hexdigest()[:16]


def noted(configmap: t.Mapping[str, t.Any] | None) -> dict[str, dict[str, t.Any]]:
    """What earlier runs proved, by pool; what cannot be read counts as not proved."""
    found: dict[str, dict[str, t.Any]] = {}
    for pool, text in ((configmap or {}).get("data") or {}).items():
        try:
            entry = json.loads(text)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found[pool] = entry
    return found


def proofs(
    plan: Plan, nodes: t.Iterable[Node], membership: Membership, configmap: t.Mapping[str, t.Any] | None
) -> dict[str, dict[str, t.Any]]:
    """Of the pools that were proven: on which node, who held each device, and whether the pool is still what it was then."""
    by_name = {node.name: node for node in nodes}
    entries, found = noted(configmap), {}
    for pool in plan.pools:
        entry = entries.get(pool.name)
        if entry:
            members = [by_name[name] for name in membership.by_pool[pool.name]]
            now = fingerprint(facts(pool, members, plan.validation.image))
            found[pool.name] = {**is_current(entry), "current": entry.get("evidence") == now}
    return found


def note(
    of_pool: t.Mapping[str, t.Any], node: str, uuids: t.Mapping[str, int], told: t.Mapping[str, str]
) -> dict[str, t.Any]:
    """One pool's entry: the hash, what it stands on, and what was seen (holders by device UUID, answers)."""
    return {"evidence": fingerprint(of_pool), "facts": dict(of_pool), "node": node, "devices": dict(uuids), **told}


def is_current(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What an entry says was seen; an answer that could not be tried is left out."""
    answers = {key: entry[key] for key in ("one_more", "two_shares") if key in entry}
    return {"node": entry.get("node"), "devices": entry.get("devices") or {}, **answers}
