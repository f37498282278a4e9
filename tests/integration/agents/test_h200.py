# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulator and agents have the results of NVIDIA's agents v0.19.0 on a real H200 (driver 580.159.04, CUDA 13.0).

Measured on an H200, driver 580.159.04: every label, resource and error in this file.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.agents import AgentCase, AgentOutput, AgentSandbox, run_nvidia, run_simulator
from lab.nvml_files import uuid
from plugins.module_utils.catalog import models
from tests.integration.agents import agent_cases
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
MACHINE = agent_cases.hardware(H200)
RUNNERS: list[Callable[[list[AgentCase]], list[AgentOutput]]] = [run_simulator, run_nvidia]
both = pytest.mark.parametrize("run_agents", RUNNERS, ids=["simulator", "nvidia"])


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
    run_agents: Callable[[list[AgentCase]], list[AgentOutput]],
    case: AgentCase,
    differs: dict[str, str],
    resources: dict[str, tuple[str, ...]],
) -> None:
    [output] = run_agents([case])
    assert output.labels == {f"nvidia.com/{key}": value for key, value in (LABELS | differs).items()}
    assert output.resources == resources
    assert (output.labels_error, output.resources_error) == ("", "")


@both
@pytest.mark.parametrize(
    ("config", "two"),
    [
        (sharing("timeSlicing", (GPU, 4)), None),
        (sharing("timeSlicing", (GPU, 4), failRequestsGreaterThanOne=True), TWO),
        (sharing("mps", (GPU, 4)), TWO),
    ],
)
def test_two_shares(run_agents: Callable[[list[AgentCase]], list[AgentOutput]], config: str, two: str | None) -> None:
    """With two shares of one GPU, the GPU is visible once."""
    [output] = run_agents([AgentCase(MACHINE, config=config)])
    assert output.visible == {GPU: ("0",)}
    assert output.two_error == ({GPU: f"rpc error: code = Unknown desc = {two}"} if two else {})


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
def test_errors_of_both_agents(
    run_agents: Callable[[list[AgentCase]], list[AgentOutput]], config: str, reason: str
) -> None:
    [output] = run_agents([AgentCase(MACHINE, config=config)])
    # After an invalid name the error contains Kubernetes' own rule for names.
    errors = [error.partition(": [")[0] for error in (output.labels_error, output.resources_error)]
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
def test_errors_of_the_plugin_only(
    run_agents: Callable[[list[AgentCase]], list[AgentOutput]], case: AgentCase, reason: str
) -> None:
    [output] = run_agents([case])
    assert output.resources == {}
    assert (output.labels_error, output.resources_error) == ("", reason)


@both
def test_mps_has_precedence_over_time_slicing(run_agents: Callable[[list[AgentCase]], list[AgentOutput]]) -> None:
    config = '{"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]},' + (
        ' "mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}'
    )
    [output] = run_agents([AgentCase(MACHINE, config=config)])
    assert output.labels[f"{GPU}.sharing-strategy"] == "mps"
    assert output.resources == SHARES


@both
def test_more_shares_than_mps_supports_are_accepted(run_agents: Callable[[list[AgentCase]], list[AgentOutput]]) -> None:
    """Only mps-control-daemon rejects them."""
    [output] = run_agents([AgentCase(MACHINE, config=sharing("mps", (GPU, 49)))])
    assert len(output.resources[GPU]) == 49
    assert output.labels[f"{GPU}.replicas"] == "49"
    assert output.served_error == (
        f"{BEFORE}error getting daemons: invalid MPS configuration: "
        "invalid device maximum allowed replicas exceeded: 49 > 48"
    )


@both
def test_the_mps_daemon_serves_the_offered_resources(
    run_agents: Callable[[list[AgentCase]], list[AgentOutput]],
) -> None:
    [plain, renamed] = run_agents(
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
def test_environment_and_mounts_of_a_container(config: str, environment: dict[str, str], mounts: list[str]) -> None:
    """From NVIDIA's plugin; the simulator only implements the visible GPUs."""
    with AgentSandbox() as host:
        [offered] = host.run_raw(AgentCase(MACHINE, config=config))["resources"]
    switches = dict.fromkeys(("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"), "enabled")
    assert offered["environment"] == {"NVIDIA_VISIBLE_DEVICES": uuid(0), **switches, **environment}
    assert (offered["mounts"] or []) == mounts
