# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of clusters in the stand-in for AWX, and what each job of a launch costs: time, memory, and requests by cluster."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.accel.gpu.plugins.module_utils.core.files import descendants
from lab import audit
from lab.awx.store import Row
from tests.helpers.api_servers import ApiServer, api_servers
from tests.helpers.awx import StandIn, stand_in
from tests.helpers.gpu_nodes import GPU_MODEL

# Of ten clusters with two forks.
MAX_MIB_PER_SLICE = 400
_SAMPLE_SECONDS = 0.25
_MIB = 1024
_RUN = re.compile(r" run/awx-(\d+)/")
POOL: dict[str, Any] = {
    "name": "notebooks",
    "match": {"model": GPU_MODEL},
    "sharing": {"mode": "time-slicing", "replicas": 2},
}


@dataclass(frozen=True)
class JobCost:
    """A job: its clusters, its seconds, the peak of the memory of all its processes, and its requests by cluster.

    The memory that several processes share counts once (PSS).
    """

    job: Row
    clusters: tuple[str, ...]
    seconds: float
    mib: float
    requests: Mapping[str, int]
    writes: int

    def __str__(self) -> str:
        """Return a line for the output of a test."""
        counts = sorted(set(self.requests.values()))
        per_cluster = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return (
            f"{self.job['name']}, slice {self.job['job_slice_number']} of {self.job['job_slice_count']}: {len(self.clusters)} clusters, "
            f"{self.seconds:.1f} s, {self.mib:.0f} MiB, {sum(self.requests.values())} requests ({per_cluster} per cluster)"
        )


@dataclass(frozen=True)
class Fleet:
    """Clusters, and the AWX whose inventory contains them."""

    servers: Sequence[ApiServer]
    awx: StandIn

    def server(self, name: str) -> ApiServer:
        """The cluster with this name."""
        return next(server for server in self.servers if server.name == name)

    def declare(self, hosts: Mapping[str, Mapping[str, Any]], **variables: Any) -> None:
        """Make these inventory hosts the inventory: `gpu_cluster` of each, and variables of all."""
        groups = {"hosts": {name: {"gpu_cluster": dict(cluster)} for name, cluster in hosts.items()}}
        inventory = self.awx.repository / "inventory"
        (inventory / "hosts.yml").write_text(yaml.safe_dump({"gpu_clusters": groups}))
        (inventory / "group_vars" / "gpu_clusters.yml").write_text(yaml.safe_dump({"gpu_pools": [POOL], **variables}))
        self.awx.commit()

    def sync(self) -> None:
        """Update the project and the inventory, as AWX does before a launch."""
        runs, store = self.awx.awx.runs, self.awx.awx.store
        for project in store.tables["projects"].values():
            assert runs.update_project(project)["status"] == "successful"
        for source in store.tables["inventory_sources"].values():
            assert runs.update_inventory(source)["status"] == "successful"

    @contextmanager
    def sliced(self, count: int, *templates: str) -> Iterator[None]:
        """Cut the jobs of these templates into another number of slices."""
        before = {name: self.awx.named("job_templates", name)["job_slice_count"] for name in templates}
        self._set_slices(dict.fromkeys(templates, count))
        try:
            yield
        finally:
            self._set_slices(before)

    def _set_slices(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            number = self.awx.named("job_templates", name)["id"]
            assert self.awx.request("PATCH", f"job_templates/{number}/", {"job_slice_count": count})[0] == 200

    def jobs_of(self, launched: Row) -> list[Row]:
        """The job, or the jobs of the slices of this launch."""
        runs = self.awx.awx.runs
        if launched["kind"] == "jobs":
            return [launched]
        nodes = [node for node in runs.rows["workflow_job_nodes"].values() if node["workflow_job"] == launched["id"]]
        return [runs.rows["jobs"][node["job"]] for node in nodes]

    def measure(self, template: str, **body: Any) -> list[JobCost]:
        """Launch a template, wait until it has ended, and return what each of its jobs costs."""
        marks = self.marks()
        with _memory(self.awx) as peaks:
            launched = self.awx.awx.runs.wait(self.awx.launch(template, **body), 3000)
        jobs = self.jobs_of(launched)
        assert launched["status"] == "successful", "\n".join(job["output"][-2000:] for job in jobs if job["failed"])
        counts, writes = dict[int, Counter[str]](), Counter[int]()
        for name, number, request in self.requests(marks):
            counts.setdefault(number, Counter())[name] += 1
            writes[number] += request.mutating
        assert counts.keys() <= {job["id"] for job in jobs}, counts
        return [self._cost(job, peaks[job["id"]], counts.get(job["id"], Counter()), writes[job["id"]]) for job in jobs]

    def measure_one(self, template: str) -> JobCost:
        """Measure a job for the first cluster alone."""
        with self.sliced(1, template):
            (cost,) = self.measure(template, limit=self.servers[0].name)
        return cost

    def marks(self) -> dict[str, int]:
        """The ends of all audit logs at this time."""
        return {server.name: audit.mark(server.lab) for server in self.servers}

    def requests(self, marks: Mapping[str, int]) -> Iterator[tuple[str, int, audit.AuditedRequest]]:
        """The requests of jobs since these marks: the cluster, the number of the job, and the request. Other clients are the tests' own."""
        for server in self.servers:
            for request in audit.requests(server.lab, marks[server.name]):
                match = _RUN.search(request.agent)
                assert match or not request.agent.startswith("accel.gpu/"), request
                if match:
                    yield server.name, int(match[1]), request

    @staticmethod
    def _cost(job: Row, mib: float, requests: Counter[str], writes: int) -> JobCost:
        handled = tuple(sorted(job["artifacts"].get("gpu_report_summary", {})))
        return JobCost(job, handled, job["elapsed"], mib, dict(requests), writes)


@contextmanager
def fleet(folder: Path, count: int, *, slices: int, **settings: Any) -> Iterator[Fleet]:
    """Start this number of clusters, and an AWX with them; `settings` are those of gpu_awx."""
    names = [f"c{number:02}" for number in range(1, count + 1)]
    with api_servers(folder / "servers", names) as servers, stand_in(folder / "awx") as awx:
        started = Fleet(servers, awx)
        started.declare({name: {"name": name, "context": name} for name in names})
        awx.fill(
            {
                "project": {"url": str(awx.repository)},
                "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
                "inventory": {"sources": [{"name": "clusters", "path": "inventory/hosts.yml"}]},
                "credentials": [
                    {"name": "fleet", "type": "kubeconfig", "inputs": {"kubeconfig": _kubeconfig(servers)}}
                ],
                "slices": slices,
                **settings,
            }
        )
        yield started


def page_of(job: Row) -> str:
    """The page of a job in the stand-in's AWX."""
    return f"https://awx.example.com/#/jobs/playbook/{job['id']}"


def _kubeconfig(servers: Sequence[ApiServer]) -> str:
    """One kubeconfig with a context for each cluster, as the credential contains it."""
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    for server in servers:
        own = yaml.safe_load(server.lab.kubeconfig.read_text())
        document["clusters"] += own["clusters"]
        document["users"].append({"name": server.name, "user": own["users"][0]["user"]})
        document["contexts"].append({"name": server.name, "context": {"cluster": server.name, "user": server.name}})
    return yaml.safe_dump(document)


@contextmanager
def _memory(awx: StandIn) -> Iterator[dict[int, float]]:
    """Sample the memory of all running jobs; yields the peak of each job, in MiB."""
    peaks, done = dict[int, float](), threading.Event()

    def sample() -> None:
        while not done.wait(_SAMPLE_SECONDS):
            for job in list(awx.awx.runs.rows["jobs"].values()):
                container = awx.awx.runs.container(job)
                if container and (outer := container.pid):
                    used = sum(map(_proportional, [outer, *descendants(outer)])) / _MIB
                    peaks[job["id"]] = max(peaks.get(job["id"], 0.0), used)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def _proportional(pid: int) -> int:
    """The memory of a process in KiB, with its share of what it shares with others; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
