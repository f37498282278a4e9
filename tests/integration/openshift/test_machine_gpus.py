# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU nodes from zero in a lab with OpenShift: the autoscaler, the machines and the real operators, without the collection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.api import Api, Object
from lab.layout import Lab as LabLayout
from lab.machine_api.machine_sets import MACHINE_SETS, NAMESPACE, machine_set, provider_spec
from tests.helpers.openshift import OpenShift
from tests.helpers.polling import until
from tests.labs import Lab

pytestmark = [pytest.mark.usual(60)]

NAME = "from-zero"
SCALER = f"/apis/autoscaling.openshift.io/v1beta1/namespaces/{NAMESPACE}/machineautoscalers/{NAME}"
CLUSTER = "/apis/autoscaling.openshift.io/v1/clusterautoscalers/default"
POD = f"/api/v1/namespaces/default/pods/{NAME}"


@pytest.fixture
def api(openshift_lab: Lab) -> Iterator[Api]:
    OpenShift(openshift_lab).installed()
    openshift_lab.command("cloud", "set", "machines.boot-seconds=20")
    actual = Api(LabLayout.named(openshift_lab.name))
    yield actual
    for path in (POD, SCALER, CLUSTER, f"{MACHINE_SETS}/{NAME}"):
        if actual.get(path) is not None:
            actual.request("DELETE", path)
    until(lambda: all(actual.get(path) is None for path in (SCALER, f"{MACHINE_SETS}/{NAME}")), limit=60)


def test_a_pending_pod_gets_a_gpu_node_from_a_machine_set_at_zero(openshift_lab: Lab, api: Api) -> None:
    """The node has the accelerator label, so the autoscaler adds no second node while the driver is loaded."""
    body = machine_set(NAME, {**provider_spec("AWS", "us-east-2a"), "instanceType": "g4dn.xlarge"}, replicas=0)
    body["spec"]["template"]["spec"]["metadata"] = {"labels": {"cluster-api/accelerator": "nvidia-t4", "pool": NAME}}
    labels = f"cluster-api/accelerator=nvidia-t4,pool={NAME}"
    body["metadata"]["annotations"] = {"capacity.cluster-autoscaler.kubernetes.io/labels": labels}
    api.apply(f"{MACHINE_SETS}/{NAME}", body)
    header: Object = {"apiVersion": "autoscaling.openshift.io/v1", "kind": "ClusterAutoscaler"}
    # The delays of the autoscaler are shorter than on a real cluster, so a node could be removed while its driver is loaded.
    spec: Object = {
        "scaleDown": {"enabled": False},
        "resourceLimits": {"gpus": [{"type": "nvidia-t4", "min": 0, "max": 4}]},
    }
    api.apply(CLUSTER, {**header, "metadata": {"name": "default"}, "spec": spec})
    until(lambda: "machine.openshift.io/GPU" in (api.get(f"{MACHINE_SETS}/{NAME}") or {})["metadata"]["annotations"])
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": NAME}
    spec = {"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": target}
    header = {"apiVersion": "autoscaling.openshift.io/v1beta1", "kind": "MachineAutoscaler"}
    api.apply(SCALER, {**header, "metadata": {"name": NAME}, "spec": spec})
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeSelector": {"pool": NAME}, "containers": [container], "terminationGracePeriodSeconds": 0}
    api.apply(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec})

    def is_running() -> bool:
        return bool((api.get(POD) or {})["status"].get("phase") == "Running")

    until(is_running, limit=120, describe=lambda: OpenShift(openshift_lab).scaling_state(f"pool={NAME}"))
    actual = api.get(f"{MACHINE_SETS}/{NAME}")
    assert actual is not None
    assert actual["spec"]["replicas"] == 1
    node = api.get(f"/api/v1/nodes/{(api.get(POD) or {})['spec']['nodeName']}")
    assert node is not None
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "1"
