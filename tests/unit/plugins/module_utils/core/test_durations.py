# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.values import duration_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20m", 1200),
        ("1h30m", 5400),
        ("0", 0),
        ("0s", 0),
        ("1.5h", 5400),
        (".5m", 30),
        ("250ms", 0.25),
        ("1m1us", 60.000001),
        ("20", None),
        ("", None),
        ("m", None),
        ("-5m", None),
        ("5 m", None),
        ("5m then", None),
        ("5d", None),
        ("٣h", None),
        ("9" * 4000, None),
    ],
)
def test_seconds(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == (None if seconds is None else pytest.approx(seconds))
