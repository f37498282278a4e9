# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a group of VKS counts as settled, by the list's short rows and by its own details."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.decode import listed_of, live_of


@pytest.mark.parametrize(
    ("status", "settled"),
    [
        ("ACTIVE", True),
        ("ERROR", True),
        ("FAILED", True),
        ("CREATING", False),
        ("UPDATING", False),
        ("DEGRADED", False),
        ("SOMETHING_NEW", False),
    ],
)
def test_the_list_and_the_details_agree_on_what_is_under_way(status: str, settled: bool) -> None:
    row: dict[str, Any] = {"id": "ng-1", "name": "train", "status": status, "numNodes": 2}
    assert listed_of(row).settled is settled
    assert live_of(row).settled is settled


@pytest.mark.parametrize("row", [{"id": "ng-1", "name": "train"}, {"uid": "ng-1", "name": "train", "status": None}])
def test_a_group_whose_row_tells_no_status_is_to_be_asked_itself(row: dict[str, Any]) -> None:
    listed = listed_of(row)
    assert (listed.id, listed.name, listed.settled) == ("ng-1", "train", True)
