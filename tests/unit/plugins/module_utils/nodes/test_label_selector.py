# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Label selectors mean what they mean to the API server."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_selector

LABELS = {"zone": "a", "gpu": "", "nvidia.com/gpu.product": "T4"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("zone", True),
        ("!zone", False),
        ("! absent", True),
        ("zone=a", True),
        ("zone == a", True),
        ("zone = b", False),
        ("zone!=a", False),
        ("absent!=a", True),
        ("zone in (a,b)", True),
        ("zone in ( b , c )", False),
        ("zone notin (a)", False),
        ("absent notin (a)", True),
        ("absent in (a)", False),
        ("gpu=", True),
        ("gpu in ()", True),
        ("zone=a,gpu,!absent", True),
        ("zone=a , nvidia.com/gpu.product in (T4,A100)", True),
        ("zone=a,absent", False),
    ],
)
def test_matches(text: str, matches: bool) -> None:
    assert all(requirement.is_met(LABELS) for requirement in parse_selector(text)) is matches


@pytest.mark.parametrize("text", ["a b", "a=b c", "in (a)", "a in b", "a in (b", "=a", "a,,b", "a==b=c", "a!"])
def test_is_no_selector(text: str) -> None:
    with pytest.raises(ValueError, match="is not a label selector"):
        parse_selector(text)
