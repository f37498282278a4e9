# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts an entry of the MIG manager's configuration to the `layout` of a pool (pure)."""

from __future__ import annotations

import typing as t

from ..mig import layout as mig
from ..nvidia_config import mig_parted
from .sharing import Inexpressible

Parts = t.Sequence[t.Mapping[str, t.Any]]


class ExportedLayout(t.NamedTuple):
    """A layout as in a pool (None: whole GPUs), and the number of GPUs of a node if the layout depends on it."""

    layout: t.Any = None
    gpus_per_node: int | None = None


def export_layout(entry: t.Any, gpus: int, pci_ids: t.Collection[str]) -> ExportedLayout:
    """The layout of a node with this number of GPUs of a model with these PCI ids; raises Inexpressible.

    Where possible, the same entry follows from the layout again.
    """
    if not isinstance(entry, list) or not all(mig_parted.is_valid_part(part) for part in entry):
        raise Inexpressible("the MIG manager cannot read its MIG configuration")
    parts = [part for part in entry if _concerns(part, pci_ids)]
    if any(part.get("mig-enabled") and not part.get("mig-devices") for part in parts):
        raise Inexpressible("MIG is enabled without any device")
    if not any(part.get("mig-enabled") for part in parts):
        return ExportedLayout()
    if len(parts) == 1 and parts[0].get("devices") == "all":
        return ExportedLayout(dict(sorted(parts[0]["mig-devices"].items())))
    if not gpus:
        raise Inexpressible("its layout differs by GPU, and its number of GPUs before the partitioning is unknown")
    try:
        by_gpu = mig_parted.layouts_by_gpu(parts, gpus)
    except KeyError as error:
        raise Inexpressible(f"its MIG configuration names GPU {error}, but it has {gpus}") from error
    layouts = list(by_gpu.values())
    if all(layout == layouts[0] for layout in layouts) and any(part["devices"] == "all" for part in parts):
        return ExportedLayout(by_gpu[0])
    # GPUs that are listed as whole and GPUs that are not listed make different entries: only one form has the same entry name.
    partitioned = {index: layout for index, layout in by_gpu.items() if layout}
    before_last = {index: by_gpu[index] for part in parts[:-1] if part["devices"] != "all" for index in part["devices"]}
    for candidate in (partitioned, by_gpu, before_last):
        if mig_parted.entry(mig.parse_layout(candidate), gpus) == list(entry):
            return ExportedLayout(candidate, gpus)
    return ExportedLayout(partitioned, gpus)


def _concerns(part: t.Mapping[str, t.Any], pci_ids: t.Collection[str]) -> bool:
    if mig_parted.device_filter(part) and not pci_ids:
        raise Inexpressible("its MIG configuration filters by PCI ids, and the catalog does not contain its model")
    return mig_parted.applies_to(part, {mig_parted.device_id(pci_id) for pci_id in pci_ids})
