# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Special inventories: without clusters, without pools, with two clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.playbook import run_playbook
from tests.labs import Lab, own_lab
from tests.programs import REPO, environment, run

SITE = "accel.gpu.site"
VARIABLES = REPO / "inventories/lab/group_vars/gpu_clusters.yml"


def inventory(folder: Path, document: dict[str, Any]) -> Path:
    """Write an inventory beside the lab's group variables and return its folder."""
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "gpu_clusters.yml").write_text(VARIABLES.read_text())
    (folder / "hosts.yml").write_text(yaml.safe_dump(document))
    return folder


@pytest.mark.parametrize("playbook", [SITE, "accel.gpu.plan"])
def test_an_inventory_without_the_group_fails_with_the_remedy(tmp_path: Path, playbook: str) -> None:
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"somewhere": None}}}))
    played = run_playbook(playbook, environ=environment(), inventory=tmp_path)
    assert played.rc != 0
    message = played.failure("localhost")
    assert "no host that matches gpu_clusters" in message
    assert "-e gpu_hosts=PATTERN" in message


@pytest.mark.sampled(1, group="views of a site")
@pytest.mark.usual(20)
def test_an_empty_pool_list_does_nothing(lab: Lab) -> None:
    lab.reset()
    mark = audit.mark(LabLayout.named(lab.name))
    played = run_playbook(SITE, environ=lab.env, variables={"gpu_pools": []}).require_success()
    assert played.changed() == 0
    assert not [r for r in audit.requests(LabLayout.named(lab.name), mark, "accel.gpu/") if r.mutating]
    assert "No pools are declared" in played.stderr


@pytest.fixture
def second_lab() -> Iterator[Lab]:
    """A second lab beside the one of the tests."""
    with own_lab("second") as lab:
        yield lab


# Ten mistakes in different parts of the schema, and the start and end of each message.
TEN: dict[str, Any] = {
    "gpu_cluster": {
        "name": "lab",
        "operator": {"version": "25.10", "driver": {"version": "580.105.08-rhcos4.18"}},
        "nfd": {"chart": "node-feature-discovery"},
    },
    "gpu_defaults": {"sharing": {"layout": {"1g.5gb": 7}}},
    "gpu_pools": [
        {"name": "Note Books", "match": {"model": "A100"}},
        {"name": "cut", "match": {"model": "A100-SXM4-40GB"}, "sharing": {"mode": "mig", "layout": {"3g.20gb": 3}}},
        {"name": "mps", "match": {"model": "T4"}, "sharing": {"mode": "mps", "replicas": 64}},
        {"name": "mps", "match": {"model": "H200"}, "taints": [{"key": "a", "effect": "NoShedule"}]},
    ],
}
MESSAGES = {
    "gpu_cluster.operator.version": "use a full version, such as v25.10.1",
    "gpu_cluster.operator.driver.version": "write 580.105.08",
    "gpu_cluster.nfd.chart_repo": "set its repository",
    "gpu_defaults.sharing.layout": "set the layout in each pool",
    "gpu_pools[0].name": "for example note-books",
    "gpu_pools[0].match.model": "did you mean A100-SXM4-40GB",
    "gpu_pools[1].sharing.layout": "has room for 2 x 3g.20gb, not for 3",
    "gpu_pools[2].sharing.replicas": "use at most 48",
    "gpu_pools[3].taints[0].effect": "did you mean NoSchedule?",
    "gpu_pools[3].name": "use a unique name for each pool",
}


@pytest.mark.usual(10)
@pytest.mark.parametrize("playbook", [SITE, "accel.gpu.plan"])
def test_all_mistakes_are_reported_without_any_request(lab: Lab, playbook: str) -> None:
    layout = LabLayout.named(lab.name)
    mark = audit.mark(layout)
    played = run_playbook(playbook, environ=lab.env, variables=TEN)
    assert played.rc != 0
    (failed,) = [result for _name, result in played.results() if result.get("failed")]
    reported = {message.partition(": ")[0]: message for message in failed["msg"]}
    assert set(reported) == set(MESSAGES)
    assert len(failed["msg"]) == len(MESSAGES)
    assert [path for path, remedy in MESSAGES.items() if remedy not in reported[path]] == []
    assert "Traceback" not in played.stdout + played.stderr
    assert list(audit.requests(layout, mark, "accel.gpu/")) == []
    assert list(audit.requests(layout, mark, "Helm/")) == []


# The second cluster's pools for the same nodes: other modes, another taint, and one pool less.
OTHER_POOLS: list[dict[str, Any]] = [
    {"name": "notebooks", "match": {"model": "T4"}, "sharing": {"mode": "mps", "replicas": 3, "rename": True}},
    {
        "name": "inference",
        "match": {"model": "L40S"},
        "taints": [{"key": "second", "effect": "NoSchedule"}],
        "sharing": {"mode": "none"},
    },
    {"name": "cut", "match": {"model": "A100-SXM4-80GB"}, "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}}},
]
OFFERED = {
    "first": {
        "notebooks": {"nvidia.com/gpu": 28},
        "inference": {"nvidia.com/gpu.shared": 20},
        "train-a100": {"nvidia.com/gpu": 32},
    },
    "second": {
        "notebooks": {"nvidia.com/gpu.shared": 21},
        "inference": {"nvidia.com/gpu": 10},
        "cut": {"nvidia.com/gpu": 64},
    },
}


def offered(lab: Lab, pool: str) -> dict[str, int]:
    """The resources of all nodes of a pool."""
    nodes = json.loads(run("kubectl", "get", "nodes", "-l", f"accel.gpu/pool={pool}", "-o", "json", env=lab.env))[
        "items"
    ]
    actual: dict[str, int] = {}
    for node in nodes:
        for resource, count in node["status"]["allocatable"].items():
            if resource.startswith("nvidia.com/") and int(count):
                actual[resource] = actual.get(resource, 0) + int(count)
    return actual


@pytest.mark.usual(80)
@pytest.mark.sampled(1, group="whole runs")
@pytest.mark.timeout(1800)
def test_two_clusters_with_different_pools_in_one_run(lab: Lab, second_lab: Lab, tmp_path: Path) -> None:
    labs = {lab.name: lab, second_lab.name: second_lab}
    lab.reset()
    hosts: dict[str, dict[str, Any]] = {name: {"gpu_kubeconfig": str(each.kubeconfig)} for name, each in labs.items()}
    hosts[second_lab.name] |= {"gpu_pools": OTHER_POOLS, "gpu_defaults": {"labels": {"cluster": "second"}}}
    folder = inventory(tmp_path, {"gpu_clusters": {"hosts": hosts}})
    variables = yaml.safe_load(VARIABLES.read_text())
    variables["gpu_cluster"] |= {"name": "{{ inventory_hostname }}", "kubeconfig": "{{ gpu_kubeconfig }}"}
    (folder / "group_vars" / "gpu_clusters.yml").write_text(yaml.safe_dump(variables))
    environ = {k: v for k, v in lab.env.items() if k not in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")}
    run_playbook(SITE, environ=environ, inventory=folder, timeout=1200).require_success()
    again = run_playbook(SITE, environ=environ, inventory=folder, timeout=1200).require_success()
    for desired, (name, each) in zip(OFFERED.values(), labs.items(), strict=True):
        assert again.changed(name) == 0
        assert {pool: offered(each, pool) for pool in desired} == desired
        # None of the other cluster's pools, labels and taints are here.
        nodes = json.loads(run("kubectl", "get", "nodes", "-o", "json", env=each.env))["items"]
        pools = {node["metadata"]["labels"].get("accel.gpu/pool") for node in nodes} - {None}
        labels = {node["metadata"]["labels"].get("cluster") for node in nodes} - {None}
        taints = {taint["key"] for node in nodes for taint in node["spec"].get("taints", [])} - {"nvidia.com/gpu"}
        if each is second_lab:
            assert (pools, labels, taints) == ({pool["name"] for pool in OTHER_POOLS}, {"second"}, {"second"})
        else:
            assert (pools, labels, taints) == (
                {pool["name"] for pool in variables["gpu_pools"]},
                set(),
                {"restricted-access"},
            )
