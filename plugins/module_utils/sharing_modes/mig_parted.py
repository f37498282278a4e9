# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds and parses configurations of NVIDIA's MIG manager, and the names of their entries."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ..core.messages import is_whole
from ..core.yaml_text import parse_yaml, render_yaml

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from . import mig

# The key that the operator mounts (gpu-operator assets/state-mig-manager/0600_daemonset.yaml).
KEY = "config.yaml"
DISABLED, ENABLED = "all-disabled", "all-enabled"

_MANAGED_NAME = re.compile(r"mig-.*-[0-9a-f]{8}")

Entry = list[dict[str, t.Any]]

DISABLED_ENTRY: Entry = [{"devices": "all", "mig-enabled": False}]


def entry(layout: mig.Layout, gpus: int | None = None) -> Entry:
    """A layout in the format of mig-parted's api/spec/v1. For a layout that lists GPUs by index, `gpus` must be the number of GPUs on the node.

    Each GPU is listed only once, because mig-parted applies the parts in order, and rejects a part that contradicts an earlier one.
    """
    parts = [_part(list(part.devices) or "all", part.profiles) for part in layout]
    named = {index for part in layout for index in part.devices}
    whole = [index for index in range(gpus or 0) if index not in named] if named else []
    return [*parts, _part(whole, {})] if whole else parts


def entry_name(content: Entry) -> str:
    """The name of an entry. The name is a valid label value, differs for different content, and describes the layout if this is short enough."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    layouts = [part["mig-devices"] for part in content if part["mig-enabled"]]
    words = ""
    if len(layouts) == 1:
        words = "_".join(f"{count}x{name.replace('+', '.')}" for name, count in sorted(layouts[0].items()))
    return f"mig-{words}-{digest}" if words and len(words) <= 48 else f"mig-by-gpu-{digest}"


def default_entries(gpus: t.Iterable[tuple[t.Sequence[str], Geometry]]) -> dict[str, Entry]:
    """The fixed entries of NVIDIA's own configuration, and NVIDIA's `all-<profile>` entries for these GPUs, given as PCI ids and geometry.

    A custom configuration replaces NVIDIA's configuration, and the labels of nodes outside the pools may select these entries. If the
    maximum count of a profile differs between these GPUs, PCI ids distinguish the GPUs.
    """
    entries: dict[str, Entry] = {
        DISABLED: DISABLED_ENTRY,
        ENABLED: [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    ids_of: dict[str, dict[int, list[str]]] = {}
    for pci_ids, geometry in gpus:
        for profile in geometry.profiles:
            ids_of.setdefault(profile.name, {}).setdefault(profile.max_count, []).extend(pci_ids)
    for name, by_count in sorted(ids_of.items()):
        entries[f"all-{name.replace('+', '.')}"] = [
            {
                **({"device-filter": [device_id(pci_id) for pci_id in sorted(set(ids))]} if len(by_count) > 1 else {}),
                "devices": "all",
                "mig-enabled": True,
                "mig-devices": {name: max_count},
            }
            for max_count, ids in sorted(by_count.items())
        ]
    return entries


def device_id(pci_id: str) -> str:
    """Convert a PCI id of four hexadecimal digits to the format of a device-filter."""
    return f"0x{pci_id.upper()}10DE"


def device_filter(part: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """The devices to which a part of an entry applies, in the format of device_id(); empty if the part applies to all devices."""
    devices = part.get("device-filter") or ()
    return tuple(str(each).upper().replace("0X", "0x") for each in ([devices] if isinstance(devices, str) else devices))


def is_valid_part(part: t.Any) -> bool:
    """Whether a value is a valid part of an entry according to mig-parted's api/spec/v1, with a positive count of each profile."""
    if not isinstance(part, dict):
        return False
    devices, profiles, filters = part.get("devices"), part.get("mig-devices") or {}, part.get("device-filter") or []
    is_index_list = isinstance(devices, list) and all(is_whole(index) for index in devices)
    is_counts = isinstance(profiles, dict) and all(
        isinstance(name, str) and is_whole(count) and count > 0 for name, count in profiles.items()
    )
    is_filter = isinstance(filters, str) or (
        isinstance(filters, list) and all(isinstance(each, str) for each in filters)
    )
    return (devices == "all" or is_index_list) and is_counts and is_filter and isinstance(part.get("mig-enabled"), bool)


def applies_to(part: t.Mapping[str, t.Any], devices: t.Collection[str]) -> bool:
    """Whether a part of an entry applies to any GPU with one of these device ids, which have the format of device_id()."""
    filters = device_filter(part)
    return not filters or not set(filters).isdisjoint(devices)


def layouts_by_gpu(parts: t.Iterable[t.Mapping[str, t.Any]], gpus: int) -> dict[int, dict[str, int]]:
    """The MIG devices on a node's GPUs, by GPU index. As in mig-parted, a later part overrides an earlier one.

    A GPU that no part lists is not partitioned. Raises KeyError if a part lists a GPU index that the node does not have.
    """
    layouts: dict[int, dict[str, int]] = {index: {} for index in range(gpus)}
    for part in parts:
        devices = part["devices"]
        for index in range(gpus) if devices == "all" else devices:
            if index not in layouts:
                raise KeyError(index)
            layouts[index] = dict(sorted((part.get("mig-devices") or {}).items())) if part["mig-enabled"] else {}
    return layouts


def is_managed(name: str) -> bool:
    """Whether an entry's name has the format of entry_name()."""
    return _MANAGED_NAME.fullmatch(name) is not None


def parse_configmap(configmap: t.Mapping[str, t.Any] | None) -> dict[str, Entry]:
    """The entries of a live ConfigMap; empty if its file cannot be parsed (the MIG manager also rejects such a file)."""
    content = parse_yaml(((configmap or {}).get("data") or {}).get(KEY) or "")
    entries = content.get("mig-configs") if isinstance(content, dict) else None
    return dict(entries) if isinstance(entries, dict) else {}


def render_configuration(entries: t.Mapping[str, Entry]) -> str:
    """The text of the whole configuration file."""
    return render_yaml({"version": "v1", "mig-configs": {name: entries[name] for name in sorted(entries)}})


def _part(devices: t.Any, profiles: t.Mapping[str, int]) -> dict[str, t.Any]:
    if profiles:
        return {"devices": devices, "mig-enabled": True, "mig-devices": dict(profiles)}
    return {"devices": devices, "mig-enabled": False}
