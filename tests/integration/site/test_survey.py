# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs as a job template gives them: survey answers as unsafe text in a file, and a job limit, which leaves localhost out.

The clusters of the inventory cannot be reached, so that a run whose inputs are accepted ends with that, or, as a plan, ends well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
import yaml

from tests.programs import environment

CLUSTERS = ("one", "two")
POOLS: list[dict[str, Any]] = [
    {"name": "notebooks", "match": {"model": "T4"}, "sharing": {"mode": "time-slicing", "replicas": "{{ replicas }}"}},
    {"name": "train", "model": "A100-PCIE-40GB", "nodes": {"flavor": "f", "count": "{{ nodes }}"}},
    {"name": "infer", "model": "L4", "nodes": {"flavor": "f", "count": 1}},
]
NO_CLOUD, NO_CLUSTER = "Cloud none was not found", "The kubeconfig /nonexistent does not exist"
NO_POOL = "Say which pool this is about with -e pool=NAME."
NO_COUNT = "Say how many nodes the pool is to have with -e count=N"
ONE_POOL = "this is about one pool; give one name with -e pool=NAME"
CONFIRM = "To confirm it, add -e gpu_confirm=one"
SUCCESS = ""

# The playbook, the answers, and how the run ends on the cluster of the limit: the message that it fails with, if any.
ANSWERS: list[tuple[str, dict[str, Any], str]] = [
    ("plan", {}, SUCCESS),
    ("plan", {"replicas": "4", "nodes": "2"}, SUCCESS),
    ("plan", {"replicas": "4 pods"}, "gpu_pools[0].sharing.replicas"),
    ("plan", {"replicas": ""}, "gpu_pools[0].sharing.replicas"),
    ("plan", {"nodes_only": "train, infer", "nodes_wait_timeout": "60", "gpu_hosts": ""}, SUCCESS),
    ("plan", {"nodes_only": "train\ninfer", "nodes_wait_timeout": "", "report_workloads": ""}, SUCCESS),
    ("plan", {"nodes_only": "", "nodes_counts": "", "report_html_path": ""}, SUCCESS),
    ("plan", {"nodes_only": "trian"}, "nodes_only: trian is no declared pool with nodes"),
    ("plan", {"nodes_only": ","}, "names nothing; give names"),
    ("plan", {"nodes_wait_timeout": "4 hours"}, "nodes_wait_timeout: \"4 hours\" is text, not a whole number"),
    ("scale", {}, NO_POOL),
    ("scale", {"pool": "", "count": "2"}, NO_POOL),
    ("scale", {"pool": "train", "count": ""}, NO_COUNT),
    ("scale", {"pool": "train", "count": "two"}, NO_COUNT),
    ("scale", {"pool": "train,infer", "count": "2"}, ONE_POOL),
    ("scale", {"pool": "all", "count": "2"}, ONE_POOL),
    ("scale", {"pool": "train", "count": "2"}, NO_CLOUD),
    ("scale", {"pool": "[train]", "count": 2}, NO_CLOUD),
    ("scale", {"pool": "notebooks", "count": "2"}, "its nodes are not made here"),
    ("retire", {}, NO_POOL),
    ("retire", {"pool": " "}, NO_POOL),
    ("retire", {"pool": "train"}, CONFIRM),
    ("retire", {"pool": "train", "gpu_confirm": ""}, CONFIRM),
    ("retire", {"pool": "train", "gpu_confirm": "two"}, "gpu_confirm names two"),
    ("retire", {"pool": "all"}, "train (node group train), infer (node group infer)"),
    ("retire", {"pool": "all,train", "gpu_confirm": "one"}, "give all alone, or the names of pools"),
    ("retire", {"pool": "trian", "gpu_confirm": "one"}, "nodes_only: trian is no declared pool with nodes"),
    ("retire", {"pool": "train,infer", "gpu_confirm": "one"}, NO_CLOUD),
    ("retire", {"pool": "all", "gpu_confirm": "two, one"}, NO_CLOUD),
    ("reset", {}, CONFIRM),
    ("reset", {"sharing_only": ""}, CONFIRM),
    ("reset", {"sharing_only": "", "gpu_confirm": "one"}, NO_CLUSTER),
    ("reset", {"sharing_only": "notebooks"}, NO_CLUSTER),
    ("reset", {"sharing_only": "[notebooks]"}, NO_CLUSTER),
    ("reset", {"sharing_only": "notebook"}, "only: notebook is no declared pool"),
    ("share", {"sharing_only": "train, notebooks", "sharing_wait_timeout": "60", "sharing_wait": "yes"}, NO_CLUSTER),
    ("share", {"sharing_only": "", "sharing_wait_timeout": "", "sharing_label_selectors": ""}, NO_CLUSTER),
    ("share", {"sharing_label_selectors": "zone in (a, b), !spare"}, NO_CLUSTER),
    ("share", {"sharing_label_selectors": "zone in"}, "label_selectors"),
    ("share", {"sharing_wait": "perhaps"}, "sharing_wait: \"perhaps\" is text, not a boolean"),
    ("repair", {"sharing_lease_wait_timeout": "0"}, NO_CLUSTER),
    ("join", {"join_wait_timeout": "", "join_report_path": ""}, NO_CLUSTER),
    ("join", {"join_wait_timeout": "1.5"}, "join_wait_timeout: 1.5 is a number with a fraction, not a whole number"),
    ("nodes", {"nodes_only": "train", "nodes_counts": '{"train": "2"}'}, NO_CLOUD),
    ("nodes", {"nodes_counts": "train=2"}, "nodes_counts: \"train=2\" is text, not a map"),
    ("export", {"export_path": ""}, NO_CLUSTER),
    ("uninstall", {}, CONFIRM),
    ("uninstall", {"gpu_confirm": ""}, CONFIRM),
    ("uninstall", {"gpu_confirm": "two"}, "gpu_confirm names two"),
    ("uninstall", {"gpu_confirm": "two, one", "uninstall_wait_timeout": "", "uninstall_undo_mig": "yes"}, NO_CLUSTER),
    ("uninstall", {"gpu_confirm": "one", "uninstall_wait_timeout": "long"}, "uninstall_wait_timeout: \"long\" is text, not a whole number"),
    ("site", {"nodes_only": "trian"}, "nodes_only: trian is no declared pool with nodes"),
]  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A finished run: its status, the hosts that it was about, and all that it printed."""

    successful: bool
    hosts: set[str]
    output: str


class _Unsafe(str):
    """Text that no template is rendered in."""


def run_job(folder: Path, playbook: str, answers: Mapping[str, Any], *, limit: str, arguments: str = "") -> Job:
    """A playbook as a job runs it: the answers in env/extravars, texts marked as unsafe, the limit on the command line.

    ansible-core 2.19 reads an unsafe empty text as null.
    """
    host = {"kubeconfig": "/nonexistent", "cloud": {"magnum": {"cloud": "none"}}}
    hosts = {name: {"gpu_cluster": {"name": name, **host}} for name in CLUSTERS}
    variables = {"gpu_pools": POOLS, "replicas": 4, "nodes": 1}
    groups = {"gpu_clusters": {"hosts": hosts, "vars": variables}, "others": {"hosts": {"web": {}}}}
    for name, document in (
        ("inventory/hosts.yml", {"all": {"children": groups}}),
        ("env/settings", {"suppress_env_files": True}),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(yaml.safe_dump(document))
    dumper = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(_Unsafe, lambda of, data: of.represent_scalar("!unsafe", str(data), style="'"))  # type: ignore[attr-defined]
    marked = {name: _Unsafe(value) if isinstance(value, str) else value for name, value in answers.items()}
    (folder / "env/extravars").write_text(yaml.dump(marked, Dumper=dumper))
    environ = environment(KUBECONFIG=str(folder / "none"), OS_CLIENT_CONFIG_FILE=str(folder / "clouds.yaml"))
    (folder / "clouds.yaml").write_text("clouds: {}\n")
    run = ansible_runner.run(
        private_data_dir=str(folder),
        playbook=f"accel.gpu.{playbook}",
        limit=limit,
        cmdline=arguments or None,
        envvars=dict(environ),
        quiet=True,
    )
    results = [event.get("event_data", {}) for event in run.events]
    printed = run.stdout.read() + run.stderr.read() + json.dumps([result.get("res") for result in results], default=str)
    return Job(run.status == "successful", {result["host"] for result in results if "host" in result}, printed)


def shows(output: str, text: str) -> bool:
    """Whether the output holds the text, however it was quoted and broken into lines."""
    return "".join(text.split()) in "".join(output.replace("\\", "").split())


@pytest.mark.sampled(4, of="survey answers")
@pytest.mark.usual(6)
@pytest.mark.parametrize(
    ("playbook", "answers", "message"), ANSWERS, ids=[f"{name} {json.dumps(given)}" for name, given, _end in ANSWERS]
)
def test_answers_of_a_survey(tmp_path: Path, playbook: str, answers: dict[str, Any], message: str) -> None:
    job = run_job(tmp_path, playbook, answers, limit="one")
    assert job.successful == (message == SUCCESS), job.output[-3000:]
    assert shows(job.output, message), job.output[-3000:]
    assert job.hosts == {"one"}
    for word in ("Traceback", "is undefined", "r, i, a, t, n", "unable to convert"):
        assert word not in job.output


@pytest.mark.sampled(1, of="survey answers")
@pytest.mark.usual(6)
@pytest.mark.parametrize("playbook", ["plan", "retire", "share"])
def test_a_limit_that_leaves_no_cluster_fails(tmp_path: Path, playbook: str) -> None:
    job = run_job(tmp_path, playbook, {}, limit="web")
    assert not job.successful
    assert shows(job.output, "The limit leaves web, and none of them matches gpu_clusters")


@pytest.mark.sampled(1, of="survey answers")
@pytest.mark.usual(6)
@pytest.mark.parametrize(
    ("playbook", "answers", "said"),
    [
        ("retire", {"pool": "train"}, "This deletes 1 node group(s) of cluster one, with all their nodes: train (node group train)."),
        ("reset", {}, "This makes the GPUs of all 3 pools of cluster one whole (notebooks, train, infer)"),
        (
            "uninstall",
            {},
            "This removes the GPU operator, the driver and the GPU sharing that this collection has installed on cluster one; pods that use GPUs lose the driver.",
        ),
    ],
)  # fmt: skip
def test_check_mode_shows_what_a_run_would_ask_for(
    tmp_path: Path, playbook: str, answers: dict[str, Any], said: str
) -> None:
    job = run_job(tmp_path, playbook, answers, limit="one", arguments="--check")
    assert shows(job.output, said)
    assert shows(job.output, "one: a run without --check needs the confirmation -e gpu_confirm=one")
    assert "Nothing was done" not in job.output
