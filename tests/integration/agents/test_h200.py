# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's agents v0.19.0 said on a real H200 (driver 580.159.04, CUDA 13.0), said again by simulator and agents.

Measured on an H200, driver 580.159.04: every label, resource and refusal in this file.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.agents import AgentCase, AgentOutput, AgentSandbox, run_nvidia, run_simulator
from lab.nvml_files import uuid
from plugins.module_utils.catalog import models
from tests.integration.agents import cases as made
from tests.integration.agents.configs import GPU, entry, sharing

LABELS = {
    **{f"cuda.driver-version.{k}": v for k, v in (("full", "580.159.04"), ("major", "580"), ("minor", "159"))},
    "cuda.driver-version.revision": "04",
    **{f"cuda.driver.{k}": v for k, v in (("major", "580"), ("minor", "159"), ("rev", "04"))},
    **{f"cuda.runtime-version.{k}": v for k, v in (("full", "13.0"), ("major", "13"), ("minor", "0"))},
    **{f"cuda.runtime.{k}": v for k, v in (("major", "13"), ("minor", "0"))},
    **{f"gpu.compute.{k}": v for k, v in (("major", "9"), ("minor", "0"))},
    "gpu.count": "1",
    "gpu.family": "hopper",
    "gpu.machine": "unknown",
    "gpu.memory": "143771",
    "gpu.mode": "compute",
    "gpu.product": "NVIDIA-H200",
    "gpu.replicas": "1",
    "gpu.sharing-strategy": "none",
    "mig.capable": "true",
    "mps.capable": "false",
    "vgpu.present": "false",
}
SHARES = {GPU: ("0::0", "0::1", "0::2", "0::3")}
RENAMED = {f"{GPU}.shared": SHARES[GPU]}
SLICED = {"gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}
SERVED = {"gpu.replicas": "4", "gpu.sharing-strategy": "mps", "mps.capable": "true"}
SHARED = {"gpu.product": "NVIDIA-H200-SHARED"}

TWO = 'invalid allocation request for "nvidia.com/gpu": invalid request: maximum request size for shared resources is 1; found 2'
BEFORE = "error starting plugins: "
UNREADABLE = (
    "unable to load config: unable to finalize config: unable to parse config file: error parsing config file: "
)
UNDECODED = f"{UNREADABLE}unmarshal error: error unmarshaling JSON: while decoding JSON: "

H200 = models.find("H200")
assert H200 is not None
MACHINE = made.hardware(H200)
ASKED: list[Callable[[list[AgentCase]], list[AgentOutput]]] = [run_simulator, run_nvidia]
both = pytest.mark.parametrize("ask", ASKED, ids=["simulator", "nvidia"])


@both
@pytest.mark.parametrize(
    ("case", "differs", "resources"),
    [
        (AgentCase(MACHINE), {}, {GPU: ("0",)}),
        (AgentCase(MACHINE, config="{}"), {}, {GPU: ("0",)}),
        (AgentCase(MACHINE, config="version: v1"), {}, {GPU: ("0",)}),
        (AgentCase(MACHINE, config=sharing("timeSlicing", (GPU, 4))), SLICED | SHARED, SHARES),
        (AgentCase(MACHINE, config=sharing("timeslicing", (GPU, 4))), SLICED | SHARED, SHARES),
        (AgentCase(MACHINE, config=sharing("timeSlicing", (GPU, 4), renameByDefault=True)), SLICED, RENAMED),
        (
            AgentCase(MACHINE, config=sharing("timeSlicing", (GPU, 4), failRequestsGreaterThanOne=True)),
            SLICED | SHARED,
            SHARES,
        ),
        (AgentCase(MACHINE, config=sharing("mps", (GPU, 4))), SERVED | SHARED, SHARES),
        (AgentCase(MACHINE, config=sharing("mps", (GPU, 4), renameByDefault=True)), SERVED, RENAMED),
        (AgentCase(MACHINE, strategy="single"), {"mig.strategy": "single"}, {GPU: ("0",)}),
        (AgentCase(MACHINE, strategy="mixed"), {"mig.strategy": "mixed"}, {GPU: ("0",)}),
        (AgentCase(MACHINE, config=sharing("timeSlicing", ("nvidia.com/foo", 4))), {}, {GPU: ("0",)}),
        (AgentCase(MACHINE, config=sharing("timeSlicing", ("nvidia.com/mig-1g.18gb", 4))), {}, {GPU: ("0",)}),
        (AgentCase(MACHINE, config=sharing("timeSlices", (GPU, 4))), {}, {GPU: ("0",)}),
        (AgentCase(MACHINE, config=entry(name=GPU, replicas=4, rename="nvidia.com/mine")), SLICED | SHARED, SHARES),
        (AgentCase(MACHINE, config=entry(name=GPU, replicas=4, devices=[0])), SLICED | SHARED, SHARES),
        # Two entries for one resource: the plugin takes the larger count, GFD the first.
        (
            AgentCase(MACHINE, config=sharing("timeSlicing", (GPU, 2), (GPU, 4))),
            SLICED | SHARED | {"gpu.replicas": "2"},
            SHARES,
        ),
        (AgentCase(MACHINE, config=sharing("timeSlicing", (GPU, 4), (GPU, 2))), SLICED | SHARED, SHARES),
    ],
)
def test_labels_and_resources(
    ask: Callable[[list[AgentCase]], list[AgentOutput]],
    case: AgentCase,
    differs: dict[str, str],
    resources: dict[str, tuple[str, ...]],
) -> None:
    [said] = ask([case])
    assert said.labels == {f"nvidia.com/{key}": value for key, value in (LABELS | differs).items()}
    assert said.resources == resources
    assert (said.labels_error, said.resources_error) == ("", "")


@both
@pytest.mark.parametrize(
    ("config", "two"),
    [
        (sharing("timeSlicing", (GPU, 4)), None),
        (sharing("timeSlicing", (GPU, 4), failRequestsGreaterThanOne=True), TWO),
        (sharing("mps", (GPU, 4)), TWO),
    ],
)
def test_two_shares(ask: Callable[[list[AgentCase]], list[AgentOutput]], config: str, two: str | None) -> None:
    """Two shares of one GPU: it is seen once."""
    [said] = ask([AgentCase(MACHINE, config=config)])
    assert said.visible == {GPU: ("0",)}
    assert said.two_error == ({GPU: f"rpc error: code = Unknown desc = {two}"} if two else {})


@both
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        *(
            (sharing("timeSlicing", (GPU, count)), f"{UNDECODED}number of replicas must be >= 2")
            for count in (1, 0, -1)
        ),
        (entry(name=GPU), f"{UNDECODED}no replicas specified"),
        (entry(replicas=4), f"{UNDECODED}no resource name specified"),
        (sharing("timeSlicing"), f"{UNDECODED}no resources specified"),
        (
            entry(name="nvidia.com/example.com/gpu", replicas=4),
            f"{UNDECODED}incorrect format for resource name 'nvidia.com/example.com/gpu'",
        ),
        (entry(name="nvidia.com/GPU", replicas=4), f"{UNDECODED}incorrect format for resource name 'nvidia.com/GPU'"),
        (
            entry(name=GPU, replicas=4, devices="some"),
            f"{UNDECODED}devices set as 'some' but the only valid string input is 'all'",
        ),
        ("version: v2", f"{UNREADABLE}unknown version: v2"),
    ],
)
def test_refusals_of_both_agents(ask: Callable[[list[AgentCase]], list[AgentOutput]], config: str, reason: str) -> None:
    [said] = ask([AgentCase(MACHINE, config=config)])
    # Behind a bad name stands Kubernetes' own rule for names.
    errors = [error.partition(": [")[0] for error in (said.labels_error, said.resources_error)]
    assert errors == [reason, BEFORE + reason]


@both
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (
            AgentCase(MACHINE, config=sharing("mps", (GPU, 4)), mps_root=""),
            f"{BEFORE}unable to validate flags: using MPS requires --mps-root to be specified",
        ),
        (
            AgentCase(MACHINE, config=sharing("mps", (GPU, 4)), strategy="mixed"),
            f"{BEFORE}unable to validate flags: using --mig-strategy=mixed is not supported with MPS",
        ),
        (
            AgentCase(MACHINE, config=sharing("mps", (GPU, 4)), mps_daemon=False),
            "Failed to start plugin: error waiting for MPS daemon: error checking MPS daemon health: "
            "failed to send command to MPS daemon: exit status 1",
        ),
    ],
)
def test_refusals_of_the_plugin_alone(
    ask: Callable[[list[AgentCase]], list[AgentOutput]], case: AgentCase, reason: str
) -> None:
    [said] = ask([case])
    assert said.resources == {}
    assert (said.labels_error, said.resources_error) == ("", reason)


@both
def test_mps_beats_time_slicing(ask: Callable[[list[AgentCase]], list[AgentOutput]]) -> None:
    config = '{"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]},' + (
        ' "mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}'
    )
    [said] = ask([AgentCase(MACHINE, config=config)])
    assert said.labels[f"{GPU}.sharing-strategy"] == "mps"
    assert said.resources == SHARES


@both
def test_more_shares_than_mps_serves_are_accepted(ask: Callable[[list[AgentCase]], list[AgentOutput]]) -> None:
    """Only mps-control-daemon refuses them."""
    [said] = ask([AgentCase(MACHINE, config=sharing("mps", (GPU, 49)))])
    assert len(said.resources[GPU]) == 49
    assert said.labels[f"{GPU}.replicas"] == "49"
    assert said.served_error == (
        f"{BEFORE}error getting daemons: invalid MPS configuration: "
        "invalid device maximum allowed replicas exceeded: 49 > 48"
    )


@both
def test_the_mps_daemon_serves_what_is_offered(ask: Callable[[list[AgentCase]], list[AgentOutput]]) -> None:
    [plain, renamed] = ask(
        [AgentCase(MACHINE, config=sharing("mps", (GPU, 4), renameByDefault=rename)) for rename in (False, True)]
    )
    assert (plain.served, renamed.served) == ((GPU,), (f"{GPU}.shared",))


@pytest.mark.parametrize(
    ("config", "environment", "mounts"),
    [
        ("", {}, []),
        (
            sharing("mps", (GPU, 4)),
            {"CUDA_MPS_PIPE_DIRECTORY": f"/mps/{GPU}/pipe"},
            [f"/mps/{GPU}/pipe", "/dev/shm"],
        ),
    ],
)
def test_what_a_container_gets(config: str, environment: dict[str, str], mounts: list[str]) -> None:
    """By NVIDIA's plugin; of this the simulator has the visible GPUs alone."""
    with AgentSandbox() as host:
        [offered] = host.run_raw(AgentCase(MACHINE, config=config))["resources"]
    switches = dict.fromkeys(("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"), "enabled")
    assert offered["environment"] == {"NVIDIA_VISIBLE_DEVICES": uuid(0), **switches, **environment}
    assert (offered["mounts"] or []) == mounts
