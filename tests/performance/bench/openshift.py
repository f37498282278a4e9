# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of the playbook site on an OpenShift cluster that is as declared: operators installed through OLM, nodes from MachineSets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab import audit
from lab.api import Api
from lab.layout import Lab as LabLayout
from lab.machine_api.machine_sets import MACHINE_SETS
from tests.labs import Lab
from tests.programs import run

from .results import Limit, Measurement, Row, all_runs, ratios
from .timer import Timer

SETS, NODES = 20, 200
# A ping takes 1.0 to 1.1 seconds on an idle machine: at most 12 seconds for the whole run.
RATIO = 11.0
# Requests of a run, without those for further pages of lists.
CONSTANT_REQUESTS = 90
PAGE = 500
_SITE = "accel.gpu.site"
# Instance types with different GPUs, and a sharing mode for each.
_KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("g4dn.xlarge", {"mode": "time-slicing", "replicas": 4}),
    ("g5.xlarge", {"mode": "none"}),
    ("g6.xlarge", {"mode": "mps", "replicas": 2}),
    ("g6e.2xlarge", {"mode": "none"}),
    ("p4d.24xlarge", {"mode": "mig", "layout": {"3g.20gb": 2}}),
)
_LISTS = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods"}


def pools(sets: int, nodes: int) -> list[dict[str, Any]]:
    """Return a pool for each MachineSet; together they have this number of nodes."""
    share, more = divmod(nodes, sets)
    return [
        {
            "name": f"pool-{number:02}",
            "nodes": {
                "like": "prod-worker-us-east-2a",
                "flavor": _KINDS[number % len(_KINDS)][0],
                "count": share + (number < more),
            },
            "sharing": _KINDS[number % len(_KINDS)][1],
            "taints": [{"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}],
        }
        for number in range(sets)
    ]


def inventory(lab: Lab, folder: Path, sets: int, nodes: int) -> Path:
    """Write an inventory with a single cluster, that of the lab, and return its path."""
    cluster = {
        "name": lab.name,
        "distribution": "openshift",
        "operator": {"version": "v25.10.1"},
        "cloud": {"machineset": {}},
    }
    variables = {"gpu_cluster": cluster, "gpu_defaults": {}, "gpu_pools": pools(sets, nodes)}
    path = folder / "openshift.yml"
    path.write_text(yaml.safe_dump({"gpu_clusters": {"hosts": {"openshift": variables}}}))
    return path


def converge(lab: Lab, path: Path) -> None:
    """Install the operators and create the MachineSets, whose machines boot at once, in a cluster without other GPU nodes."""
    fleet = path.with_name("no-machines.yaml")
    fleet.write_text("groups: []\n")
    lab.reset(fleet)
    for setting in ("create", "boot"):
        lab.command("cloud", "set", f"machines.{setting}-seconds=0")
    run("ansible-playbook", "-i", path, _SITE, env=lab.env)


def rerun(lab: Lab, path: Path, rounds: int, times: int, say: Callable[[str], None]) -> Row:
    """Measure further runs of site, which change nothing, against a ping."""
    layout = LabLayout.named(lab.name)
    timer = Timer(lab, inventory=path)
    own_runs: list[list[Measurement]] = []
    other_runs: list[list[Measurement]] = []
    since = audit.mark(layout)
    for number in range(rounds):
        own_runs.append([])
        other_runs.append([])
        for dummy in range(times):
            say(f"OpenShift, round {number + 1}: site with nothing to change, then a ping")
            own_runs[-1].append(timer.playbook(_SITE, changed=0))
            other_runs[-1].append(timer.playbook("ping.yml", changed=0))
    for name, spent in sorted(own_runs[-1][-1].modules.items(), key=lambda item: -item[1]):
        say(f"{spent:6.2f} s in {name}")
    runs, per_round = all_runs(own_runs), ratios(own_runs, other_runs)
    actual = list(audit.requests(layout, since, "accel.gpu/"))
    api = Api(layout)
    sets = sum(1 for one in api.list(MACHINE_SETS) if "accel.gpu/nodegroup" in one["metadata"]["labels"])
    nodes = sum(1 for node in api.list(_LISTS["nodes"]) if "accel.gpu/pool" in node["metadata"]["labels"])
    limits = (
        Limit("ratio", max(per_round), RATIO),
        Limit(
            "requests without additional pages",
            max(one.requests - one.further_pages for one in runs),
            CONSTANT_REQUESTS,
        ),
        Limit("additional pages", max(one.further_pages for one in runs), _further_pages(api, actual, len(runs))),
        Limit("writes", max(one.writes for one in runs), 0),
    )
    title = f"site, nothing to change, OpenShift with {sets} MachineSets"
    return Row(title, nodes, own_runs, "ansible.builtin.ping", other_runs, limits, _NOTE, per_round)


def _further_pages(api: Api, actual: Sequence[audit.AuditedRequest], runs: int) -> int:
    """Return how many further pages the lists of one of the runs have if every page is full."""
    lists = Counter(request.resource for request in actual if request.verb == "list" and "continue=" not in request.uri)
    return sum(
        math.ceil(lists[resource] / runs) * (math.ceil(sum(1 for dummy in api.list(path)) / PAGE) - 1)
        for resource, path in _LISTS.items()
    )


_NOTE = f"""*OpenShift with {SETS} MachineSets* runs the playbook `site` on a cluster whose operators are installed through OLM, and whose nodes belong to
{SETS} MachineSets with five instance types. `site` compares the declared state with the MachineSets, OLM's
objects, the custom resources of NFD and of the GPU operator, and all nodes. The limit for *requests without additional pages* counts only the first
page of each list, so it does not depend on the number of nodes. A page contains up to {PAGE} objects."""
