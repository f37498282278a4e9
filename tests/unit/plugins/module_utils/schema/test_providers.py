# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of Magnum's node groups."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import MAGNUM


@pytest.mark.parametrize("name", ["g", "gpu-t4", "A_b.c", "x" * 63, "9a"])
def test_names(name: str) -> None:
    assert MAGNUM.name_rule(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "500"),
        ("x" * 64, "64 characters"),
        ("a b", "a-z, A-Z, 0-9"),
        ("-a", "both ends"),
        ("a/b", "a-z, A-Z, 0-9"),
        ("12", "looks like an id"),
        ("0d358554-95b3-463f-86fc-21344a3cf48c", "looks like an id"),
    ],
)
def test_invalid_names(name: str, message: str) -> None:
    assert message in (MAGNUM.name_rule(name) or "")
