# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a lab: up, down, saved, reset."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import build, fleet, nodes, parts, pki, ports, processes, sandbox, supervisor
from .api import Api
from .errors import LabError
from .layout import CLOUDS_FLEET, DEFAULT_FLEET, LABS, Lab
from .lock import locked
from .part import Part
from .tools import PARTS

_READY_SECONDS, _WORD_SECONDS = 90.0, 10.0
_USER_PROGRAMS = ("kubectl", "helm")


def up(
    lab: Lab,
    *,
    port_base: int | None,
    fleet_file: Path | None,
    with_sim: bool = True,
    sim_options: Sequence[str] = (),
    more_parts: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> None:
    """Start a lab (one that is down goes on where it was) and, when its cluster is new, give it its machines.

    A lab that is up without one of the parts that it is to have from now on is started again, with its cluster.
    `settings` are kept with the lab, for its parts.
    """
    sandbox.require()
    changed = any(lab.state().get(key) != value for key, value in (settings or {}).items())
    if changed:
        with _alone(lab):
            lab.record(**(settings or {}))
    tools, chosen = _build(lab, more_parts, with_sim=with_sim)
    started = time.monotonic()
    with _alone(lab):
        names = [part.name for part in chosen]
        if is_up(lab) and (changed or names != lab.state().get("parts", [])):
            say(f"lab '{lab.name}' is up without {' and '.join(names)} as asked for: starting it again")
            _stop(lab)
        if is_up(lab):
            say(f"lab '{lab.name}' is up already")
            if port_base not in (None, lab.state()["port_base"]):
                raise LabError(f"lab '{lab.name}' is up on other ports: 'lab/lab{lab.option} down' first")
        else:
            if left := processes.kill(lab):
                say(f"ended {left} processes that a killed lab had left")
            moved = _take_ports(lab, port_base)
            lab.record(with_sim=with_sim, sim_options=list(sim_options), parts=names)
            _prepare(lab, tools, chosen)
            fresh = not lab.etcd.exists()
            _start(lab, tools, chosen)
            if moved and not fresh:
                nodes.repoint(Api(lab), lab.ports()["kwok"])
            if fresh and fleet_file is None:
                fleet_file = _default_fleet(chosen)
            for part in chosen:
                part.begin(lab)
        count = _apply_fleet(lab, fleet_file) if fleet_file else None
    _announce(lab, started, count)


def down(lab: Lab, *, delete: bool) -> None:
    """Stop a lab; its cluster's state stays in its folder unless that is to be deleted too."""
    if not lab.dir.exists():
        say(f"lab '{lab.name}' is not there")
        return
    with _alone(lab):
        _stop(lab)
        if delete:
            shutil.rmtree(lab.dir)
    say(f"lab '{lab.name}' is down" + (" and deleted" if delete else f"; its state stays in {lab.shown}"))


def save(lab: Lab, name: str) -> None:
    """Keep the cluster as it is now, to which reset(saved=name) goes back; an older one of that name is replaced."""
    require_up(lab)
    started = time.monotonic()
    target = lab.saved(name)
    unfinished = target.with_name(f".{target.name}")
    with _alone(lab):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        # Nothing is written meanwhile: what is copied is what a power cut would leave, from which etcd starts.
        with processes.frozen(lab):
            for part in lab.cluster:
                if part.is_dir():
                    shutil.copytree(part, unfinished / part.name)
                elif part.exists():
                    shutil.copy2(part, unfinished / part.name)
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    say(f"the cluster of lab '{lab.name}' is saved as '{name}' after {time.monotonic() - started:.1f} s")


def reset(lab: Lab, *, fleet_file: Path | None, saved: str | None = None) -> None:
    """Give a lab, up or not, a clean cluster, or a saved one: everything is started anew, on the same ports."""
    sandbox.require()
    source = lab.saved(saved) if saved else None
    if source and not source.exists():
        known = ", ".join(sorted(path.name for path in source.parent.glob("[!.]*"))) or "none"
        raise LabError(f"lab '{lab.name}' has saved no cluster as '{saved}': saved are {known}")
    with_sim = bool(lab.state().get("with_sim", True))
    tools, chosen = _build(lab, with_sim=with_sim)
    started = time.monotonic()
    with _alone(lab):
        # Nothing of it is kept, so nothing needs to end in order.
        processes.kill(lab)
        for folder in (lab.etcd, lab.logs, lab.pod_logs, lab.run, lab.clouds):
            shutil.rmtree(folder, ignore_errors=True)
        if source:
            shutil.copytree(source, lab.dir, dirs_exist_ok=True)
        _take_ports(lab, None)
        lab.record(with_sim=with_sim)
        _prepare(lab, tools, chosen)
        _start(lab, tools, chosen)
        if source:
            nodes.repoint(Api(lab), lab.ports()["kwok"])
            nodes.repoint_logs(Api(lab), lab.pod_logs)
        for part in chosen:
            part.begin(lab)
        count = _apply_fleet(lab, lab.fleet if source else fleet_file or _default_fleet(chosen))
    _announce(lab, started, count)


def is_up(lab: Lab) -> bool:
    """Tell whether the lab's supervisor answers and all its services are ready."""
    program = supervisor_program(lab)
    states = supervisor.services(lab, program) if program else None
    return bool(states) and all(state.ready for state in states or [])


def require_up(lab: Lab) -> None:
    """Fail with what to do unless the lab's API server is there."""
    if not ports.is_listening(lab.ports()["kube-apiserver"]):
        raise LabError(f"lab '{lab.name}' is not up: run 'lab/lab{lab.option} up'")


def supervisor_program(lab: Lab) -> Path | None:
    """Return the process-compose that the lab was started with, if that is still there."""
    recorded = lab.state().get("supervisor")
    return Path(recorded) if recorded and Path(recorded).exists() else None


def say(text: str) -> None:
    """Print one line of what the lab does, beside whatever the output is used for."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def _build(lab: Lab, more_parts: Sequence[str] = (), *, with_sim: bool) -> tuple[dict[str, Path], list[Part]]:
    """Build what the lab needs and the cache lacks; return the folders of its tools, and its parts."""
    chosen = parts.of(lab, more_parts)
    tools = build.ensure([tool for tool in PARTS["kube"] if with_sim or tool != "sim"])
    for part in chosen:
        part.build(lab)
    return tools, chosen


def _default_fleet(chosen: Sequence[Part]) -> Path:
    """A cluster that has a cloud gets its machines from there."""
    return CLOUDS_FLEET if chosen else DEFAULT_FLEET


def _stop(lab: Lab) -> None:
    program = supervisor_program(lab)
    if program:
        supervisor.stop(lab, program)
    else:
        processes.kill(lab)


def _take_ports(lab: Lab, port_base: int | None) -> bool:
    """Record the lab's ports, and tell whether they are others than before."""
    with locked(LABS / "ports.lock", "choosing ports"):
        before = lab.state().get("port_base")
        base = ports.choose(lab, port_base)
        lab.record(port_base=base)
    moved = before is not None and before != base
    if before is not None and moved and port_base is None:
        say(f"ports {before} to {before + ports.SPAN - 1} are not free any more: using {base} and up")
    return moved


def _prepare(lab: Lab, tools: dict[str, Path], chosen: Sequence[Part]) -> None:
    """Write every file that the services and the lab's users read."""
    for folder in (lab.logs, lab.pod_logs, lab.shims, lab.bin):
        folder.mkdir(parents=True, exist_ok=True)
    pki.create(lab)
    pki.write_kubeconfigs(lab, f"https://127.0.0.1:{lab.ports()['kube-apiserver']}")
    for name in _USER_PROGRAMS:
        folder = tools["kubernetes"] if name == "kubectl" else tools[name]
        link = lab.bin / name
        link.unlink(missing_ok=True)
        link.symlink_to(folder / "bin" / name)
    shutil.rmtree(lab.charts, ignore_errors=True)
    for name in ("gpu-operator", "nfd"):
        shutil.copytree(tools[name] / "charts", lab.charts, dirs_exist_ok=True)
    lab.record(supervisor=str(tools["process-compose"] / "bin" / "process-compose"))
    for part in chosen:
        for folder in (part.folder(lab), part.state(lab)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.prepare(lab)


def _start(lab: Lab, tools: dict[str, Path], chosen: Sequence[Part]) -> None:
    lab.etcd.mkdir(mode=0o700, exist_ok=True)
    next_word = time.monotonic() + _WORD_SECONDS

    def tell(waiting: list[supervisor.Service]) -> None:
        nonlocal next_word
        if time.monotonic() > next_word:
            next_word += _WORD_SECONDS
            say(f"still waiting for {', '.join(state.name for state in waiting)}")

    say(f"starting lab '{lab.name}'")
    supervisor.start(lab, tools, chosen, with_sim=lab.state()["with_sim"])
    limit = _READY_SECONDS * (1 + len(chosen))
    supervisor.wait_ready(lab, tools["process-compose"] / "bin" / "process-compose", limit, tell)


def _apply_fleet(lab: Lab, path: Path) -> int:
    machines = fleet.load(path)
    api = Api(lab)
    nodes.apply(api, machines, lab.ports()["kwok"])
    machines.save(lab.fleet)
    count = sum(group.count for group in machines.groups)
    nodes.wait_ready(api, count)
    return count


def _announce(lab: Lab, started: float, count: int | None) -> None:
    machines = f", {count} nodes" if count else ""
    server = f"https://127.0.0.1:{lab.ports()['kube-apiserver']}"
    say(f"lab '{lab.name}' is up after {time.monotonic() - started:.1f} s: {server}{machines}")
    print(f'eval "$(lab/lab{lab.option} env)"   # PATH, KUBECONFIG and the collection, for this lab', flush=True)


@contextmanager
def _alone(lab: Lab) -> Iterator[None]:
    if any(character.isspace() for character in str(lab.dir)):
        raise LabError(f"the lab's folder {lab.dir} has a blank in its path: use a checkout without one")
    with locked(LABS / f"{lab.name}.lock", f"something with lab '{lab.name}'"):
        lab.dir.mkdir(parents=True, exist_ok=True)
        yield
