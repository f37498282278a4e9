# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On OpenShift, no playbook changes what it should not: the wrong cluster, missing pools, unusual nodes, MachineSets of others and of lost pools."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.machine_api.machine_sets import MACHINE_SETS
from tests.helpers.openshift import CLUSTER_POLICY, GPU_NAMESPACE, GPU_PACKAGE, Object, OpenShift
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import BUSY, until
from tests.helpers.snapshot import differences, snapshot
from tests.labs import Lab
from tests.programs import REPO

HOST = "openshift"
INVENTORY = REPO / "inventories" / "openshift"
DECLARED: list[Object] = yaml.safe_load((INVENTORY / "group_vars" / "gpu_clusters.yml").read_text())["gpu_pools"]
UNMANAGED = "prod-worker-us-east-2a"
# The lab's own machines, and two that never offer a GPU.
FLEET: Object = yaml.safe_load((REPO / "lab" / "fleets" / "openshift.yaml").read_text())
FLEET["groups"] += [
    {"name": "broken", "count": 1, "model": "T4", "gpus": 1},
    {
        "name": "passthrough",
        "count": 1,
        "model": "T4",
        "gpus": 1,
        "passthrough": True,
        "labels": {"nvidia.com/gpu.workload.config": "vm-passthrough"},
    },
]
# A pool whose node is that of a MachineSet.
MACHINES: Object = {
    "name": "machines",
    "nodes": {"like": UNMANAGED, "flavor": "g5.xlarge", "count": 1},
    "sharing": {"mode": "time-slicing", "replicas": 2},
}
POOLS = [*DECLARED, MACHINES]
BROKEN = "insmod: ERROR: nvidia.ko was built for another kernel"
PASSTHROUGH = "nvidia.com/gpu.workload.config=vm-passthrough"
LIMITS: dict[str, Any] = {"gpu_operator_wait_timeout": 30, "gpu_sharing_wait_timeout": 30}
# Seconds in which a run with these limits ends.
ENDED = 90
SUBSCRIPTION = f"/apis/operators.coreos.com/v1alpha1/namespaces/{GPU_NAMESPACE}/subscriptions/{GPU_PACKAGE}"

pytestmark = [pytest.mark.timeout(1200), pytest.mark.sampled(1, group="runs on OpenShift")]


def play(lab: Lab, name: str = "site", *arguments: str, pools: Any = POOLS, **options: Any) -> PlaybookRun:
    """Run a playbook; `name` of the options is that of the cluster."""
    inventory = options.pop("inventory", INVENTORY)
    cluster = {
        "name": options.pop("cluster", lab.name),
        "distribution": "openshift",
        "operator": {"version": "v25.10.1"},
    }
    variables: dict[str, Any] = {"gpu_cluster": {**cluster, "cloud": {"machineset": {}}}, **options}
    if pools != "unset":
        variables["gpu_pools"] = pools
    return run_playbook(
        f"accel.gpu.{name}", environ=lab.env, inventory=inventory, variables=variables, arguments=arguments
    )


@pytest.fixture(scope="module")
def guarded(openshift_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> OpenShift:
    """The inventory's pools, one with a MachineSet, and unusual nodes, after the playbook site."""
    lab = openshift_lab
    fleet = tmp_path_factory.mktemp("guards") / "fleet.yaml"
    fleet.write_text(yaml.safe_dump(FLEET))

    def make() -> None:
        lab.command("cloud", "set", "machines.boot-seconds=20")
        lab.command("fault", "inject", f"driver-broken={BROKEN}", "--nodes", "broken-1")
        play(lab, gpu_operator_wait_timeout=180).require_success()

    lab.become("openshift-guarded", make, fleet)
    return OpenShift(lab)


@pytest.fixture
def untouched(guarded: OpenShift) -> Iterator[None]:
    """No object of the cluster has changed."""
    before = snapshot(guarded.lab)
    yield
    assert differences(before, snapshot(guarded.lab)) == {}


def machinesets(cluster: OpenShift) -> dict[str, Object]:
    """The specification of each MachineSet by name."""
    return {item["metadata"]["name"]: item["spec"] for item in cluster.client.list(MACHINE_SETS)}


@pytest.mark.usual(150)
@pytest.mark.usefixtures("untouched")
def test_unusual_nodes_are_listed_and_keep_their_state(guarded: OpenShift) -> None:
    began = time.monotonic()
    again = play(guarded.lab, **LIMITS).require_success()
    assert time.monotonic() - began < BUSY * ENDED
    assert again.changed(HOST) == 0
    for text in ("broken-1", BROKEN, "passthrough-1", PASSTHROUGH):
        assert again.shown(text), again.stderr


@pytest.mark.usual(60)
@pytest.mark.usefixtures("untouched")
def test_no_playbook_changes_another_cluster(guarded: OpenShift) -> None:
    pools = [{**POOLS[0], "sharing": {"mode": "none"}}, *POOLS[1:]]
    confirmed: Object = {"gpu_confirm": ["prod"]}
    runs: dict[str, Object] = {
        "site": {},
        "nodegroups": {},
        "share": {},
        "upgrade": {"gpu_operator_allow_driver_rollout": True},
        "delete_nodegroups": {"gpu_pool": "machines", **confirmed},
        "uninstall": confirmed,
    }
    for name, options in runs.items():
        wrong = play(guarded.lab, name, cluster="prod", pools=pools, **options)
        assert wrong.rc != 0, name
        assert wrong.changed(HOST) == 0, name
        assert "This is a different cluster: gpu_cluster.name is 'prod'" in wrong.failure(HOST), name


@pytest.mark.usual(60)
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("pools", ["unset", []])
def test_missing_pools_remove_nothing(guarded: OpenShift, tmp_path: Path, pools: Any) -> None:
    inventory = tmp_path / "inventory"
    shutil.copytree(INVENTORY, inventory)
    written = inventory / "group_vars" / "gpu_clusters.yml"
    written.write_text(written.read_text().replace("\ngpu_pools:", "\ngpu_pool:"))
    for name in ("site", "nodegroups", "share", "upgrade"):
        played = play(guarded.lab, name, pools=pools, inventory=inventory)
        print(name, pools, played.rc, played.stats.get(HOST))
        assert played.changed(HOST) == 0, name
        # Neither an operator nor a MachineSet depends on a pool that exists no longer.
        assert (played.rc == 0) is (pools == [] and name in ("nodegroups", "upgrade")), (name, played.stderr)


@pytest.mark.usual(30)
@pytest.mark.usefixtures("untouched")
def test_the_machineset_of_a_lost_pool_stays(guarded: OpenShift) -> None:
    assert play(guarded.lab, "nodegroups", pools=DECLARED).require_success().changed(HOST) == 0
    # Its node is registered with the pool's label, so that no run releases it, either.
    played = play(guarded.lab, pools=DECLARED).require_success()
    assert played.changed(HOST) == 0
    (node,) = guarded.client.list("/api/v1/nodes", label_selector="accel.gpu/pool=machines", metadata_only=True)
    expected = f"{node['metadata']['name']} have the label accel.gpu/pool=machines, which is not a declared pool"
    assert played.shown(expected), played.stderr


@pytest.mark.usual(20)
@pytest.mark.usefixtures("untouched")
def test_a_machineset_of_others_is_not_taken(guarded: OpenShift) -> None:
    taken = {**MACHINES, "name": UNMANAGED}
    for name in ("site", "nodegroups"):
        refused = play(guarded.lab, name, pools=[*POOLS, taken])
        assert (refused.rc != 0, refused.changed(HOST)) == (True, 0)
        assert "was not created by this collection" in refused.failure(HOST)
    refused = play(guarded.lab, "delete_nodegroups", pools=[taken], gpu_pool=UNMANAGED, gpu_confirm=[guarded.lab.name])
    assert (refused.rc != 0, refused.changed(HOST)) == (True, 0)


@pytest.mark.usual(20)
@pytest.mark.usefixtures("untouched")
def test_zones_that_are_lost_or_added_create_no_second_machineset(guarded: OpenShift) -> None:
    """The name of a MachineSet contains its zone, so another list of zones would create (and bill) other machines."""
    zoned = {**MACHINES, "nodes": {**MACHINES["nodes"], "zones": ["us-east-2a"]}}
    for name in ("site", "nodegroups"):
        refused = play(guarded.lab, name, pools=[*DECLARED, zoned])
        assert (refused.rc != 0, refused.changed(HOST)) == (True, 0)
        problem = "Pool machines: MachineSet machines (1 node(s)) belongs to it, but the pool no longer declares it"
        assert problem in refused.failure(HOST)
        assert "machines-us-east-2a" in refused.failure(HOST)
    planned = play(guarded.lab, "plan", pools=[*DECLARED, zoned])
    print("plan:", planned.rc, planned.stderr)
    assert "MachineSet machines (1 node(s)) belongs to it" in planned.stderr + planned.failure(HOST)


@pytest.mark.usual(80)
def test_a_driver_that_crashes_after_the_installation_is_reported(guarded: OpenShift) -> None:
    lab = guarded.lab
    lab.command("fault", "inject", f"driver-broken={BROKEN}", "--nodes", "t4-1")
    try:
        until(lambda: not _offers_gpus(guarded, "t4-1"))
        began = time.monotonic()
        failed = play(lab, **LIMITS)
        took = time.monotonic() - began
        assert failed.rc != 0
        for text in ("t4-1", "nvidia-driver", BROKEN):
            assert text in failed.failure(HOST), failed.failure(HOST)
        assert took < BUSY * ENDED
    finally:
        lab.command("fault", "clear", "driver-broken", "--nodes", "t4-1")
    until(lambda: _offers_gpus(guarded, "t4-1"))
    play(lab).require_success()


def _offers_gpus(cluster: OpenShift, node: str) -> bool:
    allocatable = cluster.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
    return any(int(count) for key, count in allocatable.items() if key.startswith("nvidia.com/"))


@pytest.mark.usual(60)
def test_an_uninstallation_keeps_machinesets(guarded: OpenShift) -> None:
    before = machinesets(guarded)
    assert "machines" in before
    play(guarded.lab, "uninstall", gpu_confirm=[guarded.lab.name]).require_success()
    assert machinesets(guarded) == before
    assert not guarded.get(CLUSTER_POLICY)
    assert not guarded.get(SUBSCRIPTION)
    node = next(iter(guarded.client.list("/api/v1/nodes", label_selector="accel.gpu/pool=machines")), None)
    print("labels of the node after the uninstallation:", node and node["metadata"]["labels"])
