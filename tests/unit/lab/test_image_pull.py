# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods wait for an image of the GPU operator, and what the lab writes for an image that it does not have."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from lab import image_pull, operators
from lab.api import ApiError

IMAGE = "mirror.example:5000/nvidia/gpu-operator:v26.7.0"


def pod(image: str = IMAGE, **changes: Any) -> dict[str, Any]:
    metadata = {"name": "gpu-operator-1", "namespace": "gpu-operator", "uid": "u", "labels": {"app": "gpu-operator"}}
    return {
        "metadata": {**metadata, **changes.get("metadata", {})},
        "spec": {
            "nodeName": "t4-1",
            "containers": [{"name": "gpu-operator", "image": image, "command": ["gpu-operator"]}],
            **changes.get("spec", {}),
        },
        "status": {"phase": changes.get("phase", "Pending")},
    }


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        (IMAGE, "v26.7.0"),
        ("nvcr.io/nvidia/gpu-operator", ""),
        ("localhost:5000/gpu-operator", ""),
        ("nvcr.io/nvidia/gpu-operator@sha256:0123", ""),
        ("nvcr.io/nvidia/gpu-operator:v26.7.0@sha256:0123", ""),
    ],
)
def test_tag(image: str, tag: str) -> None:
    assert image_pull.tag(image) == tag


@pytest.mark.parametrize(
    ("found", "waiting"),
    [
        (pod(), True),
        (pod(metadata={"labels": {"app.kubernetes.io/component": "gpu-operator"}}), True),
        (pod(metadata={"labels": {"app": "nvidia-driver-daemonset"}}), False),
        (pod(metadata={"annotations": {image_pull.ANNOTATION: "present"}}), False),
        (pod(phase="Running"), False),
        (pod(spec={"nodeName": ""}), False),
    ],
)
def test_pods_that_wait_for_their_image(found: dict[str, Any], waiting: bool) -> None:
    assert image_pull.is_waiting(found) is waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {}
    monkeypatch.setattr(operators, "find", found.get)
    return found


def advance(pull: image_pull.ImagePull, api: Mock, clock: list[float]) -> list[Any]:
    api.reset_mock()
    clock[0] += 10
    pull.advance(api)
    return list(api.mock_calls)


def test_an_unknown_release_is_an_image_that_cannot_be_pulled_until_it_is_added(
    clock: list[float], known: dict[str, Any]
) -> None:
    api, pull = Mock(), image_pull.ImagePull(pod())
    [status, event] = advance(pull, api, clock)
    [waiting] = [one["state"]["waiting"] for one in status.args[2]["status"]["containerStatuses"]]
    assert waiting["reason"] == "ErrImagePull"
    assert waiting["message"].endswith(f'failed to resolve reference "{IMAGE}": {IMAGE}: not found')
    assert event.args[2]["reason"] == "Failed"
    assert event.args[2]["involvedObject"]["uid"] == "u"

    [status] = advance(pull, api, clock)
    [waiting] = [one["state"]["waiting"] for one in status.args[2]["status"]["containerStatuses"]]
    assert waiting["reason"] == "ImagePullBackOff"
    assert waiting["message"].startswith(f'Back-off pulling image "{IMAGE}": ErrImagePull: ')
    assert [one["status"] for one in status.args[2]["status"]["conditions"]] == ["False", "False"]
    assert advance(pull, api, clock) == []

    known["v26.7.0"] = operators.LabOperator("v26.7.0", None, "not-built")
    assert advance(pull, api, clock) == []
    known["v26.7.0"] = operators.LabOperator("v26.7.0", Mock())
    [patch] = advance(pull, api, clock)
    assert patch.args[1] == {"metadata": {"annotations": {image_pull.ANNOTATION: "present"}}}


def test_other_images_need_no_release(clock: list[float], known: dict[str, Any]) -> None:
    [patch] = advance(image_pull.ImagePull(pod("example.com/hook:1")), Mock(), clock)
    assert patch[0] == "merge"


def test_a_deleted_pod_is_no_error(clock: list[float], known: dict[str, Any]) -> None:
    api = Mock()
    api.request.side_effect = ApiError(404, "gone")
    image_pull.ImagePull(pod()).advance(api)


@pytest.mark.parametrize(
    ("image", "csv", "release"),
    [
        ("nvcr.io/nvidia/gpu-operator:v25.10.1", "gpu-operator-certified.v25.3.2", "v25.10.1"),
        ("nvcr.io/nvidia/gpu-operator@sha256:12", "gpu-operator-certified.v25.3.2", "v25.3.2"),
        ("nvcr.io/nvidia/gpu-operator@sha256:12", None, ""),
    ],
)
def test_the_release_of_an_image_by_digest_is_that_of_its_csv(image: str, csv: str | None, release: str) -> None:
    env = [{"name": "OPERATOR_CONDITION_NAME", "value": csv}] if csv else []
    assert image_pull.release({"image": image, "env": env}) == release
