# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of NVIDIA's pods fail for longer than a start takes, and which of several is the cause."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import (
    operand_failures,
    unready_operands,
    with_meaning,
)

MADE = "2026-01-01T00:00:00Z"
EPOCH = datetime.datetime.fromisoformat(MADE.replace("Z", "+00:00")).timestamp()
DRIVER, VALIDATOR = "nvidia-driver-daemonset", "nvidia-operator-validator"


def operand(app: str, status: dict[str, t.Any], node: str = "n1") -> dict[str, t.Any]:
    return {
        "metadata": {"name": f"{app}-x", "labels": {"app": app}, "creationTimestamp": MADE},
        "spec": {"nodeName": node},
        "status": status,
    }


def waiting(reason: str, restarts: int = 0, init: bool = False) -> dict[str, t.Any]:
    container = {"name": "main", "restartCount": restarts, "state": {"waiting": {"reason": reason}}}
    return {"phase": "Pending", "initContainerStatuses" if init else "containerStatuses": [container]}


def crashed(restarts: int) -> dict[str, t.Any]:
    """A container that runs again for now."""
    ended = {"terminated": {"exitCode": 1, "message": "no such device"}}
    container = {"name": "main", "restartCount": restarts, "state": {"running": {}}, "lastState": ended}
    return {"phase": "Running", "containerStatuses": [container]}


@pytest.mark.parametrize(
    ("status", "after", "fails"),
    [
        (waiting("CrashLoopBackOff", 3), 0, True),
        (waiting("CrashLoopBackOff", 2), 3600, False),
        (waiting("CrashLoopBackOff", 5, init=True), 0, True),
        (crashed(4), 0, True),
        (crashed(1), 3600, False),
        (waiting("ImagePullBackOff"), 59, False),
        (waiting("ImagePullBackOff"), 61, True),
        (waiting("ErrImagePull"), 61, True),
        (waiting("CreateContainerConfigError"), 61, True),
        (waiting("ContainerCreating"), 3600, False),
        (waiting("PodInitializing"), 3600, False),
        ({"phase": "Running"}, 3600, False),
    ],
)
def test_what_lasts(status: dict[str, t.Any], after: float, fails: bool) -> None:
    assert bool(operand_failures([operand(DRIVER, status)], EPOCH + after)) is fails


def test_the_first_in_their_order_is_the_cause() -> None:
    pods = [
        operand(VALIDATOR, waiting("CrashLoopBackOff", 9)),
        operand("nvidia-dcgm-exporter", waiting("CrashLoopBackOff", 9)),
        operand(f"{DRIVER}-rhcos4.18", waiting("CrashLoopBackOff", 4)),
        operand("nvidia-dcgm-exporter", waiting("CrashLoopBackOff", 9), "n2"),
    ]
    for ordered in (pods, pods[::-1]):
        actual = operand_failures(ordered, EPOCH)
        assert {node: ailment.pod for node, ailment in actual.items()} == {
            "n1": f"{DRIVER}-rhcos4.18-x",
            "n2": "nvidia-dcgm-exporter-x",
        }


def test_which_pods_are_not_ready_on_the_nodes_that_are_set_aside() -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pods = [
        operand(DRIVER, crashed(4)),
        operand(VALIDATOR, {"phase": "Pending"}),
        operand(VALIDATOR, {"phase": "Pending"}, "n2"),
        operand("nvidia-dcgm", ready),
    ]
    assert unready_operands(pods, {"n1"}) == {DRIVER: {"n1"}, VALIDATOR: {"n1"}}


def test_a_log_that_shows_secure_boot_is_explained() -> None:
    text = "pod d container c: exit 1; log: modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    assert with_meaning(text).startswith(f"{text} (Secure Boot rejects the unsigned kernel module: use")
    assert with_meaning("exit 1: No such device") == "exit 1: No such device"
