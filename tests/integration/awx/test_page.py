# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an empty AWX to an approved `site` on the lab's cluster, with the commands of docs/awx.md."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import URL_ANNOTATION
from lab.awx.server import PASSWORD, USER
from tests.helpers.awx import StandIn, stand_in
from tests.helpers.cluster import Cluster
from tests.helpers.polling import busy_factor, until
from tests.labs import Lab
from tests.programs import REPO, environment, run

pytestmark = pytest.mark.timeout(2400)

# From an empty AWX to the first approved change, without the time in which a person reads.
MINUTES = 10
_SECTION = re.compile(r"^## From an empty AWX.*?(?=^## )", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\s*\$ (.+)$", re.MULTILINE)
_YAML = re.compile(r"^ {3}```yaml\n(.*?)^ {3}```", re.MULTILINE | re.DOTALL)


def section() -> str:
    """The section of the page."""
    match = _SECTION.search((REPO / "docs" / "awx.md").read_text(encoding="utf-8"))
    assert match
    return match[0]


@pytest.fixture
def running(lab: Lab, tmp_path: Path) -> Iterator[StandIn]:
    """A stand-in whose jobs have the lab's programs and charts, and a project with the lab's cluster and pools."""
    lab.reset()
    with stand_in(tmp_path) as started:
        started.awx.runs.environment |= {
            name: value for name, value in lab.env.items() if name.startswith("LAB_") or name == "PATH"
        }
        inventory = started.repository / "inventory"
        variables = yaml.safe_load((REPO / "inventories" / "lab" / "group_vars" / "gpu_clusters.yml").read_text())
        (inventory / "group_vars" / "gpu_clusters.yml").write_text(yaml.safe_dump(variables))
        (inventory / "hosts.yml").write_text(yaml.safe_dump({"gpu_clusters": {"hosts": {"lab": {}}}}))
        started.commit()
        yield started


@pytest.mark.alone
@pytest.mark.usual(400)
def test_the_commands_of_the_page(running: StandIn, lab: Lab, tmp_path: Path) -> None:
    limit = MINUTES * 60 * busy_factor()
    commands = _COMMAND.findall(section())
    # The tests already have the collection.
    install, login, *rest = commands
    assert install == "ansible-galaxy collection install awx.awx:24.6.1"
    assert login.startswith("export CONTROLLER_HOST=")
    (example,) = _YAML.findall(section())
    settings = yaml.safe_load(example)
    settings["gpu_awx"]["project"]["url"] = str(running.repository)
    settings["gpu_awx"]["credentials"][0]["inputs"]["kubeconfig"] = lab.kubeconfig.read_text()
    (tmp_path / "awx.yml").write_text(yaml.safe_dump(settings))
    environ = environment(CONTROLLER_HOST=running.url, CONTROLLER_USERNAME=USER, CONTROLLER_PASSWORD=PASSWORD)
    launched: dict[str, Any] = {}
    began, times = time.monotonic(), dict[str, float]()
    for command in rest:
        started = time.monotonic()
        words = command.replace("workflow_job_id=ID", f"workflow_job_id={launched.get('id')}")
        printed = run("bash", "-c", words, cwd=tmp_path, env=environ)
        if "workflow_launch" in command:
            launched = json.loads(printed.partition("=>")[2])
        times[command] = time.monotonic() - started
    started = time.monotonic()
    workflow = running.awx.runs.wait(running.awx.runs.rows["workflow_jobs"][launched["id"]], 1500)
    times["(the steps after the approval)"] = time.monotonic() - started
    total = time.monotonic() - began
    print(*(f"{seconds:6.1f} s  {command}" for command, seconds in times.items()), f"{total:6.1f} s  in all", sep="\n")
    jobs = {job["name"]: job for job in running.awx.runs.rows["jobs"].values()}
    assert workflow["status"] == "successful", jobs["GPU site"]["output"][-3000:]
    assert list(jobs) == ["GPU plan", "GPU site", "GPU report"]
    planned, reported = (jobs[name]["artifacts"]["gpu_report_summary"][lab.name] for name in ("GPU plan", "GPU report"))
    assert planned["text"].endswith(".")
    assert (reported["result"], reported["drift"]) == ("as_declared", 0)
    assert total < limit
    # The approved change is applied; the same change again changes nothing.
    again = running.finished("GPU site")
    assert again["status"] == "successful"
    assert re.search(r"changed=0\b", again["output"])
    secret = yaml.safe_load(lab.kubeconfig.read_text())["users"][0]["user"]["client-key-data"]
    assert not [
        job for job in running.awx.runs.rows["jobs"].values() if secret in job["output"] + json.dumps(job["artifacts"])
    ]


def holder(lab: Lab) -> tuple[str | None, str | None]:
    """Who holds the cluster, and the page of this run, as its Lease says."""
    leases = Cluster(lab).get("leases", "-n", "kube-system", "--field-selector", "metadata.name=accel-gpu")["items"]
    if not leases:
        return None, None
    return leases[0]["spec"].get("holderIdentity"), leases[0]["metadata"].get("annotations", {}).get(URL_ANNOTATION)


@pytest.mark.usual(300)
def test_a_relaunch_continues_a_canceled_job(running: StandIn, lab: Lab) -> None:
    """Before it, a report finds drift, which is no other failure. The job is canceled while it holds the Lease; the next job waits until the Lease expires."""
    running.fill(
        {
            "project": {"url": str(running.repository)},
            "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
            "inventory": {"sources": [{"name": "clusters", "path": "inventory/hosts.yml"}]},
            "credentials": [
                {"name": "lab", "type": "kubeconfig", "inputs": {"kubeconfig": lab.kubeconfig.read_text()}}
            ],
        }
    )
    drift = running.finished("GPU report", extra_vars={"gpu_report_fail_on_drift": "true"})
    assert (drift["status"], drift["artifacts"]["gpu_report_summary"][lab.name]["result"]) == ("failed", "drift")
    assert "Drift in the cluster" in drift["output"]
    job = running.launch("GPU site")
    expected = f"awx-{job['id']}/lab", f"https://awx.example.com/#/jobs/playbook/{job['id']}"
    until(lambda: job["finished"] or holder(lab) == expected, 240)
    assert job["finished"] is None, job["output"][-3000:]
    assert running.request("POST", f"jobs/{job['id']}/cancel/")[0] == 202
    assert running.awx.runs.wait(job, 120)["status"] == "canceled"
    status, relaunched = running.request("POST", f"jobs/{job['id']}/relaunch/")
    assert status == 201
    second = running.awx.runs.wait(running.awx.runs.rows["jobs"][relaunched["id"]], 900)
    assert second["status"] == "successful", second["output"][-3000:]
    third = running.finished("GPU site")
    assert third["status"] == "successful"
    assert re.search(r"changed=0\b", third["output"]), third["output"][-3000:]
