# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tolerations of a NodeFeatureDiscovery that stays, and objects that the user may not list."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.olm import (
    discovery_removals,
    own_subscriptions,
    without_own_tolerations,
)

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


class Forbidding:
    """A client of a user who may list nothing."""

    def list_known(self, path: str) -> tuple[Object, ...]:
        raise ApiError("no", status=403, reason="Forbidden", method="GET", path=path)


@pytest.mark.parametrize("read", [own_subscriptions, discovery_removals])
def test_objects_that_may_not_be_listed_do_not_count_as_removed(read: Callable[[Client], object]) -> None:
    with pytest.raises(ApiError):
        read(cast("Client", Forbidding()))
