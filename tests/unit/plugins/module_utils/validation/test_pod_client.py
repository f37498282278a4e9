# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that the API server rejects, errors that concern all pods, and which pods are deleted."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease
from ansible_collections.accel.gpu.plugins.module_utils.validation import validator
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import run_label
from ansible_collections.accel.gpu.plugins.module_utils.validation.validator import PodClient, rejection_reason

BODIES: list[dict[str, Any]] = [{"metadata": {"name": name}} for name in ("a", "b")]
QUOTA = 'pods "b" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
DENIED = 'pods is forbidden: User "joe" cannot create resource "pods" in API group "" in the namespace "gpu-operator"'


class _Server:
    """Creates every pod except b."""

    def __init__(self, error: ApiError) -> None:
        self.error = error

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["name"] == "b":
            raise self.error
        return body


class _Lease:
    lost = threading.Event()

    def check(self) -> None:
        """The lease is held."""


def _create(error: ApiError) -> dict[str, str]:
    pods = PodClient(cast("Client", _Server(error)), "gpu-operator", "run-1", cast("Progress", None), 1.0)
    return pods.create(BODIES, cast("Lease", _Lease()))


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_rejected_pod_is_returned_with_the_reason(status: int) -> None:
    error = ApiError(QUOTA, status=status)
    error.has_status_object = True
    assert _create(error) == {
        "b": "exceeded quota: gpus, requested: requests.nvidia.com/gpu=1",
    }


@pytest.mark.parametrize("error", [ApiError(DENIED, status=403), ApiError("broke"), ApiError("exists", status=409)])
def test_other_errors_concern_all_pods(error: ApiError) -> None:
    with pytest.raises(ApiError) as raised:
        _create(error)
    assert raised.value is error


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "b" is forbidden: exceeded quota: gpus', "exceeded quota: gpus"),
        ('Pod "b" is invalid: spec.tolerations: Invalid value', "spec.tolerations: Invalid value"),
        ('admission webhook "w" denied the request', 'admission webhook "w" denied the request'),
    ],
)
def test_reasons_are_the_same_for_all_pods_of_a_pool(message: str, reason: str) -> None:
    assert rejection_reason(message, "b") == reason


OWN: dict[str, Any] = {"managedFields": [{"manager": "accel.gpu", "operation": "Update"}]}
FOREIGN: dict[str, Any] = {"managedFields": [{"manager": "kubectl-create", "operation": "Update"}]}
POD_PATH = "/api/v1/namespaces/gpu-operator/pods"


def _pod(name: str, record: dict[str, Any], run: str = "dead", **metadata: Any) -> dict[str, Any]:
    labels = {"accel.gpu/validation": "p", "accel.gpu/run": run}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, **record, **metadata}}


class _Pods:
    """Pods that are deleted at once; a pod of `replaced` has another UID by then, and one of `stuck` remains."""

    def __init__(self, *pods: dict[str, Any], replaced: tuple[str, ...] = (), stuck: tuple[str, ...] = ()) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        self.requests: list[str] = []
        self._replaced, self._stuck = replaced, stuck

    def list(self, path: str, *, label_selector: str, metadata_only: bool) -> list[dict[str, Any]]:
        assert (path, metadata_only) == (POD_PATH, True)
        self.requests.append("list")
        key, dummy, value = label_selector.partition("=")
        labels = {name: pod["metadata"]["labels"] for name, pod in self.pods.items()}
        return [
            pod for name, pod in self.pods.items() if key in labels[name] and (not value or labels[name][key] == value)
        ]

    def delete(self, path: str, *, body: Any = None, query: Any = None) -> None:
        assert query is None, "a collection may contain pods of other owners"
        folder, dummy, name = path.rpartition("/")
        assert folder == POD_PATH
        assert body == {"preconditions": {"uid": f"uid-{name}"}}
        self.requests.append(f"delete {name}")
        if name in self._replaced:
            self.pods[name] = _pod(name, FOREIGN)
            raise ApiError("the UID in the precondition does not match", status=409)
        if name not in self._stuck:
            del self.pods[name]


class _Progress:
    def report(self, *dummy: Any) -> None:
        """No output."""

    def __getattr__(self, dummy: str) -> Any:
        return self.report


def _of_run(server: _Pods) -> PodClient:
    return PodClient(cast("Client", server), "gpu-operator", "run-1", cast("Progress", _Progress()), 0.01)


def test_pods_of_other_owners_with_the_label_are_kept_and_named() -> None:
    copy = _pod("copy", {"annotations": {"accel.gpu/created": "true"}})
    server = _Pods(_pod("own", OWN), _pod("theirs", FOREIGN), copy, _pod("going", OWN, deletionTimestamp="now"))
    pods = _of_run(server)
    assert pods.leftovers() == (["own"], ["copy", "theirs"])
    assert server.requests == ["list"], "an unchanged run sends no further request"
    server.pods.pop("going")
    assert pods.delete_leftovers() == []
    assert sorted(server.pods) == ["copy", "theirs"]


def test_a_copy_of_a_pod_of_this_run_is_kept() -> None:
    run = run_label("run-1")
    server = _Pods(_pod("a", OWN, run), _pod("b", OWN, run), _pod("copy", FOREIGN, run), _pod("other", OWN))
    assert _of_run(server).delete() == []
    assert sorted(server.pods) == ["copy", "other"]
    assert sorted(server.requests) == ["delete a", "delete b", "list", "list"]


def test_a_pod_that_replaced_an_own_pod_is_kept() -> None:
    server = _Pods(_pod("a", OWN), _pod("b", OWN), replaced=("a",))
    assert _of_run(server).delete_leftovers() == []
    assert sorted(server.pods) == ["a"]


def test_pods_that_cannot_be_deleted_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator, "DELETE_TIMEOUT", 0.05)
    server = _Pods(_pod("a", OWN), _pod("b", OWN), _pod("theirs", FOREIGN), stuck=("b",))
    assert _of_run(server).delete_leftovers() == ["b"]
