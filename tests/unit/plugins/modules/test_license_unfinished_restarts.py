# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation with restart_drivers after a failed restart, or a run that was killed at any request: the next run completes the restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.licensing.driver_pods import TOKEN_PATH
from tests.helpers.driver_restarts import CLIENT, NEW, RestartModule, changes_of, gpu_pod, passing_time
from tests.helpers.driver_restarts import restart_module as module
from tests.helpers.license_nodes import Killed


@pytest.fixture(autouse=True)
def no_pause() -> Iterator[None]:
    """Let the time of a drain pass without waiting."""
    with passing_time():
        yield


def test_pods_that_prevent_the_start_of_a_driver_are_named_and_evicted_by_the_next_restart() -> None:
    found = module(1, params={"restart_timeout": 0.1})
    delete = found.delete

    def use_gpu(path: str, **options: Any) -> bool:
        delete(path, **options)
        found.add(gpu_pod("a", "n0"))
        return True

    found.delete = use_gpu  # type: ignore[method-assign]
    found.delay_driver("n0")
    named = "These pods use the node's GPUs, so the driver may not start: team/a. A pod that tolerates the cordon is scheduled to the node again"
    with pytest.raises(PartialFailure, match="after its driver pod was deleted: .*" + named):
        found.work()
    found.params["restart_drivers"] = False
    with pytest.raises(PartialFailure, match=named) as error:
        found.work()
    assert "at node n0, while an unfinished restart of its driver was completed: " in str(error.value)
    assert "The node stays cordoned until a run completes its rotation" in str(error.value)
    assert error.value.partial["license_rotation"]["reached"] == "unfinished"
    found.params.update(restart_drivers=True)
    # NVIDIA's driver manager may have uncordoned the node.
    del found.nodes["n0"]["spec"]["unschedulable"]
    found.requests.clear()
    with pytest.raises(PartialFailure) as error:
        found.work()
    assert error.value.partial["license_rotation"]["evicted"] == ["team/a"]
    assert "These pods" not in str(error.value)
    assert found.requests == ["patch n0", "evict a"]
    assert list(found.cordons()) == ["n0"]
    found.containers.starting["n0"] = 0
    assert found.work()["license_rotation"]["rotated"] == ["n0"]
    assert found.cordons() == {}


def test_an_unfinished_restart_on_a_node_with_a_foreign_cordon_is_completed() -> None:
    found = module(1, params={"restart_timeout": 0.1})
    found.nodes["n0"]["spec"]["unschedulable"] = True
    found.nodes["n0"]["metadata"]["labels"][CLIENT] = "paused-for-mig-change"
    found.delay_driver("n0")
    with pytest.raises(PartialFailure, match="The node stays cordoned until a run completes its rotation"):
        found.work()
    found.containers.starting["n0"] = 0
    found.params["restart_drivers"] = False
    result = found.work()
    assert (result["changed"], result["license_rotation"]["rotated"]) == (True, ["n0"])
    assert "cordoned" not in str(result["diff"])
    assert found.nodes["n0"]["metadata"]["labels"][CLIENT] == "true"
    assert found.nodes["n0"]["metadata"]["annotations"] == {}
    assert found.cordons() == {"n0": None}
    assert not found.work()["changed"]


def test_a_driver_that_does_not_start_leaves_its_node_cordoned() -> None:
    found = module(params={"restart_timeout": 0.1})
    found.delay_driver("n0")
    with pytest.raises(PartialFailure) as error:
        found.work()
    assert (
        "The rotation stopped at node n0, after its driver pod was deleted: Not done within 0 s (restart_timeout). The driver pod driver-n0 was replaced. "
        "The driver does not run: "
    ) in str(error.value)
    assert (
        "The node stays cordoned until a run completes its rotation, and even then if it was already cordoned before the restart."
        in str(error.value)
    )
    assert found.cordons() == {"n0": "its driver is being restarted to load a licensing token"}
    assert found.nodes["n0"]["metadata"]["annotations"]["accel.gpu/driver-restart"] == "driver-n0"
    # The next run waits for this node before it drains the next one.
    found.containers.starting["n0"] = 3
    found.requests.clear()
    assert found.work()["license_rotation"]["rotated"] == ["n0", "n1"]
    assert found.requests == ["patch n0", "patch n1", "delete driver-n1", "patch n1"]
    assert found.cordons() == {}


def test_a_restart_is_not_advised_again() -> None:
    found = module(1)
    delete = found.delete

    def without_client(path: str, **options: Any) -> bool:
        delete(path, **options)
        found.containers.by_node["n0"].hidden = True
        return True

    found.delete = without_client  # type: ignore[method-assign]
    # The second run only completes the restart of the first one.
    for restarts in (True, False):
        found.params["restart_drivers"] = restarts
        with pytest.raises(PartialFailure, match=r"does not run\. Check the log of pod driver-n0\+1\.") as error:
            found.work()
        assert "gpu_licensing_restart_drivers" not in str(error.value)


def test_the_next_node_is_drained_once_the_device_plugin_is_ready() -> None:
    found = filled(plugin_delay=3)
    assert found.work()["license_rotation"]["restarted"] == ["n0", "n1"]
    found = filled(plugin_delay=1_000_000, params={"restart_timeout": 0.1})
    with pytest.raises(PartialFailure, match="The driver runs, but the device plugin is not ready") as error:
        found.work()
    assert error.value.partial["license_rotation"]["pending"] == ["n1"]
    assert list(found.cordons()) == ["n0"]
    found.plugin_delay = 0
    assert found.work()["license_rotation"]["rotated"] == ["n0", "n1"]


def filled(**options: Any) -> RestartModule:
    found = module(**options)
    found.add(gpu_pod("a", "n0"), gpu_pod("b", "n1"))
    return found


def number_of_changes() -> int:
    found = filled()
    with passing_time():
        found.work()
    return len(found.requests)


@pytest.mark.parametrize("starting", [0, 4])
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("number", range(1, number_of_changes() + 1))
def test_a_run_that_is_killed_after_any_change_is_continued(number: int, again: bool, starting: int) -> None:
    found = filled(kill_after=number, params={"wait_timeout": 5})
    with pytest.raises(Killed):
        found.work()
    running = set(found.pods)
    found.kill_after, found.params["restart_drivers"] = None, again
    found.containers.starting = dict.fromkeys(found.containers.starting, starting)
    found.work()
    assert found.cordons() == {}
    assert all(each.licensed and each.loaded[TOKEN_PATH] == NEW.encode() for each in found.containers.by_node.values())
    # A driver that has restarted does not restart again; without the option, no further pod is evicted.
    restarted = [request.partition("+")[0] for request in changes_of(found.requests, "delete")]
    assert len(set(restarted)) == len(restarted)
    assert set(found.pods) == (set() if again else running)
    assert not found.work()["changed"]
