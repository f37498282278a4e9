# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write values in nested dictionaries."""

from __future__ import annotations

import typing as t


def get_nested(document: t.Any, *keys: str) -> t.Any:
    """The value below these keys; None where a key is missing or a value above it is no dictionary."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def set_nested(document: dict[str, t.Any], keys: t.Sequence[str], value: t.Any) -> None:
    """Set the value below these keys; missing dictionaries are created."""
    for key in keys[:-1]:
        document = document.setdefault(key, {})
    document[keys[-1]] = value
