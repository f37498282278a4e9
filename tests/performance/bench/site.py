# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of the playbook site on a cluster that is as declared."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.labs import Lab
from tests.programs import run

from .results import Limit, Measurement, Row, all_runs, ratios
from .timer import Timer

RATIO = 5.0
_SITE = "accel.gpu.site"


def rerun(lab: Lab, rounds: int, times: int, say: Callable[[str], None]) -> Row:
    """Install on the lab's default machines, and measure further runs of site, which change nothing, against a ping."""
    say("the default machines get NFD, the operator and their pools")
    run("ansible-playbook", "-i", "inventories/lab", _SITE, env=lab.env)
    timer = Timer(lab)
    own_runs: list[list[Measurement]] = []
    other_runs: list[list[Measurement]] = []
    for number in range(rounds):
        own_runs.append([])
        other_runs.append([])
        for dummy in range(times):
            say(f"round {number + 1}: site with nothing to change, then a ping")
            own_runs[-1].append(timer.playbook(_SITE, changed=0))
            other_runs[-1].append(timer.playbook("ping.yml", changed=0))
    per_round = ratios(own_runs, other_runs)
    limits = (
        Limit("ratio", max(per_round), RATIO),
        Limit("writes", max(measured.writes for measured in all_runs(own_runs)), 0),
    )
    nodes = len(json.loads(run("kubectl", "get", "nodes", "--output", "json", env=lab.env))["items"])
    return Row("site, nothing to change", nodes, own_runs, "ansible.builtin.ping", other_runs, limits, _NOTE, per_round)


_NOTE = """*site, nothing to change* runs the whole playbook `site`, including the report, on a cluster where all pools are as declared. This run is compared
with a run of `ansible-playbook` whose only task is `ansible.builtin.ping`."""
