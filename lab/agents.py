# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What agents say of a node: the simulator's rules, and NVIDIA's own programs against the lab's driver, asked alike."""

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

from . import build, driver, sandbox
from .api import Object
from .errors import LabError

MPS_ROOT = "/run/nvidia/mps"

# Where this machine has the C library, which is all that NVIDIA's programs need of it.
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_CALLED_BY_AGENTS = ("nvidia-smi", "nvidia-cuda-mps-control")
# Nothing becomes unhealthy here: the lab's library has no events.
_ENVIRONMENT = {"DP_DISABLE_HEALTHCHECKS": "all"}


@dataclass(frozen=True)
class Case:
    """A node, and how its agents are configured."""

    hardware: Object
    """As lab.hardware.described returns it."""
    mig: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The MIG devices (`3g.71gb@4`) of each GPU that has MIG on."""
    config: str = ""
    """The device plugin's config file, which gpu-feature-discovery reads too."""
    strategy: str = ""
    """The environment's MIG_STRATEGY."""
    mps_root: str = MPS_ROOT
    mps_daemon: bool = True
    """Whether an MPS control daemon answers."""
    parted: str = ""
    """A file of mig-parted, and which of its configurations are applied before the other agents look."""
    apply: tuple[str, ...] = ()
    busy: frozenset[int] = frozenset()
    """GPUs that somebody uses."""
    first_fit: bool = False
    """The driver places MIG devices from the front of a GPU; nothing may depend on it."""
    agents: bool = True
    """Whether GFD, device plugin and MPS control daemon are asked; else mig-parted alone."""

    @property
    def about_mps(self) -> bool:
        """Whether the MPS control daemon is asked, which in life runs only where it is wanted."""
        return self.agents and "mps" in self.config.lower()


@dataclass(frozen=True)
class Said:
    """What the agents said of a case. An error is the last line of a log, and takes the place of the rest."""

    applied: tuple[str, ...]
    """How each application of mig-parted ended: its error, or nothing."""
    mig: Mapping[int, Sequence[str]]
    """The MIG devices of each GPU with MIG on, after that."""
    labels: Mapping[str, str]
    labels_error: str
    resources: Mapping[str, tuple[str, ...]]
    """The devices of each resource: index of the GPU or place of the MIG device, and the share: `0`, `0/3g.71gb@4::1`."""
    resources_error: str
    two: Mapping[str, str]
    """By resource, why a container cannot have two of it."""
    visible: Mapping[str, tuple[str, ...]]
    """What a container sees with two of a resource, or with one where it cannot have more; only where all are shares of one
    device, since else it depends on which two."""
    served: tuple[str, ...]
    """The resources whose shares an MPS control daemon serves."""
    served_error: str


def simulated(cases: Sequence[Case], program: Path | None = None) -> list[Said]:
    """Ask the simulator's rules; `program` is another simulator than this checkout's."""
    simulator = program or build.ensure(["sim"])["sim"] / "bin" / "sim"
    questions = "".join(json.dumps(_question(case)) + "\n" for case in cases)
    done = subprocess.run([simulator, "ask"], input=questions, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the simulator does not answer: {done.stderr.strip()}")
    return [_simulated(case, json.loads(line)) for case, line in zip(cases, done.stdout.splitlines(), strict=True)]


def _question(case: Case) -> Object:
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


def _simulated(case: Case, answer: Object) -> Said:
    resources = _resources(answer["resources"] or {}, answer["places"])
    said = Said(
        applied=tuple(answer["applied"] or ()),
        mig={int(gpu): tuple(sorted(devices)) for gpu, devices in (answer["mig"].get("gpus") or {}).items()},
        labels=answer["labels"] or {},
        labels_error=answer["labels_error"],
        resources=resources,
        resources_error=answer["resources_error"],
        two=answer["two"],
        visible=_of_one_device(answer["visible"] or {}, resources, answer["places"]),
        served=tuple(sorted(answer["served"] or ())) if case.about_mps else (),
        served_error=answer["served_error"] if case.about_mps else "",
    )
    return said if case.agents else _parted_alone(said.applied, said.mig)


def nvidia(cases: Sequence[Case]) -> list[Said]:
    """Ask NVIDIA's programs, on all processors."""
    said: list[Said | None] = [None] * len(cases)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(cases)):
        waiting.put(number)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with Host() as host:
                while not failures:
                    number = waiting.get_nowait()
                    said[number] = host.ask(cases[number])
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
    return [answer for answer in said if answer is not None]


class Host:
    """A sandbox with NVIDIA's programs, the lab's driver and, of this machine, its libraries alone; no network."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def ask(self, case: Case) -> Said:
        """Run what a case asks for, and return what was said."""
        return _nvidia(case, self.run(case))

    def run(self, case: Case) -> Object:
        """Run what a case asks for, and return all that is known of it (Answer in lab/host/main.go)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(_request(case)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LabError("the sandbox with NVIDIA's programs has ended; what it said is above")
        answer: Object = json.loads(line)
        return answer


def _command() -> list[str]:
    folders = build.ensure(["agents"])
    files: dict[Path | str, str] = {path: path for path in _LIBRARIES if Path(path).exists()}
    for tool in ("nvidia-agents", "mig-parted", "host"):
        files |= {program: f"/agents/{program.name}" for program in (folders[tool] / "bin").iterdir()}
    [library] = (folders["nvml"] / "bin").iterdir()
    files[library] = f"/driver/{library.name}"
    links = {f"/agents/{name}": "host" for name in _CALLED_BY_AGENTS}
    return sandbox.command(["/agents/host"], files=files, links=links, environment={"PATH": "/agents"}, network=False)


def _request(case: Case) -> Object:
    files = driver.files(case.hardware, case.mig, busy=case.busy, first_fit=case.first_fit)
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
        "mps": case.about_mps,
    }


def _nvidia(case: Case, answer: Object) -> Said:
    layout, places = driver.read_state(case.hardware, answer["state"])
    applied = tuple(_error(run) if run["code"] else "" for run in answer.get("parted") or ())
    if not case.agents:
        return _parted_alone(applied, layout)
    for resource in answer["resources"]:
        if resource.get("error"):
            raise LabError(f"NVIDIA's device plugin does not serve {resource['resource']}: {resource['error']}")
    refused = _error(answer["plugin"])
    offered = () if refused else answer["resources"]
    resources = _resources({resource["resource"]: resource["ids"] for resource in offered}, places)
    visible = {one["resource"]: one["environment"]["NVIDIA_VISIBLE_DEVICES"].split(",") for one in offered}
    return Said(
        applied=applied,
        mig=layout,
        labels=dict(line.split("=", 1) for line in answer["labels"].splitlines()),
        labels_error=_error(answer["gfd"]) if answer["gfd"]["code"] else "",
        resources=resources,
        resources_error=refused,
        two={resource["resource"]: resource["two"] for resource in offered if resource.get("two")},
        visible=_of_one_device(visible, resources, places),
        served=tuple(sorted(answer["served"] or ())),
        served_error=_error(answer["mps"]) if case.about_mps and answer["mps"]["code"] else "",
    )


def _error(run: Object) -> str:
    if run["code"] and not run.get("error"):
        raise LabError(f"one of NVIDIA's programs ended with {run['code']} and no error:\n{run.get('log', '')}")
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
        resource: tuple(places[uuid] for uuid in uuids)
        for resource, uuids in visible.items()
        if len({device.partition("::")[0] for device in resources[resource]}) == 1
    }


def _parted_alone(applied: tuple[str, ...], layout: Mapping[int, Sequence[str]]) -> Said:
    return Said(applied, layout, {}, "", {}, "", {}, {}, (), "")
