# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Columns that are shortened until a table fits."""

from __future__ import annotations

import operator

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.messages import Column, table

COLUMNS = [
    Column("POOL", operator.itemgetter("name"), cuts=True),
    Column("MODEL", operator.itemgetter("model"), cuts=True),
]
ROWS = [{"name": "train-h100", "model": "H100-80GB-HBM3"}, {"name": "train-h200", "model": "H200"}]


@pytest.mark.parametrize(
    ("width", "line"),
    [(30, "train-h100  H100-80GB-HBM3"), (22, "train-h100  H100-80G.."), (15, "trai..  H100-..")],
)
def test_the_name_of_a_row_is_shortened_last(width: int, line: str) -> None:
    assert table(COLUMNS, ROWS, width)[1] == line
