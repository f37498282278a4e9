# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a pool's sharing: each mode checks its own options (sharing_modes), the rest is the same for all modes."""

from __future__ import annotations

import typing as t

from ..catalog import models
from ..common.nested import get_nested
from ..sharing_modes.base import DeclaredSharing, SharingMode
from ..sharing_modes.registry import MODES
from ..sharing_modes.whole_gpus import NONE
from .types import PoolVariables, Problems


def _mode(pool: t.Any) -> SharingMode | None:
    name = get_nested(pool, "sharing", "mode")
    return MODES.get(name) if isinstance(name, str) else None


def mode_is_satisfied(pool: PoolVariables) -> Problems:
    """What the pool's mode requires and refuses."""
    mode = _mode(pool.merged)
    if mode:
        names = (get_nested(pool.merged, "match", "model"), get_nested(pool.merged, "model"))
        model = next((models.find(name) for name in names if isinstance(name, str)), None)
        gpus = get_nested(pool.merged, "gpus_per_node")
        yield from mode.problems(DeclaredSharing(pool.path, get_nested(pool.merged, "sharing"), model, gpus))


def mode_is_set(pool: PoolVariables) -> Problems:
    """An option that only makes sense with a mode needs that mode."""
    if get_nested(pool.merged, "sharing", "mode") is not None:
        return
    for mode in reversed(MODES.values()):
        for key in mode.implied_by:
            if get_nested(pool.declared, "sharing", key) is not None:
                yield f"{pool.path}.sharing.mode: is missing beside {key}; set mode: {mode.name} to share the GPUs"
                return


def options_have_an_effect(pool: PoolVariables) -> Problems:
    """No option is set that the pool's mode ignores."""
    sharing, mode = get_nested(pool.declared, "sharing"), _mode(pool.declared)
    if mode is None:
        return
    for key in dict.fromkeys(option for each in MODES.values() for option in each.options):
        if get_nested(sharing, key) is None or key in mode.options:
            continue
        if key in mode.fixed_options:
            value, reason = mode.fixed_options[key]
            if sharing[key] is not value:
                yield f"{pool.path}.sharing.{key}: {reason}; remove it"
            continue
        modes = [each.name for each in MODES.values() if key in each.options]
        remedy = f"remove it, or set mode: {' or '.join(modes)}"
        yield f"{pool.path}.sharing.{key}: has no effect with mode: {mode.name}; {remedy}"


def startup_taint_has_an_effect(pool: PoolVariables) -> Problems:
    """Only a partitioned GPU is offered whole first and removed again later."""
    mode = NONE if get_nested(pool.merged, "sharing", "mode") is None else _mode(pool.merged)
    if get_nested(pool.declared, "startup_taint") is True and mode and not mode.partitions_gpus:
        modes = " or ".join(each.name for each in MODES.values() if each.partitions_gpus)
        yield (
            f"{pool.path}.startup_taint: has no effect with mode: {mode.name}; it keeps workloads away from a new node until its GPUs are "
            f"partitioned, so remove it, or set mode: {modes}"
        )


SHARING_CHECKS = (mode_is_satisfied, mode_is_set, options_have_an_effect, startup_taint_has_an_effect)
