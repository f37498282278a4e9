# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an unfinished revision is abandoned: a table of the evidence."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.release import Revision, is_abandoned

Object = dict[str, Any]
NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def marker(machine: str, number: int) -> Object:
    annotations = {"accel.gpu/machine": machine, "accel.gpu/revision": str(number)}
    return {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": "run-1"}}


CASES = [
    # helm here, marker, age -> abandoned, reason
    (True, marker("here", 2), 9999.0, False, "a helm process on this machine"),
    (False, marker("here", 2), 1.0, True, "run run-1"),
    (False, marker("here", 1), 1.0, False, "another machine"),
    (False, marker("there", 2), 1.0, False, "another machine"),
    (False, None, 599.0, False, "another machine"),
    (False, None, 601.0, True, "has been unfinished"),
    (False, marker("there", 2), 601.0, True, "has been unfinished"),
    # Without access to processes only the age counts.
    (None, marker("here", 2), 1.0, False, "another machine"),
    (None, marker("here", 2), 601.0, True, "has been unfinished"),
]


@pytest.mark.parametrize(("helm_here", "marker", "age", "abandoned", "reason"), CASES)
def test_is_abandoned(helm_here: bool | None, marker: Object | None, age: float, abandoned: bool, reason: str) -> None:
    revision = Revision("s", "u", "5", 2, "pending-upgrade", NOW)
    result, text = is_abandoned(revision, marker, machine="here", helm_here=helm_here, age=age, timeout=600)
    assert result is abandoned
    assert reason in text
