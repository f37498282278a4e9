# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation with restart_drivers after a failed restart, or a run that was killed at any request: the next run completes the restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import TOKEN_PATH
from tests.helpers.driver_restarts import CLIENT, NEW, RestartModule, changes_of, gpu_pod, passing_time
from tests.helpers.driver_restarts import restart_module as module
from tests.helpers.license_nodes import Killed


@pytest.fixture(autouse=True)
def no_pause() -> Iterator[None]:
    """Let the time of a drain pass without waiting."""
    with passing_time():
        yield


def test_pods_that_prevent_the_start_of_a_driver_are_named_and_evicted_by_the_next_restart() -> None:
    actual = module(1, params={"restart_timeout": 0.1})
    delete = actual.delete

    def use_gpu(path: str, **options: Any) -> bool:
        delete(path, **options)
        actual.add(gpu_pod("a", "n0"))
        return True

    actual.delete = use_gpu  # type: ignore[method-assign]
    actual.delay_driver("n0")
    named = "These pods use the node's GPUs, so the driver may not start: team/a. A pod that tolerates the cordon is scheduled to the node again"
    with pytest.raises(PartialFailure, match="after its driver pod was deleted: .*" + named):
        actual.work()
    actual.params["restart_drivers"] = False
    with pytest.raises(PartialFailure, match=named) as error:
        actual.work()
    assert "at node n0, while an unfinished restart of its driver was completed: " in str(error.value)
    assert "The node stays cordoned until a run completes its rotation" in str(error.value)
    assert error.value.partial["license_rotation"]["reached"] == "unfinished"
    actual.params.update(restart_drivers=True)
    # NVIDIA's driver manager may have uncordoned the node.
    del actual.nodes["n0"]["spec"]["unschedulable"]
    actual.requests.clear()
    with pytest.raises(PartialFailure) as error:
        actual.work()
    assert error.value.partial["license_rotation"]["evicted"] == ["team/a"]
    assert "These pods" not in str(error.value)
    assert actual.requests == ["patch n0", "evict a"]
    assert list(actual.cordons()) == ["n0"]
    actual.containers.starting["n0"] = 0
    assert actual.work()["license_rotation"]["rotated"] == ["n0"]
    assert actual.cordons() == {}


def test_an_unfinished_restart_on_a_node_with_a_foreign_cordon_is_completed() -> None:
    actual = module(1, params={"restart_timeout": 0.1})
    actual.nodes["n0"]["spec"]["unschedulable"] = True
    actual.nodes["n0"]["metadata"]["labels"][CLIENT] = "paused-for-mig-change"
    actual.delay_driver("n0")
    with pytest.raises(PartialFailure, match="The node stays cordoned until a run completes its rotation"):
        actual.work()
    actual.containers.starting["n0"] = 0
    actual.params["restart_drivers"] = False
    result = actual.work()
    assert (result["changed"], result["license_rotation"]["rotated"]) == (True, ["n0"])
    assert "cordoned" not in str(result["diff"])
    assert actual.nodes["n0"]["metadata"]["labels"][CLIENT] == "true"
    assert actual.nodes["n0"]["metadata"]["annotations"] == {}
    assert actual.cordons() == {"n0": None}
    assert not actual.work()["changed"]


def test_a_driver_that_does_not_start_leaves_its_node_cordoned() -> None:
    actual = module(params={"restart_timeout": 0.1})
    actual.delay_driver("n0")
    with pytest.raises(PartialFailure) as error:
        actual.work()
    assert (
        "The rotation stopped at node n0, after its driver pod was deleted: Not done within 0 s (restart_timeout). The driver pod driver-n0 was replaced. "
        "The driver does not run: "
    ) in str(error.value)
    assert (
        "The node stays cordoned until a run completes its rotation, and even then if it was already cordoned before the restart."
        in str(error.value)
    )
    assert actual.cordons() == {"n0": "its driver is being restarted to load a licensing token"}
    assert actual.nodes["n0"]["metadata"]["annotations"]["accel.gpu/driver-restart"] == "driver-n0"
    # The next run waits for this node before it drains the next one.
    actual.containers.starting["n0"] = 3
    actual.requests.clear()
    assert actual.work()["license_rotation"]["rotated"] == ["n0", "n1"]
    assert actual.requests == ["patch n0", "patch n1", "delete driver-n1", "patch n1"]
    assert actual.cordons() == {}


def test_a_restart_is_not_advised_again() -> None:
    actual = module(1)
    delete = actual.delete

    def without_client(path: str, **options: Any) -> bool:
        delete(path, **options)
        actual.containers.by_node["n0"].hidden = True
        return True

    actual.delete = without_client  # type: ignore[method-assign]
    # The second run only completes the restart of the first one.
    for restarts in (True, False):
        actual.params["restart_drivers"] = restarts
        with pytest.raises(PartialFailure, match=r"does not run\. Check the log of pod driver-n0\+1\.") as error:
            actual.work()
        assert "gpu_licensing_restart_drivers" not in str(error.value)


def test_the_next_node_is_drained_once_the_device_plugin_is_ready() -> None:
    actual = filled(plugin_delay=3)
    assert actual.work()["license_rotation"]["restarted"] == ["n0", "n1"]
    actual = filled(plugin_delay=1_000_000, params={"restart_timeout": 0.1})
    with pytest.raises(PartialFailure, match="The driver runs, but the device plugin is not ready") as error:
        actual.work()
    assert "pod plugin-n0 container nvidia-device-plugin: ImagePullBackOff on node n0" in str(error.value)
    assert error.value.partial["license_rotation"]["pending"] == ["n1"]
    assert list(actual.cordons()) == ["n0"]
    actual.plugin_delay = 0
    assert actual.work()["license_rotation"]["rotated"] == ["n0", "n1"]


def filled(**options: Any) -> RestartModule:
    actual = module(**options)
    actual.add(gpu_pod("a", "n0"), gpu_pod("b", "n1"))
    return actual


def number_of_changes() -> int:
    actual = filled()
    with passing_time():
        actual.work()
    return len(actual.requests)


@pytest.mark.parametrize("starting", [0, 4])
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("number", range(1, number_of_changes() + 1))
def test_a_run_that_is_killed_after_any_change_is_continued(number: int, again: bool, starting: int) -> None:
    actual = filled(kill_after=number, params={"wait_timeout": 5})
    with pytest.raises(Killed):
        actual.work()
    running = set(actual.pods)
    actual.kill_after, actual.params["restart_drivers"] = None, again
    actual.containers.starting = dict.fromkeys(actual.containers.starting, starting)
    actual.work()
    assert actual.cordons() == {}
    assert all(each.licensed and each.loaded[TOKEN_PATH] == NEW.encode() for each in actual.containers.by_node.values())
    # A driver that has restarted does not restart again; without the option, no further pod is evicted.
    restarted = [request.partition("+")[0] for request in changes_of(actual.requests, "delete")]
    assert len(set(restarted)) == len(restarted)
    assert set(actual.pods) == (set() if again else running)
    assert not actual.work()["changed"]
