# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan, report and gpu_info explain on OpenShift whether a pool scales from zero: before the first run, with a broken MachineSet, and repaired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import gpu_info
from lab import audit
from lab.api import Api, Object
from lab.layout import Lab as LabLayout
from lab.machine_api.machine_sets import MACHINE_SETS, NAMESPACE, machine_set, provider_spec
from tests.helpers.modules import run_module
from tests.helpers.openshift import OpenShift
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.labs import Lab
from tests.programs import REPO

pytestmark = [
    pytest.mark.usual(40),
    pytest.mark.timeout(900),
    pytest.mark.sampled(1, group="explanations of the autoscaler"),
]

NAME, HOST = "notebooks", "openshift"
SOURCE = "prod-worker-us-east-2a"
ACCELERATOR = "cluster-api/accelerator"
SCALER = f"/apis/autoscaling.openshift.io/v1beta1/namespaces/{NAMESPACE}/machineautoscalers/{NAME}"
CLUSTER = "/apis/autoscaling.openshift.io/v1/clusterautoscalers/default"
POD = f"/api/v1/namespaces/default/pods/{NAME}"


class Scaling:
    """A cluster with the operators, and a pool whose nodes a MachineSet creates."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.layout = lab, LabLayout.named(lab.name)
        self.api = Api(self.layout)

    @property
    def cluster(self) -> Object:
        return {
            "name": self.lab.name,
            "distribution": "openshift",
            "cloud": {"machineset": {}},
            "operator": {"version": "v25.10.1"},
        }

    @staticmethod
    def pool(**more: Any) -> Object:
        nodes = {"like": SOURCE, "flavor": "g4dn.xlarge", "adopt": True}
        scale = {"min": 0, "max": 3}
        return {"name": NAME, "model": "T4", "nodes": nodes, "autoscale": scale, "sharing": {"mode": "none"}, **more}

    def play(self, name: str, *arguments: str, environ: dict[str, str] | None = None, **variables: Any) -> PlaybookRun:
        given = {"gpu_cluster": self.cluster, "gpu_pools": [self.pool()], **variables}
        inventory = REPO / "inventories" / "openshift"
        environ = environ or self.lab.env
        return run_playbook(
            f"accel.gpu.{name}", environ=environ, inventory=inventory, variables=given, arguments=arguments
        )

    def info(self, kubeconfig: str = "", pools: list[Object] | None = None, **cluster: Any) -> dict[str, Any]:
        options = {
            "gpu_cluster": {**self.cluster, "kubeconfig": kubeconfig or str(self.lab.kubeconfig), **cluster},
            "gpu_pools": pools or [self.pool()],
        }
        result = run_module(gpu_info.main, options)
        assert not result.get("failed"), result
        actual: dict[str, Any] = result["gpu_info"]
        return actual

    def explained(self) -> Object:
        (actual,) = self.info()["autoscaling"]["machine_sets"]
        return dict(actual)

    def requests(self, since: int) -> list[str]:
        """The requests for objects of the autoscaler, and for those that it reads; the ClusterVersion is also read to detect the platform."""
        parts = ("machine.openshift.io", "autoscaling.openshift.io", "priority-expander")
        actual = audit.requests(self.layout, since, "accel.gpu/")
        return [request.uri for request in actual if any(part in request.uri for part in parts)]

    def create_autoscaler(self) -> None:
        """The objects that the Cluster Autoscaler Operator reads, as someone writes them without the collection."""
        header: Object = {"apiVersion": "autoscaling.openshift.io/v1", "kind": "ClusterAutoscaler"}
        spec: Object = {"maxNodeProvisionTime": "30m", "scaleDown": {"enabled": True, "delayAfterAdd": "20m"}}
        self.api.apply(CLUSTER, {**header, "metadata": {"name": "default"}, "spec": spec})
        header = {"apiVersion": "autoscaling.openshift.io/v1beta1", "kind": "MachineAutoscaler"}
        target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": NAME}
        spec = {"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": target}
        self.api.apply(SCALER, {**header, "metadata": {"name": NAME}, "spec": spec})

    def create_broken_machine_set(self) -> None:
        """A MachineSet as guides show it: the label of the autoscaler has an illegal value, and labels and the number of GPUs are missing."""
        body = machine_set(NAME, {**provider_spec("AWS", "us-east-2a"), "instanceType": "g4dn.xlarge"}, replicas=0)
        labels = {"accel.gpu/pool": NAME, ACCELERATOR: "nvidia.com/gpu"}
        body["spec"]["template"]["spec"]["metadata"] = {"labels": labels}
        self.api.apply(f"{MACHINE_SETS}/{NAME}", body)

    def annotations(self) -> Object:
        actual: Object = (self.api.get(f"{MACHINE_SETS}/{NAME}") or {"metadata": {}})["metadata"].get(
            "annotations"
        ) or {}
        return actual

    def create_pod(self) -> None:
        container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        spec = {"nodeSelector": {"accel.gpu/pool": NAME}, "containers": [container], "terminationGracePeriodSeconds": 0}
        self.api.apply(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec})

    def close(self) -> None:
        paths = (POD, SCALER, CLUSTER, f"{MACHINE_SETS}/{NAME}")
        for path in paths:
            if self.api.get(path) is not None:
                self.api.request("DELETE", path)
        until(lambda: all(self.api.get(path) is None for path in paths), limit=90)


@pytest.fixture
def scaling(openshift_lab: Lab) -> Iterator[Scaling]:
    OpenShift(openshift_lab).installed()
    openshift_lab.command("cloud", "set", "machines.boot-seconds=20")
    actual = Scaling(openshift_lab)
    yield actual
    actual.close()


def test_the_first_plan_does_not_report_what_the_run_creates(scaling: Scaling) -> None:
    planned = scaling.play("plan").require_success()
    assert planned.shown(f"scaling of {NAME}: MachineSet {NAME} will scale from zero after this run; 0 to 3 nodes")
    assert "cause:" not in planned.stderr
    actual = scaling.explained()
    assert (actual["exists"], actual["scales"], actual["scales_after_run"]) == (False, False, True)
    # Only OpenShift 5.0 counts other resources.
    renamed = scaling.pool(sharing={"mode": "time-slicing", "replicas": 4, "rename": True})
    planned = scaling.play("plan", gpu_pools=[renamed]).require_success()
    assert planned.shown("will not scale from zero after this run")
    assert planned.shown("cause: before OpenShift 5.0, the autoscaler expects no GPUs other than nvidia.com/gpu")


def test_a_broken_machine_set_is_explained_repaired_and_scales(scaling: Scaling, tmp_path: Path) -> None:
    scaling.create_broken_machine_set()
    scaling.create_autoscaler()
    until(
        lambda: (
            {"machine.openshift.io/GPU", "autoscaling.openshift.io/machineautoscaler"} <= scaling.annotations().keys()
        )
    )

    since = audit.mark(scaling.layout)
    actual = scaling.explained()
    assert len(scaling.requests(since)) == 3, scaling.requests(since)
    codes = [finding["code"] for finding in actual["findings"] if finding["effect"] == "no_pod"]
    assert codes == [f"illegal {ACCELERATOR}"]
    assert (actual["scales"], actual["scales_after_run"], actual["min"], actual["max"]) == (False, True, 0, 3)
    page = tmp_path / "page.html"
    report = scaling.play("site", "--tags", "report", gpu_report_html_path=str(page)).require_success()
    assert report.shown(f"scaling of {NAME}: MachineSet {NAME} does not scale from zero")
    assert report.shown(
        f"cause: MachineSet {NAME}: spec.template.spec.metadata.labels has {ACCELERATOR}=nvidia.com/gpu, which is not a valid label value"
    )
    assert report.shown("Remedy: run the role nodegroups, or set a value such as Tesla-T4")
    assert f"MachineSet {NAME} does not scale from zero" in page.read_text()
    planned = scaling.play("plan").require_success()
    assert planned.shown(f"MachineSet {NAME} will scale from zero after this run")

    scaling.play("nodegroups").require_success()
    actual = scaling.explained()
    assert actual["scales"], actual["findings"]
    assert [finding for finding in actual["findings"] if finding["effect"] != "note"] == []
    report = scaling.play("site", "--tags", "report").require_success()
    assert report.shown(
        f"scaling of {NAME}: MachineSet {NAME} scales from zero; 0 to 3 nodes; the autoscaler expects 1 nvidia.com/gpu on a new node"
    )

    scaling.create_pod()
    until(lambda: (scaling.api.get(POD) or {})["status"].get("phase") == "Running", limit=150)
    node = scaling.api.get(f"/api/v1/nodes/{(scaling.api.get(POD) or {})['spec']['nodeName']}")
    assert node is not None
    assert node["metadata"]["labels"][ACCELERATOR] == "Tesla-T4"


def test_the_shipped_rules_of_plan_are_sufficient_and_missing_ones_are_named(scaling: Scaling) -> None:
    scaling.create_autoscaler()
    environ = scaling.lab.env_as("plan")
    since = audit.mark(scaling.layout)
    existing = {"name": "others", "match": {"model": "A100-SXM4-80GB"}, "sharing": {"mode": "none"}}
    planned = scaling.play("plan", environ=environ, gpu_pools=[scaling.pool(), existing]).require_success()
    assert planned.shown(f"MachineSet {NAME} will scale from zero after this run")
    actual = audit.requests(scaling.layout, since, "accel.gpu/")
    refused = [request.uri for request in actual if request.status == 403]
    # Read-only rules do not include that the API server checks a new MachineSet.
    assert [uri for uri in refused if "dryRun=All" not in uri] == []
    assert len(scaling.requests(since)) >= 3

    rules = scaling.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/accel-gpu-plan")
    assert rules is not None
    kept = [rule for rule in rules["rules"] if "autoscaling.openshift.io" not in rule["apiGroups"]]
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/accel-gpu-plan"
    scaling.api.merge(path, {"rules": kept})

    def not_read() -> list[str]:
        texts: list[str] = scaling.info(environ["KUBECONFIG"])["autoscaling"]["not_read"]
        return texts

    # The API server watches the role, so the change takes effect later.
    until(lambda: len(not_read()) == 2)
    first, second = not_read()
    assert first.startswith("MachineAutoscalers could not be read")
    assert second.startswith("ClusterAutoscaler default could not be read")
    scaling.lab.env_as("plan")


def test_nothing_is_read_for_clouds_that_scale_node_groups_themselves(scaling: Scaling) -> None:
    since = audit.mark(scaling.layout)
    pool = {"name": NAME, "match": {"model": "Tesla-T4"}, "sharing": {"mode": "none"}}
    actual = scaling.info(pools=[pool], cloud={"magnum": {"cloud": "c", "cluster": "x"}})
    assert "autoscaling" not in actual
    assert scaling.requests(since) == []
