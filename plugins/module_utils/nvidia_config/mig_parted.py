# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of NVIDIA's MIG manager: their content, their text and the names of the entries."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

try:
    import yaml
except ImportError:  # told by the modules' base, together with the library that brings it
    yaml = None  # type: ignore[assignment]

from ..mig import layout as mig
from .yaml_text import render

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry

# The key that the operator mounts (gpu-operator assets/state-mig-manager/0600_daemonset.yaml).
KEY = "config.yaml"
DISABLED, ENABLED = "all-disabled", "all-enabled"

_OURS = re.compile(r"mig-.*-[0-9a-f]{8}")

Entry = list[dict[str, t.Any]]

WHOLE: Entry = [{"devices": "all", "mig-enabled": False}]


def entry(layout: mig.Layout, gpus: int | None = None) -> Entry:
    """A layout as api/spec/v1 of mig-parted knows it; a layout by index needs the number of a node's GPUs.

    Each GPU is named once: mig-parted applies one part after the other, and refuses what contradicts an earlier one.
    """
    parts = [_part(list(part.devices) or "all", part.profiles) for part in layout]
    named = {index for part in layout for index in part.devices}
    whole = [index for index in range(gpus or 0) if index not in named] if named else []
    return [*parts, _part(whole, {})] if whole else parts


def entry_name(content: Entry) -> str:
    """The name of an entry, a legal label value: readable where it is short, and different for different content."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    cut = [part["mig-devices"] for part in content if part["mig-enabled"]]
    words = (
        "_".join(f"{count}x{name.replace('+', '.')}" for name, count in sorted(cut[0].items())) if len(cut) == 1 else ""
    )
    return f"mig-{words}-{digest}" if words and len(words) <= 48 else f"mig-by-gpu-{digest}"


def usual(gpus: t.Iterable[tuple[t.Sequence[str], Geometry]]) -> dict[str, Entry]:
    """What NVIDIA's own configuration always has, and its `all-<profile>` entries for these GPUs (PCI ids, geometry).

    A configuration of one's own replaces NVIDIA's, and nodes outside our pools may name these. Where a profile's name
    means another count on another GPU, its PCI id tells which.
    """
    found: dict[str, Entry] = {
        DISABLED: WHOLE,
        ENABLED: [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    ids_of: dict[str, dict[int, list[str]]] = {}
    for pci_ids, geometry in gpus:
        for profile in geometry.profiles:
            ids_of.setdefault(profile.name, {}).setdefault(profile.most, []).extend(pci_ids)
    for name, by_count in sorted(ids_of.items()):
        found[f"all-{name.replace('+', '.')}"] = [
            {
                **({"device-filter": [device_id(one) for one in sorted(set(ids))]} if len(by_count) > 1 else {}),
                "devices": "all",
                "mig-enabled": True,
                "mig-devices": {name: most},
            }
            for most, ids in sorted(by_count.items())
        ]
    return found


def device_id(pci_id: str) -> str:
    """NVIDIA's device with these four hexadecimal digits, as a device-filter names it."""
    return f"0x{pci_id.upper()}10DE"


def device_filter(part: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """The devices that a part of an entry is about, as device_id() writes them; none: every one."""
    wanted = part.get("device-filter") or ()
    return tuple(str(one).upper().replace("0X", "0x") for one in ([wanted] if isinstance(wanted, str) else wanted))


def is_part(part: t.Any) -> bool:
    """Whether it is a part of an entry as api/spec/v1 of mig-parted has it, with something of each profile that it names."""
    if not isinstance(part, dict):
        return False
    devices, profiles, wanted = part.get("devices"), part.get("mig-devices") or {}, part.get("device-filter") or []
    indices = isinstance(devices, list) and all(_is_whole(index) for index in devices)
    counted = isinstance(profiles, dict) and all(
        isinstance(name, str) and _is_whole(count) and count > 0 for name, count in profiles.items()
    )
    filters = isinstance(wanted, str) or (isinstance(wanted, list) and all(isinstance(one, str) for one in wanted))
    return (devices == "all" or indices) and counted and filters and isinstance(part.get("mig-enabled"), bool)


def concerns(part: t.Mapping[str, t.Any], devices: t.Collection[str]) -> bool:
    """Whether a part of an entry is about GPUs of these device ids (as device_id() writes them)."""
    wanted = device_filter(part)
    return not wanted or not set(wanted).isdisjoint(devices)


def by_gpu(parts: t.Iterable[t.Mapping[str, t.Any]], gpus: int) -> dict[int, dict[str, int]]:
    """What such parts make of a node's GPUs, by index; a later part overwrites an earlier one (mig-parted).

    A GPU that no part names stays whole. An index that the node does not have is a KeyError.
    """
    found: dict[int, dict[str, int]] = {index: {} for index in range(gpus)}
    for part in parts:
        devices = part["devices"]
        for index in range(gpus) if devices == "all" else devices:
            if index not in found:
                raise KeyError(index)
            found[index] = dict(sorted((part.get("mig-devices") or {}).items())) if part["mig-enabled"] else {}
    return found


def is_ours(name: str) -> bool:
    """Whether an entry's name is one that entry_name() gives."""
    return _OURS.fullmatch(name) is not None


def read(configmap: t.Mapping[str, t.Any] | None) -> dict[str, Entry]:
    """The entries of a live ConfigMap; none where its file cannot be read, which the MIG manager cannot do either."""
    try:
        content = yaml.safe_load(((configmap or {}).get("data") or {}).get(KEY) or "")
    except yaml.YAMLError:
        return {}
    entries = content.get("mig-configs") if isinstance(content, dict) else None
    return dict(entries) if isinstance(entries, dict) else {}


def document(entries: t.Mapping[str, Entry]) -> str:
    """The text of the whole configuration."""
    return render({"version": "v1", "mig-configs": {name: entries[name] for name in sorted(entries)}})


def _is_whole(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _part(devices: t.Any, profiles: t.Mapping[str, int]) -> dict[str, t.Any]:
    if profiles:
        return {"devices": devices, "mig-enabled": True, "mig-devices": dict(profiles)}
    return {"devices": devices, "mig-enabled": False}
