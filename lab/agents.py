# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the agents of a node on the same input: the simulator's rules, and NVIDIA's own programs on the lab's driver."""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import build, nvml_files, sandbox
from .api import Object
from .errors import LabError

MPS_ROOT = "/run/nvidia/mps"

_CALLED_BY_AGENTS = ("nvidia-smi", "nvidia-cuda-mps-control")
# The lab's NVML library has no events, so no device becomes unhealthy.
_ENVIRONMENT = {"DP_DISABLE_HEALTHCHECKS": "all"}


@dataclass(frozen=True)
class AgentCase:
    """A node and the configuration of its agents."""

    hardware: Object
    """As lab.hardware.describe returns it."""
    mig: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The MIG devices (`3g.71gb@4`) of each GPU that has MIG on."""
    config: str = ""
    """The device plugin's config file, which gpu-feature-discovery also reads."""
    strategy: str = ""
    """The environment's MIG_STRATEGY."""
    mps_root: str = MPS_ROOT
    mps_daemon: bool = True
    """Whether an MPS control daemon is running."""
    parted: str = ""
    """A mig-parted config file; `apply` names the configurations applied before the other agents run."""
    apply: tuple[str, ...] = ()
    busy: frozenset[int] = frozenset()
    """GPUs that are in use."""
    first_fit: bool = False
    """Whether the driver places MIG devices from the start of a GPU; results must not depend on it."""
    agents: bool = True
    """Whether GFD, device plugin and MPS control daemon run; if false, only mig-parted runs."""

    @property
    def runs_mps_daemon(self) -> bool:
        """Whether the MPS control daemon runs; on a real node it runs only if the config uses MPS."""
        return self.agents and "mps" in self.config.lower()


@dataclass(frozen=True)
class AgentOutput:
    """The output of the agents for a case. An error is the last line of an agent's log; the other fields are then empty."""

    applied: tuple[str, ...]
    """The error of each mig-parted run, or an empty string."""
    mig: Mapping[int, Sequence[str]]
    """The MIG devices of each GPU with MIG on, after the mig-parted runs."""
    labels: Mapping[str, str]
    labels_error: str
    resources: Mapping[str, tuple[str, ...]]
    """The devices of each resource: GPU index or MIG device position, and replica: `0`, `0/3g.71gb@4::1`."""
    resources_error: str
    two_error: Mapping[str, str]
    """By resource, the error for a container that requests two of it."""
    visible: Mapping[str, tuple[str, ...]]
    """The devices visible in a container that requests two of a resource, or one if two are rejected: their positions, or
    their indices (`0:2`) if the config passes these to containers. Set only for
    resources whose devices are all replicas of one device; otherwise the result depends on which two are allocated."""
    served: tuple[str, ...]
    """The resources whose replicas an MPS control daemon serves."""
    served_error: str


def run_simulator(cases: Sequence[AgentCase], program: Path | None = None) -> list[AgentOutput]:
    """Run the simulator's rules; `program` replaces the simulator of this checkout."""
    simulator = program or build.ensure(["sim"])["sim"] / "bin" / "sim"
    queries = "".join(json.dumps(_query(case)) + "\n" for case in cases)
    done = subprocess.run([simulator, "query"], input=queries, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the simulator failed: {done.stderr.strip()}")
    return [_simulated(case, json.loads(line)) for case, line in zip(cases, done.stdout.splitlines(), strict=True)]


def _query(case: AgentCase) -> Object:
    return {
        "hardware": case.hardware,
        "mig": {"gpus": {str(gpu): list(devices) for gpu, devices in case.mig.items()}},
        "config": case.config,
        "strategy": case.strategy,
        "mps_root": case.mps_root,
        "mps_daemon": case.mps_daemon,
        "parted": case.parted,
        "apply": case.apply,
        "busy": sorted(case.busy),
    }


def _simulated(case: AgentCase, result: Object) -> AgentOutput:
    resources = _resources(result["resources"] or {}, result["places"])
    output = AgentOutput(
        applied=tuple(result["applied"] or ()),
        mig={int(gpu): tuple(sorted(devices)) for gpu, devices in (result["mig"].get("gpus") or {}).items()},
        labels=result["labels"] or {},
        labels_error=result["labels_error"],
        resources=resources,
        resources_error=result["resources_error"],
        two_error=result["two_error"],
        visible=_of_one_device(result["visible"] or {}, resources, result["places"]),
        served=tuple(sorted(result["served"] or ())) if case.runs_mps_daemon else (),
        served_error=result["served_error"] if case.runs_mps_daemon else "",
    )
    return output if case.agents else _parted_alone(output.applied, output.mig)


def run_nvidia(cases: Sequence[AgentCase]) -> list[AgentOutput]:
    """Run NVIDIA's programs, in parallel on all processors."""
    outputs: list[AgentOutput | None] = [None] * len(cases)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(cases)):
        waiting.put(number)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with AgentSandbox() as sandboxed:
                while not failures:
                    number = waiting.get_nowait()
                    outputs[number] = sandboxed.run(cases[number])
        except queue.Empty:
            pass
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work) for _worker in range(min(len(cases), len(os.sched_getaffinity(0))))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return [output for output in outputs if output is not None]


class AgentSandbox:
    """A sandbox with NVIDIA's programs, the lab's driver library and this machine's C libraries; without network."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> AgentSandbox:
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, case: AgentCase) -> AgentOutput:
        """Run the agents of a case and return their output."""
        return _nvidia(case, self.run_raw(case))

    def run_raw(self, case: AgentCase) -> Object:
        """Run the agents of a case and return the unprocessed result (Result in lab/host/main.go)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(_request(case)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LabError("the sandbox with NVIDIA's agents exited; its output is above")
        result: Object = json.loads(line)
        return result


def _command() -> list[str]:
    folders = build.ensure(["agents"])
    # NVIDIA's programs need nothing else from this machine.
    files = sandbox.libraries()
    for tool in ("nvidia-agents", "mig-parted", "host"):
        files |= {program: f"/agents/{program.name}" for program in (folders[tool] / "bin").iterdir()}
    [library] = (folders["nvml"] / "bin").iterdir()
    files[library] = f"/driver/{library.name}"
    links = {f"/agents/{name}": "host" for name in _CALLED_BY_AGENTS}
    return sandbox.command(["/agents/host"], files=files, links=links, environment={"PATH": "/agents"}, network=False)


def _request(case: AgentCase) -> Object:
    files = nvml_files.files(case.hardware, case.mig, busy=case.busy, first_fit=case.first_fit)
    files["/lab/config.yaml"] = case.config.encode()
    files["/lab/mig.yaml"] = case.parted.encode()
    if case.mps_daemon:
        files["/lab/mps"] = b""
    environment = {**_ENVIRONMENT, "MIG_STRATEGY": case.strategy, "MPS_ROOT": case.mps_root}
    return {
        "files": {path: base64.b64encode(content).decode() for path, content in files.items()},
        "environment": {name: value for name, value in environment.items() if value},
        "parted": case.apply,
        "gfd": case.agents,
        "plugin": case.agents,
        "mps": case.runs_mps_daemon,
    }


def _nvidia(case: AgentCase, result: Object) -> AgentOutput:
    layout, places = nvml_files.read_state(case.hardware, result["state"])
    applied = tuple(_error(run) if run["code"] else "" for run in result.get("parted") or ())
    if not case.agents:
        return _parted_alone(applied, layout)
    for resource in result["resources"]:
        if resource.get("error"):
            raise LabError(f"NVIDIA's device plugin does not serve {resource['resource']}: {resource['error']}")
    plugin_error = _error(result["plugin"])
    offered = () if plugin_error else result["resources"]
    resources = _resources({resource["resource"]: resource["ids"] for resource in offered}, places)
    visible = {one["resource"]: one["environment"]["NVIDIA_VISIBLE_DEVICES"].split(",") for one in offered}
    return AgentOutput(
        applied=applied,
        mig=layout,
        labels=dict(line.split("=", 1) for line in result["labels"].splitlines()),
        labels_error=_error(result["gfd"]) if result["gfd"]["code"] else "",
        resources=resources,
        resources_error=plugin_error,
        two_error={one["resource"]: one["two_error"] for one in offered if one.get("two_error")},
        visible=_of_one_device(visible, resources, places),
        served=tuple(sorted(result["served"] or ())),
        served_error=_error(result["mps"]) if case.runs_mps_daemon and result["mps"]["code"] else "",
    )


def _error(run: Object) -> str:
    if run["code"] and not run.get("error"):
        raise LabError(f"an NVIDIA agent exited with {run['code']} and logged no error:\n{run.get('log', '')}")
    return str(run.get("error", ""))


def _resources(ids: Mapping[str, Iterable[str]], places: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    def placed(device: str) -> str:
        uuid, colons, share = device.partition("::")
        return f"{places[uuid]}{colons}{share}"

    return {resource: tuple(sorted(map(placed, devices))) for resource, devices in ids.items()}


def _of_one_device(
    visible: Mapping[str, Sequence[str]], resources: Mapping[str, tuple[str, ...]], places: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    return {
        # An index (0:2) instead of a UUID is already the position.
        resource: tuple(places.get(device, device) for device in devices)
        for resource, devices in visible.items()
        if len({device.partition("::")[0] for device in resources[resource]}) == 1
    }


def _parted_alone(applied: tuple[str, ...], layout: Mapping[int, Sequence[str]]) -> AgentOutput:
    return AgentOutput(applied, layout, {}, "", {}, "", {}, {}, (), "")
