# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of the cluster in a plan or report (pure)."""

from __future__ import annotations

import typing as t

from .table import paragraph

Document = t.Mapping[str, t.Any]


def identity_lines(info: Document, kind: str, width: int) -> list[str]:
    """The server, the UID and the recorded name; in a plan also the name that the next change records."""
    identity = info.get("identity")
    if not identity:
        return []
    recorded, new_name = identity["recorded_name"], identity["name_to_record"]
    parts = [
        f"{identity['server']} ({identity['origin']})",
        f"UID {identity['uid']}" if identity["uid"] else "UID not readable",
        f"recorded as {recorded}" if recorded else "no name recorded yet",
    ]
    lines = paragraph("cluster", "; ".join(parts), width)
    if kind == "plan" and new_name:
        renamed = f"the next change renames it from {recorded} to {new_name}"
        lines += paragraph("name", renamed if recorded else f"the first change records the name {new_name}", width)
    return lines
