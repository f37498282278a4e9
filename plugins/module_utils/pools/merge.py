# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merges defaults with more specific values."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping


def merge(under: t.Any, over: t.Any) -> t.Any:
    """`over` merged over `under`: maps are merged key by key at every depth, all other values (also lists) are replaced.

    None in `over` keeps the value of `under`, so `merge({}, x) == merge(x, {}) == x`, and merging is associative.
    Neither argument is changed.
    """
    if isinstance(under, dict) and isinstance(over, dict):
        result = dict(under)
        for key, value in over.items():
            result[key] = merge(under[key], value) if key in under else value
        return result
    return under if over is None else over


def plain(value: t.Any) -> t.Any:
    """A copy of Python's built-in types; ansible-core passes tagged subclasses of str, int, dict and list."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
