# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin: clusters of a real Magnum and of the fake VKS become hosts on which playbooks run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import cloud_requests
from lab.layout import Lab as LabLayout
from tests.helpers.openstack import Cloud
from tests.helpers.playbook import run_playbook
from tests.labs import Lab, own_lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

AGENT = "accel.gpu/"
EVERYWHERE: list[dict[str, Any]] = [{"magnum": {"cloud": "lab"}}, {"vks": {}}]


@pytest.fixture(scope="module")
def fleet_lab() -> Iterator[Lab]:
    """A lab with both clouds; each has a cluster with the lab's name, Magnum's with a group of T4."""
    with own_lab("fleet", "openstack", "vks") as lab:
        cloud = Cloud(LabLayout.named(lab.name))
        cluster = cloud.get(f"/clusters/{lab.name}")
        assert cluster is not None
        cloud.create(cluster["uuid"], "gpu-t4", "g2.5xlarge", 2, role="gpu")
        cloud.settled(cluster["uuid"], "gpu-t4")
        yield lab


@pytest.fixture
def fleet(fleet_lab: Lab, tmp_path: Path) -> Fleet:
    return Fleet(fleet_lab, tmp_path)


class Fleet:
    """A folder with an inventory of the plugin."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.file = folder / "fleet.clusters.yml"

    def written(self, clouds: list[dict[str, Any]] | None = None, **options: Any) -> Fleet:
        document = {"plugin": "accel.gpu.clusters", "clouds": clouds or EVERYWHERE, **options}
        self.file.write_text(yaml.safe_dump(document))
        return self

    def shown(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ansible-inventory", "-i", str(self.file), *words]
        return subprocess.run(command, env=self.lab.env, capture_output=True, text=True, check=False)

    def listed(self) -> dict[str, Any]:
        done = self.shown("--list")
        assert done.returncode == 0, done.stderr
        actual: dict[str, Any] = plain(json.loads(done.stdout))
        return actual

    def failed(self) -> str:
        """The message of a failed run of the inventory."""
        done = self.shown("--list")
        assert "_meta" not in done.stdout or not json.loads(done.stdout)["_meta"]["hostvars"]
        return " ".join(done.stderr.split())


def plain(value: Any) -> Any:
    """Without the trust tag of values from outside, which some versions of Ansible show."""
    if isinstance(value, dict):
        return (
            value["__ansible_unsafe"] if "__ansible_unsafe" in value else {k: plain(item) for k, item in value.items()}
        )
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.usual(20)
def test_clusters_of_both_clouds_are_hosts_in_groups(fleet: Fleet) -> None:
    name = fleet.lab.name
    actual = fleet.written().listed()
    of_magnum, of_vks = f"{name}-RegionOne", f"{name}-HCM-3"
    groups = {group: item["hosts"] for group, item in actual.items() if group != "_meta" and "hosts" in item}
    assert groups == {
        "gpu_clusters": [of_vks, of_magnum],
        "magnum": [of_magnum],
        "vks": [of_vks],
        "cloud_lab": [of_magnum],
        "cloud_vks": [of_vks],
        "region_RegionOne": [of_magnum],
        "region_HCM_3": [of_vks],
        "model_T4": [of_magnum],
    }
    one, other = (actual["_meta"]["hostvars"][host] for host in (of_magnum, of_vks))
    assert one["gpu_cluster"]["cloud"] == {"magnum": {"cloud": "lab", "region_name": "RegionOne", "cluster": name}}
    assert other["gpu_cluster"]["cloud"] == {"vks": {"cluster": name, "region": "HCM-3"}}
    assert (one["gpu_discovered"]["gpus"], one["gpu_discovered"]["models"]) == (2, ["T4"])
    assert {group["name"]: group["gpus"] for group in one["gpu_discovered"]["node_groups"]} == {
        "default-master": 0,
        "default-worker": 0,
        "gpu-t4": 1,
    }
    assert f"|--{of_magnum}" in fleet.shown("--graph", "model_T4").stdout


@pytest.mark.usual(6)
def test_a_second_inventory_run_writes_nothing_and_sends_two_requests_per_cluster(fleet: Fleet) -> None:
    fleet.written().listed()
    layout = LabLayout.named(fleet.lab.name)
    since = cloud_requests.mark(layout)
    first = fleet.listed()
    assert cloud_requests.writes(layout, since, AGENT) == []
    requests = cloud_requests.count(layout, since, AGENT)
    assert {name: requests[name] for name in ("keystone POST", "magnum GET", "nova GET")} == {
        "keystone POST": 1,
        "magnum GET": 3,
        "nova GET": 1,
    }
    cache: dict[str, Any] = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(fleet.folder / "cache")}
    fleet.written(**cache).listed()
    since = cloud_requests.mark(layout)
    assert fleet.listed()["_meta"]["hostvars"].keys() == first["_meta"]["hostvars"].keys()
    assert cloud_requests.count(layout, since, AGENT) == {}


@pytest.mark.usual(8)
def test_a_plan_runs_on_discovered_hosts(fleet: Fleet) -> None:
    fleet.written()
    variables = fleet.folder / "group_vars"
    variables.mkdir()
    (variables / "gpu_clusters.yml").write_text(
        "gpu_pools: [{name: t4, match: {model: T4}, sharing: {mode: time-slicing, replicas: 4}}]\n"
    )
    # Only the kubeconfigs in this folder lead to the cluster.
    environ = {key: value for key, value in fleet.lab.env.items() if key not in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")}
    planned = run_playbook("accel.gpu.plan", inventory=fleet.file, environ=environ).require_success()
    for host in (f"{fleet.lab.name}-RegionOne", f"{fleet.lab.name}-HCM-3"):
        (info,) = planned.module_results("accel.gpu.gpu_info", host)
        assert info["gpu_info"]["reachable"]


@pytest.mark.usual(6)
def test_a_user_with_read_access_gets_hosts_and_a_warning_about_kubeconfigs(fleet: Fleet) -> None:
    clouds: list[dict[str, Any]] = [{"magnum": {"cloud": "lab-reader"}}]
    message = fleet.written(clouds).failed()
    assert (
        f"cloud lab-reader: kubeconfig of {fleet.lab.name} (not fetched if write_kubeconfigs is false): Magnum denies"
        in message
    )
    assert "Traceback" not in message
    actual = fleet.written(clouds, write_kubeconfigs=False).listed()
    assert list(actual["_meta"]["hostvars"]) == [fleet.lab.name]
    assert not (fleet.folder / "kubeconfigs").exists()


@pytest.mark.usual(4)
@pytest.mark.parametrize(
    ("clouds", "words"),
    [
        ([{"magnum": {"cloud": "nowhere"}}], "cloud nowhere: "),
        ([{"vks": {"client_secret_env": "NOT_SET"}}], "cloud vks, region HCM-3: client_secret: missing"),
        ([{"vks": {"vks_url": "http://127.0.0.1:9"}}], "cloud vks, region HCM-3: "),
        ([{"vks": {"region": "HAN", "vks_url": "http://example.org"}}], "cloud vks, region HAN: vks_url: "),
    ],
)
def test_an_unreachable_cloud_is_named(fleet: Fleet, clouds: list[dict[str, Any]], words: str) -> None:
    message = fleet.written(clouds).failed()
    assert words in message
    assert "Traceback" not in message
