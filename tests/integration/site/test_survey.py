# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs from a job template: survey answers as unsafe text in a file, and a job limit, which excludes localhost.

The clusters of the inventory are unreachable: a run with valid inputs fails with that message, and a plan succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
import yaml

from tests.programs import REPO, environment

CLUSTERS = ("one", "two")
POOLS: list[dict[str, Any]] = [
    {"name": "notebooks", "match": {"model": "T4"}, "sharing": {"mode": "time-slicing", "replicas": "{{ replicas }}"}},
    {"name": "train", "model": "A100-PCIE-40GB", "nodes": {"flavor": "f", "count": "{{ nodes }}"}},
    {"name": "infer", "model": "L4", "nodes": {"flavor": "f", "count": 1}},
]
NO_CLOUD, NO_CLUSTER = "Cloud none was not found", "The kubeconfig /nonexistent does not exist"
NO_POOL = "gpu_pool is not set: select a pool with -e gpu_pool=NAME."
NO_COUNT = "gpu_node_count is not a whole number: set the number of nodes with -e gpu_node_count=N"
ONE_POOL = "this playbook changes one pool; use one name with -e gpu_pool=NAME"
SUCCESS = ""

# The playbook, the answers, and the expected result on the cluster of the limit: the message of a failure, if any.
ANSWERS: list[tuple[str, dict[str, Any], str]] = [
    ("plan", {}, SUCCESS),
    ("plan", {"replicas": "4", "nodes": "2"}, SUCCESS),
    ("plan", {"replicas": "4 pods"}, "gpu_pools[0].sharing.replicas"),
    ("plan", {"replicas": ""}, "gpu_pools[0].sharing.replicas"),
    ("plan", {"gpu_nodegroups_pool_names": "train, infer", "gpu_nodegroups_wait_timeout": "60", "gpu_hosts": ""}, SUCCESS),
    ("plan", {"gpu_nodegroups_pool_names": "train\ninfer", "gpu_nodegroups_wait_timeout": "", "gpu_report_include_workloads": ""}, SUCCESS),
    ("plan", {"gpu_nodegroups_pool_names": "", "gpu_nodegroups_node_counts": "", "gpu_report_html_path": ""}, SUCCESS),
    ("plan", {"gpu_nodegroups_drain_options": "", "gpu_report_nodegroups": ""}, SUCCESS),
    ("plan", {"gpu_nodegroups_drain_options": '{"evict": false}'}, SUCCESS),
    ("plan", {"gpu_nodegroups_drain_options": "none"}, "gpu_nodegroups_drain_options: \"none\" is a string, not a map"),
    ("plan", {"gpu_nodegroups_node_counts": '{"trian": 3}'}, "1 error in the numbers of nodes (gpu_nodegroups_node_counts): trian is not a declared pool"),
    ("plan", {"gpu_nodegroups_pool_names": "trian"}, "gpu_nodegroups_pool_names: trian is not the name of a declared pool with nodes"),
    ("plan", {"gpu_nodegroups_pool_names": ","}, "contains no name; use comma-separated names"),
    ("plan", {"gpu_nodegroups_wait_timeout": "4 hours"}, "gpu_nodegroups_wait_timeout: \"4 hours\" is a string, not a whole number"),
    ("reset", {"gpu_sharing_pool_name": "train"}, "gpu_sharing_pool_name: the collection does not read this variable; did you mean gpu_sharing_pool_names?"),
    ("uninstall", {"gpu_uninstall_reset_migs": "false"}, "did you mean gpu_uninstall_reset_mig?"),
    ("scale", {}, NO_POOL),
    ("scale", {"gpu_pool": "", "gpu_node_count": "2"}, NO_POOL),
    ("scale", {"gpu_pool": "train", "gpu_node_count": ""}, NO_COUNT),
    ("scale", {"gpu_pool": "train", "gpu_node_count": "two"}, NO_COUNT),
    ("scale", {"gpu_pool": "train,infer", "gpu_node_count": "2"}, ONE_POOL),
    ("scale", {"gpu_pool": "all", "gpu_node_count": "2"}, ONE_POOL),
    ("scale", {"gpu_pool": "train", "gpu_node_count": "2"}, NO_CLOUD),
    ("scale", {"gpu_pool": "[train]", "gpu_node_count": 2}, NO_CLOUD),
    ("scale", {"gpu_pool": "notebooks", "gpu_node_count": "2"}, "it has no node group, so its number of nodes cannot be set"),
    ("delete_nodegroups", {}, NO_POOL),
    ("delete_nodegroups", {"gpu_pool": " "}, NO_POOL),
    ("delete_nodegroups", {"gpu_pool": "train"}, NO_CLOUD),
    ("delete_nodegroups", {"gpu_pool": "train", "gpu_confirm": ""}, NO_CLOUD),
    ("delete_nodegroups", {"gpu_pool": "train", "gpu_confirm": "two"}, NO_CLOUD),
    ("delete_nodegroups", {"gpu_pool": "all"}, NO_CLOUD),
    ("delete_nodegroups", {"gpu_pool": "all,train", "gpu_confirm": "one"}, "use either all or the names of pools"),
    ("delete_nodegroups", {"gpu_pool": "trian", "gpu_confirm": "one"}, "gpu_nodegroups_pool_names: trian is not the name of a declared pool with nodes"),
    ("delete_nodegroups", {"gpu_pool": "train,infer", "gpu_confirm": "one"}, NO_CLOUD),
    ("delete_nodegroups", {"gpu_pool": "all", "gpu_confirm": "two, one"}, NO_CLOUD),
    ("reset", {}, NO_CLUSTER),
    ("reset", {"gpu_sharing_pool_names": ""}, NO_CLUSTER),
    ("reset", {"gpu_pool": "train", "gpu_confirm": "one"}, "Select pools with gpu_sharing_pool_names"),
    ("reset", {"gpu_sharing_pool_names": "", "gpu_confirm": "one"}, NO_CLUSTER),
    ("reset", {"gpu_sharing_pool_names": "notebooks"}, NO_CLUSTER),
    ("reset", {"gpu_sharing_pool_names": "[notebooks]"}, NO_CLUSTER),
    ("reset", {"gpu_sharing_pool_names": "notebook"}, "gpu_sharing_pool_names (option pool_names of the module): notebook is not a declared pool"),
    ("share", {"gpu_sharing_pool_names": "train, notebooks", "gpu_sharing_wait_timeout": "60", "gpu_sharing_wait": "yes"}, NO_CLUSTER),
    ("share", {"gpu_sharing_pool_names": "", "gpu_sharing_wait_timeout": "", "gpu_sharing_label_selectors": ""}, NO_CLUSTER),
    ("share", {"gpu_sharing_label_selectors": "zone in (a, b), !spare"}, NO_CLUSTER),
    ("share", {"gpu_sharing_label_selectors": "zone in"}, "label_selectors"),
    ("share", {"gpu_sharing_wait": "perhaps"}, "gpu_sharing_wait: \"perhaps\" is a string, not a boolean"),
    ("share", {"gpu_sharing_pool_names": ","}, 'gpu_sharing_pool_names: "," contains no name; use comma-separated names'),
    ("share", {"gpu_sharing_expected_policy": ""}, NO_CLUSTER),
    ("share", {"gpu_sharing_expected_policy": "all"}, "gpu_sharing_expected_policy: \"all\" is a string, not a map"),
    ("repair", {"gpu_sharing_wait_timeout": "0"}, NO_CLUSTER),
    ("new_nodes", {"gpu_new_nodes_wait_timeout": "", "gpu_new_nodes_report_path": ""}, NO_CLUSTER),
    ("new_nodes", {"gpu_new_nodes_wait_timeout": "1.5"}, "gpu_new_nodes_wait_timeout: 1.5 is a number with a fraction, not a whole number"),
    ("nodegroups", {"gpu_nodegroups_pool_names": "train", "gpu_nodegroups_node_counts": '{"train": "2"}'}, NO_CLOUD),
    ("nodegroups", {"gpu_nodegroups_node_counts": "train=2"}, "gpu_nodegroups_node_counts: \"train=2\" is a string, not a map"),
    ("new_nodes", {"gpu_new_nodes_schedule": "", "gpu_new_nodes_namespace": "", "gpu_new_nodes_run_as_user": ""}, NO_CLUSTER),
    ("new_nodes", {"gpu_new_nodes_run_as_user": "root"}, "gpu_new_nodes_run_as_user: \"root\" is a string, not a whole number"),
    ("nodegroups", {"gpu_nodegroups_drain_options": ""}, NO_CLOUD),
    ("site", {"gpu_operator_secure_logging": "", "gpu_nfd_secure_logging": "", "gpu_secure_logging": ""}, NO_CLOUD),
    ("export", {"gpu_export_path": ""}, NO_CLUSTER),
    ("uninstall", {}, NO_CLUSTER),
    ("uninstall", {"gpu_confirm": ""}, NO_CLUSTER),
    ("uninstall", {"gpu_confirm": "two"}, NO_CLUSTER),
    ("uninstall", {"gpu_confirm": "two, one", "gpu_uninstall_wait_timeout": "", "gpu_uninstall_reset_mig": "yes"}, NO_CLUSTER),
    ("uninstall", {"gpu_confirm": "one", "gpu_uninstall_secure_logging": ""}, NO_CLUSTER),
    ("uninstall", {"gpu_confirm": "one", "gpu_secure_logging": ""}, NO_CLUSTER),
    ("uninstall", {"gpu_confirm": "one", "gpu_secure_logging": "perhaps"}, "gpu_secure_logging: \"perhaps\" is a string, not a boolean"),
    ("uninstall", {"gpu_confirm": "one", "gpu_uninstall_secure_logging": "perhaps"}, "gpu_uninstall_secure_logging: \"perhaps\" is a string"),
    ("uninstall", {"gpu_confirm": "one", "gpu_uninstall_wait_timeout": "long"}, "gpu_uninstall_wait_timeout: \"long\" is a string, not a whole number"),
    ("site", {"gpu_nodegroups_pool_names": "trian"}, "gpu_nodegroups_pool_names: trian is not the name of a declared pool with nodes"),
]  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A finished run: its status, its hosts, and its complete output."""

    successful: bool
    hosts: set[str]
    output: str


class _Unsafe(str):
    """Text that is never rendered as a template."""


def run_job(folder: Path, playbook: str, answers: Mapping[str, Any], *, limit: str, arguments: str = "") -> Job:
    """Run a playbook as a job does: the answers in env/extravars, texts marked as unsafe, the limit as an argument.

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
    dumper.add_representer(_Unsafe, lambda item, data: item.represent_scalar("!unsafe", str(data), style="'"))  # type: ignore[attr-defined]
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
    """Whether the output contains the text, regardless of quotes and line breaks."""
    return "".join(text.split()) in "".join(output.replace("\\", "").split())


@pytest.mark.sampled(2)
@pytest.mark.usual(6)
@pytest.mark.parametrize(
    ("playbook", "answers", "message"),
    ANSWERS,
    ids=[f"{name} {json.dumps(options)}" for name, options, _end in ANSWERS],
)
def test_answers_of_a_survey(tmp_path: Path, playbook: str, answers: dict[str, Any], message: str) -> None:
    job = run_job(tmp_path, playbook, answers, limit="one")
    assert job.successful == (message == SUCCESS), job.output[-3000:]
    assert shows(job.output, message), job.output[-3000:]
    assert job.hosts == {"one"}
    for word in ("Traceback", "is undefined", "r, i, a, t, n", "unable to convert"):
        assert word not in job.output


@pytest.mark.sampled(1, group="survey answers")
@pytest.mark.usual(6)
@pytest.mark.parametrize("playbook", ["plan", "delete_nodegroups", "share"])
def test_a_limit_without_clusters_fails(tmp_path: Path, playbook: str) -> None:
    job = run_job(tmp_path, playbook, {}, limit="web")
    assert not job.successful
    assert shows(job.output, "The limit selects web, and none of them matches gpu_clusters")


def _tags(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for entry in entries:
        yield from entry.get("tags", ())
        for part in ("block", "always"):
            yield from _tags(entry.get(part, ()))


_SITE = next(play for play in yaml.safe_load((REPO / "playbooks" / "site.yml").read_text()) if "roles" in play)
TAGS = sorted(_tags([*_SITE["roles"], *_SITE["tasks"]]))


@pytest.mark.sampled(1, group="tags of site")
@pytest.mark.usual(6)
@pytest.mark.parametrize("tag", TAGS)
def test_a_misspelled_variable_fails_with_every_tag(tmp_path: Path, tag: str) -> None:
    """A misspelled restriction would otherwise change all pools."""
    job = run_job(tmp_path, "site", {"gpu_sharing_pool_name": "train"}, limit="one", arguments=f"--tags {tag}")
    assert not job.successful
    assert shows(job.output, "did you mean gpu_sharing_pool_names?")


STARTED_LATE = [
    ("delete_nodegroups", {"gpu_pool": " ", "gpu_confirm": "one"}, NO_POOL),
    ("scale", {"gpu_pool": "", "gpu_node_count": "2"}, NO_POOL),
    ("scale", {"gpu_pool": "train", "gpu_node_count": "two"}, '"two" is a string, not a whole number'),
    ("scale", {"gpu_pool": "train", "gpu_node_count": ""}, "counts.train"),
    ("reset", {"gpu_pool": "notebooks", "gpu_confirm": "one"}, "Select pools with gpu_sharing_pool_names"),
    ("reset", {"gpu_sharing_pool_name": "notebooks", "gpu_confirm": "one"}, "did you mean gpu_sharing_pool_names?"),
    ("share", {"gpu_pool": "notebooks"}, "Select pools with gpu_sharing_pool_names"),
    ("share", {"gpu_sharing_pool_name": "notebooks"}, "did you mean gpu_sharing_pool_names?"),
    ("repair", {"gpu_pools_names": "notebooks"}, "gpu_sharing_pool_names or gpu_vsphere_templates_pool_names?"),
    ("nodegroups", {"gpu_pool": "train"}, "gpu_nodegroups_pool_names (nodegroups)"),
    ("nodegroups", {"gpu_nodegroups_pool_name": "train"}, "did you mean gpu_nodegroups_pool_names?"),
    ("uninstall", {"gpu_uninstall_reset_migs": "false"}, "did you mean gpu_uninstall_reset_mig?"),
]


@pytest.mark.sampled(1)
@pytest.mark.usual(6)
@pytest.mark.parametrize(("playbook", "answers", "message"), STARTED_LATE)
def test_a_run_that_starts_after_the_checks(
    tmp_path: Path, playbook: str, answers: dict[str, Any], message: str
) -> None:
    """With --start-at-task, the checks of the first plays do not run; a missing pool is not every pool, and a missing number is not 0."""
    late = dict.fromkeys(("repair", "reset", "share"), "Configure the nodes of every pool as declared")
    late["uninstall"] = "Clean up nodes, ClusterPolicies and ConfigMaps"
    task = late.get(playbook, "Reconcile the node groups of the pools that have one")
    job = run_job(tmp_path, playbook, answers, limit="one", arguments=f"--start-at-task '{task}'")
    assert not job.successful
    assert shows(job.output, message), job.output[-3000:]
    for text in (NO_CLOUD, NO_CLUSTER, "Traceback"):
        assert not shows(job.output, text)


def test_declared_pools_are_checked_with_the_tag_of_a_later_role(tmp_path: Path) -> None:
    answers = {"replicas": "many"}
    job = run_job(tmp_path, "site", answers, limit="one", arguments="--tags sharing")
    assert not job.successful
    assert shows(job.output, "gpu_pools[0].sharing.replicas")
