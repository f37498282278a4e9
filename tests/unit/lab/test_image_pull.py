# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods wait for their images, and what the lab writes for an image that it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from lab import image_pull, operators
from lab.api import ApiError
from lab.layout import LAB
from lab.registry import resolve

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
    ("actual", "waiting"),
    [
        (pod(), True),
        (pod(metadata={"labels": {"app.kubernetes.io/component": "gpu-operator"}}), True),
        (pod(metadata={"labels": {"app": "nvidia-driver-daemonset"}}), False),
        (pod(metadata={"annotations": {image_pull.ANNOTATION: "present"}}), False),
        (pod(phase="Running"), False),
        (pod(spec={"nodeName": ""}), False),
    ],
)
def test_pods_that_wait_for_their_image(actual: dict[str, Any], waiting: bool) -> None:
    assert image_pull.is_waiting(actual) is waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    actual: dict[str, Any] = {}
    monkeypatch.setattr(operators, "find", actual.get)
    return actual


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


class Answers(resolve.Registries):
    """The registry 127.0.0.1:5000, with these images' problems."""

    def __init__(self, problems: dict[str, str]) -> None:
        self._secure = {"127.0.0.1:5000": False}
        self.problems = problems

    def problem(self, image: str, known: Sequence[resolve.Login]) -> str | None:
        return self.problems.get(image)


@pytest.mark.parametrize(
    ("image", "waiting"),
    [
        ("127.0.0.1:5000/app:1", True),
        # kwok waits for every image on loopback.
        ("127.0.0.1:5001/app:1", True),
        ("localhost:5000/app:1", True),
        ("registry.example:5000/app:1", False),
        ("localhost/app:1", False),
    ],
)
def test_pods_that_wait_for_a_registry(image: str, waiting: bool) -> None:
    plain = pod(image, metadata={"labels": {}})
    assert image_pull.is_waiting(plain, Answers({})) is waiting
    initial = pod("registry.example/app:1", metadata={"labels": {}}, spec={"initContainers": [{"image": image}]})
    initial["spec"]["containers"] = plain["spec"]["containers"][:0]
    assert image_pull.is_waiting(initial, Answers({})) is waiting
    assert image_pull.is_waiting(plain) is False
    stage = (LAB / "kwok" / "pod-start.yaml").read_text()
    assert all(f'startswith("{prefix}")' in stage for prefix in image_pull._LOOPBACK)


def test_image_of_another_port_needs_no_pull(clock: list[float], known: dict[str, Any]) -> None:
    registries = Answers({"127.0.0.1:5001/app:1": "problem"})
    [patch] = advance(image_pull.ImagePull(pod("127.0.0.1:5001/app:1"), registries), Mock(), clock)
    assert patch[0] == "merge"


def test_a_changed_problem_is_written_again(clock: list[float], known: dict[str, Any]) -> None:
    image = "127.0.0.1:5000/app:1"
    registries = Answers({image: "not found"})
    api, pull = Mock(), image_pull.ImagePull(pod(image), registries)
    assert [len(advance(pull, api, clock)) for _ in range(3)] == [2, 1, 0]
    registries.problems[image] = "unauthorized"
    [status, event] = advance(pull, api, clock)
    [waiting] = [one["state"]["waiting"] for one in status.args[2]["status"]["containerStatuses"]]
    assert waiting["message"] == f'Back-off pulling image "{image}": ErrImagePull: unauthorized'
    assert event.args[2]["message"] == f'Failed to pull image "{image}": unauthorized'
    registries.problems.clear()
    [patch] = advance(pull, api, clock)
    assert patch[0] == "merge"


def test_the_first_init_container_blocks_the_others(clock: list[float], known: dict[str, Any]) -> None:
    images = [f"127.0.0.1:5000/app:{number}" for number in range(3)]
    initial = [{"name": f"init-{number}", "image": image} for number, image in enumerate(images[:2])]
    registries = Answers(dict.fromkeys(images, "not found"))
    pull = image_pull.ImagePull(pod(images[2], spec={"initContainers": initial}), registries)
    pull.pod["spec"]["containers"] = [{"name": "main", "image": images[2]}]
    [status, _event] = advance(pull, Mock(), clock)
    written = status.args[2]["status"]
    reasons = [one["state"]["waiting"]["reason"] for one in written["initContainerStatuses"]]
    assert reasons == ["ErrImagePull", "PodInitializing"]
    assert [one["state"]["waiting"] for one in written["containerStatuses"]] == [{"reason": "PodInitializing"}]
    conditions = {one["type"]: one["message"] for one in written["conditions"]}
    assert conditions["Initialized"] == "containers with incomplete status: [init-0 init-1]"
    assert conditions["Ready"] == "containers with unready status: [main]"
    del registries.problems[images[0]], registries.problems[images[1]]
    [status, _event] = advance(pull, Mock(), clock)
    written = status.args[2]["status"]
    assert written["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert "Initialized" not in {one["type"] for one in written["conditions"]}


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
