# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tolerations of a NodeFeatureDiscovery that stays, and objects that the user is not allowed to list."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import (
    discovery_removals,
    find_subscriptions,
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


class Cluster:
    """A client of a cluster with or without OLM. `status`: the error of a list."""

    def __init__(self, *, olm: bool, status: int = 0) -> None:
        self._olm, self._status = olm, status

    def get(self, dummy: str) -> Object | None:
        return {"resources": []} if self._olm else None

    def list_known(self, path: str) -> tuple[Object, ...]:
        if self._status:
            raise ApiError("no", status=self._status, reason="Forbidden", method="GET", path=path)
        metadata: Object = {"name": "nfd", "namespace": "openshift-nfd", "annotations": {"accel.gpu/created": "true"}}
        metadata["managedFields"] = [{"manager": "accel.gpu"}]
        foreign = {"metadata": {"name": "other", "namespace": "x"}, "spec": {"name": "other"}}
        copy = {"metadata": {**metadata, "name": "copy", "managedFields": [{"manager": "kubectl-create"}]}}
        return ({"metadata": metadata, "spec": {"name": "nfd"}}, foreign, copy) if self._olm else ()


OWN_SUBSCRIPTION = {"name": "nfd", "namespace": "openshift-nfd", "package": "nfd"}


@pytest.mark.parametrize("by_olm", [True, False])
def test_subscriptions_are_found_even_if_the_variables_name_helm(by_olm: bool) -> None:
    client = cast("Client", Cluster(olm=True))
    assert find_subscriptions(client, by_olm=by_olm) == ([OWN_SUBSCRIPTION], False)


def test_a_cluster_without_olm_needs_no_right_to_list_its_objects() -> None:
    assert find_subscriptions(cast("Client", Cluster(olm=False, status=403)), by_olm=False) == ([], False)


def test_without_the_right_it_is_unknown_whether_there_are_subscriptions() -> None:
    client = cast("Client", Cluster(olm=True, status=403))
    assert find_subscriptions(client, by_olm=False) == ([], True)
    with pytest.raises(ApiError):
        find_subscriptions(client, by_olm=True)


def test_an_error_of_the_server_is_not_a_missing_right() -> None:
    with pytest.raises(ApiError):
        find_subscriptions(cast("Client", Cluster(olm=True, status=500)), by_olm=False)
