# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that the API server rejects, and errors that concern all pods."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease
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
