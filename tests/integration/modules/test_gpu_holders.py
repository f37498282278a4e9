# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that use a GPU without requesting one, before a MIG change: evicted, stopped, or reported before the node is cordoned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.rolling import CORDONED, HALVES, NONE, Rolling
from tests.helpers.workloads import NAMESPACE, Users
from tests.labs import Lab

pytestmark = [pytest.mark.timeout(600)]

NODES, GPUS = 2, 2
FREE, BLOCKED = "a100-1", "a100-2"
CLIENT = "nvidia.com/gpu.deploy.client"
# The simulated processes of such a pod open every GPU's device file, if its containers have access.
OPENS = {"lab.accel.gpu/opens": "all"}
PRIVILEGED: dict[str, Any] = {"securityContext": {"privileged": True}}
DEV = {"volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}]}
MOUNTS_DEV = {"volumeMounts": [{"name": "dev", "mountPath": "/host/dev"}]}
EVICTED: dict[str, dict[str, Any]] = {
    "privileged": {"way": ({}, PRIVILEGED), "annotations": OPENS},
    "dev": {"way": (DEV, {**PRIVILEGED, **MOUNTS_DEV}), "annotations": OPENS},
    "cdi": {"annotations": {**OPENS, "cdi.k8s.io/work": "nvidia.com/gpu=all"}},
    "own-class": {"way": ({"runtimeClassName": "gold"}, {}), "annotations": OPENS},
}
# Ignored: /dev without privilege gives no access, and a privileged DaemonSet is a part of the cluster.
LEFT_ALONE: dict[str, dict[str, Any]] = {"dev-only": {"way": (DEV, MOUNTS_DEV), "annotations": OPENS}}


@pytest.fixture(scope="module")
def rolling(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Rolling:
    return Rolling(lab).install(tmp_path_factory.mktemp("holders"), NODES, GPUS)


@pytest.fixture
def users(rolling: Rolling) -> Iterator[Users]:
    rolling.users.delete_all()
    yield rolling.users
    rolling.users.delete_all()


def client(rolling: Rolling) -> str:
    """The label by which DaemonSets of GPU clients select the node."""
    return str(rolling.cluster.nodes()[FREE]["metadata"]["labels"].get(CLIENT, ""))


@pytest.mark.usual(35)
def test_holders_that_request_nothing_before_a_mig_change(rolling: Rolling, users: Users) -> None:
    assert not rolling.share(NONE).get("failed")
    users.runtime_class("gold", "nvidia")
    rolling.cluster.kubectl("label", "node", FREE, f"{CLIENT}=true", "--overwrite")
    for name, options in {**EVICTED, **LEFT_ALONE}.items():
        users.deployment(name, FREE, **options)
    selector = {"kubernetes.io/hostname": FREE, CLIENT: "true"}
    users.daemonset(
        "exporter", FREE, way=({"runtimeClassName": "nvidia"}, {}), annotations=OPENS, nodeSelector=selector
    )
    users.daemonset("cni", FREE, way=({}, PRIVILEGED))
    users.daemonset("monitor", BLOCKED, way=({"runtimeClassName": "nvidia"}, {}), annotations=OPENS)
    present = users.wait_running(len(EVICTED) + len(LEFT_ALONE) + 3)
    names = {pod["metadata"]["labels"]["app"]: f"{NAMESPACE}/{pod['metadata']['name']}" for pod in present}

    predicted = rolling.share(HALVES, check=True)
    with users.watched() as watch:
        done = rolling.share(HALVES)

    step, stays = predicted["gpu_sharing"]["steps"][FREE], predicted["gpu_sharing"]["steps"][BLOCKED]
    assert sorted(step["evicts"]) == sorted(names[name] for name in EVICTED)
    assert step["stops"] == [names["exporter"]]
    assert [text for text in step["possible_holders"] if text.startswith(names["cni"])] == [
        f"{names['cni']} (privileged container main)"
    ]
    assert stays["blocked_by"] == [f"{names['monitor']} (DaemonSet monitor, runtimeClassName nvidia)"]

    # The node without an unmanaged pod is partitioned; the stopped DaemonSet pods run again.
    assert rolling.cluster.offered("a100-") == {FREE: {"nvidia.com/gpu": 2 * GPUS}, BLOCKED: {"nvidia.com/gpu": GPUS}}
    assert watch.names() == {names[name] for name in (*EVICTED, "exporter")}
    assert set(watch.not_evicted()) == {names["exporter"].partition("/")[2]}
    assert client(rolling) == "true"
    users.until(lambda: len(users.running("exporter")) == 1, "the exporter runs again")

    # The other node was not changed, and the failure names the blocking pod.
    assert done["failed"]
    assert names["monitor"] in done["msg"]
    assert CLIENT in done["msg"]
    assert CORDONED not in rolling.cluster.nodes()[BLOCKED]["metadata"].get("annotations", {})
    assert "the run will fail; with rollout.pause_on_failure: false, it first changes the other nodes" in str(
        predicted["warnings"]
    )
    (pool,) = done["gpu_sharing"]["pools"].values()
    assert (pool["nodes"], pool["verified"]) == (2, 1)
    assert [text.partition(" ")[0] for text in done["gpu_sharing"]["not_as_declared"]] == [BLOCKED]
    rolling.require_clean()

    # Once that pod is deleted, the change succeeds there, too.
    rolling.cluster.kubectl("delete", "daemonset", "monitor", "-n", NAMESPACE)
    users.until(lambda: not users.pods("monitor"), "the monitor is gone")
    after = rolling.share(HALVES)
    assert not after.get("failed"), after["msg"]
    assert rolling.cluster.offered("a100-") == {name: {"nvidia.com/gpu": 2 * GPUS} for name in (FREE, BLOCKED)}
    again = rolling.share(HALVES)
    assert (again["changed"], again["gpu_sharing"]["steps"]) == (False, {})
