# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the configurations that a node's agents follow back to the `sharing` of a pool, exactly or not at all (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import GPU_RESOURCE
from ..mig import layout as mig
from ..nvidia_config import device_plugin
from ..nvidia_config.device_plugin import EXCLUSIVE, MIG, MPS, TIME_SLICING, Sharing
from ..pools.derive import sharing_of
from ..schema.messages import is_whole

Document = dict[str, t.Any]

_PREFIX = "nvidia.com/"
_KEYS = {"timeSlicing": TIME_SLICING, "mps": MPS}
# What the plugin takes for left out (k8s-device-plugin api/config/v1 replicas.go).
_FAILS_BY_DEFAULT = {TIME_SLICING: False, MPS: True}


class Inexpressible(Exception):
    """A configuration that no pool can declare; the message says what of it."""


def sharing(content: t.Any, layout: t.Any = None, strategy: str = "") -> Document:
    """The `sharing` that makes the device plugin's configuration and the MIG layout what they are.

    `content` is the plugin's configuration as parsed YAML, `layout` that of the node's GPUs as a document writes it (None: they
    are whole), `strategy` what the ClusterPolicy says over all configurations. Raises Inexpressible.
    """
    _check_shape(content)
    found: Document = {"mode": EXCLUSIVE}
    shares = _shares(content)
    if layout is not None:
        if shares.get("mode") == MPS:
            raise Inexpressible("it has MPS on MIG devices, which NVIDIA's device plugin refuses")
        found = {"mode": MIG, "layout": layout, **_strategy(content, layout, strategy)}
    found = {**found, **shares, **({"mode": MIG} if layout is not None else {})}
    declared = sharing_of(found)
    wanted = device_plugin.config(declared)
    if strategy and declared.mode == MIG:
        # The ClusterPolicy's beats what the file says, and is not there any more once the pool says it.
        content = {**content, "flags": {**(content.get("flags") or {}), "migStrategy": strategy}}
    if _normal(content, declared) != _normal(wanted, declared):
        raise Inexpressible(f"no pool declares its device plugin configuration {_odd(content, wanted)}")
    return found


def _check_shape(content: t.Any) -> None:
    """What somebody else wrote may be anything; the plugin would not start with what is refused here."""
    maps: list[t.Any] = [content]
    if isinstance(content, dict):
        maps += [content.get(key) or {} for key in ("flags", "sharing")]
        maps += [part or {} for part in maps[-1].values()] if isinstance(maps[-1], dict) else []
    for of in maps:
        if not isinstance(of, dict) or not all(isinstance(key, str) for key in of):
            raise Inexpressible("its device plugin configuration is no map, or a part of it is none")
    for part in (content.get("sharing") or {}).values():
        resources = (part or {}).get("resources") or []
        named = isinstance(resources, list) and all(
            isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in resources
        )
        if not named:
            raise Inexpressible("the resources of its device plugin configuration are no list of maps with names")


def _shares(content: Document) -> Document:
    said = {_KEYS[key]: part for key, part in (content.get("sharing") or {}).items() if key in _KEYS and part}
    if not said:
        return {}
    if len(said) > 1:
        raise Inexpressible("its device plugin configuration has time-slicing and MPS beside each other")
    ((mode, part),) = said.items()
    counts = [entry.get("replicas") for entry in part.get("resources") or ()]
    if not counts or any(not is_whole(count) or count < 2 or count != counts[0] for count in counts):
        raise Inexpressible("its resources are shared by different numbers, or by none")
    found: Document = {"mode": mode, "replicas": counts[0]}
    if part.get("renameByDefault"):
        found["rename"] = True
    if mode == TIME_SLICING and not part.get("failRequestsGreaterThanOne", _FAILS_BY_DEFAULT[mode]):
        found["fail_requests_greater_than_one"] = False
    return found


def _strategy(content: Document, layout: t.Any, over_all: str) -> Document:
    """Only what differs from what the layout would have by itself."""
    live = over_all or (content.get("flags") or {}).get("migStrategy") or ""
    usual = mig.strategy_for(mig.read(layout))
    if live not in mig.STRATEGIES:
        raise Inexpressible("its GPUs are cut, and its device plugin is told no MIG strategy")
    return {} if live == usual else {"strategy": live}


def _normal(content: Document, declared: Sharing) -> Document:
    """With what is left out said, and names in their long form."""
    found = {key: value for key, value in content.items() if key not in ("flags", "sharing") and value}
    found["version"] = content.get("version") or "v1"
    flags = {key: value for key, value in (content.get("flags") or {}).items() if value not in (None, "none", "")}
    if declared.mode != MIG:
        # Whole GPUs are the same under every strategy.
        flags.pop("migStrategy", None)
    found["flags"] = flags
    found["sharing"] = {
        key: _normal_part(_KEYS[key], part) if key in _KEYS else part
        for key, part in (content.get("sharing") or {}).items()
        if part
    }
    return found


def _normal_part(mode: str, part: Document) -> Document:
    resources = [
        {**entry, "name": entry["name"] if entry["name"].startswith(_PREFIX) else f"{_PREFIX}{entry['name']}"}
        for entry in part.get("resources") or ()
    ]
    return {
        **part,
        "renameByDefault": bool(part.get("renameByDefault")),
        "failRequestsGreaterThanOne": part.get("failRequestsGreaterThanOne", _FAILS_BY_DEFAULT[mode]),
        "resources": sorted(resources, key=lambda entry: entry["name"]),
    }


def _odd(content: Document, wanted: Document) -> str:
    """The parts that differ, by their names."""
    shared = (content.get("sharing") or {}).get("timeSlicing") or (content.get("sharing") or {}).get("mps") or {}
    names = [entry["name"] for entry in shared.get("resources") or ()]
    strangers = sorted({*content} - {"version", "flags", "sharing"})
    flags = sorted({*(content.get("flags") or {})} - {"migStrategy"})
    odd = [*strangers, *(f"flags.{flag}" for flag in flags)]
    if not odd and names and names != [GPU_RESOURCE] and "flags" not in wanted:
        odd = [f"sharing of {', '.join(names)}"]
    return f"({', '.join(odd)})" if odd else "to the letter"
