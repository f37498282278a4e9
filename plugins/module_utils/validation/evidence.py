# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the stored results of validations, with a hash of their inputs: while the hash is unchanged, a verified pool is not validated again."""

from __future__ import annotations

import hashlib
import json
import time
import typing as t

from ..cluster_state import expected_state
from ..cluster_state.node import Node
from ..common.nested import parse_json
from ..kube.paths import object_path
from ..validation_programs.programs import KERNEL, PROGRAMS
from .images import choose_image
from .sites import ONE_MORE, TWO_SHARES

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from ..validation_programs.program import Options

VERIFIED, FAILED = "verified", "failed"
# Results that an entry contains only if they apply.
_RESULTS = ("image", *(program.name for program in PROGRAMS), ONE_MORE, TWO_SHARES)


def fingerprint_inputs(pool: PoolPlan, nodes: t.Iterable[Node], images: t.Mapping[str, str]) -> dict[str, t.Any]:
    """The data that the result of a validation depends on: the pool's declaration and each kind of node in it, without the nodes' names.

    If a setting that affects the result is missing here, a verified pool is not validated again after the setting changes.
    `images`: the kernel's images by CUDA version. The nodes of a pool are alike, so an additional node does not require another validation.
    """
    kinds = {
        json.dumps(
            {
                "model": node.model,
                "driver": node.driver,
                "gpus": expected_state.expected_gpus(node, pool),
                "allocatable": {name: node.allocatable.get(name, 0) for name in pool.resources},
                "mode": node.mode,
                "replicas": node.replicas,
                "image": choose_image(images, node),
            },
            sort_keys=True,
        )
        for node in nodes
    }
    return {
        "mode": pool.mode,
        "replicas": pool.sharing.replicas,
        "mig": pool.mig_key,
        **({"demand": dict(pool.sharing.demand)} if pool.sharing.demand else {}),
        "tolerations": list(pool.tolerations),
        "nodes": [json.loads(kind) for kind in sorted(kinds)],
    }


def inputs_by_pool(plan: Plan, nodes: t.Mapping[str, Node], membership: Membership) -> dict[str, dict[str, t.Any]]:
    """The result of fingerprint_inputs() for each pool, by pool name; `nodes` are given by name."""
    images = plan.validation.images[KERNEL.image]
    return {
        pool.name: fingerprint_inputs(pool, [nodes[name] for name in membership.by_pool[pool.name]], images)
        for pool in plan.pools
    }


def fingerprint(inputs: t.Mapping[str, t.Any]) -> str:
    """The hash of the inputs that fingerprint_inputs() returns."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=dict).encode()).hexdigest()[:16]


def verified_entry(
    inputs: t.Mapping[str, t.Any], node: str, devices: t.Mapping[str, int], results: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """The evidence of a verified pool; `results`: the results of the programs and negative checks."""
    return {"evidence": fingerprint(inputs), "inputs": inputs, "node": node, "devices": dict(devices), **results}


def failed_entry(
    inputs: t.Mapping[str, t.Any], node: str, devices: t.Mapping[str, int], problems: t.Sequence[str], seconds: float
) -> dict[str, t.Any]:
    """The record of a failed validation, which is shown until the pool is verified; `seconds` is its time in seconds since 1970."""
    failure = {"status": FAILED, "problems": [" ".join(problem.split()) for problem in problems]}
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    return verified_entry(inputs, node, devices, {**failure, "time": when})


def is_verified(entry: t.Mapping[str, t.Any] | None, inputs: t.Mapping[str, t.Any]) -> bool:
    """Whether an entry is evidence that a pool with these inputs was verified."""
    return entry is not None and not has_failed(entry) and entry.get("evidence") == fingerprint(inputs)


def has_failed(entry: t.Mapping[str, t.Any]) -> bool:
    """Whether an entry is the record of a failed validation."""
    return entry.get("status") == FAILED


def read_evidence(configmap: t.Mapping[str, t.Any] | None) -> dict[str, dict[str, t.Any]]:
    """The entries of earlier runs by pool; unreadable entries are ignored."""
    entries = {pool: parse_json(text, dict) for pool, text in ((configmap or {}).get("data") or {}).items()}
    return {pool: entry for pool, entry in entries.items() if entry is not None}


def validated_pools(
    client: Client, plan: Plan, nodes: t.Iterable[Node], membership: Membership
) -> dict[str, dict[str, t.Any]]:
    """The `status` and results of each pool's last validation, and whether the results are still `current`, by pool."""
    configmap = client.get(object_path("v1", "ConfigMap", plan.validation.configmap, plan.validation.namespace))
    inputs = inputs_by_pool(plan, {node.name: node for node in nodes}, membership)
    return {
        pool: {
            "status": FAILED if has_failed(entry) else VERIFIED,
            **entry_results(entry),
            **({key: entry.get(key) for key in ("problems", "time")} if has_failed(entry) else {}),
            "current": entry.get("evidence") == fingerprint(inputs[pool]),
        }
        for pool, entry in read_evidence(configmap).items()
        if pool in inputs
    }


def entry_results(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The results in an entry, without negative checks that could not be run."""
    results = {key: entry[key] for key in _RESULTS if key in entry}
    return {"node": entry.get("node"), "devices": entry.get("devices") or {}, **results}


def covers(entry: t.Mapping[str, t.Any], options: Options) -> bool:
    """Whether an entry contains the results of all programs that are requested now."""
    return all(program.covers(entry.get(program.name), options) for program in PROGRAMS if program.requested(options))
