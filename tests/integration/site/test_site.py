# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook site in the lab: check mode, run, second run, and changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab
from tests.programs import REPO, run

SITE = "accel.gpu.site"
PREFIX = "accel.gpu/"
POOLS: list[dict[str, Any]] = yaml.safe_load((REPO / "inventories/lab/group_vars/gpu_clusters.yml").read_text())[
    "gpu_pools"
]

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class FirstRuns:
    """A check run on an empty cluster and the real run after it."""

    preview: PlaybookRun
    real: PlaybookRun


@pytest.fixture(scope="module")
def first(lab: Lab) -> FirstRuns:
    """An empty cluster after a check run and a real run."""
    lab.reset()
    options: dict[str, Any] = {"environ": lab.env}
    preview = run_playbook(SITE, arguments=["--check", "--diff"], **options).require_success()
    assert get(lab, "namespaces", "-o", "name") == get(lab, "namespaces", "-o", "name")
    real = run_playbook(SITE, arguments=["--diff"], **options).require_success()
    return FirstRuns(preview, real)


def get(lab: Lab, *words: str) -> str:
    """Return what `kubectl get` prints."""
    return run("kubectl", "get", *words, env=lab.env)


def nodes(lab: Lab) -> dict[str, Mapping[str, Any]]:
    """Return every node by its name."""
    return {node["metadata"]["name"]: node for node in json.loads(get(lab, "nodes", "-o", "json"))["items"]}


def members(lab: Lab, pool: str) -> list[Mapping[str, Any]]:
    """Return the nodes with the label of a pool."""
    actual = [n for n in nodes(lab).values() if n["metadata"]["labels"].get("accel.gpu/pool") == pool]
    assert actual
    return actual


def touched_fields(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a node that a change of sharing could alter, thus without its heartbeat."""
    return {
        "labels": {k: v for k, v in node["metadata"]["labels"].items() if "timestamp" not in k},
        "taints": node["spec"].get("taints"),
        "unschedulable": node["spec"].get("unschedulable"),
        "allocatable": node["status"]["allocatable"],
    }


def outline(played: PlaybookRun) -> Iterator[tuple[str, bool, Any]]:
    """Each task of the collection and of helm that ran: its name, whether it changed, and the end of its diff."""
    for name, result in played.results():
        if result.get("action", "").startswith(("accel.gpu.", "kubernetes.core.")) and not result.get("skipped"):
            yield name, bool(result.get("changed")), result.get("diff")


@pytest.mark.usual(80)
def test_check_mode_changes_nothing_and_predicts_the_changes(first: FirstRuns) -> None:
    preview = {name: changed for name, changed, _diff in outline(first.preview)}
    real = {name: changed for name, changed, _diff in outline(first.real)}
    assert preview == {name: real[name] for name in preview}
    assert first.preview.changed() > 3


def test_undiscovered_hardware_is_not_guessed_in_the_preview(first: FirstRuns) -> None:
    (profile,) = first.preview.module_results("accel.gpu.gpu_sharing")
    assert profile["changed"]
    assert profile["gpu_sharing"]["after_discovery"]


def test_every_pool_is_verified_by_workloads(first: FirstRuns) -> None:
    (validation,) = first.real.module_results("accel.gpu.gpu_validation")
    statuses = validation["gpu_validation"]["pools"]
    assert set(statuses) == {pool["name"] for pool in POOLS}


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: str(pool["name"]))
def test_every_node_has_the_resources_of_its_pool(first: FirstRuns, lab: Lab, pool: dict[str, Any]) -> None:
    sharing = pool.get("sharing", {"mode": "none"})
    shares = sharing.get("replicas", 1)
    resource = "nvidia.com/gpu.shared" if sharing.get("rename") else "nvidia.com/gpu"
    for node in members(lab, pool["name"]):
        labels = node["metadata"]["labels"]
        assert int(node["status"]["allocatable"][resource]) == int(labels["nvidia.com/gpu.count"]) * shares
        assert labels["nvidia.com/gpu.replicas"] == str(shares)
        assert labels["nvidia.com/gpu.sharing-strategy"] == sharing["mode"]
        for key, value in pool.get("labels", {}).items():
            assert labels[key] == value
        for taint in pool.get("taints", []):
            assert taint in node["spec"]["taints"]


@pytest.mark.usual(25)
def test_a_second_run_sends_no_write_request(first: FirstRuns, lab: Lab) -> None:
    layout = LabLayout.named(lab.name)
    since = audit.mark(layout)
    again = run_playbook(SITE, environ=lab.env).require_success()
    assert again.changed() == 0
    requests = list(audit.requests(layout, since, PREFIX))
    assert [r for r in requests if r.mutating] == []
    # Each module reads the Lease once, for the recorded name of the cluster, and does not acquire it.
    modules = {r.agent.partition(" ")[2] for r in requests}
    looks = [r.agent.partition(" ")[2] for r in requests if r.resource == "leases" and r.name == "accel-gpu"]
    assert {r.verb for r in requests if r.resource == "leases" and r.name == "accel-gpu"} == {"get"}
    assert set(looks) == modules
    assert [r for r in audit.requests(layout, since, "Helm/") if r.mutating] == []
    assert len(requests) > 5


@pytest.mark.sampled(1, group="whole runs")
def test_changed_pools_are_previewed_and_changed(first: FirstRuns, lab: Lab) -> None:
    pools = [dict(pool) for pool in POOLS]
    pools[0]["sharing"] = {"mode": "time-slicing", "replicas": 8}
    pools[2]["taints"] = [{"key": "reserved", "value": "a100", "effect": "NoSchedule"}]
    options: dict[str, Any] = {"environ": lab.env, "variables": {"gpu_pools": pools}}
    preview = run_playbook(SITE, arguments=["--check", "--diff"], **options).require_success()
    real = run_playbook(SITE, arguments=["--diff"], **options).require_success()
    assert real.changed() > 0
    foreseen = list(outline(preview))
    happened = {name: (changed, diff) for name, changed, diff in outline(real)}
    for name, changed, diff in foreseen:
        assert (name, changed, diff) == (name, *happened[name])
    run_playbook(SITE, environ=lab.env).require_success()


@pytest.mark.sampled(1, group="whole runs")
@pytest.mark.usual(60)
def test_sharing_goes_from_four_to_eight_to_none_and_no_other_node_changes(first: FirstRuns, lab: Lab) -> None:
    for sharing, shares in (
        ({"mode": "time-slicing", "replicas": 4}, 4),
        ({"mode": "time-slicing", "replicas": 8}, 8),
        ({"mode": "none"}, 1),
        ({"mode": "time-slicing", "replicas": 4}, 4),
    ):
        before = {name: touched_fields(node) for name, node in nodes(lab).items()}
        pools = [{**POOLS[0], "sharing": sharing}, *POOLS[1:]]
        options: dict[str, Any] = {"environ": lab.env, "variables": {"gpu_pools": pools}}
        run_playbook(SITE, arguments=["--tags", "sharing"], **options).require_success()
        for node in members(lab, "notebooks"):
            labels = node["metadata"]["labels"]
            assert int(node["status"]["allocatable"]["nvidia.com/gpu"]) == shares
            assert labels["nvidia.com/gpu.replicas"] == str(shares)
            assert labels["nvidia.com/gpu.product"] == "Tesla-T4" + ("-SHARED" if shares > 1 else "")
        for name, node in nodes(lab).items():
            if node["metadata"]["labels"].get("accel.gpu/pool") != "notebooks":
                assert touched_fields(node) == before[name]
