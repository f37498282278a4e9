# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NFD's worker, GFD and the device plugin as the API shows them."""

from __future__ import annotations

import time

import pytest

from tests.integration.sim.cluster import GFD, OPERATOR, PLUGIN, Cluster, sharing

LAG = 60 * 0.05


def test_a_node_says_what_hardware_it_has(cluster: Cluster) -> None:
    labels = cluster.labels("h200-1")
    assert labels["feature.node.kubernetes.io/pci-10de.present"] == "true"
    assert labels["feature.node.kubernetes.io/system-os_release.ID"] == "ubuntu"
    assert cluster.shared("h200-1") == ({"nvidia.com/gpu": 8}, "NVIDIA-H200", "1", "none")
    assert labels["nvidia.com/gpu.memory"] == "143771"
    assert "feature.node.kubernetes.io/pci-10de.present" not in cluster.labels("cpu-1")
    assert cluster.gpus("cpu-1") == {}


@pytest.mark.parametrize(
    ("rename", "resource", "product"),
    [(False, "nvidia.com/gpu", "Tesla-T4-SHARED"), (True, "nvidia.com/gpu.shared", "Tesla-T4")],
)
def test_sharing_follows_the_label(cluster: Cluster, rename: bool, resource: str, product: str) -> None:
    name = f"four-{rename}".lower()
    cluster.configs({name: sharing(4, rename=rename)})
    time.sleep(LAG + 1)  # the lag of the mounted copy is what is waited out here
    cluster.use("t4-1", name)
    cluster.wait(lambda: cluster.shared("t4-1")[0].get(resource) == 4, what="four replicas")
    cluster.wait(lambda: cluster.shared("t4-1")[1:] == (product, "4", "time-slicing"), what="GFD's labels")
    assert cluster.gpus("t4-1") == {resource: 4}
    assert cluster.shared("t4-2") == ({"nvidia.com/gpu": 1}, "Tesla-T4", "1", "none")


def test_a_config_is_seen_late(cluster: Cluster) -> None:
    """A label that names a config which the mounted copy lacks makes config-manager crash until the copy has it."""
    cluster.configs({"late": sharing(6)})
    cluster.use("t4-2", "late")
    cluster.wait(
        lambda: cluster.waiting("t4-2", PLUGIN).get("config-manager", ("", 0))[0] == "CrashLoopBackOff", what="a crash"
    )
    [pod] = cluster.pods("t4-2", PLUGIN)
    said = cluster.log("-n", OPERATOR, pod["metadata"]["name"], "-c", "config-manager")
    assert said.rstrip().endswith("specified config late does not exist")
    cluster.wait(lambda: cluster.gpus("t4-2") == {"nvidia.com/gpu": 6}, what="the copy to catch up")
    cluster.wait(lambda: not cluster.waiting("t4-2", PLUGIN), what="config-manager to run again")


def test_a_changed_annotation_brings_the_copy_up_to_date(cluster: Cluster) -> None:
    cluster.configs({"pushed": sharing(5)})
    restarts = {}
    for app in (PLUGIN, GFD):
        [pod] = cluster.pods("t4-3", app)
        path = f"/api/v1/namespaces/{OPERATOR}/pods/{pod['metadata']['name']}"
        cluster.api.merge(path, {"metadata": {"annotations": {"accel.gpu/config": "pushed"}}})
        restarts[app] = sum(s["restartCount"] for s in pod["status"]["containerStatuses"])
    cluster.use("t4-3", "pushed")
    cluster.wait(lambda: cluster.gpus("t4-3") == {"nvidia.com/gpu": 5}, what="five replicas", limit=LAG + 10)
    for app, before in restarts.items():
        [pod] = cluster.pods("t4-3", app)
        assert sum(s["restartCount"] for s in pod["status"]["containerStatuses"]) == before


def test_an_edited_config_waits_for_a_restart(cluster: Cluster) -> None:
    cluster.configs({"edited": sharing(3)})
    time.sleep(LAG + 1)  # the lag of the mounted copy is what is waited out here
    cluster.use("t4-4", "edited")
    cluster.wait(lambda: cluster.gpus("t4-4") == {"nvidia.com/gpu": 3}, what="three replicas")
    cluster.configs({"edited": sharing(7)})
    time.sleep(LAG + 2)  # nothing may happen in this time
    assert cluster.gpus("t4-4") == {"nvidia.com/gpu": 3}
    [pod] = cluster.pods("t4-4", PLUGIN)
    cluster.api.request("DELETE", f"/api/v1/namespaces/{OPERATOR}/pods/{pod['metadata']['name']}")
    cluster.wait(lambda: cluster.gpus("t4-4") == {"nvidia.com/gpu": 7}, what="the new pod to read the edited config")


def test_a_bad_config_crashes_the_plugin_until_it_is_mended(cluster: Cluster) -> None:
    cluster.configs({"bad": sharing(1)})
    time.sleep(LAG + 1)  # the lag of the mounted copy is what is waited out here
    cluster.use("t4-5", "bad")
    cluster.wait(
        lambda: cluster.waiting("t4-5", PLUGIN).get("nvidia-device-plugin", ("", 0))[1] >= 2, what="two restarts"
    )
    cluster.wait(lambda: GFD in cluster.waiting("t4-5", GFD), what="GFD to crash")
    [pod] = cluster.pods("t4-5", PLUGIN)
    assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "False"
    said = cluster.log("-n", OPERATOR, pod["metadata"]["name"], "-c", "nvidia-device-plugin")
    assert said.rstrip().endswith("number of replicas must be >= 2")
    assert cluster.gpus("t4-5") == {}
    cluster.configs({"bad": sharing(2)})
    cluster.wait(lambda: cluster.gpus("t4-5") == {"nvidia.com/gpu": 2}, what="the plugin to read the mended config")
