# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many clusters in one job template: each is handled once, by one slice; what a slice costs; two jobs that change the same cluster."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.api import ApiError
from tests.helpers.awx import shows
from tests.helpers.awx_fleet import MAX_MIB_PER_SLICE, POOL, Fleet, JobCost, fleet, page_of
from tests.helpers.gpu_nodes import gpu_node
from tests.helpers.polling import until

pytestmark = pytest.mark.timeout(3600)

# Few clusters in slices of different sizes.
FEW, SLICES = 5, 3
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"
OPERATIONS = ["plan", "site", "report", "share", "reset"]
# A change of sharing waits this number of seconds for a device plugin, which does not run, and waits again after it has restored the nodes.
SHORT, LONG = {"gpu_sharing_wait_timeout": 1}, {"gpu_sharing_wait_timeout": 3600}
LEASE_SECONDS = 10
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
MIG_MODEL = "A100-SXM4-80GB"
MIG_NODE, LATE_NODE = (
    gpu_node(
        name,
        labels={
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
            "nvidia.com/gpu.memory": "81920",
            "nvidia.com/gpu.family": "ampere",
            "nvidia.com/gpu.compute.major": "8",
            "nvidia.com/gpu.compute.minor": "0",
            "nvidia.com/mig.capable": "true",
            "nvidia.com/mig.strategy": "single",
        },
    )
    for name in ("mig", "late")
)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(
        tmp_path_factory.mktemp("few"), FEW, slices=SLICES, operations=OPERATIONS, approvers={"users": ["admin"]}
    ) as started:
        for server in started.servers:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}
            server.api.request("POST", "/api/v1/namespaces", namespace)
        yield started


@pytest.fixture
def running(few: Fleet) -> Iterator[Fleet]:
    """The clusters before any change: none has a recorded name."""
    yield few
    for server in few.servers:
        with contextlib.suppress(ApiError):
            server.api.request("DELETE", LEASE)
    few.declare({server.name: cluster(server.name) for server in few.servers})
    few.sync()


def cluster(name: str, context: str = "", **more: Any) -> dict[str, Any]:
    """The variable gpu_cluster; runs do not wait long for the Lease."""
    return {"name": name, "context": context or name, "lease": {"wait_timeout": LEASE_SECONDS}, **more}


def holder(running: Fleet, name: str) -> str:
    """Who holds the Lease of a cluster."""
    lease = running.server(name).api.get(LEASE)
    return str(lease["spec"].get("holderIdentity")) if lease else ""


def check(running: Fleet, template: str, slices: int) -> list[JobCost]:
    """Run a template that changes nothing on all clusters: each is handled exactly once, by one job, which sends what a job for this cluster alone sends."""
    names = [server.name for server in running.servers]
    costs = running.measure(template)
    for cost in costs:
        print(cost)
    assert len(costs) == slices
    assert Counter(name for cost in costs for name in cost.clusters) == Counter(names)
    # The API servers have logged requests of one job each.
    assert Counter(name for cost in costs for name in cost.requests) == Counter(names)
    sizes = [len(cost.clusters) for cost in costs]
    assert max(sizes) - min(sizes) <= 1, sizes
    alone = running.measure_one(template)
    print(f"{names[0]} alone: {alone}")
    assert {count for cost in costs for count in cost.requests.values()} == {alone.requests[names[0]]}
    assert [cost.writes for cost in (*costs, alone)] == [0] * (slices + 1)
    assert max(cost.mib for cost in costs) <= MAX_MIB_PER_SLICE
    return costs


@pytest.mark.usual(60)
@pytest.mark.parametrize("template", ["GPU report", "GPU plan"])
def test_each_cluster_is_in_one_slice(few: Fleet, template: str) -> None:
    check(few, template, SLICES)


@pytest.mark.soak
@pytest.mark.usual(900)
def test_fifty_clusters_in_five_slices(tmp_path: Path) -> None:
    # All API servers and jobs share the processors of this machine, so each slice handles two clusters at a time.
    with fleet(tmp_path, 50, slices=5, forks=2) as running:
        memory = sum(server.mebibytes() for server in running.servers)
        print(f"{len(running.servers)} API servers: {memory:.0f} MiB")
        for template in ("GPU report", "GPU plan"):
            assert [len(cost.clusters) for cost in check(running, template, 5)] == [10] * 5


@pytest.mark.usual(20)
def test_there_are_fewer_clusters_than_slices(few: Fleet) -> None:
    with few.sliced(FEW + 4, "GPU report"):
        costs = few.measure("GPU report")
    assert [len(cost.clusters) for cost in costs] == [1] * FEW


@pytest.mark.usual(90)
def test_a_second_launch_waits_for_the_first(running: Fleet) -> None:
    marks = running.marks()
    launched = [running.awx.launch("GPU share", extra_vars=SHORT) for _each in range(2)]
    for row in launched:
        running.awx.awx.runs.wait(row, 900)
    earlier, later = sorted(
        (running.jobs_of(row) for row in launched), key=lambda jobs: min(job["started"] for job in jobs)
    )
    assert max(job["finished"] for job in earlier) <= min(job["started"] for job in later)
    times = spans(running, marks)
    for name in (server.name for server in running.servers):
        (first,) = [times[name, job["id"]] for job in earlier if (name, job["id"]) in times]
        (second,) = [times[name, job["id"]] for job in later if (name, job["id"]) in times]
        assert first[1] <= second[0]


def spans(
    running: Fleet, marks: Mapping[str, int], *, writes: bool = False
) -> dict[tuple[str, int], tuple[float, float]]:
    """By cluster and job, the times of its first and its last request; of those that write something else than the Lease, if asked for these."""
    times: dict[tuple[str, int], list[float]] = {}
    for name, job, request in running.requests(marks):
        if not writes or (request.mutating and request.resource != "leases"):
            times.setdefault((name, job), []).extend((request.begun, request.answered))
    return {key: (min(values), max(values)) for key, values in times.items()}


@pytest.mark.usual(120)
def test_a_job_of_another_template_waits_for_the_lease_and_names_the_first_job(running: Fleet) -> None:
    running.declare({server.name: cluster(server.name) for server in running.servers})
    running.sync()
    with running.sliced(1, "GPU share", "GPU reset"):
        first = running.awx.launch("GPU share", limit="c02", extra_vars=LONG)
        name = f"awx-{first['id']}/c02"
        until(lambda: first["finished"] or holder(running, "c02") == name, 120)
        assert first["finished"] is None, first["output"][-3000:]
        marks = running.marks()
        second = running.awx.finished("GPU reset", limit="c02", extra_vars={"gpu_confirm": "c02"})
        assert first["finished"] is None
    assert running.awx.request("POST", f"jobs/{first['id']}/cancel/")[0] == 202
    assert running.awx.awx.runs.wait(first, 120)["status"] == "canceled"
    assert second["status"] == "failed"
    assert shows(second["output"], f"waiting for {name} ({page_of(first)}), which is changing this cluster"), second[
        "output"
    ][-3000:]
    assert shows(second["output"], f"Another run, {name} ({page_of(first)}), has been changing this cluster since"), (
        second["output"][-3000:]
    )
    assert ("c02", second["id"]) not in spans(running, marks, writes=True)


@pytest.mark.usual(60)
def test_a_cluster_with_two_names_is_refused_in_one_slice(running: Fleet) -> None:
    """Both kubeconfigs lead to one API server, which the jobs of the slices cannot know before they ask it."""
    running.declare({"c04": cluster("c04"), "other": cluster("other", "c04", kube_name="c04")})
    running.sync()
    marks = running.marks()
    with running.sliced(2, "GPU share"):
        launched = running.awx.awx.runs.wait(running.awx.launch("GPU share", extra_vars=SHORT), 600)
    jobs = running.jobs_of(launched)
    refused = [job for job in jobs if "This is a different cluster" in job["output"]]
    assert (len(jobs), len(refused)) == (2, 1), [job["output"][-3000:] for job in jobs]
    (changed,) = [job for job in jobs if job not in refused]
    assert list(spans(running, marks, writes=True)) == [("c04", changed["id"])]


@pytest.mark.usual(90)
def test_two_hosts_of_one_cluster_take_turns(running: Fleet) -> None:
    """The play of a slice does not contain the other host, so only the Lease can keep them apart."""
    patient = {**cluster("c05"), "lease": {"wait_timeout": 600}}
    running.declare({"blue": patient, "green": patient})
    running.sync()
    marks = running.marks()
    with running.sliced(2, "GPU share"):
        launched = running.awx.awx.runs.wait(
            running.awx.launch("GPU share", extra_vars={"gpu_sharing_wait_timeout": 10}), 900
        )
    jobs = running.jobs_of(launched)
    (first, first_span), (second, second_span) = sorted(
        ((key[1], span) for key, span in spans(running, marks, writes=True).items()), key=lambda each: each[1]
    )
    assert {first, second} == {job["id"] for job in jobs}
    assert first_span[1] <= second_span[0]


@pytest.mark.usual(120)
def test_site_changes_only_what_was_approved(running: Fleet) -> None:
    """Between the plan and the approval, a cluster gains a node, the variables of another one change, and the inventory gains a third.

    The templates are cut into slices, the steps of the workflow are not.
    """
    running.server("c02").api.request("POST", "/api/v1/nodes", MIG_NODE)
    hosts = {name: cluster(name) for name in ("c01", "c02", "c04")}
    pools = [POOL, {"name": "train", "match": {"model": MIG_MODEL}}]
    running.declare(hosts, gpu_pools=pools)
    running.sync()
    with running.sliced(2, "GPU plan", "GPU site"):
        workflow = running.awx.launch("GPU rollout", "workflow_job_templates")
        approval = running.awx.pending_approval(workflow)
        running.server("c02").api.request("POST", "/api/v1/nodes", LATE_NODE)
        other = {**cluster("c04"), "lease": {"wait_timeout": LEASE_SECONDS + 1}}
        running.declare({**hosts, "c03": cluster("c03"), "c04": other}, gpu_pools=pools)
        running.sync()
        marks = running.marks()
        assert running.awx.request("POST", f"workflow_approvals/{approval['id']}/approve/")[0] == 204
        running.awx.awx.runs.wait(workflow, 900)
    jobs = [job for job in running.awx.awx.runs.rows["jobs"].values() if job["id"] > workflow["id"]]
    assert [job["name"] for job in jobs] == ["GPU plan", "GPU site"]
    plan, site = jobs
    assert sorted(plan["artifacts"]["gpu_report_summary"]) == ["c01", "c02", "c04"]
    output = site["output"]
    for text in (
        f"The cluster c03 is not in the plan that was approved (job {plan['id']}), so nobody has seen its changes",
        f"On the cluster c02, this run would do more than the plan that was approved (job {plan['id']}): pool train: nodes to change: 2 instead of 1",
        f"The variables of the cluster c04 (gpu_cluster, gpu_defaults or gpu_pools) have changed since the plan that was approved (job {plan['id']})",
    ):
        assert shows(output, text), output[-6000:]
    # The run continues with the approved cluster only. Helm, which it needs, is not in this execution environment.
    assert not shows(output, "The cluster c01 is not in the plan")
    assert not shows(output, "On the cluster c01, this run")
    assert {name for name, _job, request in running.requests(marks) if request.mutating} <= {"c01"}
    begun = re.findall(r"TASK \[accel\.gpu\.nfd : [^\n]*\n[^\n]*: \[(c\d+)", _COLOR.sub("", output))
    assert set(begun) == {"c01"}
