# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a plan and a report name the cluster that was reached, and the name that it will remember (pure)."""

from __future__ import annotations

import typing as t

from .table import paragraph

Document = t.Mapping[str, t.Any]


def identity_lines(info: Document, kind: str, width: int) -> list[str]:
    """The server, the UID and the recorded name; in a plan also the name that the next change records."""
    identity = info.get("identity")
    if not identity:
        return []
    recorded, next_name = identity["recorded_name"], identity["name_to_record"]
    known = [
        f"{identity['server']} ({identity['origin']})",
        f"UID {identity['uid']}" if identity["uid"] else "UID not readable",
        f"recorded as {recorded}" if recorded else "no name recorded yet",
    ]
    told = paragraph("cluster", "; ".join(known), width)
    if kind == "plan" and next_name:
        text = (
            f"the next change renames it from {recorded} to {next_name}"
            if recorded
            else f"the first change records the name {next_name}"
        )
        told += paragraph("name", text, width)
    return told
