# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is killed after each of its changes, and the next run completes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.faults.api_proxy import Request
from tests.helpers.olm import OlmNamespace
from tests.helpers.openshift import GPU_CSV, GPU_PACKAGE, OLD_GPU_CSV
from tests.helpers.polling import until
from tests.programs import REPO

_DRIVER = """
import json, sys
from ansible_collections.accel.gpu.plugins.modules import olm_subscription
from tests.helpers.modules import run_module
run_module(olm_subscription.main, json.loads(sys.stdin.read()))
"""
OLD, NEW, GONE = {"version": "v25.3.2"}, {"version": "v25.10.1"}, {"state": "absent"}


def killed_after(olm: OlmNamespace, number: int, **options: Any) -> bool:
    """Run the module as a separate process, and kill it after the server has processed this number of its changes."""
    usual = {
        "namespace": olm.namespace,
        "package": GPU_PACKAGE,
        "wait_timeout": 120,
        "confirm": [olm.kube.client.connection.cluster_name],
    }
    path = os.pathsep.join([str(REPO / "build"), str(REPO)])
    lock, seen = threading.Lock(), 0
    with olm.kube.watched() as watched:
        process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )

        def kill(request: Request, status: int) -> None:
            nonlocal seen
            with lock:
                seen += request.mutating and "/leases" not in request.path and status < 400
                if seen == number:
                    process.kill()

        watched.proxy.after = kill
        process.communicate(json.dumps({"kubeconfig": str(watched.kubeconfig), **usual, **options}))
    return process.returncode < 0


@pytest.mark.sampled(1)
@pytest.mark.usual(25)
@pytest.mark.parametrize(
    ("before", "goal", "number"),
    [
        # The OperatorGroup, the Subscription, the approval.
        *(("nothing", OLD, number) for number in (1, 2, 3)),
        # The channel, the approval.
        *(("installed", NEW, number) for number in (1, 2)),
        # The ClusterServiceVersion without a Subscription, the Subscription, the approval.
        *(("unreferenced", OLD, number) for number in (1, 2, 3)),
        # The status of the Subscription, the approval.
        *(("lost", OLD, number) for number in (1, 2)),
        # The Subscription, the ClusterServiceVersion.
        *(("installed", GONE, number) for number in (1, 2)),
    ],
)
def test_the_next_run_completes_it(olm: OlmNamespace, before: str, goal: dict[str, Any], number: int) -> None:
    if before != "nothing":
        olm.install(**OLD)
        olm.wait_settled()
    if before == "unreferenced":
        olm.kube.client.delete(olm.path("subscriptions", GPU_PACKAGE))
    if before == "lost":
        olm.lose(OLD_GPU_CSV)
    assert killed_after(olm, number, **goal), "it was killed in the middle"
    done = olm.run(**goal)
    assert not done.get("failed"), done["msg"]
    if goal != GONE:
        assert done["olm_subscription"]["installed"] is True
        olm.wait_settled()
        until(lambda: (olm.csv(OLD_GPU_CSV) is None) == (goal == NEW))
        assert (olm.csv(GPU_CSV) is None) == (goal == OLD)
    olm.unchanged(**goal)
