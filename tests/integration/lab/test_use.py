# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of a running lab: environment, machines, faults, operators, logs and audit log."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import audit, fleet, operators
from lab.layout import DEFAULT_FLEET
from tests.helpers.polling import BUSY

from .conftest import OwnLab

pytestmark = [pytest.mark.lab, pytest.mark.sampled(8, group="use of the lab")]

OPERATOR_SECONDS = 90.0
_PATCH = "kubectl patch clusterpolicy cluster-policy --type=merge --patch "
T4 = [f"t4-{number + 1}" for number in range(fleet.load(DEFAULT_FLEET).groups[0].count)]


@pytest.fixture(scope="module", autouse=True)
def up(own: OwnLab) -> None:
    own.command("up")


def test_env(own: OwnLab) -> None:
    output = own.shell('kubectl get node t4-1 -o name; helm version --short; echo "$LAB_NAME"; ls "$LAB_CHARTS"')
    assert output.splitlines()[0] == "node/t4-1"
    assert output.splitlines()[1].startswith("v3.")
    name, *charts = output.splitlines()[2:]
    assert name == own.name
    releases = [f"gpu-operator-{release.version}" for release in operators.releases() if release.folder]
    assert sorted(charts) == sorted(["gpu-operator", *releases, "node-feature-discovery"])
    assert "accel.gpu" in own.shell("ansible-galaxy collection list accel.gpu 2>/dev/null")


def test_requests_are_counted_by_agent_and_verb(own: OwnLab) -> None:
    mark = audit.mark(own.lab)
    own.shell("kubectl create namespace counted && kubectl label namespace counted a=b && kubectl get nodes")
    own.shell("kubectl delete namespace counted --wait=false")
    counted = audit.count(own.lab, mark, "kubectl/")
    assert counted["create"] == 1
    assert counted["patch"] == 1
    assert counted["delete"] == 1
    assert counted["list"] == 1
    assert audit.count(own.lab, mark, "unknown-agent/") == Counter()
    writes = [request for request in audit.requests(own.lab, mark, "kubectl/") if request.mutating]
    assert [(request.verb, request.name, request.status) for request in writes] == [
        ("create", "counted", 201),
        ("patch", "counted", 200),
        ("delete", "counted", 200),
    ]


def test_the_control_plane_is_not_in_the_audit_log(own: OwnLab) -> None:
    users = {request.user for request in audit.requests(own.lab)}
    assert not {user for user in users if user.startswith(("lab:", "system:kube-"))}


def test_nodes_apply_and_scale(own: OwnLab, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        """
        groups:
          - {name: a30, count: 2, model: A30, gpus: 4, driver: 570.172.08, os: rhel-9.6,
             labels: {zone: blue}, taints: [{key: dedicated, value: gpu, effect: NoSchedule}]}
          - {name: cpu, count: 1}
        """
    )
    own.command("nodes", "apply", str(fleet), "--wait")
    node = json.loads(own.shell("kubectl get node a30-2 -o json"))
    hardware = json.loads(node["metadata"]["annotations"]["lab.accel.gpu/hardware"])
    profiles = hardware.pop("mig")["profiles"]
    assert [profile["name"] for profile in profiles] == ["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"]
    assert hardware == {
        "product": "NVIDIA A30",
        "gpus": 4,
        "memory_mib": 24576,
        "family": "ampere",
        "pci_class": "0302",
        "compute": "8.0",
        "mig_capable": True,
        "driver": "570.172.08",
        "cuda": "12.8",
        "pci": "20b7",
        "vgpu": None,
        "machine": "unknown",
        "time_factor": 1,
        "passthrough": False,
    }
    assert node["metadata"]["labels"]["zone"] == "blue"
    assert {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["nodeInfo"]["osImage"].startswith("Red Hat Enterprise Linux 9.6")
    own.shell("kubectl label node a30-1 kept=yes")
    assert own.command("nodes", "scale", "cpu", "4").startswith("3 nodes created, 0 replaced, 0 deleted, 3 unchanged")
    assert "kept" in own.shell("kubectl get node a30-1 --show-labels")
    fleet.write_text(fleet.read_text().replace("570.172.08", "580.95.05"))
    output = own.command("nodes", "apply", str(fleet))
    assert output.startswith("0 nodes created, 2 replaced, 3 deleted, 1 unchanged")
    assert "kept" not in own.shell("kubectl get node a30-1 --show-labels")


@pytest.mark.usual(15)
def test_time_of_1000_machines(own: OwnLab, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("groups:\n  - {name: cpu, count: 1000}\n")
    started = time.monotonic()
    own.command("nodes", "apply", str(fleet))
    assert time.monotonic() - started < BUSY * 30
    own.command("reset")


def test_inject_list_and_clear_faults(own: OwnLab) -> None:
    own.command("fault", "inject", "plugin-crash", "--nodes", "t4-1,t4-2")
    own.command("fault", "inject", "operand-pending=nvidia-dcgm", "--selector", "lab.accel.gpu/group=t4")
    own.command("fault", "inject", "operator-broken")
    every = dict.fromkeys(T4, "operand-pending=nvidia-dcgm")
    both = dict.fromkeys(("t4-1", "t4-2"), "operand-pending=nvidia-dcgm,plugin-crash")
    listed = dict(line.split() for line in own.command("fault", "list").splitlines())
    assert listed == every | both | {"(cluster)": "operator-broken"}
    own.command("fault", "clear", "plugin-crash", "--nodes", "t4-1")
    assert "t4-1 operand-pending=nvidia-dcgm" in " ".join(own.command("fault", "list").split())
    own.command("fault", "clear")
    assert own.command("fault", "list") == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("fault", "inject", "plugin-crsh", "--nodes", "t4-1"),
            "unknown fault 'plugin-crsh'; known: plugin-crash",
        ),
        (("fault", "inject", "plugin-crash=x", "--nodes", "t4-1"), "the fault 'plugin-crash' takes no argument"),
        (("fault", "inject", "plugin-crash"), "needs nodes"),
        (("fault", "inject", "plugin-crash", "--nodes", "t5-1"), "node 't5-1' does not exist"),
        (("fault", "inject", "plugin-crash", "--selector", "a=b"), "no node matches the selector 'a=b'"),
        (("nodes", "scale", "t5", "1"), "unknown group 't5'; known: t4, l40s"),
        (("nodes", "reboot", "cpu-1", "t5-1"), "node 't5-1' does not exist"),
        (("nodes", "apply", "nowhere.yaml"), "fleet file nowhere.yaml does not exist"),
        (("logs", "etc"), "has no log of 'etc'; known: etcd"),
        (("build", "kub"), "unknown tool or part 'kub'; known: kube"),
    ],
)
def test_error_messages(own: OwnLab, words: tuple[str, ...], message: str) -> None:
    done = own.execute(*words)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


@pytest.mark.usual(40)
def test_operators_run_while_their_pods_exist(own: OwnLab) -> None:
    own.shell(
        "helm install nfd $LAB_CHARTS/node-feature-discovery -n nfd --create-namespace --wait"
        """ --set-json 'master.config={"extraLabelNs":["nvidia.com"]}'"""
        " && helm install gpu $LAB_CHARTS/gpu-operator -n gpu-operator --create-namespace --wait --set nfd.enabled=false"
    )
    _until(lambda: _programs(own) == {"nfd-master", "gpu-operator"})
    _until(lambda: _ready(own)[0] == "Reconciled")
    assert own.status()["gpus_allocatable"] == fleet.load(DEFAULT_FLEET).gpus
    # The lab itself may have 1.5 GB (test_lifecycle), and these two programs 0.5 GB.
    assert own.status()["rss"] < 2e9
    assert "ClusterPolicy step completed" in own.shell("kubectl logs -n gpu-operator deploy/gpu-operator")
    own.command("fault", "inject", "operator-broken")
    # Only a change of the spec triggers an immediate reconcile.
    own.shell(_PATCH + "'" + '{"spec": {"daemonsets": {"labels": {"touched": "once"}}}}' + "'")
    _until(lambda: _ready(own)[1] == "ReconcileFailed")
    own.command("fault", "clear")
    own.shell(_PATCH + "'" + '{"spec": {"daemonsets": {"labels": {"touched": "twice"}}}}' + "'")
    _until(lambda: _ready(own)[0] == "Reconciled")
    own.shell("helm uninstall gpu -n gpu-operator --wait")
    _until(lambda: _programs(own) == {"nfd-master"})


def test_commands_in_pods_cannot_access_this_machine(own: OwnLab) -> None:
    exec_sh = """
        kubectl apply -f - <<'END'
        {apiVersion: kwok.x-k8s.io/v1alpha1, kind: ClusterExec, metadata: {name: all}, spec: {execs: [{local: {}}]}}
END
        kubectl exec -n nfd deploy/nfd-node-feature-discovery-master -- /bin/sh -c 'echo here' 2>&1 || true
    """
    # Each program in the sandbox is the one that answers the commands of driver containers, and runs nothing.
    _until(
        lambda: own.shell(exec_sh).strip().endswith("the container is not running\ncommand terminated with exit code 1")
    )


def _programs(own: OwnLab) -> set[str]:
    names = {_comm(process) for process in own.processes()}
    return names & {"nfd-master", "gpu-operator"}


def _comm(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def _ready(own: OwnLab) -> tuple[str, str]:
    """Return the reasons of the ClusterPolicy's conditions Ready and Error."""
    template = "{.status.conditions[?(@.type=='Ready')].reason},{.status.conditions[?(@.type=='Error')].reason}"
    ready, _comma, error = own.shell(f'kubectl get clusterpolicy cluster-policy -o jsonpath="{template}"').partition(
        ","
    )
    return ready, error


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BUSY * OPERATOR_SECONDS
    while not done():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.5)
