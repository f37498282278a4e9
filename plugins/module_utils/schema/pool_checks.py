# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks several fields of a pool, or several pools, together; INVALID replaces each value that is invalid on its own."""

from __future__ import annotations

import collections
import typing as t

from ..catalog import models
from ..common.nested import get_nested
from ..sharing_modes.base import DeclaredSharing
from ..sharing_modes.modes import DEFAULT_MODE, MODES, mode_named
from .matching import MatchTerms, resolve_match
from .messages import abbreviate, field_path, quote
from .nodegroup_checks import duplicate_group_problems
from .operand_labels import invalid_value
from .secret_values import pool_secret_problems
from .types import INVALID, PoolVariables, Problems

_DISTINGUISH = (
    "distinguish them by match.labels, or omit match in one of them and pin its nodes with the label accel.gpu/pool"
)


def mode_problems(pool: PoolVariables) -> Problems:
    """A pool must meet the requirements of its mode."""
    mode = mode_named(get_nested(pool.merged, "sharing", "mode"))
    if mode:
        names = (get_nested(pool.merged, "match", "model"), get_nested(pool.merged, "model"))
        model = next((models.find(name) for name in names if isinstance(name, str)), None)
        gpus = get_nested(pool.merged, "gpus_per_node")
        yield from mode.problems(DeclaredSharing(pool.path, get_nested(pool.merged, "sharing"), model, gpus))


def missing_mode_problems(pool: PoolVariables) -> Problems:
    """`mode` must be set if an option is set that implies a mode."""
    if get_nested(pool.merged, "sharing", "mode") is not None:
        return
    for mode in reversed(MODES.values()):
        for key in mode.implied_by:
            if get_nested(pool.declared, "sharing", key) is not None:
                yield f"{pool.path}.sharing.mode: is missing, but {key} is set; set mode: {mode.name} to share the GPUs"
                return


def ineffective_option_problems(pool: PoolVariables) -> Problems:
    """Options that the pool's mode ignores must not be set."""
    sharing = get_nested(pool.declared, "sharing")
    mode = mode_named(get_nested(sharing, "mode"))
    if mode is None:
        return
    for key in dict.fromkeys(option for each in MODES.values() for option in each.options):
        if get_nested(sharing, key) is None or key in (*mode.options, *mode.fixed_options):
            continue
        modes = [each.name for each in MODES.values() if key in each.options]
        remedy = f"remove it, or set mode: {' or '.join(modes)}"
        yield f"{pool.path}.sharing.{key}: has no effect with mode: {mode.name}; {remedy}"


def startup_taint_problems(pool: PoolVariables) -> Problems:
    """startup_taint needs a mode that partitions GPUs, because only then does a node first offer whole GPUs that are later removed."""
    name = get_nested(pool.merged, "sharing", "mode")
    mode = DEFAULT_MODE if name is None else mode_named(name)
    if get_nested(pool.declared, "startup_taint") is True and mode and not mode.partitions_gpus:
        modes = " or ".join(each.name for each in MODES.values() if each.partitions_gpus)
        yield (
            f"{pool.path}.startup_taint: has no effect with mode: {mode.name}; it keeps workloads away from a new node until its GPUs are "
            f"partitioned, so remove it, or set mode: {modes}"
        )


def duplicate_taint_problems(pool: PoolVariables) -> Problems:
    """Taints must not repeat a key and effect, because a node can have only one taint with the same key and effect."""
    first_index: dict[tuple[str, str], int] = {}
    taints = get_nested(pool.merged, "taints")
    for index, taint in enumerate(taints if isinstance(taints, list) else ()):
        key, effect = get_nested(taint, "key"), get_nested(taint, "effect")
        if not (isinstance(key, str) and isinstance(effect, str)):
            continue
        first = first_index.setdefault((key, effect), index)
        if first != index:
            yield (
                f"{pool.path}.taints[{index}]: repeats key {key} and effect {effect} of taints[{first}]; "
                "a node can have only one taint with this key and effect, so keep only one"
            )


def label_match_problems(pool: PoolVariables) -> Problems:
    """A pool's labels must not contradict the labels in its match."""
    for key, value in pool.labels.items():
        matched = get_nested(pool.merged, "match", "labels", key)
        if isinstance(matched, str) and matched != value:
            yield (
                f"{field_path(f'{pool.path}.labels', key)}: {quote(value)} contradicts match.labels, which requires "
                f"{quote(matched)}; a node would leave the pool once it is labeled"
            )


def operand_label_problems(pool: PoolVariables) -> Problems:
    """The GPU operator's labels must have valid values, because the operator silently treats an unknown value as its default."""
    for key, value in pool.labels.items():
        if reason := invalid_value(key, value):
            yield f"{field_path(f'{pool.path}.labels', key)}: {quote(value)} {reason}"


def duplicate_name_problems(pools: t.Sequence[PoolVariables]) -> Problems:
    """Each pool must have a unique name, which identifies it."""
    first: dict[str, PoolVariables] = {}
    for pool in pools:
        name = get_nested(pool.merged, "name")
        if isinstance(name, str) and first.setdefault(name, pool) is not pool:
            yield f"{pool.path}.name: {quote(name)} is already the name of {first[name].path}; use a unique name for each pool"


def _match_terms(pool: PoolVariables) -> MatchTerms | None:
    """The terms of a pool's match; None for an invalid match, and for a pool without a match, whose nodes are pinned."""
    match = get_nested(pool.merged, "match")
    if not isinstance(match, dict):
        return None
    model, labels = match.get("model"), match.get("labels")
    if not isinstance(model, (str, type(None))) or not isinstance(labels, (dict, type(None))):
        return None
    if not all(isinstance(value, str) for value in (labels or {}).values()):
        return None
    resolved = resolve_match(match)
    return None if resolved.pins_only else MatchTerms.of(resolved)


def fixed_option_problems(pools: t.Sequence[PoolVariables]) -> Problems:
    """A pool must not set an option to a value that its mode forbids (`fixed_options`); an inherited value is reported once for all pools."""
    inheriting: dict[tuple[str, str, str], list[str]] = {}
    for pool in pools:
        mode = mode_named(get_nested(pool.merged, "sharing", "mode"))
        for key, (allowed, reason) in mode.fixed_options.items() if mode else ():
            value = get_nested(pool.merged, "sharing", key)
            if value in (None, INVALID, allowed):
                continue
            if get_nested(pool.declared, "sharing", key) is None:
                inheriting.setdefault((key, reason, quote(value)), []).append(pool.title)
            else:
                yield f"{pool.path}.sharing.{key}: {reason}; remove it"
    for (key, reason, text), titles in inheriting.items():
        verb = "inherits" if len(titles) == 1 else "inherit"
        yield f"gpu_defaults.sharing.{key}: {reason}, but {abbreviate(titles)} {verb} {text}; remove it"


def overlapping_match_problems(pools: t.Sequence[PoolVariables]) -> Problems:
    """A pool must not match every node of another pool. Partial overlaps are not checked here, because they depend on the nodes."""
    matching = [(pool, terms) for pool in pools if (terms := _match_terms(pool))]
    # Only pools that share a label or product can contain each other, so not every pair is compared.
    by_term: dict[t.Any, list[tuple[PoolVariables, MatchTerms]]] = collections.defaultdict(list)
    for pool, terms in matching:
        for term in (*terms.products, *terms.labels):
            by_term[term].append((pool, terms))
    first: dict[MatchTerms, PoolVariables] = {}
    for pool, terms in matching:
        if first.setdefault(terms, pool) is not pool:
            yield f"{pool.path}.match: is the same as that of {first[terms].title}; {_DISTINGUISH}"
            continue
        candidates = min((by_term[term] for term in terms.labels or terms.products), key=len)
        within = [other.title for other, its_terms in candidates if its_terms != terms and its_terms.implies(terms)]
        if within:
            yield f"{pool.path}.match: also matches every node of {abbreviate(within)}; {_DISTINGUISH}"


POOL_CHECKS = (
    mode_problems,
    missing_mode_problems,
    ineffective_option_problems,
    startup_taint_problems,
    duplicate_taint_problems,
    label_match_problems,
    operand_label_problems,
    pool_secret_problems,
)
ALL_POOLS_CHECKS = (
    duplicate_name_problems,
    fixed_option_problems,
    overlapping_match_problems,
    duplicate_group_problems,
)
