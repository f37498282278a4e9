# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one rule by which defaults and a more particular document become one."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping


def merge(under: t.Any, over: t.Any) -> t.Any:
    """`over` laid on `under`: maps are merged key by key at every depth, all else (lists too) is replaced.

    Nothing (None) in `over` leaves what is under it, so `merge({}, x) == merge(x, {}) == x` and any grouping
    of three documents gives the same result. Neither argument is changed.
    """
    if isinstance(under, dict) and isinstance(over, dict):
        result = dict(under)
        for key, value in over.items():
            result[key] = merge(under[key], value) if key in under else value
        return result
    return under if over is None else over


def plain(value: t.Any) -> t.Any:
    """A copy made of Python's own types; ansible-core hands out tagged subclasses of str, int, dict and list."""
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
