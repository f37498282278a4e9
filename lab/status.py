# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/lab status`: services, health, ports, memory and nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from . import faults, nodes, processes, supervisor
from .api import Api, ApiError
from .fleet import GROUP_LABEL
from .layout import Lab
from .lifecycle import supervisor_program


def collect(lab: Lab) -> dict[str, Any]:
    """Return the status of a lab as JSON-serializable data."""
    program = supervisor_program(lab)
    states = supervisor.services(lab, program) if program else None
    running = processes.pids(lab)
    families = processes.descendants(running)
    port_of = lab.ports()
    services = [
        {
            "name": state.name,
            "state": "ready" if state.ready else state.status.lower(),
            "restarts": state.restarts,
            "port": port_of.get(state.name),
            "rss": processes.memory(families.get(state.pid, ())),
        }
        for state in states or []
    ]
    result: dict[str, Any] = {
        "name": lab.name,
        "up": bool(services) and all(service["state"] == "ready" for service in services),
        "server": f"https://127.0.0.1:{port_of['kube-apiserver']}",
        "folder": lab.shown,
        "services": services,
        "processes": len(running),
        "rss": processes.memory(running),
    }
    if states:
        result |= _cluster(lab)
    return result


def _cluster(lab: Lab) -> dict[str, Any]:
    api = Api(lab)
    try:
        listed = list(api.list(nodes.NODES))
        faulty = faults.current(api)
    except ApiError as error:
        return {"problem": str(error)}
    groups = Counter(_group(node["metadata"]["labels"]) for node in listed)
    return {
        "nodes": len(listed),
        "nodes_ready": sum(map(nodes.is_ready, listed)),
        "groups": dict(groups),
        "gpus_allocatable": sum(_gpus(node["status"].get("allocatable", {})) for node in listed),
        "faults": faulty,
    }


def render(status: dict[str, Any]) -> str:
    """Return the status as text."""
    state = "up" if status["up"] else "not up" if not status["services"] else "not ready"
    lines = [f"lab '{status['name']}' is {state}: {status['server']}, {status['folder']}"]
    if status["services"]:
        lines.append(f"{'SERVICE':<26}{'STATE':<12}{'RESTARTS':>8}{'PORT':>8}{'RSS':>9}")
        for service in status["services"]:
            port = service["port"] or "-"
            lines.append(
                f"{service['name']:<26}{service['state']:<12}{service['restarts']:>8}{port:>8}{_mb(service['rss']):>9}"
            )
    if status["processes"]:
        lines.append(f"{status['processes']} processes, {_mb(status['rss'])}")
    if "nodes" in status:
        groups = ", ".join(f"{name} {count}" for name, count in status["groups"].items())
        lines.append(f"{status['nodes_ready']} of {status['nodes']} nodes ready ({groups or 'none'})")
        lines.append(f"{status['gpus_allocatable']} GPUs allocatable")
        lines += [f"fault on {name}: {text}" for name, text in status["faults"].items()]
    if "problem" in status:
        lines.append(f"the API server does not answer: {status['problem']}")
    return "\n".join(lines)


def _group(labels: dict[str, str]) -> str:
    return labels.get(GROUP_LABEL) or labels.get(nodes.CLOUD_LABEL) or "(others)"


def _gpus(allocatable: dict[str, str]) -> int:
    return sum(int(amount) for name, amount in allocatable.items() if name.startswith("nvidia.com/"))


def _mb(size: int) -> str:
    return f"{size / 1024**2:.0f} MB"
