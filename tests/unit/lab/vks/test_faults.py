# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each fault of the VKS double does what the contract says of it, and all of them are here."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

import pytest

from lab.vks import contract
from tests.helpers.vks import Account, until

TRIED: set[str] = set()


def fault(name: str) -> Callable[[Callable[[Account], None]], Callable[[Account], None]]:
    """Notes that a fault has a test."""
    TRIED.add(name)
    return lambda test: test


def statuses(account: Account, path: str, until_status: str) -> list[str]:
    """The statuses that a group goes through, each once."""
    seen: list[str] = []

    def look() -> str:
        status: str = account.vks("GET", path).body["status"]
        if status not in seen:
            seen.append(status)
        return status

    until(look, lambda status: status == until_status)
    return seen


@fault("create-failed")
def test_a_creation_fails(account: Account) -> None:
    account.put("create-failed", group="gpus-1")
    account.create()
    path = account.path("gpus-1")
    assert statuses(account, path, "ERROR")[-1] == "ERROR"
    event = account.vks("GET", f"{account.cluster}/events").body["items"][0]
    assert (event["type"], event["action"]) == ("ERROR", "CREATE")
    assert "not enough resources" in event["message"]
    assert account.created(name="other-1")


@fault("update-failed")
def test_a_change_fails(account: Account) -> None:
    path = account.created()
    account.put("update-failed")
    account.vks("PUT", path, {"numNodes": 2})
    assert statuses(account, path, "ERROR") == ["UPDATING", "ERROR"]


@fault("delete-failed")
def test_a_deletion_fails_unless_it_is_forced(account: Account) -> None:
    path = account.created()
    account.put("delete-failed")
    account.vks("DELETE", path)
    account.settled(path, "ERROR")
    account.vks("DELETE", f"{path}?forceDelete=true")
    until(lambda: account.vks("GET", path).status, lambda status: status == 404)


@fault("in-progress")
def test_what_was_begun_never_ends(account: Account) -> None:
    account.put("in-progress", group="gpus-1")
    account.create()
    path = account.path("gpus-1")
    account.created(name="other-1")
    time.sleep(0.3)
    assert account.vks("GET", path).body["status"] == "CREATING"
    account.fake.settings.clear("vks.in-progress")
    account.settled(path)


@fault("unknown-status")
def test_a_status_that_nobody_knows(account: Account) -> None:
    path = account.created()
    account.put("unknown-status", "WOBBLING")
    account.vks("PUT", path, {"numNodes": 2})
    assert statuses(account, path, "ACTIVE") == ["WOBBLING", "ACTIVE"]


@fault("degraded")
def test_degraded_for_a_while(account: Account) -> None:
    account.put("degraded", "0.2")
    account.create()
    assert statuses(account, account.path("gpus-1"), "ACTIVE") == ["CREATING", "DEGRADED", "ACTIVE"]


@fault("nodes-pending")
def test_nodes_that_do_not_become_ready(account: Account) -> None:
    account.put("nodes-pending", group="gpus-1")
    account.create()
    path = account.path("gpus-1")
    time.sleep(0.4)
    assert account.vks("GET", path).body["status"] == "CREATING"
    assert [node["ready"] for node in account.vks("GET", f"{path}/nodes").body["items"]] == [False]


@fault("busy")
def test_busy_some_times(account: Account) -> None:
    path = account.created()
    account.put("busy", 2)
    assert [account.vks("PUT", path, {"numNodes": 2}).status for dummy in range(3)] == [409, 409, 202]


@fault("lost-reply")
def test_a_reply_is_lost_and_its_request_is_not(account: Account) -> None:
    account.put("lost-reply", 1)
    with pytest.raises(http.client.RemoteDisconnected):
        account.create()
    assert "gpus-1" in account.groups()
    assert account.create(name="other-1").status == 202


@pytest.mark.parametrize(("name", "status"), [("server-error", 500), ("unavailable", 503), ("throttled", 429)])
def test_weather_passes(account: Account, name: str, status: int) -> None:
    account.put(name, 2)
    answers = [account.vks("GET", "/clusters") for dummy in range(3)]
    assert [answer.status for answer in answers] == [status, status, 200]
    assert ("Retry-After" in answers[0].headers) == (status == 429)


TRIED |= {"server-error", "unavailable", "throttled"}


@fault("token-expired")
def test_tokens_are_worth_nothing_after_some_requests(account: Account) -> None:
    account.put("token-expired", 2)
    assert [account.vks("GET", "/clusters").status for dummy in range(4)] == [200, 200, 401, 401]
    account.login()
    assert [account.vks("GET", "/clusters").status for dummy in range(4)] == [200] * 4


@fault("token-seconds")
def test_tokens_live_as_long_as_they_say(account: Account) -> None:
    account.put("token-seconds", 1)
    assert account.login().body["expires_in"] == 1
    assert account.vks("GET", "/clusters").status == 200
    until(lambda: account.vks("GET", "/clusters").status, lambda status: status == 401)


@fault("refused-login")
def test_a_login_is_refused(account: Account) -> None:
    account.put("refused-login", 1)
    assert account.login().body["errors"][0]["code"] == "AUTHENTICATION_FAILED"
    assert account.login().status == 200


@fault("locked-out")
def test_all_are_locked_out(account: Account) -> None:
    account.put("locked-out")
    assert account.login().body["errors"][0]["code"] == "TOO_MANY_FAILED_LOGINS"
    assert account.vks("GET", "/clusters").status == 200


@fault("forbidden")
def test_a_right_is_taken(account: Account) -> None:
    account.put("forbidden")
    assert account.vks("GET", f"{account.cluster}/kubeconfig").status == 403
    assert account.create().status == 202
    account.put("forbidden", "write")
    assert account.create(name="other-1").status == 403
    assert account.vks("GET", f"{account.cluster}/kubeconfig").status == 200


@fault("slow")
def test_answers_take_their_time(account: Account) -> None:
    account.put("slow", 0.3)
    before = time.monotonic()
    account.vks("GET", "/clusters")
    assert time.monotonic() - before >= 0.3


@fault("page-limit")
def test_pages_are_cut(account: Account) -> None:
    for number in range(4):
        account.create(name=f"group-{number}", numNodes=0)
    account.put("page-limit", 2)
    found = account.vks("GET", f"{account.cluster}/node-groups?pageSize=50").body
    assert (len(found["items"]), found["total"], found["pageSize"]) == (2, 5, 2)


@fault("no-quota")
def test_a_quota_is_lowered(account: Account) -> None:
    path = account.created()
    account.put("no-quota", 1)
    assert account.vks("GET", "/quota").body["maxNodesPerNodeGroup"] == 1
    refused = account.vks("PUT", path, {"numNodes": 2})
    assert (refused.status, "quota exceeded" in refused.body["error"]["message"]) == (400, True)


@fault("sold-out")
def test_a_flavor_is_sold_out(account: Account) -> None:
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
def test_the_autoscaler_adds_nodes_within_the_bounds(account: Account) -> None:
    path = account.created(autoScaleConfig={"minSize": 1, "maxSize": 3}, labels={"a": "b"})
    fixed = account.created(name="fixed-1")
    account.put("autoscaler", 1)
    until(lambda: account.vks("GET", path).body["numNodes"], lambda count: count == 2)
    account.settled(path)
    account.put("autoscaler", 5, group="gpus-1")
    until(lambda: account.vks("GET", path).body["numNodes"], lambda count: count == 3)
    assert account.vks("GET", fixed).body["numNodes"] == 1


@fault("kubeconfig-failed")
def test_a_kubeconfig_fails(account: Account) -> None:
    account.put("kubeconfig-failed")
    path = f"{account.cluster}/kubeconfig"
    account.vks("POST", path, {"expirationDays": 30})
    until(lambda: account.vks("GET", path).body["status"], lambda status: status == "ERROR")


@fault("kubeconfig-expiring")
def test_a_kubeconfig_warns_until_there_is_a_new_one(account: Account) -> None:
    path = f"{account.cluster}/kubeconfig"
    account.put("kubeconfig-expiring")
    for warned in (True, False):
        account.vks("POST", path, {"expirationDays": 30})
        found = until(lambda: account.vks("GET", path).body, lambda body: body["status"] == "ACTIVE")
        assert found["renewalWarning"] is warned


@fault("broken-json")
def test_an_answer_is_cut_off(account: Account) -> None:
    account.put("broken-json", 1)
    assert isinstance(account.vks("GET", "/clusters").body, str)
    assert account.vks("GET", "/clusters").body["total"] == 1


def test_every_fault_has_been_tried() -> None:
    assert contract.load().faults.keys() == TRIED
