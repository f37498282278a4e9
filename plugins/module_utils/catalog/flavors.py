# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a flavor: the class for all clouds, and the GPUs of VKS flavors by flavor name.

Source: vngcloud/docs Vietnamese/vks/reference/node-flavors (2026-08), which lists names such as g4-standard-32x128-2L40s.
"""

from __future__ import annotations

import dataclasses
import re

from . import mig, models

_NAME = re.compile(r"g\d+-standard-\d+x\d+(?:x\d+\w*)?-(?P<count>\d+)(?P<name>[A-Za-z]\w*)")


@dataclasses.dataclass(frozen=True)
class FlavorGpus:
    """The GPUs of one node: their number, their name in the flavor, and the keys of matching models, which are empty if the catalog has none."""

    count: int
    name: str
    keys: tuple[str, ...]

    @property
    def has_mig(self) -> bool | None:
        """Whether these GPUs support MIG; None if they are not in the catalog."""
        return any(mig.geometry(key) for key in self.keys) if self.keys else None


def vks_flavor_gpus(flavor: str) -> FlavorGpus | None:
    """The GPUs in the flavor's name; None for a name in another format (an id, or a flavor without GPU)."""
    match = _NAME.fullmatch(flavor)
    if not match:
        return None
    name = match["name"].lower()
    keys = tuple(
        model.key
        for model in models.MODELS
        if name in (model.key.replace("-", "").lower(), model.key.partition("-")[0].lower())
    )
    return FlavorGpus(int(match["count"]), match["name"], keys)
