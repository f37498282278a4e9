# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of our MIG ConfigMap: which to add before they are named, which to collect after (pure).

The MIG manager reads one file. Its entries are kept apart by name: ours have names of mig_parted.entry_name(), all others
stay as somebody else wrote them.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..cluster_state.generated_mig_config import NOTHING, Generated
from ..nvidia_config import mig_parted

if t.TYPE_CHECKING:
    from ..pools.plan import MigPlan
    from .device_plugin_entries import ConfigMap


@dataclass(frozen=True)
class MigEntries:
    """What becomes of the file: `added` before any label names it, `collected` when no label names it any more."""

    live: t.Mapping[str, t.Any]
    added: tuple[str, ...]
    collected: tuple[str, ...]
    wanted: t.Mapping[str, t.Any]
    # What of the generated entries cannot be had, a sentence each.
    doubts: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.added or self.collected)

    @property
    def applied(self) -> dict[str, t.Any]:
        """The entries before the labels change."""
        return {**self.live, **{name: self.wanted[name] for name in self.added}}

    @property
    def after(self) -> dict[str, t.Any]:
        """The entries at the end."""
        return {name: content for name, content in self.applied.items() if name not in self.collected}


def mig_entries(
    plan: MigPlan, named: t.Collection[str], configmap: ConfigMap | None, found: Generated = NOTHING
) -> MigEntries:
    """Compare the file with the entries wanted and those that node labels will name at the end.

    Without an entry wanted and without a ConfigMap there is nothing to do. What NVIDIA's own file has is added where it is
    missing, never changed; so is what its MIG manager has generated on the nodes (`found`).
    """
    live = mig_parted.read(configmap)
    # A released node is told to make its GPUs whole, also where no pool cuts any more.
    disabled = {mig_parted.DISABLED: mig_parted.WHOLE} if configmap and mig_parted.DISABLED in named else {}
    wanted = {**disabled, **plan.usual, **found.entries, **plan.entries}
    added = [
        name
        for name, content in wanted.items()
        if name not in live or (mig_parted.is_ours(name) and live[name] != content)
    ]
    return MigEntries(
        live=live,
        added=tuple(sorted(added)),
        collected=tuple(
            sorted(name for name in live if mig_parted.is_ours(name) and name not in wanted and name not in named)
        ),
        wanted=wanted,
        doubts=found.doubts,
    )
