# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is killed after any of its requests and completed by the next one: no duplicate and no orphaned groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from ansible_collections.accel.gpu.plugins.modules import vks_nodegroup
from lab.vks.dispatch import HttpRequest, HttpResponse
from tests.helpers.vks import until
from tests.helpers.vks_modules import CLUSTER, Account, Object
from tests.programs import REPO

NEW = {"flavor": "g3-standard-16x128-1A40", "disk_type": "SSD", "ssh_key": "lab"}
BEFORE = [{"name": "train-old", **NEW, "node_count": 1, "node_labels": {"a": "1"}}, {"name": "train-gone", **NEW}]
AFTER = [
    {"name": "train-old", "node_count": 2, "node_labels": {"a": "2"}},
    {"name": "train-gone", "state": "absent"},
    *({"name": f"train-new{at}", **NEW, "node_labels": {"a": "1"}} for at in range(4)),
]
# Four creations, a deletion, and two changes of one group.
WRITES = 7
_DRIVER = """
import json, sys
from ansible_collections.accel.gpu.plugins.modules import vks_nodegroup
from tests.helpers.modules import run_module
run_module(vks_nodegroup.main, json.loads(sys.stdin.read()))
"""


@pytest.mark.sampled(2)
@pytest.mark.usual(10)
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_a_killed_run_is_completed_by_the_next_one(account: Account, number: int) -> None:
    account.set("duplicate-names", "allowed")
    account.set("create-shown", "late")
    requests: Object = {"cluster": CLUSTER, "confirm": [CLUSTER], "wait_sleep": 1, "wait_timeout": 60}
    assert not account.run(vks_nodegroup.main, **requests, nodegroups=BEFORE).get("failed")
    start = account.mark()
    assert _killed_after(account, number, {**requests, "nodegroups": AFTER}), "it was killed in the middle"
    # The service cannot distinguish two groups of one name from a new group that it does not list yet, so the next run takes
    # longer than that.
    until(account.all_shown, bool)
    done = account.run(vks_nodegroup.main, **requests, nodegroups=AFTER)
    assert not done.get("failed"), done
    assert sorted(account.groups()) == ["default-worker", *(f"train-new{at}" for at in range(4)), "train-old"]
    assert len(account.writes(start)) <= WRITES + 1, "only what may be sent twice was"
    assert account.run(vks_nodegroup.main, **requests, nodegroups=AFTER)["changed"] is False


def _killed_after(account: Account, number: int, args: Object) -> bool:
    """Run the module as a separate process, and kill it after the service has processed this number of writes."""
    path = os.pathsep.join([str(REPO / "build"), str(REPO)])
    environ = {**os.environ, **account.env, "PYTHONPATH": path}
    answer, lock, seen = account.fake.answer, threading.Lock(), 0
    process = subprocess.Popen([sys.executable, "-c", _DRIVER], stdin=subprocess.PIPE, env=environ, text=True)

    def watched(request: HttpRequest) -> HttpResponse:
        nonlocal seen
        message = answer(request)
        with lock:
            seen += request.method != "GET" and request.service == "vks"
            if seen == number:
                process.kill()
        return message

    account.fake.answer = watched  # type: ignore[method-assign]
    process.communicate(json.dumps(args))
    account.fake.answer = answer  # type: ignore[method-assign]
    # The process had sent other requests, which the service may not have read yet. It accepts connections in their order.
    account.login()
    until(lambda: account.fake.connections, lambda connections: connections == 0)
    return process.returncode < 0
