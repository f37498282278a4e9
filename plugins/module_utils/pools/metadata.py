# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata that a pool, or a set of the module node_metadata, sets on nodes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.taints import Taint

# Labels or annotations; the value None removes an entry.
Entries = t.Mapping[str, "str | None"]


@dataclass(frozen=True)
class NodeMetadata:
    """The metadata that one owner declares for a node, with taints by key and effect; the value None removes an entry of this owner."""

    labels: Entries = field(default_factory=dict)
    annotations: Entries = field(default_factory=dict)
    taints: t.Mapping[str, Taint | None] = field(default_factory=dict)
