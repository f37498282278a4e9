# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When pods of broken nodes keep a DaemonSet's rolling update from going on, and which pod is replaced next."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.stalled_rollout import is_stalled, next_pod
from tests.helpers.readiness import Object, daemonset

PLUGIN = "nvidia-device-plugin-daemonset"
BROKEN = {"gpu-3"}


def rolling(**status: int) -> Object:
    """Four nodes, of which gpu-3 is broken and has the new template; all others have the old one."""
    counts = {"updatedNumberScheduled": 1, "numberAvailable": 3, **status}
    found = daemonset(PLUGIN, 4, "device-plugin", **counts)
    found["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "2"}
    return found


def pod(node: str, generation: str = "1", ready: bool = True, **metadata: t.Any) -> Object:
    return {
        "metadata": {"name": f"plugin-{node}", "labels": {"pod-template-generation": generation}, **metadata},
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.mark.parametrize(
    ("found", "unready", "stalled"),
    [
        (rolling(), BROKEN, True),
        (rolling(), (), False),
        (rolling(updatedNumberScheduled=4), BROKEN, False),
        # Another pod is not ready either: it goes on once that is.
        (rolling(numberAvailable=2), BROKEN, False),
        (rolling(observedGeneration=1), BROKEN, False),
    ],
)
def test_what_is_stalled(found: Object, unready: t.Collection[str], stalled: bool) -> None:
    assert is_stalled(found, unready) is stalled


def test_a_daemonset_whose_pods_somebody_deletes_is_not_stalled() -> None:
    on_delete = rolling()
    on_delete["spec"]["updateStrategy"] = {"type": "OnDelete"}
    assert not is_stalled(on_delete, BROKEN)


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([pod("gpu-1"), pod("gpu-0"), pod("gpu-2"), pod("gpu-3", "2", ready=False)], "plugin-gpu-0"),
        ([pod("gpu-0", "2"), pod("gpu-1"), pod("gpu-3", "2", ready=False)], "plugin-gpu-1"),
        # One after the other.
        ([pod("gpu-0", "2", ready=False), pod("gpu-1")], None),
        ([pod("gpu-0", deletionTimestamp="2026-01-01T00:00:00Z"), pod("gpu-1")], None),
        ([pod("gpu-0", "2"), pod("gpu-1", "2")], None),
        ([pod("gpu-3")], None),
    ],
)
def test_the_next_pod(pods: list[Object], chosen: str | None) -> None:
    found = next_pod(rolling(), pods, BROKEN)
    assert (found["metadata"]["name"] if found else None) == chosen
