# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quantities and the other forms of the same value."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import quantity, same_scalar


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500m", "0.5"),
        ("1", "1"),
        (2, "2"),
        (0.5, "0.5"),
        ("1Gi", str(2**30)),
        ("1G", "1e9"),
        ("1e3", "1000"),
        ("1E", "1e18"),
        ("12E2", "1200"),
        ("-1Ki", "-1024"),
        ("100n", "1e-7"),
    ],
)
def test_quantity(text: t.Any, amount: str) -> None:
    assert quantity(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "x", "Gi", "1 Gi", "nan", "inf", True, None, [], "1Gb"])
def test_no_quantity(text: t.Any) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize(
    ("live", "expected", "quantities", "text", "same"),
    [
        (80, "80", False, False, True),
        ("80", 80, False, False, True),
        ("http", "http", False, False, True),
        (1, True, False, False, False),
        (0, False, False, False, False),
        (1.0, 1, False, False, True),
        ("1000m", "1", False, False, False),
        ("1000m", "1", True, False, True),
        ("1000m", "1", True, True, False),
        ("1", 1, False, True, False),
        ("x", "y", True, False, False),
    ],
)
def test_same_scalar(live: t.Any, expected: t.Any, quantities: bool, text: bool, same: bool) -> None:
    assert same_scalar(live, expected, quantities=quantities, text=text) is same
