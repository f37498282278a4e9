# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The explanation of the autoscaler in plans, reports and on the HTML page, and the quotation in docs/openshift.md."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.filter.report_page import report_page
from ansible_collections.accel.gpu.plugins.module_utils.core.messages import wrap
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling import ClusterObjects
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.facts import scaling_paragraphs
from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines
from tests.helpers import infos
from tests.helpers.machine_sets import ACCELERATOR, NEW, cluster_autoscaler, machine_set
from tests.helpers.scaling_cases import explained
from tests.programs import REPO

Object = dict[str, Any]
TAINT = {"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}
POOL: Object = {
    "name": "notebooks",
    "model": "T4",
    "nodes": {"flavor": "g4dn.xlarge"},
    "autoscale": {"min": 0, "max": 6},
    "taints": [TAINT],
    "sharing": {"mode": "time-slicing", "replicas": 4},
}
SOURCE = machine_set("prod-worker-us-east-2a", bounds=None)
LABELS = {
    "accel.gpu/pool": "notebooks",
    "nvidia.com/device-plugin.config": "time-slicing-4-cba137d5",
    ACCELERATOR: "Tesla-T4-SHARED",
}


def result(state: ClusterObjects, *not_read: str, **pool: Any) -> Object:
    """The result of gpu_info for the pool in this state."""
    declared = {key: value for key, value in {**POOL, **pool}.items() if value is not None}
    plan = derive({"name": "prod", "cloud": {"machineset": {}}}, {}, [declared])
    actual = [item.as_dict() for item in explained(plan, state)]
    return {"autoscaling": {"version": state.version, "not_read": list(not_read), "machine_sets": actual}}


def owned(name: str, **more: Any) -> Object:
    """A MachineSet that the collection has created."""
    raw = machine_set(name, **more)
    raw["metadata"]["labels"] = {"accel.gpu/nodegroup": name}
    return raw


def cluster(version: str = "4.18.14", *names: str, labels: Object | None = None, **more: Any) -> ClusterObjects:
    """A cluster with complete MachineSets of the pool."""
    raw = [
        owned(name, labels={**LABELS, **(labels or {})}, gpus=4, taints=[TAINT], bounds=(0, 6), **more)
        for name in names or ("notebooks",)
    ]
    limits = [{"type": "Tesla-T4-SHARED", "min": 0, "max": 24}]
    return ClusterObjects(version, tuple(raw), cluster_autoscaler=cluster_autoscaler(limits))


def text(info: Object, kind: str = "report") -> str:
    return "\n".join(f"{head}: {body}" for head, body in scaling_paragraphs(info, kind))


def test_a_pool_that_scales() -> None:
    expected = (
        "scaling of notebooks: MachineSet notebooks scales from zero; 0 to 6 nodes; the autoscaler expects 4 nvidia.com/gpu on a new node; "
        "GPUs of cluster-api/accelerator=Tesla-T4-SHARED: 0 of at most 24 in use; its pods tolerate restrictedaccess=yes:NoSchedule"
    )
    assert text(result(cluster())) == text(result(cluster()), "plan") == expected


def test_a_broken_machine_set_is_an_alarm_only_in_the_report_since_the_run_corrects_it() -> None:
    info = result(cluster(labels={ACCELERATOR: "nvidia.com/gpu"}))
    report, plan = text(info), text(info, "plan")
    assert report.startswith("scaling of notebooks: MachineSet notebooks does not scale from zero\ncause: ")
    assert "cluster-api/accelerator=nvidia.com/gpu" in report
    assert "Remedy: run the role nodegroups, or set a value such as Tesla-T4-SHARED" in report
    assert plan.startswith(
        "scaling of notebooks: MachineSet notebooks will scale from zero after this run; 0 to 6 nodes;"
    )
    assert "cause" not in plan


def test_the_report_of_check_mode_does_not_show_as_broken_what_the_run_corrects() -> None:
    info = {**infos.fleet(5), **result(cluster(labels={ACCELERATOR: "nvidia.com/gpu"}))}
    assert "MachineSet notebooks does not scale from zero" in "\n".join(lines(info, width=400))
    checked = "\n".join(lines(info, width=400, applied=False))
    assert "MachineSet notebooks will scale from zero after this run" in checked
    assert "Report of cluster" in checked
    assert "cause" not in checked


def test_a_machine_set_at_its_maximum_is_not_called_unable_to_scale() -> None:
    state = cluster(replicas=6)
    lines = text(result(state)).splitlines()
    assert lines == [
        "scaling of notebooks: MachineSet notebooks has the maximum number of nodes",
        "cause: MachineSet notebooks has 6 of at most 6 nodes. Remedy: if the pods need more nodes, raise autoscale.max of the pool, and run "
        "the role "
        "autoscaling",
    ]
    assert text(result(state), "plan").startswith("scaling of notebooks: MachineSet notebooks has the maximum")
    broken = cluster(replicas=6, labels={ACCELERATOR: "nvidia.com/gpu"})
    assert "notebooks does not scale from zero" in text(result(broken))


def test_before_the_first_run() -> None:
    info = result(ClusterObjects("5.0.1", (SOURCE,)))
    assert (
        "cause: the cluster has no MachineSet notebooks. Remedy: run the playbook site or nodegroups, which creates it"
        in text(info)
    )
    assert text(info, "plan").startswith(
        "scaling of notebooks: MachineSet notebooks will scale from zero after this run"
    )
    info = result(ClusterObjects("4.20.3", (SOURCE,)), sharing={"mode": "time-slicing", "replicas": 4, "rename": True})
    assert text(info, "plan").startswith(
        "scaling of notebooks: MachineSet notebooks will not scale from zero after this run\n"
        "cause: before OpenShift 5.0, the autoscaler expects no GPUs other than nvidia.com/gpu"
    )


def test_machine_sets_with_the_same_findings_are_one_paragraph() -> None:
    names = [f"notebooks-{zone}" for zone in "abcdefg"]
    info = result(
        cluster("4.18.14", *names),
        nodes={"flavor": "g4dn.xlarge", "zones": list("abcdefg")},
        autoscale={"min": 0, "max": 42},
    )
    (paragraph,) = scaling_paragraphs(info, "report")
    assert (
        "MachineSets notebooks-a, notebooks-b, notebooks-c, notebooks-d, notebooks-e and 2 more scale from zero"
        in paragraph[1]
    )


def test_pods_with_some_labels_and_a_fixed_size() -> None:
    state = cluster()
    annotations = dict(state.machine_sets[0]["metadata"]["annotations"]) | {f"{NEW}labels": ""}
    raw = owned("notebooks", labels=LABELS, gpus=4, taints=[TAINT], bounds=(0, 6))
    raw["metadata"]["annotations"] = annotations
    state = ClusterObjects("5.0.0", (raw,), cluster_autoscaler=state.cluster_autoscaler)
    assert "\npods with accel.gpu/pool: label accel.gpu/pool=notebooks is missing in annotation" in text(result(state))
    raw = owned("notebooks", labels=LABELS, gpus=4, taints=[TAINT], bounds=None, replicas=2)
    fixed = result(
        ClusterObjects("4.18.14", (raw,)),
        autoscale=None,
        nodes={"flavor": "g4dn.xlarge", "count": 2},
    )
    assert text(fixed) == (
        "scaling of notebooks: MachineSet notebooks has a fixed size: no MachineAutoscaler refers to it. To scale it, declare nodes and "
        "autoscale in the "
        "pool, and run the playbook site"
    )


@pytest.mark.parametrize(
    "info", [{}, {"autoscaling": None}, {"autoscaling": {"version": "", "not_read": [], "machine_sets": []}}]
)
def test_other_clusters_show_nothing(info: Object) -> None:
    assert text(info) == text(info, "plan") == ""


def test_what_could_not_be_read_is_shown() -> None:
    assert text(result(ClusterObjects(""), "MachineSets could not be read: forbidden")).endswith(
        "\nautoscaler: MachineSets could not be read: forbidden"
    )


def test_the_page_has_the_explanation_on_the_card_of_the_pool() -> None:
    info = infos.fleet(5)
    assert ">✓</span> autoscaler" not in report_page(info)
    scales, broken = result(cluster(), "A < B."), result(cluster(labels={ACCELERATOR: "nvidia.com/gpu"}))
    page = report_page({**info, **scales})
    assert "</span> autoscaler</span> <bdi>MachineSet notebooks scales from zero; 0 to 6 nodes" in page
    assert "<bdi>A &lt; B.</bdi>" in page
    page = report_page({**info, **broken})
    assert "<bdi>MachineSet notebooks does not scale from zero</bdi>" in page
    assert (
        "<li><bdi>cause: MachineSet notebooks: spec.template.spec.metadata.labels has cluster-api/accelerator=nvidia.com/gpu"
        in page
    )


def test_the_quoted_explanation_is_that_of_the_quoted_machine_set() -> None:
    section = (REPO / "docs" / "openshift.md").read_text(encoding="utf-8").partition("\n## Scaling from zero\n")[2]
    variables, output = re.findall(r"```(?:yaml|text)\n(.*?)```", section, re.DOTALL)[:2]
    quoted = yaml.safe_load(variables)
    raw = owned("notebooks", bounds=(0, 6))
    raw["metadata"]["annotations"] = {**raw["metadata"]["annotations"], **quoted["metadata"]["annotations"]}
    del raw["metadata"]["annotations"][f"{NEW}labels"]
    raw["spec"]["template"]["spec"] |= quoted["spec"]["template"]["spec"]
    limits = [{"type": "Tesla-T4-SHARED", "min": 0, "max": 24}]
    state = ClusterObjects("4.18.14", (raw,), cluster_autoscaler=cluster_autoscaler(limits))
    assert output.splitlines() == wrap(scaling_paragraphs(result(state), "report"))
