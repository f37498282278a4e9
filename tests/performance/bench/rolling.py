# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of a rolling update: simulated nodes with different speeds are partitioned, with a limited number at a time."""

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
from .results import Limit, Measurement, Row
from .schedule import Span, evaluate
from .timer import Timer

WINDOW, RATIO = 10, 1.10
_TIME_FACTOR = [0.5, 2.0]
_AGENT = "gpu_sharing"


def rolling(lab: Lab, folder: Path, nodes: int, say: Callable[[str], None]) -> tuple[Row, str]:
    """Measure a rolling update; return its row and an SVG."""
    say(f"{nodes} simulated nodes with the operator")
    fleet = folder / "rolling.yaml"
    group = {"name": "a100", "count": nodes, "model": "A100-SXM4-80GB", "gpus": 1, "time_factor": _TIME_FACTOR}
    fleet.write_text(yaml.safe_dump({"groups": [group]}))
    lab.reset(fleet)
    unpartitioned, partitioned = _pool({"mode": "none"}), _pool({"mode": "mig", "layout": {"1g.10gb": 7}})
    # The operator is configured for the new pool, but the nodes join the pool with their current layout.
    arguments = ["--tags", "nfd,gpu_operator"]
    run_playbook(
        "accel.gpu.site", environ=lab.env, variables={"gpu_pools": [partitioned]}, arguments=arguments
    ).require_success()
    timer = Timer(lab)
    timer.playbook("rolling.yml", changed=1, pools=[unpartitioned])
    say(f"{nodes} simulated nodes are partitioned, {WINDOW} at a time")
    since = audit.mark(LabLayout.named(lab.name))
    run = timer.playbook("rolling.yml", changed=1, pools=[partitioned])
    spans = spans_of(audit.requests(LabLayout.named(lab.name), since, _AGENT))
    result = evaluate(spans, WINDOW)
    limits = (
        Limit("makespan / best", result.ratio, RATIO),
        Limit("nodes at a time", result.overlap, WINDOW),
        Limit("nodes not changed", nodes - result.nodes, 0),
    )
    row = Row(
        f"rolling update, {WINDOW} at a time",
        nodes,
        [[Measurement(result.makespan, run.cpu_seconds, run.mib, run.requests, run.pages, run.writes)]],
        "lower bound for any schedule",
        [[Measurement(result.bound)]],
        limits,
        _NOTE,
        (result.ratio,),
    )
    return row, gantt(spans, result)


_NOTE = f"""A *rolling update* partitions the GPUs of simulated nodes with different speeds. According to the API server's audit log, the work on a node
lasts from its first write request (the cordon) to the response to the last one (the uncordon). The lower bound for any schedule is the larger of two
values: the total duration of this work divided by {WINDOW} (the number of nodes that can change at a time), and the duration for the slowest node.

![One bar for each node, and one lane for each node that can change at the same time](performance.svg)"""


def spans_of(requests: Iterable[AuditedRequest]) -> list[Span]:
    """Return the span of each node, from its first write request to the response of its last one, relative to the first of all."""
    writes: dict[str, list[AuditedRequest]] = defaultdict(list)
    for request in requests:
        if request.mutating and request.resource == "nodes" and request.status < 300:
            writes[request.name].append(request)
    start = min((request.begun for actual in writes.values() for request in actual), default=0.0)
    return [
        Span(name, min(one.begun for one in actual) - start, max(one.answered for one in actual) - start)
        for name, actual in sorted(writes.items())
    ]


def _pool(sharing: dict[str, Any]) -> dict[str, Any]:
    match = {"model": "A100-SXM4-80GB"}
    return {"name": "train", "match": match, "sharing": sharing, "rollout": {"max_unavailable": WINDOW}}
