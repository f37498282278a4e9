# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifecycle of a lab: up, down, save, reset."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import build, fleet, nodes, operators, parts, pki, ports, processes, sandbox, supervisor
from .api import Api
from .errors import LabError
from .layout import DEFAULT_FLEET, LABS, Lab
from .lock import locked
from .part import LabPart
from .tools import PARTS

# The limits suit a machine that is busy with other work; when a service fails, the message does not wait for them.
_READY_SECONDS, _MESSAGE_SECONDS = 300.0, 10.0
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
    """Start a lab, or resume a stopped one; a new cluster also gets its nodes.

    A running lab that lacks one of the parts in `more_parts` is restarted with its cluster.
    `settings` are recorded with the lab, for its parts.
    """
    sandbox.require()
    changed = any(lab.state().get(key) != value for key, value in (settings or {}).items())
    if changed:
        with _exclusive(lab):
            lab.record(**(settings or {}))
    tools, chosen = _build(lab, more_parts, with_sim=with_sim)
    started = time.monotonic()
    with _exclusive(lab):
        names = [part.name for part in chosen]
        if is_up(lab) and (changed or names != lab.state().get("parts", [])):
            say(f"lab '{lab.name}' is up without the requested {' and '.join(names)}: restarting it")
            _stop(lab)
        if is_up(lab):
            say(f"lab '{lab.name}' is already up")
            if port_base not in (None, lab.state()["port_base"]):
                raise LabError(f"lab '{lab.name}' is up on other ports: run 'lab/lab{lab.option} down' first")
        else:
            if remaining := processes.kill(lab):
                say(f"killed {remaining} processes left over from a killed lab")
            moved = _take_ports(lab, port_base)
            lab.record(with_sim=with_sim, sim_options=list(sim_options), parts=names)
            _prepare(lab, tools, chosen)
            fresh = not lab.etcd.exists()
            _start(lab, tools, chosen)
            if moved and not fresh:
                nodes.update_kubelet_port(Api(lab), lab.ports()["kwok"])
            if fresh and fleet_file is None:
                fleet_file = _default_fleet(lab, chosen)
            for part in chosen:
                part.begin(lab)
        count = _apply_fleet(lab, fleet_file) if fleet_file else None
    _report_ready(lab, started, count)


def down(lab: Lab, *, delete: bool) -> None:
    """Stop a lab; its state remains in its folder unless `delete` is set."""
    if not lab.dir.exists():
        say(f"lab '{lab.name}' does not exist")
        return
    with _exclusive(lab):
        _stop(lab)
        if delete:
            shutil.rmtree(lab.dir)
    say(f"lab '{lab.name}' is down" + (" and deleted" if delete else f"; its state remains in {lab.shown}"))


def save(lab: Lab, name: str) -> None:
    """Save the state of the cluster, which reset(saved=name) restores; replaces an older state with this name."""
    require_up(lab)
    started = time.monotonic()
    target = lab.saved(name)
    unfinished = target.with_name(f".{target.name}")
    with _exclusive(lab):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        # All processes are stopped during the copy: the files are as after a power failure, from which etcd can recover.
        with processes.frozen(lab):
            for part in lab.cluster:
                if part.is_dir():
                    shutil.copytree(part, unfinished / part.name)
                elif part.exists():
                    shutil.copy2(part, unfinished / part.name)
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    say(f"saved the cluster of lab '{lab.name}' as '{name}' in {time.monotonic() - started:.1f} s")


def reset(lab: Lab, *, fleet_file: Path | None, saved: str | None = None) -> None:
    """Restart a lab, running or not, with a clean or a saved cluster, on the same ports."""
    sandbox.require()
    source = lab.saved(saved) if saved else None
    if source and not source.exists():
        known = ", ".join(sorted(path.name for path in source.parent.glob("[!.]*"))) or "none"
        raise LabError(f"lab '{lab.name}' has no saved cluster '{saved}'; saved: {known}")
    with_sim = bool(lab.state().get("with_sim", True))
    tools, chosen = _build(lab, with_sim=with_sim)
    started = time.monotonic()
    with _exclusive(lab):
        # The state is discarded, so an orderly shutdown is not needed.
        processes.kill(lab)
        for folder in (lab.etcd, lab.logs, lab.pod_logs, lab.containers, lab.run, lab.clouds):
            shutil.rmtree(folder, ignore_errors=True)
        if source:
            shutil.copytree(source, lab.dir, dirs_exist_ok=True)
        _take_ports(lab, None)
        lab.record(with_sim=with_sim)
        _prepare(lab, tools, chosen)
        _start(lab, tools, chosen)
        if source:
            nodes.update_kubelet_port(Api(lab), lab.ports()["kwok"])
            nodes.update_log_paths(Api(lab), lab.pod_logs)
        for part in chosen:
            part.begin(lab)
        count = _apply_fleet(lab, lab.fleet if source else fleet_file or _default_fleet(lab, chosen))
    _report_ready(lab, started, count)


def is_up(lab: Lab) -> bool:
    """Return whether the lab's supervisor answers and all services are ready."""
    program = supervisor_program(lab)
    states = supervisor.services(lab, program) if program else None
    return bool(states) and all(state.ready for state in states or [])


def require_up(lab: Lab) -> None:
    """Raise LabError with instructions unless the lab's API server accepts connections."""
    if not ports.is_listening(lab.ports()["kube-apiserver"]):
        raise LabError(f"lab '{lab.name}' is not up: run 'lab/lab{lab.option} up'")


def supervisor_program(lab: Lab) -> Path | None:
    """Return the process-compose program that the lab was started with, if it still exists."""
    recorded = lab.state().get("supervisor")
    return Path(recorded) if recorded and Path(recorded).exists() else None


def say(text: str) -> None:
    """Print one line of progress to stderr."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def _build(lab: Lab, more_parts: Sequence[str] = (), *, with_sim: bool) -> tuple[dict[str, Path], list[LabPart]]:
    """Build the missing programs; return the folders of the tools, and the lab's parts."""
    chosen = parts.of(lab, more_parts)
    tools = build.ensure([tool for tool in PARTS["kube"] if with_sim or tool != "sim"])
    for part in chosen:
        part.build(lab)
    return tools, chosen


def _default_fleet(lab: Lab, chosen: Sequence[LabPart]) -> Path:
    """Return the default fleet file; a lab with a cloud gets its nodes only from the cloud."""
    return chosen[0].fleet_file(lab) if chosen else DEFAULT_FLEET


def _stop(lab: Lab) -> None:
    program = supervisor_program(lab)
    if program:
        supervisor.stop(lab, program)
    else:
        processes.kill(lab)


def _take_ports(lab: Lab, port_base: int | None) -> bool:
    """Choose and record the lab's ports; return whether they changed."""
    with locked(LABS / "ports.lock", "choosing ports"):
        before = lab.state().get("port_base")
        base = ports.choose(lab, port_base)
        lab.record(port_base=base)
    moved = before is not None and before != base
    if before is not None and moved and port_base is None:
        say(f"ports {before} to {before + ports.SPAN - 1} are no longer free: using {base} to {base + ports.SPAN - 1}")
    return moved


def _prepare(lab: Lab, tools: dict[str, Path], chosen: Sequence[LabPart]) -> None:
    """Write the files for the services and for users of the lab."""
    for folder in (lab.logs, lab.pod_logs, lab.shims, lab.bin):
        folder.mkdir(parents=True, exist_ok=True)
    (lab.containers / ".events").mkdir(mode=0o700, parents=True, exist_ok=True)
    if "sim" in tools:
        shutil.copy2(tools["sim"] / "bin" / "shim", lab.shims / "exec")
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
    operators.link_charts(lab)
    lab.record(supervisor=str(tools["process-compose"] / "bin" / "process-compose"))
    for part in chosen:
        for folder in (part.folder(lab), part.state(lab)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.prepare(lab)


def _start(lab: Lab, tools: dict[str, Path], chosen: Sequence[LabPart]) -> None:
    lab.etcd.mkdir(mode=0o700, exist_ok=True)
    next_message = time.monotonic() + _MESSAGE_SECONDS

    def report(waiting: list[supervisor.ServiceState]) -> None:
        nonlocal next_message
        if time.monotonic() > next_message:
            next_message += _MESSAGE_SECONDS
            say(f"still waiting for {', '.join(state.name for state in waiting)}")

    say(f"starting lab '{lab.name}'")
    supervisor.start(lab, tools, chosen, with_sim=lab.state()["with_sim"])
    limit = _READY_SECONDS * (1 + len(chosen))
    supervisor.wait_ready(lab, tools["process-compose"] / "bin" / "process-compose", limit, report)


def _apply_fleet(lab: Lab, path: Path) -> int:
    machines = fleet.load(path)
    api = Api(lab)
    nodes.apply(api, machines, lab.ports()["kwok"])
    machines.save(lab.fleet)
    count = sum(group.count for group in machines.groups)
    nodes.wait_ready(api, count)
    return count


def _report_ready(lab: Lab, started: float, count: int | None) -> None:
    machines = f", {count} nodes" if count else ""
    server = f"https://127.0.0.1:{lab.ports()['kube-apiserver']}"
    say(f"lab '{lab.name}' is up after {time.monotonic() - started:.1f} s: {server}{machines}")
    print(f'eval "$(lab/lab{lab.option} env)"   # PATH, KUBECONFIG and the collection, for this lab', flush=True)


@contextmanager
def _exclusive(lab: Lab) -> Iterator[None]:
    if any(character.isspace() for character in str(lab.dir)):
        raise LabError(
            f"the path of the lab's folder {lab.dir} contains a space: use a checkout without spaces in its path"
        )
    with locked(LABS / f"{lab.name}.lock", f"a command for lab '{lab.name}'"):
        lab.dir.mkdir(parents=True, exist_ok=True)
        yield
