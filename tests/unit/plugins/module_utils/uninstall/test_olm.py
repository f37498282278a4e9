# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tolerations of a NodeFeatureDiscovery that stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.uninstall.olm import without_own_tolerations

Object = dict[str, Any]
OWN = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
THEIRS = {"key": "b", "operator": "Exists"}
NOTE = "accel.gpu/tolerations"


def discovery(tolerations: list[Object], noted: list[Object] | None) -> Object:
    annotations = {} if noted is None else {NOTE: json.dumps(noted)}
    return {
        "metadata": {
            "name": "nfd-instance",
            "resourceVersion": "7",
            "annotations": annotations,
            "managedFields": [{"manager": "accel.gpu"}, {"manager": "kubectl"}],
        },
        "spec": {"operand": {"workerTolerations": tolerations}},
    }


@pytest.mark.parametrize(
    ("tolerations", "noted", "kept"),
    [
        ([OWN, THEIRS], [OWN], [THEIRS]),
        ([OWN], [OWN], []),
        ([OWN, THEIRS], [], None),
        ([THEIRS], [OWN], None),
    ],
)
def test_only_recorded_tolerations_are_removed(tolerations: list[Object], noted: list[Object], kept: Any) -> None:
    patch = without_own_tolerations(discovery(tolerations, noted))
    assert patch is not None
    assert patch["metadata"]["annotations"] == {NOTE: None}
    assert patch["metadata"]["managedFields"] == [{"manager": "kubectl"}]
    assert patch.get("spec") == (None if kept is None else {"operand": {"workerTolerations": kept}})


def test_without_a_record_nothing_changes() -> None:
    assert without_own_tolerations(discovery([OWN], None)) is None
