# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Licenses of vGPU nodes: commands in driver pods, the license state, its faults, and the look-ups of the part nls."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab.api import Api
from tests.helpers.license_tokens import DAY, DLS_HOST, make_token
from tests.helpers.nls import NlsClient
from tests.helpers.polling import until

from .conftest import OwnLab, temporary_lab

pytestmark = [pytest.mark.lab, pytest.mark.sampled(8, group="licenses in the lab"), pytest.mark.usual(120)]

NAMESPACE, SECRET = "gpu-operator", "licensing-config"
SECRET_PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
CONFIG = "/etc/nvidia/gridd.conf"
TOKEN = "/etc/nvidia/ClientConfigToken/client_configuration_token.tok"
START = ("env", "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/nvidia/gridd", "nvidia-gridd")
PID = "/var/run/nvidia-gridd/nvidia-gridd.pid"
PRODUCT = "NVIDIA Virtual Compute Server"
# Full performance without a license lasts 20 minutes, multiplied by this.
TIME_SCALE = 0.01
FLEET = """
groups:
  - {name: vgpu, count: 3, model: A100-80GB-PCIe, gpus: 1, cpus: 8, vgpu: {profile: A100D-10C}}
  - {name: t4, count: 1, model: T4, gpus: 1, cpus: 8}
"""
VALUES = (
    "driver.version=580.95.05,driver.repository=nvcr.io/nvidia,driver.upgradePolicy.autoUpgrade=false,"
    f"driver.licensingConfig.secretName={SECRET},driver.licensingConfig.nlsEnabled=true"
)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Site:
    """A lab with the GPU operator, whose driver pods have a token."""

    lab: OwnLab
    api: Api
    token: str

    def set_secret(self, **files: str) -> None:
        """Replace the content of the Secret; `gridd_conf` and `token` are short for its keys."""
        names = {"gridd_conf": "gridd.conf", "token": "client_configuration_token.tok"}
        content = {names.get(name, name): text for name, text in files.items()}
        if self.api.get(SECRET_PATH):
            self.api.request("DELETE", SECRET_PATH)
        body = {"metadata": {"name": SECRET}, "stringData": content}
        self.api.request("POST", SECRET_PATH.rpartition("/")[0], body)

    def pod(self, node: str) -> dict[str, Any]:
        """The driver pod of a node that is not being deleted, or an empty object."""
        query = {"labelSelector": "app=nvidia-driver-daemonset", "fieldSelector": f"spec.nodeName={node}"}
        return next((pod for pod in self.api.list(PODS, **query) if "deletionTimestamp" not in pod["metadata"]), {})

    def license(self, node: str) -> dict[str, Any]:
        annotations = (self.api.get(f"/api/v1/nodes/{node}") or {})["metadata"]["annotations"]
        actual: dict[str, Any] = json.loads(annotations.get("lab.accel.gpu/license", "{}"))
        return actual

    def exec_call(self, node: str, *command: str) -> list[str]:
        pod = self.pod(node)["metadata"]["name"]
        kubectl = str(self.lab.lab.bin / "kubectl")
        config = f"--kubeconfig={self.lab.lab.kubeconfig}"
        return [kubectl, config, "exec", "-i", "-n", NAMESPACE, pod, "-c", "nvidia-driver-ctr", "--", *command]

    def run(self, node: str, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in the driver pod of a node."""
        call = self.exec_call(node, *command)
        return subprocess.run(call, input=stdin, env=self.lab.environment, capture_output=True, text=True, check=False)

    def output(self, node: str, *command: str, stdin: str = "") -> str:
        done = self.run(node, *command, stdin=stdin)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def replace_file(self, node: str, path: str, content: str) -> None:
        self.output(node, "cp", "/dev/stdin", f"{path}.new", stdin=content)
        self.output(node, "mv", f"{path}.new", path)

    def restart_daemon(self, node: str) -> None:
        self.output(node, "kill", "-TERM", self.output(node, "cat", PID).strip())
        until(lambda: self.run(node, "cat", PID).returncode == 1, 10)
        self.output(node, *START)

    def rotate(self, node: str, token: str) -> None:
        """Replace the token of a node and start the daemon again."""
        self.replace_file(node, TOKEN, token)
        self.restart_daemon(node)

    def await_status(self, node: str, status: str, token: str | None = None) -> dict[str, Any]:
        def found() -> dict[str, Any]:
            state = self.license(node)
            matches = state.get("status") == status and (token is None or state.get("token_sha256") == digest(token))
            return state if matches else {}

        state: dict[str, Any] = until(found, 20)
        return state

    def await_start(self) -> None:
        """Wait until every driver pod runs, and every vGPU has its license."""
        for node in ("vgpu-1", "vgpu-2", "vgpu-3"):
            self.await_status(node, "Licensed")
        until(lambda: self.pod("t4-1").get("status", {}).get("phase") == "Running")

    def renew(self, node: str) -> None:
        """Replace the driver pod of a node, which mounts the Secret."""
        old = self.pod(node)["metadata"]
        self.api.request("DELETE", f"{PODS}/{old['name']}")
        until(lambda: self.pod(node).get("metadata", {}).get("uid", old["uid"]) != old["uid"], 20)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("home")
    for own in temporary_lab("own-licensing", folder):
        (folder / "fleet.yaml").write_text(FLEET)
        own.command(
            "up", "--part", "nls", "--fleet", str(folder / "fleet.yaml"), f"--sim-option=--time-scale={TIME_SCALE}"
        )
        actual = Site(own, Api(own.lab), make_token())
        own.shell(f"kubectl create namespace {NAMESPACE}")
        actual.set_secret(gridd_conf="", token=actual.token)
        own.shell(f"helm install gpu $LAB_CHARTS/gpu-operator -n {NAMESPACE} --wait --set {VALUES}")
        actual.await_start()
        yield actual


@pytest.fixture(autouse=True)
def licensed(site: Site) -> Iterator[None]:
    """The first node, with the token of the Secret, before each test."""
    yield
    site.lab.command("fault", "clear")
    site.rotate("vgpu-1", site.token)
    site.await_status("vgpu-1", "Licensed", site.token)


def test_state_after_the_start_of_the_driver(site: Site) -> None:
    state = site.license("vgpu-1")
    assert {key: state[key] for key in ("status", "product", "server", "token_sha256")} == {
        "status": "Licensed",
        "product": PRODUCT,
        "server": DLS_HOST,
        "token_sha256": digest(site.token),
    }
    shown = site.output("vgpu-1", "nvidia-smi", "-q")
    section = shown.partition("vGPU Software Licensed Product\n")[2].splitlines()[:2]
    assert section[0].endswith(f": {PRODUCT}")
    assert ": Licensed (Expiry: " in section[1]
    assert section[1].endswith(" GMT)")
    bare = site.output("t4-1", "nvidia-smi", "-q")
    assert bare.count(": N/A\n") == 3
    assert "Licensed (" not in bare
    assert site.license("t4-1") == {}


def test_commands_that_read(site: Site) -> None:
    sums = site.output("vgpu-1", "sha256sum", CONFIG, TOKEN)
    assert sums.splitlines() == [f"{digest('')}  {CONFIG}", f"{digest(site.token)}  {TOKEN}"]
    missing = site.run("t4-1", "sha256sum", CONFIG)
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"sha256sum: {CONFIG}: No such file or directory\n")
    assert abs(int(site.output("vgpu-1", "date", "-u", "+%s")) - time.time()) < 60
    assert site.output("vgpu-1", "cat", PID).strip().isdecimal()


@pytest.mark.parametrize(
    "command",
    ["sh -c true", "/bin/ls", "cat /etc/passwd", "nvidia-smi", "kill -9 1", "cp /etc/passwd x", "mv a b", "date"],
)
def test_unknown_commands(site: Site, command: str) -> None:
    done = site.run("vgpu-1", *command.split())
    assert done.returncode == 127
    assert done.stderr.startswith(f"{command}: command not found in this lab\n")
    assert done.stdout == ""


def test_a_driver_without_vgpu_has_no_daemon(site: Site) -> None:
    assert site.run("t4-1", *START).returncode == 127


def test_a_new_token_is_active_after_a_restart_of_the_daemon(site: Site) -> None:
    before, since = site.pod("vgpu-1"), site.license("vgpu-1")
    token = make_token(hosts=["other.example.com"])
    site.replace_file("vgpu-1", TOKEN, token)
    assert site.output("vgpu-1", "sha256sum", TOKEN).split()[0] == digest(token)
    assert site.license("vgpu-1") == since
    pid = site.output("vgpu-1", "cat", PID).strip()
    site.output("vgpu-1", "kill", "-TERM", pid)
    assert "License Status                    : Unlicensed (Unrestricted)" in site.output("vgpu-1", "nvidia-smi", "-q")
    until(lambda: site.license("vgpu-1").get("reason") == "nvidia-gridd is not running", 20)
    site.output("vgpu-1", *START)
    state = site.await_status("vgpu-1", "Licensed", token)
    assert state["server"] == "other.example.com"
    assert site.output("vgpu-1", "cat", PID).strip() != pid
    assert site.run("vgpu-1", "kill", "-TERM", pid).returncode == 1
    assert site.run("vgpu-1", *START).returncode == 1
    after = site.pod("vgpu-1")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [one["restartCount"] for one in after["status"]["containerStatuses"]] == [0]
    # The Secret is mounted by a subPath: only a new start of the container reads it.
    assert site.license("vgpu-2")["token_sha256"] == digest(site.token)


def test_a_killed_daemon_leaves_its_pid_file(site: Site) -> None:
    pid = site.output("vgpu-1", "cat", PID).strip()
    assert site.output("vgpu-1", "cat", f"/proc/{pid}/comm") == "nvidia-gridd\n"
    site.output("vgpu-1", "kill", "-KILL", pid)
    assert site.output("vgpu-1", "cat", PID).strip() == pid
    assert site.output("vgpu-1", "cat", f"/proc/{pid}/comm") == "sleep\n"
    site.output("vgpu-1", *START)
    site.await_status("vgpu-1", "Licensed", site.token)
    assert site.output("vgpu-1", "cat", PID).strip() != pid


def test_a_killed_copy_leaves_the_file(site: Site) -> None:
    call = site.exec_call("vgpu-1", "cp", "/dev/stdin", f"{TOKEN}.new")
    with subprocess.Popen(call, stdin=subprocess.PIPE, env=site.lab.environment) as copy:
        assert copy.stdin is not None
        copy.stdin.write(b"half")
        copy.stdin.flush()
        until(lambda: digest("half") in site.run("vgpu-1", "sha256sum", f"{TOKEN}.new").stdout, 20)
        copy.kill()
    assert site.output("vgpu-1", "sha256sum", TOKEN).split()[0] == digest(site.token)
    site.rotate("vgpu-1", make_token())
    site.await_status("vgpu-1", "Licensed")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("license-unreachable", f"the license server {DLS_HOST}:443 cannot be reached: connection timed out"),
        ("license-denied", f"the license server {DLS_HOST}:443 has no license left for {PRODUCT}"),
        ("license-clock-skew=7200", "the allowed time to process response has expired: the clocks"),
        ("license-clock-skew=-7200", "clock windback has been detected: the clocks"),
    ],
)
def test_faults(site: Site, fault: str, reason: str) -> None:
    site.lab.command("fault", "inject", fault, "--nodes", "vgpu-1")
    if "skew" in fault:
        seconds = int(fault.partition("=")[2])
        until(lambda: abs(int(site.output("vgpu-1", "date", "-u", "+%s")) - time.time() - seconds) < 60, 20)
    # The lease remains until the daemon needs a new one.
    assert site.license("vgpu-1")["status"] == "Licensed"
    site.restart_daemon("vgpu-1")
    state = site.await_status("vgpu-1", "Unlicensed (Unrestricted)")
    until(lambda: site.license("vgpu-1").get("reason", "").startswith(reason), 20)
    assert site.license("vgpu-2")["status"] == "Licensed"
    site.lab.command("fault", "clear", fault.partition("=")[0])
    assert site.await_status("vgpu-1", "Licensed")["since"] >= state["since"]


@pytest.mark.parametrize(
    ("config", "token", "reason"),
    [
        ("FeatureType=2\n", make_token(), "FeatureType=2 in gridd.conf does not fit the series C of the vGPU"),
        ("FeatureType=0\n", make_token(), "FeatureType=0 in gridd.conf requests no license"),
        ("", make_token(expires=-DAY, not_before=-2 * DAY), "the client configuration token expired at "),
        ("", make_token(not_before=DAY), "the client configuration token is not valid before "),
        ("", make_token(without=["service_instance_configuration"]), "the client configuration token names no"),
        ("", make_token()[:500], "the client configuration token is not a signed JSON Web Token"),
    ],
)
def test_files_that_give_no_license(site: Site, config: str, token: str, reason: str) -> None:
    site.replace_file("vgpu-1", CONFIG, config)
    site.rotate("vgpu-1", token)
    until(lambda: site.license("vgpu-1").get("reason", "").startswith(reason), 20)
    assert site.license("vgpu-1")["status"].startswith("Unlicensed")
    site.replace_file("vgpu-1", CONFIG, "FeatureType=4\n")


def test_a_token_expires_while_the_daemon_runs(site: Site) -> None:
    token = make_token(expires=8)
    site.rotate("vgpu-1", token)
    site.await_status("vgpu-1", "Licensed", token)
    until(lambda: "the client configuration token expired" in site.license("vgpu-1").get("reason", ""), 20)
    state = site.await_status("vgpu-1", "Unlicensed (Restricted)")
    assert "expiry" not in state
    assert "Unlicensed (Restricted)" in site.output("vgpu-1", "nvidia-smi", "-q")


def test_a_fast_clock_ends_a_license(site: Site) -> None:
    token = make_token(expires=3600)
    site.rotate("vgpu-1", token)
    site.await_status("vgpu-1", "Licensed", token)
    site.lab.command("fault", "inject", "license-clock-skew=7200", "--nodes", "vgpu-1")
    until(lambda: "the client configuration token expired" in site.license("vgpu-1").get("reason", ""), 20)


def test_a_reboot_reads_the_secret(site: Site) -> None:
    site.rotate("vgpu-1", make_token())
    site.await_status("vgpu-1", "Licensed")
    site.lab.command("nodes", "reboot", "vgpu-1")
    site.await_status("vgpu-1", "Licensed", site.token)


def test_the_volume_of_the_driver_pod(site: Site) -> None:
    def set_license(**values: Any) -> None:
        site.api.merge(POLICY, {"spec": {"driver": {"licensingConfig": values}}})
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/nvidia-driver-daemonset"

        def mounts_token() -> bool:
            container = (site.api.get(path) or {})["spec"]["template"]["spec"]["containers"][0]
            return any(mount["mountPath"].endswith(".tok") for mount in container["volumeMounts"])

        until(lambda: mounts_token() == values["nlsEnabled"], 30)

    set_license(nlsEnabled=False)
    site.renew("vgpu-2")
    state = site.await_status("vgpu-2", "Unlicensed (Unrestricted)")
    assert state["reason"] == "there is no client configuration token in /etc/nvidia/ClientConfigToken"
    set_license(nlsEnabled=True)
    site.set_secret(gridd_conf="", wrong=site.token)
    site.renew("vgpu-2")
    message = 'MountVolume.SetUp failed for volume "licensing-config" : references non-existent secret key: client_'
    events = f"/api/v1/namespaces/{NAMESPACE}/events"
    until(lambda: any(event.get("message", "").startswith(message) for event in site.api.list(events)), 20)
    pod = site.pod("vgpu-2")
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    assert site.license("vgpu-2") == {}
    assert site.run("vgpu-2", "nvidia-smi", "-q").returncode != 0
    site.set_secret(gridd_conf="", token=site.token)
    site.await_status("vgpu-2", "Licensed", site.token)


@pytest.fixture
def nls(site: Site) -> NlsClient:
    output = site.lab.shell("env | grep ^LAB_NLS")
    return NlsClient(dict(line.split("=", 1) for line in output.splitlines()))


def test_leases_and_pools(site: Site, nls: NlsClient) -> None:
    assert nls.leases() == ["NVIDIA-vComputeServer"] * 3
    _status, groups = nls.get(nls.org)
    assert [group["id"] for group in groups["virtualGroups"]] == [1]
    _status, servers = nls.get(f"{nls.org}/1/license-servers")
    server = servers["licenseServers"][0]
    _status, pools = nls.get(f"{nls.org}/1/license-servers/{server['id']}/license-pools")
    features = {one["id"]: one["productName"] for one in server["licenseServerFeatures"]}
    used = pools["licensePools"][0]["licensePoolFeatures"]
    assert {features[one["licenseServerFeatureId"]]: one["inUse"] for one in used}[PRODUCT] == 3
    assert {one["totalAllotment"] for one in used} == {100}
    instance = server["serviceInstanceId"]
    assert nls.get(f"{nls.org}/1/leases", **{"x-nv-service-instance-id": instance})[0] == 200
    site.lab.command("cloud", "set", "nls.licenses=5")
    _status, pools = nls.get(f"{nls.org}/1/license-servers/{server['id']}/license-pools")
    assert {one["totalAllotment"] for one in pools["licensePools"][0]["licensePoolFeatures"]} == {5}


def test_other_requests_are_refused(site: Site, nls: NlsClient) -> None:
    assert nls.get(nls.org, **{"X-API-KEY": "wrong"})[0] == 401
    for path in ("/", "/v1/org/other/virtual-groups", f"{nls.org}/2/leases", "/auth/v1/token", f"/admin{nls.org}"):
        assert nls.get(path) == (404, {"message": "unknown"})
    # A client that only opens a connection, as a preflight does, delays no other.
    host, port = nls.env["LAB_NLS"].rpartition("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=5):
        assert nls.leases()


def test_a_stopped_daemon_returns_its_lease_and_a_deleted_machine_does_not(site: Site, nls: NlsClient) -> None:
    site.output("vgpu-1", "kill", "-TERM", site.output("vgpu-1", "cat", PID).strip())
    until(lambda: len(nls.leases()) == 2, 20)
    until(lambda: site.run("vgpu-1", "cat", PID).returncode == 1, 10)
    site.output("vgpu-1", *START)
    until(lambda: len(nls.leases()) == 3, 20)
    site.lab.command("nodes", "scale", "vgpu", "2")
    assert len(nls.leases()) == 3
