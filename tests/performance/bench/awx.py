# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of a job template for many clusters in the lab's AWX: what each slice costs, compared with a job for one cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.helpers.awx_fleet import MAX_MIB_PER_SLICE, JobCost, fleet

from .results import Limit, Measurement, Row

# All API servers and jobs share the processors of one machine, so each slice handles two clusters at a time.
CLUSTERS, SLICES, FORKS = 50, 5, 2
TEMPLATES = ("GPU report", "GPU plan")
_NOTE = (
    "*Slice of GPU report* and *slice of GPU plan*: the slices of a job in the lab's AWX run at the same time, each with two forks. Each cluster has an API "
    "server of its own with two nodes; all of them share the CPUs with the jobs, so the durations of the slices are longer than with clusters elsewhere. "
    "*MiB* is the peak of all processes of the job; memory that several of them share counts once. The other command is a job for one of the clusters."
)


def slices(folder: Path, clusters: int, count: int, say: Callable[[str], None]) -> list[Row]:
    """Return a row for each slice of each template."""
    say(f"{clusters} clusters start")
    with fleet(folder, clusters, slices=count, forks=FORKS) as running:
        rows = []
        for template in TEMPLATES:
            say(f"{template} in {count} slices")
            costs, alone = running.measure(template), running.measure_one(template)
            rows += [_row(cost, alone) for cost in costs]
        return rows


def _row(cost: JobCost, alone: JobCost) -> Row:
    limits = (
        Limit("requests per cluster", max(cost.requests.values()), max(alone.requests.values())),
        Limit("memory", cost.mib, MAX_MIB_PER_SLICE, " MiB"),
        Limit("writes", cost.writes, 0),
    )
    return Row(
        f"slice {cost.job['job_slice_number']} of {cost.job['name']}",
        len(cost.clusters),
        [[_measurement(cost)]],
        "one cluster",
        [[_measurement(alone)]],
        limits,
        _NOTE,
        (cost.seconds / alone.seconds,),
        "clusters",
    )


def _measurement(cost: JobCost) -> Measurement:
    return Measurement(cost.seconds, mib=cost.mib, requests=sum(cost.requests.values()), writes=cost.writes)
