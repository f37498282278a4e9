# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of the fake VKS has the effect in the contract."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

import pytest

from lab.vks import contract
from tests.helpers.vks import Account, until

TESTED: set[str] = set()


def fault(name: str) -> Callable[[Callable[[Account], None]], Callable[[Account], None]]:
    """Register a fault as tested."""
    TESTED.add(name)
    return lambda test: test


def statuses(account: Account, path: str, until_status: str) -> list[str]:
    """Return the sequence of statuses of a group."""
    sequence: list[str] = []

    def current() -> str:
        status: str = account.vks("GET", path).body["status"]
        if status not in sequence:
            sequence.append(status)
        return status

    until(current, lambda status: status == until_status)
    return sequence


@fault("create-failed")
def test_create_failed(account: Account) -> None:
    account.put("create-failed", group="gpus-1")
    account.create()
    path = account.path("gpus-1")
    assert statuses(account, path, "ERROR")[-1] == "ERROR"
    event = account.vks("GET", f"{account.cluster}/events").body["items"][0]
    assert (event["type"], event["action"]) == ("ERROR", "CREATE")
    assert "not enough resources" in event["message"]
    assert account.created(name="other-1")


@fault("update-failed")
def test_update_failed(account: Account) -> None:
    path = account.created()
    account.put("update-failed")
    account.vks("PUT", path, {"numNodes": 2})
    assert statuses(account, path, "ERROR") == ["UPDATING", "ERROR"]


@fault("delete-failed")
def test_delete_failed(account: Account) -> None:
    path = account.created()
    account.put("delete-failed")
    account.vks("DELETE", path)
    account.settled(path, "ERROR")
    account.vks("DELETE", f"{path}?forceDelete=true")
    until(lambda: account.vks("GET", path).status, lambda status: status == 404)


@fault("in-progress")
def test_in_progress(account: Account) -> None:
    account.put("in-progress", group="gpus-1")
    account.create()
    path = account.path("gpus-1")
    account.created(name="other-1")
    time.sleep(0.3)
    assert account.vks("GET", path).body["status"] == "CREATING"
    account.fake.settings.clear("vks.in-progress")
    account.settled(path)


@fault("unknown-status")
def test_unknown_status(account: Account) -> None:
    path = account.created()
    account.put("unknown-status", "WOBBLING")
    account.vks("PUT", path, {"numNodes": 2})
    assert statuses(account, path, "ACTIVE") == ["WOBBLING", "ACTIVE"]


@fault("degraded")
def test_degraded(account: Account) -> None:
    account.put("degraded", "0.2")
    account.create()
    assert statuses(account, account.path("gpus-1"), "ACTIVE") == ["CREATING", "DEGRADED", "ACTIVE"]


@fault("nodes-pending")
def test_nodes_pending(account: Account) -> None:
    account.put("nodes-pending", group="gpus-1")
    account.create()
    path = account.path("gpus-1")
    time.sleep(0.4)
    assert account.vks("GET", path).body["status"] == "CREATING"
    assert [node["ready"] for node in account.vks("GET", f"{path}/nodes").body["items"]] == [False]


@fault("busy")
def test_busy(account: Account) -> None:
    path = account.created()
    account.put("busy", 2)
    assert [account.vks("PUT", path, {"numNodes": 2}).status for dummy in range(3)] == [409, 409, 202]


@fault("lost-reply")
def test_lost_reply(account: Account) -> None:
    account.put("lost-reply", 1)
    with pytest.raises(http.client.RemoteDisconnected):
        account.create()
    assert "gpus-1" in account.groups()
    assert account.create(name="other-1").status == 202


@pytest.mark.parametrize(("name", "status"), [("server-error", 500), ("unavailable", 503), ("throttled", 429)])
def test_http_errors(account: Account, name: str, status: int) -> None:
    account.put(name, 2)
    answers = [account.vks("GET", "/clusters") for dummy in range(3)]
    assert [answer.status for answer in answers] == [status, status, 200]
    assert ("Retry-After" in answers[0].headers) == (status == 429)


TESTED |= {"server-error", "unavailable", "throttled"}


@fault("token-expired")
def test_token_expired(account: Account) -> None:
    account.put("token-expired", 2)
    assert [account.vks("GET", "/clusters").status for dummy in range(4)] == [200, 200, 401, 401]
    account.login()
    assert [account.vks("GET", "/clusters").status for dummy in range(4)] == [200] * 4


@fault("token-seconds")
def test_token_seconds(account: Account) -> None:
    account.put("token-seconds", 1)
    assert account.login().body["expires_in"] == 1
    assert account.vks("GET", "/clusters").status == 200
    until(lambda: account.vks("GET", "/clusters").status, lambda status: status == 401)


@fault("login-rejected")
def test_login_rejected(account: Account) -> None:
    account.put("login-rejected", 1)
    assert account.login().body["errors"][0]["code"] == "AUTHENTICATION_FAILED"
    assert account.login().status == 200


@fault("locked-out")
def test_locked_out(account: Account) -> None:
    account.put("locked-out")
    assert account.login().body["errors"][0]["code"] == "TOO_MANY_FAILED_LOGINS"
    assert account.vks("GET", "/clusters").status == 200


@fault("forbidden")
def test_forbidden(account: Account) -> None:
    account.put("forbidden")
    assert account.vks("GET", f"{account.cluster}/kubeconfig").status == 403
    assert account.create().status == 202
    account.put("forbidden", "write")
    assert account.create(name="other-1").status == 403
    assert account.vks("GET", f"{account.cluster}/kubeconfig").status == 200


@fault("slow")
def test_slow(account: Account) -> None:
    account.put("slow", 0.3)
    before = time.monotonic()
    account.vks("GET", "/clusters")
    assert time.monotonic() - before >= 0.3


@fault("page-limit")
def test_page_limit(account: Account) -> None:
    for number in range(4):
        account.create(name=f"group-{number}", numNodes=0)
    account.put("page-limit", 2)
    actual = account.vks("GET", f"{account.cluster}/node-groups?pageSize=50").body
    assert (len(actual["items"]), actual["total"], actual["pageSize"]) == (2, 5, 2)


@fault("no-quota")
def test_no_quota(account: Account) -> None:
    path = account.created()
    account.put("no-quota", 1)
    assert account.vks("GET", "/quota").body["maxNodesPerNodeGroup"] == 1
    refused = account.vks("PUT", path, {"numNodes": 2})
    assert (refused.status, "quota exceeded" in refused.body["error"]["message"]) == (400, True)


@fault("sold-out")
def test_sold_out(account: Account) -> None:
    account.put("sold-out", "g4-standard-32x128-2L40s")
    project = account.vks("GET", "/workspace").body["projectId"]
    path = f"/v1/{project}/flavors/families/gpu/platforms/skylake/clusters/master/false"
    rows = {row["name"]: row for row in account.vserver("GET", path).body["flavors"]}
    assert [name for name, row in rows.items() if row["isSoldOut"] and row["remainingVms"] == 0] == [
        "g4-standard-32x128-2L40s"
    ]
    assert account.create().status == 400
    account.set("sold-out", "error")
    assert account.create().status == 202
    account.settled(account.path("gpus-1"), "ERROR")


@fault("autoscaler")
def test_autoscaler_adds_nodes_within_the_bounds(account: Account) -> None:
    path = account.created(autoScaleConfig={"minSize": 1, "maxSize": 3}, labels={"a": "b"})
    fixed = account.created(name="fixed-1")
    account.put("autoscaler", 1)
    until(lambda: account.vks("GET", path).body["numNodes"], lambda count: count == 2)
    account.settled(path)
    account.put("autoscaler", 5, group="gpus-1")
    until(lambda: account.vks("GET", path).body["numNodes"], lambda count: count == 3)
    assert account.vks("GET", fixed).body["numNodes"] == 1


@fault("kubeconfig-failed")
def test_kubeconfig_failed(account: Account) -> None:
    account.put("kubeconfig-failed")
    path = f"{account.cluster}/kubeconfig"
    account.vks("POST", path, {"expirationDays": 30})
    until(lambda: account.vks("GET", path).body["status"], lambda status: status == "ERROR")


@fault("kubeconfig-expiring")
def test_kubeconfig_expiring(account: Account) -> None:
    path = f"{account.cluster}/kubeconfig"
    account.put("kubeconfig-expiring")
    for warned in (True, False):
        account.vks("POST", path, {"expirationDays": 30})
        actual = until(lambda: account.vks("GET", path).body, lambda body: body["status"] == "ACTIVE")
        assert actual["renewalWarning"] is warned


@fault("broken-json")
def test_broken_json(account: Account) -> None:
    account.put("broken-json", 1)
    assert isinstance(account.vks("GET", "/clusters").body, str)
    assert account.vks("GET", "/clusters").body["total"] == 1


def test_every_fault_is_tested() -> None:
    assert contract.load().faults.keys() == TESTED
