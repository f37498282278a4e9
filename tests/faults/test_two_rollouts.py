# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs change how the same GPUs are shared: one after another, or the second one fails and names the first."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.playbook import Playbook, run_playbook
from tests.helpers.rolling import NONE, Rolling
from tests.helpers.workloads import GPU

SHARE = "accel.gpu.share"
MPS = {"mode": "mps", "replicas": 4}
SLICED = {"mode": "time-slicing", "replicas": 3}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"
# It is renewed three times within its duration.
RENEWALS = 9
_RUN = re.compile(r" gpu_sharing run/(\S+)")


def options(rolling: Rolling, sharing: dict[str, Any], **variables: Any) -> dict[str, Any]:
    """The playbook's options."""
    pools = [rolling.pool(sharing, drain_timeout=300)]
    return {"environ": rolling.lab.env, "variables": {"gpu_pools": pools, **variables}}


def without_waiting(rolling: Rolling) -> dict[str, Any]:
    """gpu_cluster for a run that fails if it cannot get the lease at once."""
    return {"name": rolling.lab.name, "lease": {"wait_timeout": 0}}


def holder(rolling: Rolling) -> str:
    """The holder of the lease; empty if it is free."""
    actual = rolling.users.api.get(LEASE) or {"spec": {}}
    return str(actual["spec"].get("holderIdentity") or "")


def held_up(rolling: Rolling) -> None:
    """A pod that must not be evicted blocks the first change until its budget is deleted."""
    rolling.users.deployment("work", "a100-1", resource=GPU)
    rolling.users.wait_running(1)
    rolling.users.budget("strict", "work", minAvailable=1)


def changes(rolling: Rolling, since: int) -> list[str]:
    """The runs of gpu_sharing in the order of their changing requests, without repetitions."""
    created = [
        _RUN.search(request.agent)
        for request in audit.requests(LabLayout.named(rolling.lab.name), since, "accel.gpu/")
        if request.mutating and "dryRun" not in request.uri and "/leases" not in request.uri
    ]
    return [run for run, dummy in itertools.groupby(actual[1] for actual in created if actual)]


@pytest.mark.usual(60)
@pytest.mark.sampled(1, group="faults of a rolling update")
@pytest.mark.timeout(600)
def test_the_second_waits_for_the_first(rolling: Rolling) -> None:
    held_up(rolling)
    since = audit.mark(LabLayout.named(rolling.lab.name))
    first = Playbook(SHARE, **options(rolling, MPS))
    rolling.users.until(lambda: cordoned(rolling), "the first run is at work")
    holding = holder(rolling)
    second = Playbook(SHARE, **options(rolling, SLICED))
    rolling.users.until(lambda: asked_for_lease(rolling, since) > 1, "the second run asks for the lease")
    assert holder(rolling) == holding
    rolling.users.no_budget("strict")
    done = [first.wait().require_success(), second.wait().require_success()]
    assert "waiting for" in done[1].stderr
    assert [run.changed() > 0 for run in done] == [True, True]
    assert len(changes(rolling, since)) == 2
    rolling.require_offered({GPU: 3})
    assert holder(rolling) == ""
    rolling.require_clean()


def cordoned(rolling: Rolling) -> bool:
    return bool(rolling.cluster.nodes()["a100-1"]["spec"].get("unschedulable"))


def asked_for_lease(rolling: Rolling, since: int) -> int:
    """The number of runs that have read the lease."""
    sent = audit.requests(LabLayout.named(rolling.lab.name), since, "accel.gpu/")
    return len({request.agent.rpartition("run/")[2] for request in sent if request.uri.endswith("/leases/accel-gpu")})


@pytest.mark.usual(60)
@pytest.mark.sampled(1, group="faults of a rolling update")
@pytest.mark.timeout(600)
def test_the_second_is_refused_with_the_name_of_the_first(rolling: Rolling) -> None:
    held_up(rolling)
    since = audit.mark(LabLayout.named(rolling.lab.name))
    first = Playbook(SHARE, **options(rolling, MPS))
    rolling.users.until(lambda: cordoned(rolling), "the first run is at work")
    refused = run_playbook(SHARE, **options(rolling, SLICED, gpu_cluster=without_waiting(rolling)))
    assert refused.rc != 0
    assert holder(rolling) in refused.failure()
    assert "gpu_cluster.lease.wait_timeout" in refused.failure()
    rolling.users.no_budget("strict")
    first.wait().require_success()
    assert len(changes(rolling, since)) == 1
    rolling.require_offered({GPU: 4})


@pytest.mark.soak
@pytest.mark.usual(150)
@pytest.mark.timeout(900)
def test_a_lease_is_renewed_for_minutes(rolling: Rolling) -> None:
    """Three times its duration without renewal; a check in between finds that no run has to wait for it."""
    held_up(rolling)
    first = Playbook(SHARE, **options(rolling, MPS))
    rolling.users.until(lambda: cordoned(rolling), "the first run is at work")
    begun = lease(rolling)
    renewed = {begun["renewTime"]}

    def long_enough() -> bool:
        now = lease(rolling)
        renewed.add(now["renewTime"])
        assert (now["holderIdentity"], now["acquireTime"]) == (begun["holderIdentity"], begun["acquireTime"])
        return len(renewed) > RENEWALS

    rolling.users.until(long_enough, f"{RENEWALS} renewals", 4 * begun["leaseDurationSeconds"])
    refused = run_playbook(SHARE, **options(rolling, SLICED, gpu_cluster=without_waiting(rolling)))
    assert begun["holderIdentity"] in refused.failure()
    run_playbook(SHARE, arguments=["--check"], **options(rolling, NONE)).require_success()
    rolling.users.no_budget("strict")
    first.wait().require_success()
    rolling.require_clean()


def lease(rolling: Rolling) -> dict[str, Any]:
    """The lease's spec."""
    actual = rolling.users.api.get(LEASE)
    assert actual is not None
    spec: dict[str, Any] = actual["spec"]
    return spec
