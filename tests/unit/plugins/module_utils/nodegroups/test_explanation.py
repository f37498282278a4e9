# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan reads the same objects of the autoscaler as a run."""

from __future__ import annotations

from typing import Any, cast

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling import AutoscalingClient, read_objects
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.machine_sets import machine_autoscaler

Object = dict[str, Any]
NAMESPACE = "openshift-machine-api"
POOL = {
    "name": "t4",
    "model": "T4",
    "gpus_per_node": 1,
    "nodes": {"like": "worker", "flavor": "g4dn.xlarge"},
    "autoscale": {"min": 0, "max": 4},
}


class Server:
    """A cluster with a MachineAutoscaler in the namespace that the operator reads, and one in another namespace."""

    def list(self, path: str, **dummy: Any) -> list[Object]:
        if not path.endswith("/machineautoscalers"):
            return []
        scalers = [machine_autoscaler("read", "t4"), machine_autoscaler("not-read", "t4")]
        scalers[1]["metadata"]["namespace"] = "other"
        return [item for item in scalers if f"/namespaces/{item['metadata']['namespace']}/" in path]

    list_known = list

    def get(self, path: str) -> Object | None:
        return None

    get_once = get


def test_a_plan_and_a_run_read_the_same_machine_autoscalers() -> None:
    plan = derive({"name": "lab", "cloud": {"machineset": {}}, "autoscaler": {}}, {}, [POOL])
    client = cast("Client", Server())
    actual, problems = read_objects(client, plan, [], NAMESPACE)
    assert problems == {}
    assert [item["metadata"]["name"] for item in actual.machine_autoscalers] == ["read"]
    assert tuple(actual.machine_autoscalers) == AutoscalingClient(client, plan).read().machine_autoscalers
