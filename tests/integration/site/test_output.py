# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of a run: on a terminal, in a pipe, under ansible-runner, and with the JSON callback."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ansible_runner
import pytest

from tests.helpers.cluster import Cluster
from tests.helpers.playbook import run_playbook
from tests.labs import Lab
from tests.programs import REPO

SITE = "accel.gpu.site"
PROGRESS = "lab: "


@pytest.fixture(scope="module")
def flipping(lab: Lab) -> Any:
    """Yield variables with which every run changes the sharing of a pool, so that progress is shown."""
    Cluster(lab).share()

    def variables() -> Any:
        replicas = 4
        while True:
            replicas = 12 - replicas
            yield {
                "gpu_pools": [
                    {
                        "name": "notebooks",
                        "match": {"model": "T4"},
                        "sharing": {"mode": "time-slicing", "replicas": replicas},
                    }
                ],
                "gpu_allow_release": "all",
            }

    return variables()


def command(variables: Mapping[str, Any]) -> list[str]:
    """A user's run: the change of sharing and the report."""
    inventory = str(REPO / "inventories/lab")
    return ["ansible-playbook", SITE, "-i", inventory, "--tags", "sharing,report", "-e", json.dumps(variables)]


@pytest.mark.sampled(1, group="views of a site")
def test_progress_in_a_pipe_goes_to_stderr(lab: Lab, flipping: Any) -> None:
    done = subprocess.run(command(next(flipping)), cwd=REPO, env=lab.env, capture_output=True, text=True, check=True)
    assert any(line.startswith(PROGRESS) and "nodes" in line for line in done.stderr.splitlines())
    assert not any(line.startswith(PROGRESS) and "nodes" in line for line in done.stdout.splitlines())


@pytest.mark.sampled(1, group="views of a site")
def test_progress_on_a_terminal(lab: Lab, flipping: Any) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(command(next(flipping)), cwd=REPO, env=lab.env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end of the terminal is closed
            break
        if not chunk:
            break
        shown += chunk
    assert process.wait() == 0, shown.decode(errors="replace")[-3000:]
    assert PROGRESS in shown.decode(errors="replace")


@pytest.mark.sampled(1, group="views of a site")
def test_a_json_callback_stays_valid_json(lab: Lab, flipping: Any) -> None:
    played = run_playbook(
        SITE, environ=lab.env, variables=next(flipping), arguments=["--tags", "sharing,report"]
    ).require_success()
    assert json.loads(played.stdout)["stats"]
    assert PROGRESS in played.stderr


@pytest.mark.sampled(1, group="views of a site")
def test_progress_under_ansible_runner(lab: Lab, flipping: Any, tmp_path: Path) -> None:
    played = ansible_runner.run(
        private_data_dir=str(tmp_path),
        playbook=SITE,
        inventory=str(REPO / "inventories/lab"),
        extravars=next(flipping),
        tags="sharing,report",
        envvars={
            k: v for k, v in lab.env.items() if k.startswith(("LAB_", "K8S_", "KUBE", "ANSIBLE_", "HELM_", "PATH"))
        },
        quiet=True,
    )
    assert played.status == "successful"
    shown = played.stdout.read() + played.stderr.read()
    assert PROGRESS in shown
