# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installation and the upgrade through OLM, and the creation of MachineSets, are killed after each changing request: the next run reaches the usual state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lab import audit
from lab.layout import Lab as LabLayout
from lab.machine_api.machine_sets import MACHINE_SETS, NAMESPACE, SET_LABEL
from lab.machine_api.machine_sets import ZONES as ALL_ZONES
from tests.helpers.openshift import GPU_CSV, GPU_NAMESPACE, NFD_CSV, NFD_NAMESPACE, OpenShift
from tests.helpers.playbook import run_playbook
from tests.helpers.playbook_kills import killed_after
from tests.labs import Lab
from tests.programs import REPO

INVENTORY = REPO / "inventories" / "openshift"
SITE = "accel.gpu.site"
LIKE = "prod-worker-us-east-2a"
ZONES = list(ALL_ZONES["AWS"])
MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machines"
# More than an uninterrupted run sends.
REQUESTS = 40
INSTALLATION = ("--tags", "nfd,gpu_operator")

pytestmark = [pytest.mark.soak, pytest.mark.usual(60), pytest.mark.timeout(900)]


def require_converged(openshift: OpenShift, name: str, options: dict[str, Any]) -> None:
    """The next run ends without an error, the one after it has nothing to do, and both operators run."""
    lab = openshift.lab
    continued = run_playbook(name, environ=lab.env, **options).require_success()
    assert openshift.csv(GPU_NAMESPACE, GPU_CSV)["phase"] == "Succeeded"
    assert openshift.csv(NFD_NAMESPACE, NFD_CSV)["phase"] == "Succeeded"
    assert openshift.policy_is_ready()
    assert run_playbook(name, environ=lab.env, **options).require_success().changed("openshift") == 0
    lease = openshift.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu")
    # A run that has nothing to send takes no Lease; that of the killed run expires.
    assert not continued.changed("openshift") or not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize("number", range(1, REQUESTS))
def test_an_installation_is_killed(openshift_lab: Lab, tmp_path: Path, number: int) -> None:
    openshift = OpenShift(openshift_lab).empty()
    options: dict[str, Any] = {"inventory": INVENTORY, "arguments": INSTALLATION}
    if killed_after(openshift_lab, SITE, number, tmp_path, **options) is None:
        pytest.skip("the run had ended")
    require_converged(openshift, SITE, options)


@pytest.mark.parametrize("number", range(1, 12))
def test_an_upgrade_is_killed(openshift_lab: Lab, tmp_path: Path, number: int) -> None:
    openshift = OpenShift(openshift_lab)

    def install_old() -> None:
        old = {
            "name": openshift_lab.name,
            "distribution": "openshift",
            "operator": {"version": "v25.3.2"},
            "cloud": {"machineset": {}},
        }
        run_playbook(
            SITE,
            environ=openshift_lab.env,
            inventory=INVENTORY,
            arguments=INSTALLATION,
            variables={"gpu_cluster": old},
        ).require_success()

    openshift_lab.become("openshift-old", install_old)
    options: dict[str, Any] = {"inventory": INVENTORY, "variables": {"gpu_operator_allow_driver_rollout": True}}
    if killed_after(openshift_lab, "accel.gpu.upgrade", number, tmp_path, **options) is None:
        pytest.skip("the run had ended")
    require_converged(openshift, "accel.gpu.upgrade", options)


class MachineSetPools:
    """Pools whose nodes are those of MachineSets, in a cluster without operators."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.openshift = lab, OpenShift(lab).empty()
        lab.command("cloud", "set", "machines.boot-seconds=20")
        self.before = self.machinesets()
        self.pools: list[dict[str, Any]] = [
            {
                "name": f"killed-{number}",
                "labels": {"team": f"team-{number}"},
                "taints": [{"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}],
                "nodes": {"like": LIKE, "flavor": "g4dn.xlarge", "zones": ZONES, "count": number + 1},
            }
            for number in (1, 2)
        ]

    @property
    def options(self) -> dict[str, Any]:
        cluster = {"name": self.lab.name, "distribution": "openshift", "cloud": {"machineset": {}}}
        return {
            "inventory": INVENTORY,
            "variables": {"gpu_cluster": cluster, "gpu_pools": self.pools},
            "arguments": ("--tags", "nodegroups"),
        }

    def machinesets(self) -> dict[str, Any]:
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in self.openshift.client.list(MACHINE_SETS)}

    def require(self) -> None:
        """The next run ends as an uninterrupted one: a MachineSet for each pool and zone, a Machine and a node for each replica, nothing else."""
        run_playbook(SITE, environ=self.lab.env, **self.options).require_success()
        declared = {"killed-1": (1, 1), "killed-2": (2, 1)}
        expected = {
            f"{name}-{zone}": count
            for name, counts in declared.items()
            for zone, count in zip(ZONES, counts, strict=True)
        }
        assert self.machinesets() == {**self.before, **expected}
        machines = list(self.openshift.client.list(MACHINES))
        assert Counter(machine["metadata"]["labels"][SET_LABEL] for machine in machines) == {**self.before, **expected}
        assert {machine["status"]["phase"] for machine in machines} == {"Running"}
        nodes = {node["metadata"]["name"]: node for node in self.openshift.client.list("/api/v1/nodes")}
        for machine in machines:
            node, owner = nodes[machine["status"]["nodeRef"]["name"]], machine["metadata"]["labels"][SET_LABEL]
            pool = next((pool for pool in self.pools if owner.startswith(pool["name"])), None)
            labels = node["metadata"]["labels"]
            assert labels.get("accel.gpu/pool") == (pool and pool["name"]), owner
            assert labels.get("team") == (pool and pool["labels"]["team"]), owner
            assert not node["spec"].get("unschedulable"), owner
            assert ("restrictedaccess" in [taint["key"] for taint in node["spec"].get("taints", [])]) is bool(pool)
        layout = LabLayout.named(self.lab.name)
        since = audit.mark(layout)
        assert run_playbook(SITE, environ=self.lab.env, **self.options).require_success().changed("openshift") == 0
        assert [request for request in audit.requests(layout, since, "accel.gpu/") if request.mutating] == []


@pytest.mark.parametrize("number", range(1, 24))
def test_a_run_that_creates_machinesets_is_killed(openshift_lab: Lab, tmp_path: Path, number: int) -> None:
    pools = MachineSetPools(openshift_lab)
    if killed_after(openshift_lab, SITE, number, tmp_path, **pools.options) is None:
        pytest.skip("the run had ended")
    pools.require()
