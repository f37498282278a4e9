# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is stopped between any two of its writes while another one changes the same cluster: their writes never interleave."""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.faults.api_proxy import ApiProxy, Request
from tests.helpers.playbook import Playbook, PlaybookRun, run_playbook
from tests.helpers.rolling import NONE, Rolling
from tests.helpers.workloads import GPU
from tests.labs import reached_by

SHARE = "accel.gpu.share"
MPS = {"mode": "mps", "replicas": 4}
SLICED = {"mode": "time-slicing", "replicas": 3, "rename": True}
# Three times the duration of a lease without renewal.
STOPPED = 90.0
# Time in which a run ends after it finds its lease lost, including the time of Ansible itself.
ENDS_WITHIN = 20.0
# The modules of the playbook share that change something; each holds the lease from its first change to its last.
_WRITER = re.compile(r"accel\.gpu/\S+ (\S+) run/(\S+)")


def writers(rolling: Rolling, since: int) -> list[tuple[str, str]]:
    """Module and run of each change, without repetitions; reads of the lease do not count."""
    created = [
        actual.groups()
        for request in audit.requests(LabLayout.named(rolling.lab.name), since, "accel.gpu/")
        if request.mutating and "dryRun" not in request.uri and "/leases" not in request.uri and request.status < 400
        if (actual := _WRITER.search(request.agent))
    ]
    return [(module, run) for (module, run), dummy in itertools.groupby(created)]


def require_not_interleaved(rolling: Rolling, since: int) -> None:
    """A run that another one has followed does not write again."""
    actual = writers(rolling, since)
    assert len(actual) == len(set(actual)), actual


def options(rolling: Rolling, sharing: dict[str, Any]) -> dict[str, Any]:
    return {"variables": {"gpu_pools": [rolling.pool(sharing)], "gpu_sharing_wait_timeout": 240}}


def stopped_after(rolling: Rolling, number: int, folder: Path) -> tuple[PlaybookRun, PlaybookRun | None, float]:
    """Stop a run after changing request `number`, run another one, and continue the first: both runs, and the rest of the first one's duration.

    There is no other run if the first one has ended before.
    """
    proxy = ApiProxy(rolling.lab.kubeconfig)
    stopped, started = threading.Event(), threading.Event()
    counter = itertools.count(1)
    first: Playbook | None = None

    def stop(request: Request, status: int) -> None:
        if not request.mutating or status >= 400 or "accel.gpu/" not in request.user_agent:
            return
        if next(counter) == number:
            started.wait()
            assert first is not None
            first.stop()
            print(f"stopped after {request.method} {request.path}")
            stopped.set()

    with proxy.running():
        proxy.after = stop
        environ = {**rolling.lab.env, **reached_by(proxy.kubeconfig(folder / "proxied.kubeconfig"))}
        first = Playbook(SHARE, environ=environ, **options(rolling, MPS))
        started.set()
        while not stopped.wait(0.1) and first.process.poll() is None:
            continue
        if not stopped.is_set():
            return first.wait(), None, 0.0
        begun = time.monotonic()
        second = run_playbook(SHARE, environ=rolling.lab.env, **options(rolling, SLICED))
        time.sleep(max(0.0, begun + STOPPED - time.monotonic()))
        first.resume()
        begun = time.monotonic()
        return first.wait(), second, time.monotonic() - begun


@pytest.mark.soak
@pytest.mark.usual(180)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(6))
def test_a_stopped_run_does_not_write_into_another_one(
    rolling: Rolling, tmp_path: Path, rng: random.Random, number: int
) -> None:
    rolling.users.deployment("work", "a100-1", resource=GPU)
    rolling.users.wait_running(1)
    since = audit.mark(LabLayout.named(rolling.lab.name))
    first, second, took = stopped_after(rolling, 3 * number + rng.randint(1, 3), tmp_path)
    if second is None:
        first.require_success()
        return
    second.require_success()
    # Between two modules a run holds no lease: it continues after the other one.
    if first.rc != 0:
        assert "lease" in first.failure()
        assert took < ENDS_WITHIN
        rolling.require_offered({"nvidia.com/gpu.shared": 3})
        rolling.require_clean()
    require_not_interleaved(rolling, since)


@pytest.mark.soak
@pytest.mark.usual(90)
@pytest.mark.timeout(600)
def test_two_hosts_of_one_run_with_one_cluster_take_turns_or_are_refused(rolling: Rolling, tmp_path: Path) -> None:
    """Their names differ, so that only the cluster itself can distinguish them."""
    lab = rolling.lab
    hosts: dict[str, Any] = {}
    for host, sharing in (("blue", MPS), ("green", SLICED)):
        cluster = {"name": host, "kubeconfig": str(lab.kubeconfig), "kube_name": lab.name}
        hosts[host] = {"gpu_cluster": cluster, "gpu_pools": [rolling.pool(sharing)]}
    inventory = tmp_path / "hosts.yml"
    shared = {"gpu_defaults": {}, "gpu_sharing_wait_timeout": 240}
    inventory.write_text(yaml.safe_dump({"gpu_clusters": {"hosts": hosts, "vars": shared}}))
    since = audit.mark(LabLayout.named(lab.name))
    run = run_playbook(SHARE, environ=lab.env, inventory=inventory)
    print(f"ended with {run.rc}: {writers(rolling, since)}")
    require_not_interleaved(rolling, since)
    assert rolling.share(NONE).get("failed") is None
