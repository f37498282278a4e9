# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts the configurations of a node's agents to the `sharing` of a pool, exactly or not at all (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import GPU_RESOURCE
from ..mig import layout as mig
from ..nvidia_config import device_plugin
from ..schema.messages import is_whole
from ..sharing_modes.base import SharingMode
from ..sharing_modes.mig import MIG
from ..sharing_modes.mps import MPS
from ..sharing_modes.sharing import Sharing, sharing_of
from ..sharing_modes.time_slicing import TIME_SLICING
from ..sharing_modes.whole_gpus import NONE

Document = dict[str, t.Any]

_PREFIX = "nvidia.com/"
# By the section of the plugin's configuration; MIG devices are shared in the section of time-slicing.
_MODES: dict[str, SharingMode] = {mode.plugin_key: mode for mode in (TIME_SLICING, MPS)}


class Inexpressible(Exception):
    """A configuration that no pool can declare; the message is the reason."""


def export_sharing(content: t.Any, layout: t.Any = None, strategy: str = "") -> Document:
    """The `sharing` from which this device plugin configuration and MIG layout follow; raises Inexpressible.

    `content` is the plugin's configuration as parsed YAML, `layout` the layout of the node's GPUs as in a pool (None: whole GPUs),
    `strategy` the ClusterPolicy's, which overrides all configurations.
    """
    _check_structure(content)
    shares = _export_shares(content)
    if layout is None:
        sharing: Document = {"mode": NONE.name, **shares}
    elif shares.get("mode") == MPS.name:
        raise Inexpressible("it has MPS on MIG devices, which NVIDIA's device plugin refuses")
    else:
        options = {**_export_strategy(content, layout, strategy), **shares}
        options.pop("mode", None)
        sharing = {"mode": MIG.name, "layout": layout, **options}
    declared = sharing_of(sharing)
    derived = device_plugin.config(declared)
    if strategy and declared.mode == MIG.name:
        # The ClusterPolicy's strategy overrides the file's, and is removed once the pool declares it.
        content = {**content, "flags": {**(content.get("flags") or {}), "migStrategy": strategy}}
    if _normalize(content, declared) != _normalize(derived, declared):
        raise Inexpressible(f"no pool declares its device plugin configuration {_differences(content, derived)}")
    return sharing


def _check_structure(content: t.Any) -> None:
    """A foreign file may contain anything; the plugin would not start with what is refused here."""
    maps: list[t.Any] = [content]
    if isinstance(content, dict):
        maps += [content.get(key) or {} for key in ("flags", "sharing")]
        maps += [part or {} for part in maps[-1].values()] if isinstance(maps[-1], dict) else []
    if any(not isinstance(item, dict) or not all(isinstance(key, str) for key in item) for item in maps):
        raise Inexpressible("its device plugin configuration, or a part of it, is not a map")
    for part in (content.get("sharing") or {}).values():
        resources = (part or {}).get("resources") or []
        if not isinstance(resources, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in resources
        ):
            raise Inexpressible("the resources of its device plugin configuration are not a list of maps with names")


def _export_shares(content: Document) -> Document:
    parts = {_MODES[key]: part for key, part in (content.get("sharing") or {}).items() if key in _MODES and part}
    if not parts:
        return {}
    if len(parts) > 1:
        raise Inexpressible("its device plugin configuration has both time-slicing and MPS")
    ((mode, part),) = parts.items()
    counts = [entry.get("replicas") for entry in part.get("resources") or ()]
    if not counts or any(not is_whole(count) or count < 2 or count != counts[0] for count in counts):
        raise Inexpressible("its resources have different replicas, or none")
    shares: Document = {"mode": mode.name, "replicas": counts[0]}
    if part.get("renameByDefault"):
        shares["rename"] = True
    if mode is TIME_SLICING and not part.get("failRequestsGreaterThanOne", mode.fails_by_default):
        shares["fail_requests_greater_than_one"] = False
    return shares


def _export_strategy(content: Document, layout: t.Any, override: str) -> Document:
    """The strategy, if it is not the layout's default."""
    strategy = override or (content.get("flags") or {}).get("migStrategy") or ""
    if strategy not in mig.STRATEGIES:
        raise Inexpressible("its GPUs are partitioned, but its device plugin has no MIG strategy")
    return {} if strategy == mig.strategy_for(mig.parse_layout(layout)) else {"strategy": strategy}


def _normalize(content: Document, declared: Sharing) -> Document:
    """The configuration with explicit defaults and full resource names."""
    flags = {key: value for key, value in (content.get("flags") or {}).items() if value not in (None, "none", "")}
    if declared.mode != MIG.name:
        # The strategy has no effect on whole GPUs.
        flags.pop("migStrategy", None)
    return {
        **{key: value for key, value in content.items() if key not in ("flags", "sharing") and value},
        "version": content.get("version") or "v1",
        "flags": flags,
        "sharing": {
            key: _normalize_part(_MODES[key], part) if key in _MODES else part
            for key, part in (content.get("sharing") or {}).items()
            if part
        },
    }


def _normalize_part(mode: SharingMode, part: Document) -> Document:
    resources = [
        {**entry, "name": f"{_PREFIX}{entry['name'].removeprefix(_PREFIX)}"} for entry in part.get("resources") or ()
    ]
    return {
        **part,
        "renameByDefault": bool(part.get("renameByDefault")),
        "failRequestsGreaterThanOne": part.get("failRequestsGreaterThanOne", mode.fails_by_default),
        "resources": sorted(resources, key=lambda entry: entry["name"]),
    }


def _differences(content: Document, derived: Document) -> str:
    """The names of the parts that differ."""
    shared = (content.get("sharing") or {}).get("timeSlicing") or (content.get("sharing") or {}).get("mps") or {}
    resources = [entry["name"] for entry in shared.get("resources") or ()]
    names = sorted({*content} - {"version", "flags", "sharing"})
    names += [f"flags.{flag}" for flag in sorted({*(content.get("flags") or {})} - {"migStrategy"})]
    if not names and resources and resources != [GPU_RESOURCE] and "flags" not in derived:
        names = [f"sharing of {', '.join(resources)}"]
    return f"({', '.join(names)})" if names else "exactly"
