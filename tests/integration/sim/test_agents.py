# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NFD's worker, GFD and the device plugin, observed through the API."""

from __future__ import annotations

import time

import pytest

from tests.integration.sim.sim_cluster import GFD, OPERATOR, PLUGIN, SimCluster, sharing

LAG = 60 * 0.05


def test_labels_and_resources_of_a_node(cluster: SimCluster) -> None:
    labels = cluster.labels("h200-1")
    assert labels["feature.node.kubernetes.io/pci-10de.present"] == "true"
    assert labels["feature.node.kubernetes.io/system-os_release.ID"] == "ubuntu"
    assert cluster.sharing_state("h200-1") == ({"nvidia.com/gpu": 8}, "NVIDIA-H200", "1", "none")
    assert labels["nvidia.com/gpu.memory"] == "143771"
    assert "feature.node.kubernetes.io/pci-10de.present" not in cluster.labels("cpu-1")
    assert cluster.gpus("cpu-1") == {}


@pytest.mark.parametrize(
    ("rename", "resource", "product"),
    [(False, "nvidia.com/gpu", "Tesla-T4-SHARED"), (True, "nvidia.com/gpu.shared", "Tesla-T4")],
)
def test_sharing_from_the_node_label(cluster: SimCluster, rename: bool, resource: str, product: str) -> None:
    name = f"four-{rename}".lower()
    cluster.configs({name: sharing(4, rename=rename)})
    time.sleep(LAG + 1)  # until the mounted copy is up to date
    cluster.set_config("t4-1", name)
    cluster.wait(lambda: cluster.sharing_state("t4-1")[0].get(resource) == 4, what="four replicas")
    cluster.wait(lambda: cluster.sharing_state("t4-1")[1:] == (product, "4", "time-slicing"), what="GFD's labels")
    assert cluster.gpus("t4-1") == {resource: 4}
    assert cluster.sharing_state("t4-2") == ({"nvidia.com/gpu": 1}, "Tesla-T4", "1", "none")


def test_new_config_arrives_with_a_delay(cluster: SimCluster) -> None:
    """If a label names a config that the mounted copy lacks, config-manager crashes until the copy is updated."""
    cluster.configs({"late": sharing(6)})
    cluster.set_config("t4-2", "late")
    cluster.wait(
        lambda: cluster.waiting_containers("t4-2", PLUGIN).get("config-manager", ("", 0))[0] == "CrashLoopBackOff",
        what="a crash",
    )
    [pod] = cluster.pods("t4-2", PLUGIN)
    output = cluster.log("-n", OPERATOR, pod["metadata"]["name"], "-c", "config-manager")
    assert output.rstrip().endswith("specified config late does not exist")
    cluster.wait(lambda: cluster.gpus("t4-2") == {"nvidia.com/gpu": 6}, what="the copy to be updated")
    cluster.wait(lambda: not cluster.waiting_containers("t4-2", PLUGIN), what="config-manager to run again")


def push(cluster: SimCluster, node: str) -> dict[str, int]:
    """Let the node use the config `pushed`, after an annotation that updates the copies; returns the restarts by app."""
    restarts = {}
    for app in (PLUGIN, GFD):
        [pod] = cluster.pods(node, app)
        path = f"/api/v1/namespaces/{OPERATOR}/pods/{pod['metadata']['name']}"
        cluster.api.merge(path, {"metadata": {"annotations": {"accel.gpu/config": "pushed"}}})
        restarts[app] = sum(s["restartCount"] for s in pod["status"]["containerStatuses"])
    cluster.set_config(node, "pushed")
    cluster.wait(lambda: cluster.gpus(node) == {"nvidia.com/gpu": 5}, what="five replicas", limit=LAG + 10)
    return restarts


def test_a_changed_annotation_updates_the_copy(cluster: SimCluster) -> None:
    cluster.configs({"pushed": sharing(5)})
    # On a busy machine, the first node may crash, since the simulator may see the annotation before it sees the config.
    push(cluster, "t4-2")
    for app, before in push(cluster, "t4-3").items():
        [pod] = cluster.pods("t4-3", app)
        assert sum(s["restartCount"] for s in pod["status"]["containerStatuses"]) == before


def test_an_edited_config_is_read_after_a_restart(cluster: SimCluster) -> None:
    cluster.configs({"edited": sharing(3)})
    time.sleep(LAG + 1)  # until the mounted copy is up to date
    cluster.set_config("t4-4", "edited")
    cluster.wait(lambda: cluster.gpus("t4-4") == {"nvidia.com/gpu": 3}, what="three replicas")
    cluster.configs({"edited": sharing(7)})
    time.sleep(LAG + 2)  # no change may happen during this time
    assert cluster.gpus("t4-4") == {"nvidia.com/gpu": 3}
    [pod] = cluster.pods("t4-4", PLUGIN)
    cluster.api.request("DELETE", f"/api/v1/namespaces/{OPERATOR}/pods/{pod['metadata']['name']}")
    cluster.wait(lambda: cluster.gpus("t4-4") == {"nvidia.com/gpu": 7}, what="the new pod to read the edited config")


def test_an_invalid_config_crashes_the_plugin_until_it_is_corrected(cluster: SimCluster) -> None:
    cluster.configs({"bad": sharing(1)})
    time.sleep(LAG + 1)  # until the mounted copy is up to date
    cluster.set_config("t4-5", "bad")
    cluster.wait(
        lambda: cluster.waiting_containers("t4-5", PLUGIN).get("nvidia-device-plugin", ("", 0))[1] >= 2,
        what="two restarts",
    )
    cluster.wait(lambda: GFD in cluster.waiting_containers("t4-5", GFD), what="GFD to crash")
    [pod] = cluster.pods("t4-5", PLUGIN)
    assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "False"
    output = cluster.log("-n", OPERATOR, pod["metadata"]["name"], "-c", "nvidia-device-plugin")
    assert output.rstrip().endswith("number of replicas must be >= 2")
    assert cluster.gpus("t4-5") == {}
    cluster.configs({"bad": sharing(2)})
    cluster.wait(lambda: cluster.gpus("t4-5") == {"nvidia.com/gpu": 2}, what="the plugin to read the corrected config")
