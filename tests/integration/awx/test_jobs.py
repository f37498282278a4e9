# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as AWX runs them: the project's playbooks, surveys, limits, slices, credentials, cancel and relaunch, and the workflow.

The clusters do not exist: a plan of them succeeds, and a change fails with NO_CLUSTER.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.helpers.awx import NO_CLUSTER, StandIn, clusters, shows, stand_in
from tests.helpers.vks import running as running_vks
from tests.helpers.vks_modules import CLUSTER, Account
from tests.programs import environment, run

CLUSTERS = ("five", "four", "one", "three", "two")
TOKEN = "client-token-of-the-test"
SETTINGS: dict[str, Any] = {
    "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
    "inventory": {"sources": [{"name": "clusters", "path": "inventory/hosts.yml"}]},
    "credentials": [{"name": "nls", "type": "nls", "inputs": {"client_token": TOKEN}}],
    "approvers": {"users": ["admin"]},
}
PLANNED = "gpu_report_summary"


def fill(running: StandIn, **more: Any) -> StandIn:
    (running.repository / "inventory" / "hosts.yml").write_text(yaml.safe_dump(clusters(*CLUSTERS)))
    running.commit()
    running.fill({**SETTINGS, "project": {"url": str(running.repository)}, **more})
    return running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("awx")) as started:
        yield fill(started)


@pytest.mark.usual(20)
def test_a_plan_of_all_clusters(running: StandIn) -> None:
    job = running.finished("GPU plan")
    assert job["status"] == "successful", job["output"][-3000:]
    assert job["artifacts"][PLANNED].keys() <= set(CLUSTERS)


@pytest.mark.usual(20)
def test_a_limit(running: StandIn) -> None:
    job = running.finished("GPU plan", limit="two", job_type="check")
    assert job["artifacts"][PLANNED].keys() == {"two"}
    # The template of an operation that changes nothing does not ask for the type of the job.
    assert (job["job_type"], job["ignored_fields"]) == ("run", {"job_type": "check"})


@pytest.mark.usual(20)
@pytest.mark.parametrize(
    ("template", "answers", "message"),
    [
        ("GPU site", {}, NO_CLUSTER),
        ("GPU site", {"gpu_sharing_pool_names": "", "gpu_validation_force": "true"}, NO_CLUSTER),
        ("GPU share", {"gpu_sharing_pool_names": "{{ lookup('pipe', 'id') }}"}, "is not a declared pool"),
        ("GPU share", {"gpu_sharing_pool_names": "notebook"}, "notebook is not a declared pool"),
        ("GPU share", {"gpu_sharing_wait_timeout": 86400}, NO_CLUSTER),
        ("GPU scale", {"gpu_pool": "notebooks", "gpu_node_count": 2}, "so its number of nodes cannot be set"),
        ("GPU scale", {"gpu_pool": " ", "gpu_node_count": 2}, "gpu_pool is not set"),
    ],
)
def test_answers_reach_the_playbook(running: StandIn, template: str, answers: dict[str, Any], message: str) -> None:
    job = running.finished(template, extra_vars=answers, limit="one")
    assert job["status"] == "failed"
    assert shows(job["output"], message), job["output"][-3000:]
    assert "uid=" not in job["output"]


@pytest.mark.parametrize(
    ("template", "answers"),
    [
        ("GPU scale", {}),
        ("GPU scale", {"gpu_pool": "", "gpu_node_count": 2}),
        ("GPU scale", {"gpu_pool": "train", "gpu_node_count": "2"}),
        ("GPU scale", {"gpu_pool": "train", "gpu_node_count": 5001}),
        ("GPU share", {"gpu_sharing_wait": "yes"}),
        ("GPU share", {"gpu_sharing_wait_timeout": 86401}),
    ],
)
def test_awx_refuses_wrong_answers(running: StandIn, template: str, answers: dict[str, Any]) -> None:
    number = running.named("job_templates", template)["id"]
    status, body = running.request("POST", f"job_templates/{number}/launch/", {"extra_vars": answers})
    assert status == 400
    assert body["variables_needed_to_start"]


@pytest.mark.usual(20)
def test_a_limit_cannot_show_files(running: StandIn) -> None:
    """Ansible reads a file whose name follows @, and shows each line that matches no host. The environment of the job has the credentials."""
    job = running.finished("GPU license", limit="one,@/proc/self/environ")
    assert job["status"] == "failed"
    assert shows(job["output"], "The environment variable NLS_CLIENT_TOKEN"), job["output"][-3000:]
    assert TOKEN not in job["output"]
    assert "AWX_HOST" not in job["output"]


@pytest.mark.usual(20)
def test_variables_that_nobody_asked_for_are_ignored(running: StandIn) -> None:
    job = running.finished("GPU plan", extra_vars={"gpu_report_kind": "report"}, limit="one")
    assert job["ignored_fields"] == {"extra_vars": {"gpu_report_kind": "report"}}
    assert job["status"] == "successful"


@pytest.mark.usual(20)
def test_a_secret_stands_neither_in_arguments_nor_in_the_output(running: StandIn) -> None:
    job = running.finished("GPU license", limit="one", verbosity=3)
    folder = running.awx.folder / "jobs" / f"awx_{job['id']}"
    assert job["status"] == "failed"
    assert shows(job["output"], "The environment variable NLS_CLIENT_TOKEN: the token has 1 part instead of 3"), job[
        "output"
    ][-3000:]
    # The environment of the process has the token; ansible-runner's own record of it (artifacts/N/command) stays in the container.
    events = "".join(path.read_text() for path in (folder / "artifacts").rglob("*-*.json"))
    written = "".join((folder / "env" / name).read_text() for name in ("cmdline", "extravars"))
    assert "NLS_CLIENT_TOKEN" in events
    assert TOKEN not in job["output"] + events + written + str(job["artifacts"])


@pytest.mark.usual(40)
def test_slices_share_no_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stand_in(tmp_path_factory.mktemp("sliced")) as started:
        running = fill(started, slices=3)
        sliced = running.finished("GPU plan")
        assert sliced["status"] == "successful"
        jobs = [job for job in running.awx.runs.rows["jobs"].values() if job["name"] == "GPU plan"]
        handled = [sorted(job["artifacts"][PLANNED]) for job in jobs]
        assert sorted(handled) == [["five", "three"], ["four", "two"], ["one"]]
        # One table of all clusters is not cut.
        assert running.launch("GPU license report")["type"] == "job"


@pytest.mark.usual(40)
def test_the_project_provides_the_collection(tree: Path, tmp_path: Path) -> None:
    """The image has no accel.gpu: AWX installs the requirements of the project. The artifact stands for the one in Galaxy."""
    artifacts = tmp_path / "artifacts"
    run("ansible-galaxy", "collection", "build", "--output-path", artifacts, tree)
    (artifact,) = artifacts.glob("accel-gpu-*.tar.gz")

    def install(requirements: Path, folder: Path) -> None:
        (needed,) = yaml.safe_load(requirements.read_text())["collections"]
        assert needed["name"] == "accel.gpu"
        assert SpecifierSet(needed["version"]).contains(artifact.name.removesuffix(".tar.gz").rpartition("-")[2])
        env = environment(ANSIBLE_COLLECTIONS_PATH=str(folder))
        run("ansible-galaxy", "collection", "install", "--no-deps", "-p", folder, artifact, env=env)

    with stand_in(tmp_path / "stand-in") as running:
        running.awx.runs.image_collections = []
        running.awx.runs.install_requirements = install
        fill(running)
        job = running.finished("GPU plan", limit="one")
        assert job["status"] == "successful", job["output"][-3000:]
        assert job["artifacts"][PLANNED].keys() == {"one"}


@pytest.mark.usual(60)
@pytest.mark.parametrize("job_type", ["check", "run"])
def test_a_job_fetches_the_kubeconfigs_of_its_clusters(tmp_path: Path, job_type: str) -> None:
    """The inventory comes from a cloud, with a credential. The container of its update has ended, and a job has only the files that it fetches."""
    with running_vks(tmp_path / "vks") as fake, stand_in(tmp_path / "stand-in") as running:
        account = Account(fake, tmp_path / "vks")
        secret = account.env["GRN_CLIENT_SECRET"]
        assert running.fill_from_vks(fake.addresses(), account.env) == [CLUSTER]
        assert account.writes() == [], "the update of the inventory issues no kubeconfig"
        job = running.finished("GPU share", job_type=job_type)
        kubeconfig = running.awx.folder / "jobs" / f"awx_{job['id']}" / "kubeconfigs" / f"{CLUSTER}.kubeconfig"
        # The fake has no Kubernetes: the job fails when it contacts the API server that the kubeconfig names.
        assert job["status"] == "failed"
        assert shows(job["output"], "changed=0"), job["output"][-3000:]
        assert kubeconfig.stat().st_mode & 0o777 == 0o600
        assert account.writes() == ["POST /v1/clusters/ID/kubeconfig"]
        assert secret not in job["output"]


@pytest.mark.usual(60)
def test_the_workflow_waits_for_an_approval(running: StandIn) -> None:
    runs = running.awx.runs
    workflow = running.launch(
        "GPU rollout", "workflow_job_templates", limit="one", extra_vars={"gpu_validation_force": "true"}
    )
    approval = running.pending_approval(workflow)
    assert "gpu_report_summary" in approval["description"]
    (plan,) = [job for job in runs.rows["jobs"].values() if job["id"] > workflow["id"]]
    assert plan["artifacts"][PLANNED].keys() == {"one"}
    assert running.request("POST", f"workflow_approvals/{approval['id']}/approve/")[0] == 204
    runs.wait(workflow, 300)
    jobs = [job for job in runs.rows["jobs"].values() if job["id"] > workflow["id"]]
    # The cluster does not exist, so its plan shows no changes, and site does not start. No report hides the failure.
    assert [(job["name"], job["status"]) for job in jobs] == [("GPU plan", "successful"), ("GPU site", "failed")]
    assert jobs[1]["answers"]["gpu_validation_force"] == "true"
    assert jobs[1]["limit"] == "one"
    refusal = (
        f"The plan that was approved (job {plan['id']}) did not reach the cluster one, so nobody has seen its changes."
    )
    assert shows(jobs[1]["output"], refusal), jobs[1]["output"][-3000:]
    assert not shows(jobs[1]["output"], NO_CLUSTER)
    assert workflow["status"] == "failed"


@pytest.mark.usual(60)
def test_a_step_that_no_approval_precedes_changes_nothing(tmp_path: Path) -> None:
    """A run of the playbook awx that was killed, or somebody, has left the step site without the approval. The variable of the inventory is no plan."""
    with stand_in(tmp_path) as running:
        plans = {"gpu_plan_of_job_999": {"one": {"reachable": True}}}
        (running.repository / "inventory" / "hosts.yml").write_text(yaml.safe_dump(clusters("one", **plans)))
        running.commit()
        running.fill({**SETTINGS, "project": {"url": str(running.repository)}})
        store, kind = running.awx.store, "workflow_job_template_nodes"
        steps = {row["identifier"]: row["id"] for row in store.tables[kind].values()}
        store.link(kind, steps["approval"], "success_nodes", {"id": steps["site"], "disassociate": True})
        running.launch("GPU rollout", "workflow_job_templates")
        rows = running.awx.runs.rows["jobs"]
        job = running.awx.runs.wait_for(
            lambda: next((row for row in rows.values() if row["name"] == "GPU site"), None), 60
        )
        assert running.awx.runs.wait(job, 300)["status"] == "failed"
        assert shows(
            job["output"], "The cluster one is not in the plan that was approved, so nobody has seen its changes"
        ), job["output"][-3000:]
        assert NO_CLUSTER not in job["output"]


@pytest.mark.usual(30)
def test_a_refused_plan_is_not_applied(running: StandIn) -> None:
    runs = running.awx.runs
    workflow = running.launch("GPU rollout", "workflow_job_templates", limit="two")
    approval = running.pending_approval(workflow)
    assert running.request("POST", f"workflow_approvals/{approval['id']}/deny/")[0] == 204
    assert runs.wait(workflow, 60)["status"] == "failed"
    assert [job["name"] for job in runs.rows["jobs"].values() if job["id"] > workflow["id"]] == ["GPU plan"]
