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

from . import answers, audit, build, cloud_cli, faults, fleet, lifecycle, nodes, parts, rights, status
from .api import Api, ApiError
from .errors import LabError
from .layout import DEFAULT_FLEET, REPO, Lab
from .openstack.venv import MAGNUMS
from .tools import PARTS, TOOLS


def main(arguments: list[str] | None = None) -> int:
    """Run one command, and return its exit status: 1 with one line on stderr when it failed."""
    options = _parser().parse_args(arguments)
    try:
        lab = Lab.named(options.name)
        result: int | None = options.run(lab, options)
        return result or 0
    except (LabError, ApiError) as error:
        print(f"lab: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader of the output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("lab: stopped by the user", file=sys.stderr)
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
        more_parts=options.part,
        settings={"magnum": options.magnum} if options.magnum else {},
    )


def _down(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.down(lab, delete=options.delete)


def _reset(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.reset(lab, fleet_file=options.fleet, saved=options.saved)


def _save(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.save(lab, options.saved)


def _status(lab: Lab, options: argparse.Namespace) -> int:
    found = status.collect(lab)
    print(json.dumps(found, indent=2) if options.json else status.render(found))
    return 0 if found["up"] else 1


def _nodes_apply(lab: Lab, options: argparse.Namespace) -> None:
    _apply(lab, fleet.load(options.fleet), wait=options.wait)


def _nodes_scale(lab: Lab, options: argparse.Namespace) -> None:
    current = fleet.load(lab.fleet if lab.fleet.exists() else DEFAULT_FLEET)
    _apply(lab, current.scaled(options.group, options.count), wait=options.wait)


def _nodes_reboot(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    if not lab.state()["with_sim"]:
        raise LabError(f"lab '{lab.name}' is up without the simulator, which brings rebooting machines back")
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


def _fault_put(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    api = Api(lab)
    wide = options.fault in faults.CLUSTER_FAULTS
    if not wide and not (options.nodes or options.selector):
        raise LabError(f"on which nodes? 'fault put {options.fault} --nodes a,b' or '--selector key=value'")
    names = [] if wide else nodes.select(api, options.nodes, options.selector)
    changed = faults.put(api, options.fault, names)
    print(f"{options.fault}: put on {'the cluster' if wide else f'{changed} of {len(names)} nodes'}")


def _fault_clear(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    api = Api(lab)
    names = nodes.select(api, options.nodes, options.selector)
    changed = faults.clear(api, options.fault, names)
    print(f"{options.fault or 'all faults'}: cleared in {changed} places")


def _fault_list(lab: Lab, _options: argparse.Namespace) -> None:
    lifecycle.require_up(lab)
    for name, text in faults.current(Api(lab)).items():
        print(f"{name:<24} {text}")


def _logs(lab: Lab, options: argparse.Namespace) -> None:
    known = sorted(path.stem for path in lab.logs.glob("*.log"))
    path = lab.logs / f"{options.service}.log"
    if not path.exists():
        raise LabError(
            f"lab '{lab.name}' has no log of '{options.service}': known are {', '.join(known) or 'none yet'}"
        )
    with path.open(errors="replace") as log:
        sys.stdout.writelines(log.readlines()[-options.lines :])
        while options.follow:
            sys.stdout.write(log.read())
            sys.stdout.flush()
            time.sleep(0.3)


def _env(lab: Lab, options: argparse.Namespace) -> None:
    lab.ports()
    kubeconfig = lab.kubeconfig
    if options.rights_of:
        lifecycle.require_up(lab)
        kubeconfig = rights.grant(lab, options.rights_of)
    exports: dict[str, object] = {
        "ANSIBLE_COLLECTIONS_PATH": REPO / "build",
        "KUBECONFIG": kubeconfig,
        "LAB_NAME": lab.name,
        "LAB_DIR": lab.dir,
        "LAB_CHARTS": lab.charts,
        # helm and kubectl keep their caches in the home folder unless told otherwise.
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
    found = list(audit.requests(lab, options.since, options.agent))
    if options.list:
        for request in found:
            print(f"{request.status} {request.verb:<8} {request.uri}  [{request.agent}]")
        return
    for (agent, verb), number in sorted(Counter((request.agent, request.verb) for request in found).items()):
        print(f"{number:>7} {verb:<16} {agent}")


def _parser() -> argparse.ArgumentParser:
    # The name is known before and after the command.
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--name", default=argparse.SUPPRESS, help="which lab (default: $LAB_NAME, else 'lab')")
    parser = argparse.ArgumentParser(
        prog="lab/lab", description="Real Kubernetes control planes on loopback, with simulated GPU nodes."
    )
    parser.add_argument(
        "--name", default=os.environ.get("LAB_NAME", "lab"), help="which lab (default: $LAB_NAME, else 'lab')"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str, under: object = commands) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = under.add_parser(name, help=text, description=text, parents=[shared])  # type: ignore[attr-defined]
        added.set_defaults(run=run)
        return added

    one = command("build", _build, "build the lab's programs into the cache, as far as they are missing")
    one.add_argument(
        "what",
        nargs="*",
        metavar="TOOL",
        help=f"parts ({', '.join([*PARTS, *(name for part in parts.KNOWN.values() for name in part.builds)])})"
        f" or tools ({', '.join(TOOLS)})",
    )
    one = command("up", _up, "start the lab; what is missing is built first")
    one.add_argument("--port-base", type=int, help="first of the lab's ports (default: found by itself)")
    one.add_argument("--fleet", type=Path, help="fleet file (default for a new cluster: lab/fleets/default.yaml)")
    one.add_argument(
        "--part",
        action="append",
        default=[],
        choices=list(parts.KNOWN),
        help="a cloud beside the cluster, whose machines are its nodes (kept by up and reset)",
    )
    one.add_argument("--magnum", choices=list(MAGNUMS), help="the release of Magnum for part openstack (default: 23)")
    one.add_argument("--without-sim", action="store_true", help="leave the simulator out: machines without agents")
    one.add_argument(
        "--sim-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option of the simulator, such as --sim-option=--time-scale=1 (kept by reset)",
    )
    one = command("down", _down, "stop the lab; a later up goes on with the same cluster")
    one.add_argument("--delete", action="store_true", help="delete the lab's folder too")
    one = command("save", _save, "keep the cluster as it is now, for 'reset --to'")
    one.add_argument("saved", metavar="AS", help="the name to save it as")
    one = command("reset", _reset, "throw the cluster away and start a clean or a saved one on the same ports")
    either = one.add_mutually_exclusive_group()
    either.add_argument("--fleet", type=Path, help="fleet file (default: lab/fleets/default.yaml)")
    either.add_argument("--to", dest="saved", metavar="SAVED", help="the cluster that was saved under this name")
    one = command("status", _status, "show services, health, ports, memory and machines")
    one.add_argument("--json", action="store_true", help="as JSON")

    group = commands.add_parser("nodes", help="change the cluster's machines").add_subparsers(
        required=True, metavar="COMMAND"
    )
    one = command("apply", _nodes_apply, "make the machines equal to a fleet file", group)
    one.add_argument("fleet", type=Path, metavar="FLEET")
    one.add_argument("--wait", action="store_true", help="until all of them are ready")
    one = command("scale", _nodes_scale, "change the number of machines of a group", group)
    one.add_argument("group", metavar="GROUP")
    one.add_argument("count", type=int, metavar="N")
    one.add_argument("--wait", action="store_true", help="until all of them are ready")

    one = command("reboot", _nodes_reboot, "reboot machines, without waiting until they are back", group)
    one.add_argument("names", nargs="+", metavar="NAME")

    group = commands.add_parser("fault", help="put faults on machines").add_subparsers(required=True, metavar="COMMAND")
    kinds = "; ".join(f"{name}: {text}" for name, (_argument, text) in faults.NODE_FAULTS.items())
    kinds += "; " + "; ".join(f"{name}: {text}" for name, text in faults.CLUSTER_FAULTS.items())
    put = command("put", _fault_put, f"put a fault on nodes. {kinds}.", group)
    put.add_argument("fault", metavar="FAULT[=ARGUMENT]")
    clear = command("clear", _fault_clear, "take a fault (default: all) from nodes (default: all)", group)
    clear.add_argument("fault", nargs="?", metavar="FAULT")
    for one in (put, clear):
        one.add_argument("--nodes", metavar="A,B", help="names")
        one.add_argument("--selector", metavar="KEY=VALUE", help="label selector")
    command("list", _fault_list, "show which nodes have which faults", group)

    one = command("logs", _logs, "show the log of a service")
    one.add_argument("service", metavar="SERVICE")
    one.add_argument("-n", "--lines", type=int, default=200, help="how many of the last lines (default: 200)")
    one.add_argument("-f", "--follow", action="store_true", help="and what is written from now on")
    one = command("env", _env, "print what 'eval \"$(lab/lab env)\"' needs to use the lab")
    one.add_argument(
        "--rights-of",
        metavar="PLAYBOOK",
        help=f"as a user who has the shipped rights of this playbook alone ({', '.join(rights.playbooks())})",
    )
    answers.add(command)
    cloud_cli.add(commands, command)
    one = command("audit", _audit, "count the requests that the API server has served")
    one.add_argument("--agent", default="", help="only of clients whose user agent contains this")
    one.add_argument("--since", type=int, default=0, metavar="MARK", help="only what was asked after a mark")
    one.add_argument("--mark", action="store_true", help="print a mark of now")
    one.add_argument("--list", action="store_true", help="each request instead of counts")
    return parser
