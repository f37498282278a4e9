# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of every user that a container of AWX, Automation Platform or OpenShift may have: with and without a home, a name, and a place to write to.

The project is read-only, and no job has a terminal. Each job must end as that of root with a home.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.awx.container import User
from tests.helpers.awx import StandIn, clusters, stand_in
from tests.helpers.vks import running as running_vks
from tests.helpers.vks_modules import CLUSTER, Account

# The first number of a range that OpenShift assigns to a project.
ASSIGNED = 1000650000
USERS = {
    "root": User(),
    "root-without-home": User(home=None),
    "assigned": User(ASSIGNED),
    "assigned-without-home": User(ASSIGNED, home=None),
    "assigned-home-is-the-root-folder": User(ASSIGNED, home="/"),
    "assigned-home-does-not-exist": User(ASSIGNED, home="/nonexistent"),
}
OPERATIONS = ("plan", "site", "share", "report", "mirror", "driver_image", "license")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("awx")) as started:
        (started.repository / "inventory" / "hosts.yml").write_text(yaml.safe_dump(clusters("one")))
        started.commit()
        started.fill(
            {
                "project": {"url": str(started.repository)},
                "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
                "inventory": {"sources": [{"name": "clusters", "path": "inventory/hosts.yml"}]},
                "credentials": [{"name": "nls", "type": "nls", "inputs": {"client_token": "a.b"}}],
                "operations": list(OPERATIONS),
            }
        )
        yield started


def results(running: StandIn, user: User) -> dict[str, tuple[Any, ...]]:
    """How the job of each operation ends for a user: its status, its artifacts, and the message of the task that failed."""
    running.awx.runs.user = user
    jobs = {name: running.launch(f"GPU {name.replace('_', ' ')}") for name in OPERATIONS}
    ended = {name: running.awx.runs.wait(job, 600) for name, job in jobs.items()}
    for job in ended.values():
        folder = running.awx.folder / "jobs" / f"awx_{job['id']}"
        assert not list(folder.rglob("~")), "a path that begins with ~ is not expanded without a home"
        assert "Traceback" not in job["output"], job["output"][-3000:]
    # The name of this one has the number of the job.
    artifacts = {
        name: {key: value for key, value in job["artifacts"].items() if not key.startswith("gpu_plan_of_job_")}
        for name, job in ended.items()
    }
    return {name: (job["status"], artifacts[name], _messages(job["output"])) for name, job in ended.items()}


def _messages(output: str) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    return [line.strip() for line in plain.splitlines() if re.match(r"\s*(fatal:|msg:|failed:|\[ERROR\])", line)]


@pytest.fixture(scope="module")
def usual(running: StandIn) -> dict[str, tuple[Any, ...]]:
    return results(running, USERS["root"])


@pytest.mark.usual(60)
def test_root_with_a_home(usual: dict[str, tuple[Any, ...]]) -> None:
    assert {name for name, (status, *_rest) in usual.items() if status == "successful"} == {"plan"}
    assert all(messages for name, (_status, _artifacts, messages) in usual.items() if name != "plan")


@pytest.mark.usual(60)
@pytest.mark.parametrize("name", [name for name in USERS if name != "root"])
def test_every_user_gets_the_result_of_root(running: StandIn, usual: dict[str, tuple[Any, ...]], name: str) -> None:
    assert results(running, USERS[name]) == usual


@pytest.mark.usual(60)
@pytest.mark.parametrize("name", ["assigned-without-home", "assigned-home-is-the-root-folder"])
def test_an_inventory_update_and_a_job_that_fetches_a_kubeconfig(tmp_path: Path, name: str) -> None:
    with running_vks(tmp_path / "vks") as fake, stand_in(tmp_path / "stand-in") as started:
        account = Account(fake, tmp_path / "vks")
        started.awx.runs.user = USERS[name]
        assert started.fill_from_vks(fake.addresses(), account.env) == [CLUSTER]
        job = started.finished("GPU share")
        # The fake has no Kubernetes: the job fails when it contacts the API server that the kubeconfig names.
        assert job["status"] == "failed"
        assert account.writes() == ["POST /v1/clusters/ID/kubeconfig"], job["output"][-3000:]
        assert "Traceback" not in job["output"]
