# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a lab: up, two side by side, killed, reset, down. The tests build on each other, in this order."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from lab import fleet, ports, processes
from lab.layout import DEFAULT_FLEET
from lab.lifecycle import say
from tests.programs import REPO

from .conftest import OwnLab

pytestmark = pytest.mark.lab

# What is promised for two cores that have nothing else to do; the lab takes about 6 s of each.
UP_SECONDS, RESET_SECONDS = 15.0, 10.0
MOST_MEMORY = 1.5e9
NODES = {group.name: group.count for group in fleet.load(DEFAULT_FLEET).groups}


@pytest.fixture(scope="module", autouse=True)
def built(own: OwnLab, request: pytest.FixtureRequest) -> None:
    """Everything that takes minutes is done before anything is timed."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        say("tests: seeing to it that the lab is built")
    own.do("build")


@pytest.mark.alone
@pytest.mark.usual(10)
def test_up_is_quick_and_small(own: OwnLab) -> None:
    started, slower = time.monotonic(), _slower()
    said = own.do("up")
    assert time.monotonic() - started < UP_SECONDS * slower
    assert said.startswith(f'eval "$(lab/lab --name {own.name} env)"')
    status = own.status()
    assert status["up"]
    assert [service["name"] for service in status["services"] if service["restarts"]] == []
    assert (status["nodes"], status["nodes_ready"], status["groups"]) == (
        sum(NODES.values()),
        sum(NODES.values()),
        NODES,
    )
    assert status["rss"] < MOST_MEMORY


def test_the_transcript_in_the_readme_matches(own: OwnLab) -> None:
    shown = (REPO / "README.md").read_text().partition("$ lab/lab status\n")[2].partition("$ ")[0]
    assert _shape(own.do("status").replace(own.name, "lab")) == _shape(shown)


def test_it_listens_on_loopback_only(own: OwnLab) -> None:
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
    assert "is already up" in own.try_to("up").stderr
    assert own.processes() == before


@pytest.mark.sampled(2, of="lives of a lab")
@pytest.mark.usual(30)
def test_a_second_lab_beside_it(own: OwnLab, other: OwnLab) -> None:
    own.shell("kubectl create namespace mine")
    other.do("up")
    assert own.status()["server"] != other.status()["server"]
    assert "mine" not in other.shell("kubectl get namespaces")
    assert other.shell("kubectl config current-context").strip() == other.name
    other.do("down")
    assert not other.processes()
    assert own.status()["up"]


def test_a_port_in_use_is_one_clear_line(other: OwnLab) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        busy = holder.getsockname()[1]
        done = other.try_to("up", "--port-base", str(busy))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"lab: port {busy} (kube-apiserver) is in use by process {os.getpid()} ({_name()}):"
        " stop it, or choose other ports with --port-base"
    ]


def test_missing_bubblewrap_is_one_clear_line(other: OwnLab, tmp_path: Path) -> None:
    for program in ("sh", "readlink", "dirname"):
        (tmp_path / program).symlink_to(_which(program))
    done = other.try_to("up", PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "lab: bubblewrap (bwrap) is missing: install it, for example with 'apt install bubblewrap'"
    ]


@pytest.mark.sampled(2, of="lives of a lab")
@pytest.mark.usual(10)
def test_a_killed_lab_comes_up_with_its_cluster(own: OwnLab) -> None:
    for process in own.processes():
        # One that a service had started for a moment may be gone already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    assert not own.status()["up"]
    own.do("up")
    assert own.status()["up"]
    assert "mine" in own.shell("kubectl get namespaces")


@pytest.mark.sampled(2, of="lives of a lab")
@pytest.mark.usual(10)
def test_a_lab_whose_supervisor_was_killed_comes_up(own: OwnLab) -> None:
    names = {process: Path(f"/proc/{process}/comm").read_text().strip() for process in own.processes()}
    supervisor = next(process for process, name in names.items() if name == "process-compose")
    os.kill(supervisor, signal.SIGKILL)
    assert own.processes(), "the services go on without it"
    done = own.try_to("up")
    assert done.returncode == 0, done.stderr
    assert "processes left over from a killed lab" in done.stderr
    assert own.status()["up"]


@pytest.mark.sampled(2, of="lives of a lab")
@pytest.mark.usual(20)
def test_a_saved_cluster_comes_back_as_often_as_it_is_asked_for(own: OwnLab) -> None:
    own.do("nodes", "scale", "cpu", "3", "--wait")
    own.do("save", "before")
    for dummy in range(2):
        own.shell("kubectl delete namespace mine --wait=false && kubectl create namespace later")
        own.do("nodes", "scale", "cpu", "1")
        own.do("reset", "--to", "before")
        assert own.status()["groups"] == NODES | {"cpu": 3}
        namespaces = own.shell("kubectl get namespaces")
        assert "mine" in namespaces
        assert "later" not in namespaces
    unknown = own.try_to("reset", "--to", "after")
    assert unknown.returncode
    assert "saved: before" in unknown.stderr


@pytest.mark.alone
@pytest.mark.usual(10)
def test_reset_gives_a_clean_cluster(own: OwnLab) -> None:
    before = own.status()["server"]
    own.do("nodes", "scale", "cpu", "30")
    own.do("fault", "inject", "operator-broken")
    started, slower = time.monotonic(), _slower()
    own.do("reset")
    assert time.monotonic() - started < RESET_SECONDS * slower
    status = own.status()
    assert (status["up"], status["groups"], status["faults"]) == (True, NODES, {})
    assert status["server"] == before
    assert "mine" not in own.shell("kubectl get namespaces")


def test_down_leaves_nothing(own: OwnLab) -> None:
    own.shell("kubectl get nodes && helm list --all-namespaces")
    served = list(own.lab.ports().values())
    own.do("down")
    assert not own.processes()
    assert not [port for port in served if ports.is_listening(port)]
    left = [path for path in own.home.rglob("*") if not path.is_dir()]
    assert left == [], "files outside the lab's folder and the cache"
    own.do("down", "--delete")
    assert not own.lab.dir.exists()


def test_nothing_is_killed_that_is_not_the_labs(own: OwnLab) -> None:
    assert processes.kill(own.lab) == 0


def _shape(said: str) -> list[str]:
    """Lines without what differs from run to run: numbers of ports, memory and processes."""
    return [re.sub(r"\d+", "N", " ".join(line.split())) for line in said.splitlines()]


def _slower() -> float:
    """How much longer things may take because others use this machine too: its load for each processor."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _link(handle: Path) -> str:
    try:
        return os.readlink(handle)
    except OSError:
        return ""


def _name() -> str:
    return Path("/proc/self/comm").read_text().strip()


def _which(program: str) -> Path:
    return next(path for folder in ("/usr/bin", "/bin") if (path := Path(folder) / program).exists())
