# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of the lab."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections import Counter
from pathlib import Path

from . import (
    agent_cli,
    audit,
    build,
    cloud_cli,
    faults,
    fleet,
    lifecycle,
    nodes,
    operator_cli,
    operators,
    parts,
    rbac,
    status,
)
from .api import Api, ApiError
from .errors import LabError
from .layout import DEFAULT_FLEET, REPO, Lab
from .openshift import objects, releases
from .openstack.venv import MAGNUMS
from .tools import PARTS, TOOLS

# The options of `up` that are recorded with the lab, for its parts.
_SETTINGS = ("magnum", "openshift", "platform")


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; a failure is one line on stderr and status 1."""
    options = _parser().parse_args(arguments)
    try:
        lab = Lab.named(options.name)
        result: int | None = options.run(lab, options)
        return result or 0
    except (LabError, ApiError) as error:
        print(f"lab: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader of the output has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130
    return 1


def _build(_lab: Lab, options: argparse.Namespace) -> None:
    of_parts = {name: make for part in parts.KNOWN.values() for name, make in part.builds.items()}
    tools = [name for name in options.what or ["kube"] if name not in of_parts]
    built = build.ensure(tools) if tools else {}
    built |= {name: of_parts[name]() for name in options.what if name in of_parts}
    for name, folder in built.items():
        print(f"{name:<18} {folder}")


def _up(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.up(
        lab,
        port_base=options.port_base,
        fleet_file=options.fleet,
        with_sim=not options.without_sim,
        sim_options=options.sim_option,
        more_parts=[*options.part, *parts.of_openshift(options.openshift, options.platform)],
        settings={name: value for name in _SETTINGS if (value := getattr(options, name))},
    )


def _down(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.down(lab, delete=options.delete)


def _reset(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.reset(lab, fleet_file=options.fleet, saved=options.saved)


def _save(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.save(lab, options.saved)


def _status(lab: Lab, options: argparse.Namespace) -> int:
    current = status.collect(lab)
    print(json.dumps(current, indent=2) if options.json else status.render(current))
    return 0 if current["up"] else 1


def _nodes_apply(lab: Lab, options: argparse.Namespace) -> None:
    _apply(lab, fleet.load(options.fleet), wait=options.wait)


def _nodes_scale(lab: Lab, options: argparse.Namespace) -> None:
    current = fleet.load(lab.fleet if lab.fleet.exists() else DEFAULT_FLEET)
    _apply(lab, current.scaled(options.group, options.count), wait=options.wait)


def _nodes_reboot(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    if not lab.state()["with_sim"]:
        raise LabError(f"lab '{lab.name}' runs without the simulator, which completes reboots: 'lab/lab up' starts it")
    nodes.reboot(Api(lab), options.names)


def _apply(lab: Lab, machines: fleet.Fleet, *, wait: bool) -> None:
    lifecycle.require_up(lab)
    api = Api(lab)
    started = time.monotonic()
    done = nodes.apply(api, machines, lab.ports()["kwok"])
    machines.save(lab.fleet)
    if wait:
        nodes.wait_ready(api, sum(group.count for group in machines.groups))
    print(
        f"{done.created} nodes created, {done.replaced} replaced, {done.deleted} deleted, {done.unchanged} unchanged"
        f" in {time.monotonic() - started:.1f} s"
    )


def _fault_inject(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    api = Api(lab)
    wide = options.fault in faults.CLUSTER_FAULTS
    if not wide and not (options.nodes or options.selector):
        raise LabError(f"fault '{options.fault}' needs nodes: add '--nodes a,b' or '--selector key=value'")
    names = [] if wide else nodes.select(api, options.nodes, options.selector)
    changed = faults.inject(api, options.fault, names)
    print(f"{options.fault}: injected on {'the cluster' if wide else f'{changed} of {len(names)} nodes'}")


def _fault_clear(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    api = Api(lab)
    names = nodes.select(api, options.nodes, options.selector)
    changed = faults.clear(api, options.fault, names)
    print(f"{options.fault or 'all faults'}: cleared on {changed} objects")


def _fault_list(lab: Lab, _options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    for name, text in faults.current(Api(lab)).items():
        print(f"{name:<24} {text}")


def _logs(lab: Lab, options: argparse.Namespace) -> None:
    known = sorted(path.stem for path in lab.logs.glob("*.log"))
    path = lab.logs / f"{options.service}.log"
    if not path.exists():
        raise LabError(f"lab '{lab.name}' has no log of '{options.service}'; known: {', '.join(known) or 'none yet'}")
    with path.open(errors="replace") as log:
        sys.stdout.writelines(log.readlines()[-options.lines :])
        while options.follow:
            sys.stdout.write(log.read())
            sys.stdout.flush()
            time.sleep(0.3)


def _env(lab: Lab, options: argparse.Namespace) -> None:
    lab.ports()
    operators.link_charts(lab)
    collections = REPO / "build"
    if not (collections / "ansible_collections").exists():
        print(
            f"{collections}/ansible_collections is missing, so playbooks do not find the collection: run 'make venv'",
            file=sys.stderr,
        )
    kubeconfig = lab.kubeconfig
    if options.rbac:
        lifecycle.require_up(lab)
        kubeconfig = rbac.grant(lab, options.rbac)
    exports: dict[str, object] = {
        "ANSIBLE_COLLECTIONS_PATH": collections,
        "KUBECONFIG": kubeconfig,
        "LAB_NAME": lab.name,
        "LAB_DIR": lab.dir,
        "LAB_CHARTS": lab.charts,
        # The default caches of helm and kubectl are in the home folder.
        "HELM_CACHE_HOME": lab.dir / "helm/cache",
        "HELM_CONFIG_HOME": lab.dir / "helm/config",
        "HELM_DATA_HOME": lab.dir / "helm/data",
        "KUBECACHEDIR": lab.dir / "kubectl",
    }
    for part in parts.of(lab):
        exports |= part.exports(lab)
    print(f'export PATH={shlex.quote(f"{lab.bin}:{REPO}/build/venv/bin")}:"$PATH"')
    for name, value in exports.items():
        print(f"export {name}={shlex.quote(str(value))}")


def _audit(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    if options.mark:
        print(audit.mark(lab))
        return
    requests = list(audit.requests(lab, options.since, options.agent))
    if options.list:
        for request in requests:
            print(f"{request.status} {request.verb:<8} {request.uri}  [{request.agent}]")
        return
    for (agent, verb), number in sorted(Counter((request.agent, request.verb) for request in requests).items()):
        print(f"{number:>7} {verb:<16} {agent}")


def _parser() -> argparse.ArgumentParser:
    # --name is accepted before and after the command.
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--name", default=argparse.SUPPRESS, help="name of the lab (default: $LAB_NAME or 'lab')")
    parser = argparse.ArgumentParser(
        prog="lab/lab", description="Runs real Kubernetes control planes on loopback, with simulated GPU nodes."
    )
    parser.add_argument(
        "--name", default=os.environ.get("LAB_NAME", "lab"), help="name of the lab (default: $LAB_NAME or 'lab')"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str, under: object = commands) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = under.add_parser(name, help=text, description=text, parents=[shared])  # type: ignore[attr-defined]
        added.set_defaults(run=run)
        return added

    one = command("build", _build, "build the lab's programs that are missing in the cache")
    one.add_argument(
        "what",
        nargs="*",
        metavar="TOOL",
        help=f"parts ({', '.join([*PARTS, *(name for part in parts.KNOWN.values() for name in part.builds)])})"
        f" or tools ({', '.join(TOOLS)})",
    )
    one = command("up", _up, "start the lab; missing programs are built first")
    one.add_argument("--port-base", type=int, help="first of the lab's 40 ports (default: the first free range)")
    one.add_argument("--fleet", type=Path, help="fleet file (default for a new cluster: lab/fleets/default.yaml)")
    one.add_argument(
        "--part",
        action="append",
        default=[],
        choices=list(parts.KNOWN),
        help="add a part, such as a cloud whose machines become nodes of the cluster (up and reset keep it)",
    )
    one.add_argument(
        "--openshift",
        nargs="?",
        const=releases.DEFAULT,
        choices=list(releases.RELEASES),
        help=f"a cluster with the API objects of OpenShift, and OLM (default release: {releases.DEFAULT})",
    )
    one.add_argument(
        "--platform", choices=objects.PLATFORMS, help=f"platform of OpenShift (default: {objects.PLATFORMS[0]})"
    )
    one.add_argument("--magnum", choices=list(MAGNUMS), help="Magnum release of part openstack (default: 23)")
    one.add_argument("--without-sim", action="store_true", help="do not run the simulator: nodes have no agents")
    one.add_argument(
        "--sim-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="pass an option to the simulator, such as --sim-option=--time-scale=1 (reset keeps it)",
    )
    one = command("down", _down, "stop the lab; a later 'up' resumes the same cluster")
    one.add_argument("--delete", action="store_true", help="also delete the lab's folder")
    one = command("save", _save, "save the state of the cluster for 'reset --to'")
    one.add_argument("saved", metavar="NAME", help="name of the saved state")
    one = command("reset", _reset, "delete the cluster and start a clean or a saved one on the same ports")
    either = one.add_mutually_exclusive_group()
    either.add_argument("--fleet", type=Path, help="fleet file (default: lab/fleets/default.yaml)")
    either.add_argument("--to", dest="saved", metavar="SAVED", help="restore the cluster saved under this name")
    one = command("status", _status, "show services, health, ports, memory and machines")
    one.add_argument("--json", action="store_true", help="print JSON")

    group = commands.add_parser("nodes", help="change the cluster's nodes").add_subparsers(
        required=True, metavar="COMMAND"
    )
    one = command("apply", _nodes_apply, "create, replace and delete nodes as a fleet file describes", group)
    one.add_argument("fleet", type=Path, metavar="FLEET")
    one.add_argument("--wait", action="store_true", help="wait until all nodes are ready")
    one = command("scale", _nodes_scale, "change the number of nodes in a group", group)
    one.add_argument("group", metavar="GROUP")
    one.add_argument("count", type=int, metavar="N")
    one.add_argument("--wait", action="store_true", help="wait until all nodes are ready")

    one = command("reboot", _nodes_reboot, "reboot nodes, without waiting until they are ready again", group)
    one.add_argument("names", nargs="+", metavar="NAME")

    group = commands.add_parser("fault", help="inject faults into nodes or the cluster").add_subparsers(
        required=True, metavar="COMMAND"
    )
    kinds = "; ".join(f"{name}: {text}" for name, (_argument, text) in faults.NODE_FAULTS.items())
    kinds += "; " + "; ".join(f"{name}: {text}" for name, text in faults.CLUSTER_FAULTS.items())
    inject = command("inject", _fault_inject, f"inject a fault. {kinds}.", group)
    inject.add_argument("fault", metavar="FAULT[=ARGUMENT]")
    clear = command("clear", _fault_clear, "clear a fault (default: all) on nodes (default: all)", group)
    clear.add_argument("fault", nargs="?", metavar="FAULT")
    for one in (inject, clear):
        one.add_argument("--nodes", metavar="A,B", help="names of nodes")
        one.add_argument("--selector", metavar="KEY=VALUE", help="label selector")
    command("list", _fault_list, "list the faults of each node", group)

    one = command("logs", _logs, "show the log of a service")
    one.add_argument("service", metavar="SERVICE")
    one.add_argument("-n", "--lines", type=int, default=200, help="number of lines from the end (default: 200)")
    one.add_argument("-f", "--follow", action="store_true", help="also print new lines as they are written")
    one = command("env", _env, "print the environment of the lab for 'eval \"$(lab/lab env)\"'")
    one.add_argument(
        "--rbac",
        metavar="PLAYBOOK",
        help=f"use a user with only the RBAC rules that are shipped for this playbook ({', '.join(rbac.playbooks())})",
    )
    agent_cli.add(command)
    cloud_cli.add(commands, command)
    operator_cli.add(commands, command)
    one = command("audit", _audit, "count the requests to the API server")
    one.add_argument("--agent", default="", help="only requests of clients whose user agent contains this text")
    one.add_argument("--since", type=int, default=0, metavar="MARK", help="only requests after a mark")
    one.add_argument("--mark", action="store_true", help="print a mark for the current end of the log")
    one.add_argument("--list", action="store_true", help="print each request instead of counts")
    return parser
