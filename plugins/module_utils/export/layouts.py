# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an entry of the MIG manager's configuration back to the `layout` of a pool (pure)."""

from __future__ import annotations

import typing as t

from ..mig import layout as mig
from ..nvidia_config import mig_parted
from .sharing import Inexpressible

Parts = t.Sequence[t.Mapping[str, t.Any]]


class Cut(t.NamedTuple):
    """A layout as a document writes it (None: whole GPUs), and the GPUs of a node where the layout needs to know them."""

    layout: t.Any = None
    gpus_per_node: int | None = None


def layout(entry: t.Any, gpus: int, pci_ids: t.Collection[str]) -> Cut:
    """What the entry makes of a node with so many GPUs of a model with these PCI ids; raises Inexpressible.

    Written so that the very entry follows from it again, where that can be.
    """
    if not isinstance(entry, list) or not all(mig_parted.is_part(part) for part in entry):
        raise Inexpressible("its MIG configuration is none that the MIG manager can read")
    parts = [part for part in entry if _concerns(part, pci_ids)]
    if any(part.get("mig-enabled") and not part.get("mig-devices") for part in parts):
        raise Inexpressible("MIG is switched on without any device")
    if not any(part.get("mig-enabled") for part in parts):
        return Cut()
    if len(parts) == 1 and parts[0].get("devices") == "all":
        return Cut(dict(sorted(parts[0]["mig-devices"].items())))
    if not gpus:
        raise Inexpressible("its layout goes by GPU, and nothing tells how many GPUs it had before they were cut")
    by_gpu = _by_gpu(parts, gpus)
    if len({tuple(sorted(of.items())) for of in by_gpu.values()}) == 1 and any(
        part["devices"] == "all" for part in parts
    ):
        return Cut(by_gpu[0])
    # GPUs that are named as whole and those that nobody names become parts of their own: only one way of writing it gives the
    # entry's own name again.
    before_last = {index: by_gpu[index] for part in parts[:-1] if part["devices"] != "all" for index in part["devices"]}
    for candidate in (_cut_only(by_gpu), by_gpu, before_last):
        if mig_parted.entry(mig.read(candidate), gpus) == list(entry):
            return Cut(candidate, gpus)
    return Cut(_cut_only(by_gpu), gpus)


def _by_gpu(parts: Parts, gpus: int) -> dict[int, dict[str, int]]:
    try:
        return mig_parted.by_gpu(parts, gpus)
    except KeyError as error:
        raise Inexpressible(f"its MIG configuration names GPU {error}, and it has {gpus}") from error


def _cut_only(by_gpu: t.Mapping[int, dict[str, int]]) -> dict[int, dict[str, int]]:
    return {index: of for index, of in by_gpu.items() if of}


def _concerns(part: t.Mapping[str, t.Any], pci_ids: t.Collection[str]) -> bool:
    if mig_parted.device_filter(part) and not pci_ids:
        raise Inexpressible("its MIG configuration goes by PCI ids, and the catalog does not know its model")
    return mig_parted.concerns(part, {mig_parted.device_id(one) for one in pci_ids})
