# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a module in ansible-playbook's output (on stderr only), and the identity of a run at the API server."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.api_proxy import Answer, Request
from tests.helpers.kube import Kube, Watched
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.programs import environment

NODES = 12
LINE = re.compile(r"^prod: (\d+)/12 nodes (changed|checked)$", re.MULTILINE)


@pytest.fixture
def slow(kube: Kube) -> Iterator[Watched]:
    """A proxy for some nodes that delays each patch by half a second."""
    kube.nodes(NODES)
    with kube.watched() as watched:

        def before(request: Request) -> Answer | None:
            if request.method == "PATCH":
                time.sleep(0.5)
            return None

        watched.proxy.before = before
        yield watched


def play(kube: Kube, slow: Watched, *arguments: str, **keywords: Any) -> PlaybookRun:
    """Two tasks on a host named prod; `keywords` are arguments of the first one."""
    label = {"label_selectors": [f"test={kube.prefix}"], "labels": {"example.com/run": str(time.monotonic_ns())}}
    nodes = {"accel.gpu.node_metadata": {"sets": [label], "parallel": 1}, "name": "Label", **keywords}
    tasks = [nodes, {"accel.gpu.print_lines": {"lines": ["pool  nodes", "a     12"]}, "name": "Show"}]
    document = {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "vars": {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            # By default Ansible writes a job's file below HOME, and searches it below the user's home, which can differ.
            "ansible_async_dir": str(kube.folder / "jobs"),
        },
        "module_defaults": {"group/accel.gpu.kube": {"kubeconfig": str(slow.kubeconfig)}},
        "tasks": tasks,
    }
    playbook, inventory = kube.folder / "play.yml", kube.folder / "hosts"
    playbook.write_text(yaml.safe_dump([document]))
    inventory.write_text("prod\n")
    (kube.folder / "tmp").mkdir(exist_ok=True)
    environ = environment(TMPDIR=str(kube.folder / "tmp"))
    return run_playbook(str(playbook), environ=environ, inventory=inventory, arguments=arguments)


def left_over(folder: Path) -> list[Path]:
    return list(folder.glob("**/accel-gpu-progress-*"))


@pytest.mark.sampled(1, group="progress of a slow run")
@pytest.mark.parametrize(("arguments", "word"), [((), "changed"), (("--check", "--diff"), "checked")])
def test_few_lines_and_the_last_one_reports_the_end(
    kube: Kube, slow: Watched, arguments: tuple[str, ...], word: str
) -> None:
    run = play(kube, slow, *arguments).require_success()
    lines = LINE.findall(run.stderr)
    assert 2 <= len(lines) < NODES
    assert lines[-1] == (str(NODES), word)
    assert run.changed("prod") == 1, "the JSON on stdout is whole"
    assert "prod:" not in run.stdout
    assert run.stderr.endswith("pool  nodes\na     12\n")
    assert left_over(kube.folder) == []


@pytest.mark.sampled(1, group="progress of a slow run")
def test_no_log_shows_only_counts(kube: Kube, slow: Watched) -> None:
    run = play(kube, slow, no_log=True).require_success()
    assert f"prod: {NODES}/{NODES}\n" in run.stderr
    assert "nodes changed" not in run.stderr


@pytest.mark.sampled(1, group="progress of a slow run")
def test_background_jobs_have_a_result_without_progress(kube: Kube, slow: Watched) -> None:
    run = play(kube, slow, **{"async": 60, "poll": 3}).require_success()
    assert run.module_results("accel.gpu.node_metadata", "prod")[0]["node_metadata"]["changed"] == NODES
    assert LINE.findall(run.stderr) == []
    assert left_over(kube.folder) == []


@pytest.mark.sampled(1, group="progress of a slow run")
def test_the_failure_of_a_module_is_kept(kube: Kube, slow: Watched) -> None:
    slow.proxy.before = lambda request: Answer(401)
    run = play(kube, slow)
    assert run.rc == 2
    assert "401" in run.failure("prod")
    assert left_over(kube.folder) == []


@pytest.mark.sampled(1, group="progress of a slow run")
def test_all_modules_of_a_run_have_one_identity_at_the_api_server(kube: Kube, slow: Watched) -> None:
    slow.proxy.before = lambda request: None
    play(kube, slow, loop=[1, 2]).require_success()
    first = {request.user_agent for request in slow.proxy.requests}
    slow.proxy.requests.clear()
    play(kube, slow).require_success()
    second = {request.user_agent for request in slow.proxy.requests}
    assert len(first) == len(second) == 1
    assert first != second
    assert re.fullmatch(r"accel\.gpu/\d+\.\d+\.\d+ node_metadata run/\S+", first.pop())
