# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When NVIDIADriver objects may be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.uninstall.stages import refusal

Object = dict[str, Any]

OWN = {"metadata": {"name": "accel-gpu-a", "uid": "1"}}


def daemonset(uid: str, nodes: int) -> Object:
    return {"metadata": {"ownerReferences": [{"uid": uid}]}, "status": {"currentNumberScheduled": nodes}}


@pytest.mark.parametrize(
    ("daemonsets", "text"),
    [
        ([], ""),
        ([daemonset("1", 0), daemonset("2", 5)], ""),
        ([daemonset("1", 2), daemonset("1", 1)], "3 nodes have the driver of NVIDIADriver accel-gpu-a"),
    ],
)
def test_objects_of_a_kept_operator_need_a_permission(daemonsets: list[Object], text: str) -> None:
    actual = refusal([OWN], daemonsets)
    assert bool(actual) == bool(text)
    assert text in actual
