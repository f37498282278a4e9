# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The row of a rolling change: simulated nodes of varied pace are cut, a window of them at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from lab import audit
from lab.audit import AuditedRequest
from lab.layout import Lab as LabLayout
from tests.helpers.playbook import run_playbook
from tests.labs import Lab

from .gantt import gantt
from .rows import Limit, Row, Run
from .schedule import Span, judge
from .timed import Timer

WINDOW, RATIO = 10, 1.10
_PACE = [0.5, 2.0]
_AGENT = "gpu_sharing"


def rolling(lab: Lab, folder: Path, nodes: int, say: Callable[[str], None]) -> tuple[Row, str]:
    """The row, and the picture of it (SVG)."""
    say(f"{nodes} simulated nodes with the operator")
    fleet = folder / "rolling.yaml"
    group = {"name": "a100", "count": nodes, "model": "A100-SXM4-80GB", "gpus": 1, "time_factor": _PACE}
    fleet.write_text(yaml.safe_dump({"groups": [group]}))
    lab.reset(fleet)
    whole, cut = _pool({"mode": "none"}), _pool({"mode": "mig", "layout": {"1g.10gb": 7}})
    # The operator is told of the pool as it is to be, the nodes become members of it as they are.
    arguments = ["--tags", "nfd,gpu_operator"]
    run_playbook(
        "accel.gpu.site", environ=lab.env, variables={"gpu_pools": [cut]}, arguments=arguments
    ).require_success()
    timer = Timer(lab, folder)
    timer.playbook("rolling.yml", changed=1, pools=[whole])
    say(f"{nodes} simulated nodes are cut, {WINDOW} at a time")
    since = audit.mark(LabLayout.named(lab.name))
    run = timer.playbook("rolling.yml", changed=1, pools=[cut])
    spans = spans_of(audit.requests(LabLayout.named(lab.name), since, _AGENT))
    verdict = judge(spans, WINDOW)
    limits = (
        Limit("makespan / best", verdict.ratio, RATIO),
        Limit("nodes at a time", verdict.overlap, WINDOW),
        Limit("nodes not changed", nodes - verdict.nodes, 0),
    )
    row = Row(
        f"rolling change, {WINDOW} at a time",
        nodes,
        [[Run(verdict.makespan, run.module_seconds, run.module_mib, run.requests, run.pages, run.writes)]],
        "no schedule is shorter than",
        [[Run(verdict.bound)]],
        limits,
        _NOTE,
        (verdict.ratio,),
    )
    return row, gantt(spans, verdict)


_NOTE = f"""A *rolling change* cuts the GPUs of simulated nodes of varied pace. A node is worked on from its first write (the
cordon) to the answer to its last one (the uncordon), by the API server's audit log. No schedule is shorter than all of this work
spread evenly over the {WINDOW} places, or than the slowest node.

![A bar for each node that was worked on, on as many lanes as the window is wide](performance.svg)"""


def spans_of(requests: Iterable[AuditedRequest]) -> list[Span]:
    """When each node was worked on: from its first write to the answer to its last one; seconds after the first of all."""
    writes: dict[str, list[AuditedRequest]] = defaultdict(list)
    for request in requests:
        if request.mutating and request.resource == "nodes" and request.status < 300:
            writes[request.name].append(request)
    start = min((of.begun for found in writes.values() for of in found), default=0.0)
    return [
        Span(name, min(of.begun for of in found) - start, max(of.answered for of in found) - start)
        for name, found in sorted(writes.items())
    ]


def _pool(sharing: dict[str, Any]) -> dict[str, Any]:
    match = {"model": "A100-SXM4-80GB"}
    return {"name": "train", "match": match, "sharing": sharing, "rollout": {"max_unavailable": WINDOW}}
