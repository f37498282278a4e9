# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters of two clouds in one run: node groups are created, scaled by others, changed manually, and deleted again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit, cloud_requests, rbac
from lab.layout import Lab as LabLayout
from tests.helpers.openstack import Cloud
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.helpers.vks import Client
from tests.helpers.workloads import WAYS, Users
from tests.labs import Lab, own_lab
from tests.programs import REPO, run

pytestmark = pytest.mark.timeout(2400)

INVENTORIES = {"magnum": REPO / "inventories" / "lab-magnum", "vks": REPO / "inventories" / "lab-vks"}
# An agent, an operator and kwok need their time one after another.
_SECONDS = 240
POOL, NODEGROUP = "accel.gpu/pool", "magnum.openstack.org/nodegroup"
# The resources of the pools of the two inventories with their minimum number of nodes.
OFFERED = {
    "magnum": {"notebooks": {"nvidia.com/gpu": 4}, "train": {"nvidia.com/gpu": 4}},
    "vks": {"inference": {"nvidia.com/gpu.shared": 2}, "train": {"nvidia.com/gpu": 4}},
}


@dataclass(frozen=True)
class Clouds:
    """A lab with each cloud; their clusters are the two hosts of one run."""

    labs: dict[str, Lab]

    def play(self, name: str, *arguments: str, host: str = "", **options: Any) -> PlaybookRun:
        """Run a playbook on both hosts, or on one of them; it gets the kubeconfigs from the clouds."""
        environ = {**self.labs["magnum"].env, **self.labs["vks"].env}
        environ.pop("KUBECONFIG")
        environ |= {f"{cloud.upper()}_CLUSTER": lab.name for cloud, lab in self.labs.items()}
        first, *others = [INVENTORIES[host]] if host else INVENTORIES.values()
        more = [word for path in others for word in ("-i", str(path))]
        played = run_playbook(
            name, environ=environ, inventory=first, arguments=[*more, *arguments], timeout=1800, **options
        )
        return played.require_success()

    def groups(self) -> dict[str, list[str]]:
        """The node groups of both clusters, from the clouds' own lists."""
        magnum, vks = self.labs["magnum"], self.labs["vks"]
        listed = Cloud(LabLayout.named(magnum.name)).get(f"/clusters/{magnum.name}/nodegroups")
        assert listed is not None
        account = Client(vks.env["VKS_URL"], vks.env["GRN_CLIENT_ID"], vks.env["GRN_CLIENT_SECRET"])
        assert account.login().status == 200
        (cluster,) = [item for item in account.vks("GET", "/clusters").body["items"] if item["name"] == vks.name]
        items = account.vks("GET", f"/clusters/{cluster['id']}/node-groups?pageSize=50").body["items"]
        return {
            "magnum": sorted(f"{group['name']} {group['node_count']}" for group in listed["nodegroups"]),
            "vks": sorted(f"{group['name']} {group['numNodes']}" for group in items),
        }

    def nodes(self, cloud: str, pool: str) -> list[dict[str, Any]]:
        """The nodes of a pool."""
        listed = run("kubectl", "get", "nodes", "-l", f"{POOL}={pool}", "-o", "json", env=self.labs[cloud].env)
        actual: list[dict[str, Any]] = json.loads(listed)["items"]
        return actual

    def offered(self, cloud: str, pool: str) -> dict[str, int]:
        """The resources of all nodes of a pool."""
        actual: dict[str, int] = {}
        for node in self.nodes(cloud, pool):
            for resource, count in node["status"]["allocatable"].items():
                if resource.startswith("nvidia.com/") and int(count):
                    actual[resource] = actual.get(resource, 0) + int(count)
        return actual


@pytest.fixture(scope="module")
def clouds() -> Iterator[Clouds]:
    with own_lab("magnum", "openstack") as magnum, own_lab("vks", "vks") as vks:
        yield Clouds({"magnum": magnum, "vks": vks})


@pytest.fixture(scope="module")
def before(clouds: Clouds) -> dict[str, list[str]]:
    """The node groups before the first run."""
    return clouds.groups()


@pytest.fixture(scope="module")
def created(clouds: Clouds, before: dict[str, list[str]]) -> Clouds:
    """Both clusters with the pools of their inventories."""
    assert not [group for groups in before.values() for group in groups if "default" not in group]
    preview = clouds.play("accel.gpu.site", "--check", "--diff")
    assert preview.shown("the preview ends with the node groups")
    assert clouds.groups() == before
    clouds.play("accel.gpu.site")
    return clouds


@pytest.mark.soak
@pytest.mark.usual(300)
def test_both_clusters_converge_and_a_second_run_changes_nothing(created: Clouds) -> None:
    assert {
        cloud: {pool: created.offered(cloud, pool) for pool in pools} for cloud, pools in OFFERED.items()
    } == OFFERED
    layouts = {cloud: LabLayout.named(lab.name) for cloud, lab in created.labs.items()}
    marks = {cloud: (cloud_requests.mark(item), audit.mark(item)) for cloud, item in layouts.items()}
    again = created.play("accel.gpu.site")
    for cloud, layout in layouts.items():
        sent, audited = marks[cloud]
        assert again.changed(cloud) == 0
        assert cloud_requests.writes(layout, sent) == []
        assert not [request for request in audit.requests(layout, audited, "accel.gpu/") if request.mutating]
        assert cloud_requests.count(layout, sent)
    plan = created.play("accel.gpu.plan")
    for cloud in created.labs:
        assert plan.changed(cloud) == 0
    assert plan.shown("nodes of train: node group train of g4.p2.40g, 1 node; as declared")


@pytest.mark.soak
@pytest.mark.usual(50)
def test_nodes_are_added_and_removed_with_the_shipped_rights(clouds: Clouds) -> None:
    """Including nodes with pods, which have GPUs by claims."""
    lab = clouds.labs["magnum"]
    layout = LabLayout.named(lab.name)
    since = audit.mark(layout)

    def play(playbook: str, count: int, *arguments: str) -> PlaybookRun:
        environ = lab.env_as(playbook)
        # An existing kubeconfig: none is fetched from the cloud, since that one has all permissions.
        cluster = {"name": lab.name, "kubeconfig": environ["KUBECONFIG"], "cloud": {"magnum": {"cloud": "lab"}}}
        created = {"name": "rights", "labels": {"team": "rights"}, "nodes": {"flavor": "g2.5xlarge", "count": count}}
        variables = {
            "gpu_cluster": cluster,
            "gpu_defaults": {},
            "gpu_pools": [created],
            "gpu_confirm": lab.name,
            **({"gpu_pool": "rights"} if playbook == "delete_nodegroups" else {}),
        }
        name = f"accel.gpu.{playbook}"
        return run_playbook(name, environ=environ, variables=variables, arguments=arguments).require_success()

    play("nodegroups", 2)
    users = Users(lab).create_namespace()
    for number, node in enumerate(clouds.nodes("magnum", "rights")):
        users.claimable(node["metadata"]["name"])
        users.deployment(f"claiming-{number}", node["metadata"]["name"], way=WAYS["claim"])
    users.wait_running(2)
    with users.watched() as watch:
        assert play("nodegroups", 1, "--check", "--diff").changed() == 1
        assert play("nodegroups", 1).changed() == 1
        assert play("delete_nodegroups", 1).changed() == 1
    assert (len(watch.gone), watch.not_evicted()) == (2, [])
    users.delete_all()
    sent = list(audit.requests(layout, since, "accel.gpu/"))
    both = {f"{rbac.USER_PREFIX}{playbook}" for playbook in ("nodegroups", "delete_nodegroups")}
    assert {request.user for request in sent} == both
    assert {request.user for request in sent if request.uri.partition("?")[0].endswith("/eviction")} == both
    assert [(request.verb, request.uri) for request in sent if request.status == 403] == []


@pytest.mark.soak
@pytest.mark.usual(120)
def test_nodes_that_an_autoscaler_adds_end_as_declared(created: Clouds) -> None:
    """Without any run, thanks to the registration labels. If the cloud does not support these, the playbook new_nodes sets the labels."""
    magnum = created.labs["magnum"]
    cloud = Cloud(LabLayout.named(magnum.name))
    cloud.resize(magnum.name, "notebooks", 2)
    until(lambda: created.offered("magnum", "notebooks") == {"nvidia.com/gpu": 8}, _SECONDS)
    magnum.command("cloud", "set", "magnum.node-labels=ignored")
    try:
        cloud.resize(magnum.name, "notebooks", 3)
        listed = ["get", "nodes", "-l", f"{NODEGROUP}=notebooks,!{POOL}", "-o", "name"]
        until(lambda: bool(run("kubectl", *listed, env=magnum.env).strip()), _SECONDS)
        created.play("accel.gpu.new_nodes", host="magnum")
    finally:
        magnum.command("cloud", "set", "magnum.node-labels=applied")
    assert created.offered("magnum", "notebooks") == {"nvidia.com/gpu": 12}
    assert {node["metadata"]["labels"]["team"] for node in created.nodes("magnum", "notebooks")} == {"teaching"}
    # The autoscaler determines the number of nodes.
    assert created.play("accel.gpu.nodegroups", host="magnum").changed("magnum") == 0
    assert len(created.nodes("magnum", "notebooks")) == 3


@pytest.mark.soak
@pytest.mark.usual(120)
def test_manual_changes_are_reported_and_declared_fields_are_restored(created: Clouds) -> None:
    magnum = created.labs["magnum"]
    cloud = Cloud(LabLayout.named(magnum.name), version="1.14")
    cloud.resize(magnum.name, "train", 2)
    path = f"/clusters/{magnum.name}/nodegroups/train"
    foreign = {"op": "replace", "path": "/max_node_count", "value": 7}
    assert cloud.send("PATCH", path, [foreign]).status_code in (200, 202)
    cloud.settled(magnum.name, "train")
    plan = created.play("accel.gpu.plan", host="magnum")
    assert plan.shown("node group train of g4.p2.40g, 1 node; will be updated: node_count 2 -> 1")
    assert plan.changed("magnum") == 0
    assert created.play("accel.gpu.nodegroups", host="magnum").changed("magnum") == 1
    group = cloud.settled(magnum.name, "train")
    assert (group["node_count"], group["max_node_count"]) == (1, 7)
    until(lambda: len(created.nodes("magnum", "train")) == 1, _SECONDS)


@pytest.mark.soak
@pytest.mark.usual(120)
def test_scale_up_and_down(created: Clouds) -> None:
    scaled = created.play("accel.gpu.scale", "-e", "gpu_pool=train", "-e", "gpu_node_count=2", host="vks")
    assert scaled.changed("vks") >= 1
    assert created.offered("vks", "train") == {"nvidia.com/gpu": 8}
    assert created.play("accel.gpu.nodegroups", host="vks").changed("vks") == 1
    until(lambda: created.offered("vks", "train") == {"nvidia.com/gpu": 4}, _SECONDS)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("playbook", "inputs", "message"),
    [
        ("scale", [], "gpu_pool is not set: select a pool with -e gpu_pool=NAME."),
        (
            "scale",
            ["gpu_pool=train"],
            "gpu_node_count is not a whole number: set the number of nodes with -e gpu_node_count=N",
        ),
        (
            "scale",
            ["gpu_pool=train", "gpu_node_count=two"],
            "gpu_node_count is not a whole number: set the number of nodes with -e gpu_node_count=N",
        ),
        (
            "scale",
            ["gpu_pool=tarin", "gpu_node_count=2"],
            "tarin is not a declared pool; declared pools: notebooks, train",
        ),
        ("scale", ["gpu_pool=notebooks", "gpu_node_count=2"], "its autoscaler chooses the number of nodes"),
        ("delete_nodegroups", [], "gpu_pool is not set: select a pool with -e gpu_pool=NAME."),
        (
            "delete_nodegroups",
            ["gpu_pool=tarin"],
            "tarin is not the name of a declared pool with nodes. Pools with nodes: notebooks, train",
        ),
    ],
)
def test_an_operation_without_required_inputs(clouds: Clouds, playbook: str, inputs: list[str], message: str) -> None:
    lab = clouds.labs["magnum"]
    mark = cloud_requests.mark(LabLayout.named(lab.name))
    arguments = [word for pair in inputs for word in ("-e", pair)]
    played = run_playbook(
        f"accel.gpu.{playbook}", environ=lab.env, inventory=INVENTORIES["magnum"], arguments=arguments
    )
    assert played.rc != 0
    assert message in played.stdout
    assert not list(cloud_requests.requests(LabLayout.named(lab.name), mark))


@pytest.mark.soak
@pytest.mark.parametrize("inputs", [["gpu_pool=train"], ["gpu_pool=all", "gpu_confirm=other"]])
def test_a_deletion_without_a_confirmation(created: Clouds, inputs: list[str]) -> None:
    lab = created.labs["magnum"]
    mark = cloud_requests.mark(LabLayout.named(lab.name))
    arguments = [word for pair in inputs for word in ("-e", pair)]
    played = run_playbook(
        "accel.gpu.delete_nodegroups", environ=lab.env, inventory=INVENTORIES["magnum"], arguments=arguments
    )
    assert played.rc != 0
    assert f"To confirm, add -e gpu_confirm={lab.name}" in played.failure("magnum")
    sent = cloud_requests.requests(LabLayout.named(lab.name), mark)
    assert not [request for request in sent if request.method in ("PATCH", "PUT", "DELETE")]


@pytest.mark.soak
@pytest.mark.usual(30)
def test_a_plan_without_the_cloud(created: Clouds, tmp_path: Path) -> None:
    """The address in clouds.yaml has no server."""
    lab = created.labs["magnum"]
    document = yaml.safe_load(Path(lab.env["OS_CLIENT_CONFIG_FILE"]).read_text())
    document["clouds"]["lab"]["auth"]["auth_url"] = "http://127.0.0.1:9/v3"
    (tmp_path / "clouds.yaml").write_text(yaml.safe_dump(document))
    environ = {**lab.env, "OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml")}
    played = run_playbook("accel.gpu.plan", environ=environ, inventory=INVENTORIES["magnum"]).require_success()
    assert played.shown("cloud: not reached, so the state of the node groups is unknown:")
    failed = run_playbook("accel.gpu.nodegroups", environ=environ, inventory=INVENTORIES["magnum"])
    assert failed.rc != 0
    assert "Traceback" not in failed.stdout + failed.stderr


@pytest.mark.soak
@pytest.mark.usual(120)
def test_after_the_deletion_the_project_is_as_before(created: Clouds, before: dict[str, list[str]]) -> None:
    confirmed = ("-e", "gpu_pool=all", "-e", f"gpu_confirm={','.join(lab.name for lab in created.labs.values())}")
    created.play("accel.gpu.delete_nodegroups", *confirmed)
    assert created.groups() == before
    assert created.play("accel.gpu.delete_nodegroups", *confirmed).changed("magnum") == 0
