# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifecycle of a lab: up, two labs, killed, reset, down. The tests depend on each other, in this order."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from lab import fleet, ports, processes
from lab.layout import DEFAULT_FLEET
from lab.lifecycle import say
from tests.helpers.polling import busy_factor

from .conftest import OwnLab

pytestmark = pytest.mark.lab

# Limits for two idle cores; the lab needs about 6 s of each.
UP_SECONDS, RESET_SECONDS = 15.0, 10.0
MAX_MEMORY = 1.5e9
NODES = {group.name: group.count for group in fleet.load(DEFAULT_FLEET).groups}


@pytest.fixture(scope="module", autouse=True)
def built(own: OwnLab, request: pytest.FixtureRequest) -> None:
    """Build all programs before time is measured."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        say("tests: building the lab if necessary")
    own.command("build")


@pytest.mark.alone
@pytest.mark.usual(10)
def test_time_and_memory_of_up(own: OwnLab) -> None:
    started, factor = time.monotonic(), busy_factor()
    output = own.command("up")
    assert time.monotonic() - started < UP_SECONDS * factor
    assert output.startswith(f'eval "$(lab/lab --name {own.name} env)"')
    status = own.status()
    assert status["up"]
    restarted = [service["name"] for service in status["services"] if service["restarts"]]
    assert restarted == [], "\n".join(own.command("logs", name) for name in restarted)
    assert (status["nodes"], status["nodes_ready"], status["groups"]) == (
        sum(NODES.values()),
        sum(NODES.values()),
        NODES,
    )
    assert status["rss"] < MAX_MEMORY


def test_all_ports_are_on_loopback(own: OwnLab) -> None:
    inodes = set()
    for process in own.processes():
        for handle in Path(f"/proc/{process}/fd").iterdir():
            if (target := _link(handle)).startswith("socket:["):
                inodes.add(target[8:-1])
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append(fields[1].partition(":")[0])
    assert len(listening) >= len([service for service in own.status()["services"] if service["port"]])
    assert set(listening) == {"0100007F"}


def test_up_again_changes_nothing(own: OwnLab) -> None:
    before = own.processes()
    assert "is already up" in own.execute("up").stderr
    assert own.processes() == before


@pytest.mark.sampled(1, group="lifecycles of a lab")
@pytest.mark.usual(30)
def test_second_lab(own: OwnLab, other: OwnLab) -> None:
    _create_namespace(own)
    other.command("up")
    assert own.status()["server"] != other.status()["server"]
    assert "mine" not in other.shell("kubectl get namespaces")
    assert other.shell("kubectl config current-context").strip() == other.name
    other.command("down")
    assert not other.processes()
    assert own.status()["up"]


def test_message_for_a_port_in_use(other: OwnLab) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        busy = holder.getsockname()[1]
        done = other.execute("up", "--port-base", str(busy))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"lab: port {busy} (kube-apiserver) is in use by process {os.getpid()} ({_name()}):"
        " stop it, or choose other ports with --port-base"
    ]


def test_message_for_missing_bubblewrap(other: OwnLab, tmp_path: Path) -> None:
    for program in ("sh", "readlink", "dirname"):
        (tmp_path / program).symlink_to(_which(program))
    done = other.execute("up", PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "lab: bubblewrap (bwrap) is missing: install it, for example with 'apt install bubblewrap'"
    ]


@pytest.mark.sampled(1, group="lifecycles of a lab")
@pytest.mark.usual(10)
def test_killed_lab_starts_with_its_cluster(own: OwnLab) -> None:
    _create_namespace(own)
    for process in own.processes():
        # A short-lived child process may have ended.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    assert not own.status()["up"]
    own.command("up")
    assert own.status()["up"]
    assert "mine" in own.shell("kubectl get namespaces")


@pytest.mark.sampled(1, group="lifecycles of a lab")
@pytest.mark.usual(10)
def test_lab_with_killed_supervisor_starts(own: OwnLab) -> None:
    own.command("up")
    names = {process: Path(f"/proc/{process}/comm").read_text().strip() for process in own.processes()}
    supervisor = next(process for process, name in names.items() if name == "process-compose")
    os.kill(supervisor, signal.SIGKILL)
    assert own.processes(), "the services still run"
    done = own.execute("up")
    assert done.returncode == 0, done.stderr
    assert "processes left over from a killed lab" in done.stderr
    assert own.status()["up"]


@pytest.mark.sampled(1, group="lifecycles of a lab")
@pytest.mark.usual(20)
def test_saved_cluster_can_be_restored_several_times(own: OwnLab) -> None:
    _create_namespace(own)
    own.command("nodes", "scale", "cpu", "3", "--wait")
    own.command("save", "before")
    for dummy in range(2):
        own.shell("kubectl delete namespace mine --wait=false && kubectl create namespace later")
        own.command("nodes", "scale", "cpu", "1")
        own.command("reset", "--to", "before")
        assert own.status()["groups"] == NODES | {"cpu": 3}
        namespaces = own.shell("kubectl get namespaces")
        assert "mine" in namespaces
        assert "later" not in namespaces
    unknown = own.execute("reset", "--to", "after")
    assert unknown.returncode
    assert "saved: before" in unknown.stderr


@pytest.mark.alone
@pytest.mark.usual(10)
def test_reset_creates_a_clean_cluster(own: OwnLab) -> None:
    before = own.status()["server"]
    own.command("nodes", "scale", "cpu", "30")
    own.command("fault", "inject", "operator-broken")
    started, factor = time.monotonic(), busy_factor()
    own.command("reset")
    assert time.monotonic() - started < RESET_SECONDS * factor
    status = own.status()
    assert (status["up"], status["groups"], status["faults"]) == (True, NODES, {})
    assert status["server"] == before
    assert "mine" not in own.shell("kubectl get namespaces")


def test_down_leaves_no_processes_and_files(own: OwnLab) -> None:
    own.shell("kubectl get nodes && helm list --all-namespaces")
    used_ports = list(own.lab.ports().values())
    own.command("down")
    assert not own.processes()
    assert not [port for port in used_ports if ports.is_listening(port)]
    remaining = [path for path in own.home.rglob("*") if not path.is_dir()]
    assert remaining == [], "files outside the lab's folder and the cache"
    own.command("down", "--delete")
    assert not own.lab.dir.exists()


def test_kill_without_processes(own: OwnLab) -> None:
    assert processes.kill(own.lab) == 0


def _create_namespace(own: OwnLab) -> None:
    """Start the lab, and create the namespace `mine`, unless an earlier test has: `make test` runs only a sample of the tests."""
    own.command("up")
    own.shell("kubectl get namespace mine || kubectl create namespace mine")


def _link(handle: Path) -> str:
    try:
        return os.readlink(handle)
    except OSError:
        return ""


def _name() -> str:
    return Path("/proc/self/comm").read_text().strip()


def _which(program: str) -> Path:
    return next(path for folder in ("/usr/bin", "/bin") if (path := Path(folder) / program).exists())
