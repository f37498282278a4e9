# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the names of VKS's flavors say of their GPUs.

Source: vngcloud/docs Vietnamese/vks/reference/node-flavors (2026-08), which lists names such as g4-standard-32x128-2L40s.
"""

from __future__ import annotations

import dataclasses
import re

from . import mig, models

_NAME = re.compile(r"g\d+-standard-\d+x\d+(?:x\d+\w*)?-(?P<count>\d+)(?P<card>[A-Za-z]\w*)")


@dataclasses.dataclass(frozen=True)
class Card:
    """The GPUs of one node: how many, the word that names them, and the catalog's models that it may mean (none: not in the catalog)."""

    count: int
    word: str
    keys: tuple[str, ...]

    @property
    def has_mig(self) -> bool | None:
        """Whether they can be cut; None where the catalog cannot tell."""
        return any(mig.geometry(key) for key in self.keys) if self.keys else None


def vks_card(flavor: str) -> Card | None:
    """What the flavor's name says; None for a name of another form (an id, or a flavor without GPU)."""
    found = _NAME.fullmatch(flavor)
    if not found:
        return None
    card = found["card"].lower()
    keys = tuple(
        model.key
        for model in models.MODELS
        if card in (model.key.replace("-", "").lower(), model.key.partition("-")[0].lower())
    )
    return Card(int(found["count"]), found["card"], keys)
