# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the connection to VNG Cloud and of the cloud: no group is created twice or lost, and failures are reported."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import vks_cluster_info, vks_nodegroup
from lab.vks import contract
from tests.helpers.vks_modules import CLUSTER, SECRET, Account, Object

NEW = {
    "flavor": "g3-standard-16x128-1A40",
    "disk_type": "SSD",
    "ssh_key": "lab",
    "node_count": 1,
    "node_labels": {"a": "1"},
}
LIFE: tuple[Object, ...] = (NEW, {"node_labels": {"a": "2"}}, {"node_count": 2}, {"state": "absent"})


def reconcile(account: Account, **more: Any) -> Object:
    """Run the module with short timeouts."""
    args = {"cluster": CLUSTER, "name": "train", "confirm": [CLUSTER], "wait_sleep": 1, "wait_timeout": 60, **more}
    return account.run(vks_nodegroup.main, **args)


@pytest.mark.sampled(3)
@pytest.mark.usual(12)
@pytest.mark.parametrize(
    ("fault", "value"),
    [
        ("server-error", 1),
        ("unavailable", 2),
        ("throttled", 1),
        ("busy", 2),
        ("lost-reply", 1),
        ("broken-json", 1),
        ("token-expired", 2),
        ("page-limit", 1),
        ("degraded", 0.5),
        ("unknown-status", "RECONCILING"),
        ("slow", 0.1),
    ],
)
def test_each_change_survives_temporary_faults(account: Account, fault: str, value: object) -> None:
    """The fault affects each change; duplicate names are allowed, so that a second group would be visible."""
    account.set("duplicate-names", "allowed")
    for change in LIFE:
        account.put(fault, value)
        done = reconcile(account, **change)
        assert not done.get("failed"), (change, done["msg"])
        assert done["changed"] is True
        account.clear()
        assert reconcile(account, **change)["changed"] is False, change
        assert set(account.groups()) <= {"train", "default-worker"}
    assert "train" not in account.groups()


@pytest.mark.sampled(2)
@pytest.mark.usual(6)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fault", ["lost-reply", "server-error", "unavailable", "throttled"])
def test_a_group_is_created_once_if_the_response_is_lost(account: Account, fault: str, times: int) -> None:
    account.set("duplicate-names", "allowed")
    account.set("create-shown", "late")
    account.put_before("POST", fault, times)
    assert not reconcile(account, **NEW).get("failed")
    assert sorted(account.groups()) == ["default-worker", "train"]
    # Only a request that was certainly not processed was repeated before the groups were listed.
    posts = [at for at, line in enumerate(account.requests()) if line.startswith("POST")]
    between = [account.requests()[first + 1 : second] for first, second in itertools.pairwise(posts)]
    assert fault == "throttled" or all(any("/node-groups?page=0&" in line for line in lines) for lines in between)


@pytest.mark.usual(8)
def test_a_token_that_expires_during_a_wait_is_renewed(account: Account) -> None:
    """It is renewed at half of its lifetime, so that no request is rejected even if each takes seconds."""
    account.set("delay", "6")
    account.put("token-seconds", 10)
    start = account.mark()
    assert not reconcile(account, **NEW).get("failed")
    assert account.logins(start) >= 2
    assert '"status": 401' not in account.log()


def test_an_invalid_token_is_renewed_once(account: Account) -> None:
    account.set("delay", "1")
    account.put("token-expired", 12)
    assert not reconcile(account, **NEW).get("failed")
    assert account.logins() == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("login-rejected", "is not retried, because failed logins lock the account"),
        ("locked-out", "is locked after failed logins"),
    ],
)
@pytest.mark.parametrize("status", ["400", "401", "403"])
def test_a_refused_login_is_not_repeated(account: Account, fault: str, message: str, status: str) -> None:
    account.set("iam-error-status", status)
    account.put(fault)
    refused = reconcile(account, **NEW)
    assert message in refused["msg"]
    assert account.logins() == 1
    assert SECRET not in str(refused)


def test_a_refused_renewal_ends_the_wait_at_once(account: Account) -> None:
    account.set("delay", "30")
    account.put("token-seconds", 2)
    timer = threading.Timer(0.8, account.put, ["login-rejected"])
    timer.start()
    refused = reconcile(account, **NEW)
    timer.join()
    assert "IAM rejected the login" in refused["msg"]
    assert account.logins() == 2


def test_the_older_iam_version_works(account: Account) -> None:
    url = account.fake.addresses()["VKS_IAM_URL"].replace("/v2/", "/v1/")
    assert len(account.run(vks_cluster_info.main, iam_url=url)["clusters"]) == 1
    base = account.fake.url
    assert len(account.run(vks_cluster_info.main, iam_url=base, iam_version="v1")["clusters"]) == 1
    assert account.log().count("/accounts-api/v1/auth/token") == account.logins() == 2


@pytest.mark.sampled(2)
@pytest.mark.usual(8)
@pytest.mark.parametrize(
    ("fault", "change", "message"),
    [
        ("create-failed", NEW, "Node group train is ERROR. "),
        ("update-failed", {"node_count": 2}, "Node group train is ERROR. "),
        ("in-progress", {"node_count": 2}, "the run has waited for it to change node_count."),
        ("nodes-pending", {"node_count": 2}, "Not done within 3 s (wait_timeout)"),
    ],
)
def test_a_failed_operation_is_reported_with_status_and_events(
    account: Account, fault: str, change: Object, message: str
) -> None:
    if change is not NEW:
        assert not reconcile(account, **NEW).get("failed")
    account.put(fault)
    done = reconcile(account, **change, wait_timeout=3)
    assert message in done["msg"]
    assert done["nodegroups"]["train"]["failure"] in done["msg"]
    if fault.endswith("failed"):
        assert "not enough resources to run the machines" in done["msg"]


def test_a_group_in_error_is_deleted_by_force(account: Account) -> None:
    account.put("create-failed")
    assert reconcile(account, **NEW)["failed"]
    account.put("delete-failed")
    assert not reconcile(account, state="absent").get("failed")
    assert "train" not in account.groups()
    assert "forceDelete=true" in account.log()


def test_a_failed_deletion_is_reported_and_the_next_run_forces_it(account: Account) -> None:
    assert not reconcile(account, **NEW).get("failed")
    account.put("delete-failed")
    assert "resources of the node group are still in use" in reconcile(account, state="absent", wait_timeout=8)["msg"]
    assert not reconcile(account, state="absent").get("failed")
    assert "train" not in account.groups()


def test_a_missing_right_has_a_clear_message(account: Account) -> None:
    account.client = "lab-reader"
    denied = reconcile(account, **NEW)
    assert denied["code"] == 403
    assert "VKS denies the request (POST " in denied["msg"]
    account.client = "lab"
    assert not reconcile(account, **NEW).get("failed")
    account.put("forbidden", "metadata")
    assert (
        "/metadata): Access denied. The service account requires the permission in IAM"
        in reconcile(account, node_labels={"a": "2"})["msg"]
    )


def test_no_secret_is_in_results_logs_or_messages(account: Account) -> None:
    results = [
        reconcile(account, **NEW),
        reconcile(account, **NEW),
        reconcile(account, flavor="nope"),
        reconcile(account, state="absent"),
    ]
    account.put("login-rejected")
    results.append(reconcile(account, **NEW))
    tokens = set(account.fake.service._iam._tokens)
    assert len(tokens) >= 4
    for secret in (SECRET, *tokens):
        assert all(secret not in str(result) for result in results)
        assert secret not in account.log()


@pytest.mark.parametrize("address", ["vks_url", "vserver_url", "iam_url"])
def test_an_address_without_server_fails_soon(account: Account, address: str) -> None:
    failed = reconcile(account, **NEW, **{address: "http://127.0.0.1:9"})
    assert failed["code"] == "unreachable"
    assert "Nothing listens there. Check that the service is running, and check the address." in failed["msg"]
    assert account.writes() == []


def test_every_fault_of_the_fake_is_injected() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    here = {fault for fault in contract.load().faults if f'"{fault}"' in text.rpartition("def ")[0]}
    # Faults of counts, lookups and kubeconfigs are in other files.
    elsewhere = {"no-quota", "sold-out", "autoscaler", "kubeconfig-failed", "kubeconfig-expiring"}
    assert here | elsewhere == set(contract.load().faults)
