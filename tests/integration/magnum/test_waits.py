# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No request is lost, a change counts only once its effect is observed, and every wait ends with a message."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from lab import cloud_requests
from tests.helpers.magnum import CLUSTER, Magnum


def requests_of(magnum: Magnum, since: int) -> Counter[str]:
    return cloud_requests.count(magnum.layout, since, "accel.gpu")


@pytest.mark.usual(20)
def test_a_second_run_sends_one_request_per_group_and_three(magnum: Magnum) -> None:
    names = [magnum.named(str(index)) for index in range(8)]
    desired = [{"name": name, "flavor": "m2.medium", "node_count": 0, "max_node_count": 3} for name in names]
    assert magnum.run("nodegroup", nodegroups=desired)["changed"]
    since = cloud_requests.mark(magnum.layout)
    assert magnum.run("nodegroup", nodegroups=desired)["changed"] is False
    assert requests_of(magnum, since) == {"keystone POST": 1, "magnum GET": len(names) + 2}


@pytest.mark.usual(10)
def test_an_update_while_another_is_in_progress_is_not_lost(magnum: Magnum) -> None:
    """Magnum accepts a patch of a group in creation, and loses it."""
    labels = {"lab_delay": "4"}
    assert magnum.group(flavor="m2.medium", node_count=1, labels=labels, wait=False)["changed"]
    done = magnum.group(node_count=3, max_node_count=3, min_node_count=2)
    assert not done.get("failed"), done["msg"]
    live = magnum.live()
    assert (live["min_node_count"], live["node_count"], live["max_node_count"]) == (2, 3, 3)
    assert live["status"] == "UPDATE_COMPLETE"


@pytest.mark.usual(10)
def test_a_group_in_deletion_is_recreated_by_one_run(magnum: Magnum) -> None:
    assert magnum.group(flavor="m2.medium", labels={"lab_delay": "2"})["changed"]
    assert magnum.group(state="absent", wait=False)["changed"]
    since = cloud_requests.mark(magnum.layout)
    assert magnum.group(state="absent", wait=False)["changed"] is False
    assert requests_of(magnum, since)["magnum DELETE"] == 0
    assert magnum.group(flavor="m2.medium", node_count=2)["changed"]
    assert (magnum.live()["status"], magnum.live()["node_count"]) == ("CREATE_COMPLETE", 2)


@pytest.mark.sampled(1, group="waits for Magnum")
@pytest.mark.usual(15)
def test_two_parallel_runs_both_succeed(magnum: Magnum) -> None:
    assert magnum.group(flavor="m2.medium", labels={"lab_delay": "1"})["changed"]
    other = threading.Thread(target=lambda: magnum.api.resize(CLUSTER, magnum.named("g"), 2))
    other.start()
    assert magnum.group(max_node_count=5)["changed"]
    other.join()
    live = magnum.api.settled(CLUSTER, magnum.named("g"))
    assert (live["node_count"], live["max_node_count"]) == (2, 5)


@pytest.mark.sampled(1, group="waits for Magnum")
@pytest.mark.usual(6)
def test_a_timeout_has_a_message(magnum: Magnum) -> None:
    magnum.fault("in-progress", "--group", magnum.named("g"))
    failed = magnum.group(flavor="m2.medium", timeout=3)
    assert failed["code"] == "timeout"
    for message in (
        "Not done within 3 s",
        magnum.named("g"),
        "CREATE_IN_PROGRESS",
        "The cluster is UPDATE_IN_PROGRESS",
    ):
        assert message in failed["msg"]
    magnum.lab.command("cloud", "fault", "clear")
    # An operation of an earlier run is awaited like one of this run.
    done = magnum.group(flavor="m2.medium")
    assert (done["changed"], done["nodegroup"]["status"]) == (False, "CREATE_COMPLETE")


@pytest.mark.sampled(1, group="waits for Magnum")
@pytest.mark.usual(10)
def test_a_creation_that_fails(magnum: Magnum) -> None:
    magnum.fault("create-failed", "--group", magnum.named("bad"), "--value", "No valid host was found")
    desired = [{"name": magnum.named(name), "flavor": "m2.medium", "node_count": 1} for name in ("bad", "good")]
    failed = magnum.run("nodegroup", nodegroups=desired)
    assert failed["code"] == "partial"
    assert f"Node group {magnum.named('bad')} is CREATE_FAILED. No valid host was found." in failed["msg"]
    assert failed["nodegroups"][magnum.named("good")]["status"] == "CREATE_COMPLETE", "the other groups are reconciled"
    assert "failure" in failed["nodegroups"][magnum.named("bad")]

    # With a failed group, and the cluster UPDATE_FAILED, another group can be changed.
    assert magnum.group("good", node_count=2)["changed"]
    magnum.lab.command("cloud", "fault", "clear")
    healed = magnum.run("nodegroup", nodegroups=desired[:1])
    assert not healed.get("failed"), healed["msg"]
    assert magnum.live("bad")["status"].endswith("_COMPLETE")
    assert magnum.run("nodegroup", nodegroups=desired[:1])["changed"] is False


@pytest.mark.sampled(1, group="waits for Magnum")
@pytest.mark.usual(8)
def test_a_failed_update_is_repeated_by_the_next_run(magnum: Magnum) -> None:
    assert magnum.group(flavor="m2.medium", node_count=1)["changed"]
    magnum.fault("update-failed", "--group", magnum.named("g"), "--value", "Out of machines")
    failed = magnum.group(node_count=2)
    assert "is UPDATE_FAILED. Out of machines." in failed["msg"]
    magnum.lab.command("cloud", "fault", "clear")
    assert magnum.group(node_count=2)["changed"]
    assert magnum.live()["status"] == "UPDATE_COMPLETE"


@pytest.mark.sampled(1, group="waits for Magnum")
@pytest.mark.usual(12)
def test_a_temporary_outage_of_the_service(magnum: Magnum) -> None:
    assert magnum.group(flavor="m2.medium", node_count=1)["changed"]
    magnum.fault("unavailable", "--value", "3")
    assert magnum.group(node_count=2)["changed"]
    assert magnum.live()["node_count"] == 2


@pytest.mark.sampled(1, group="waits for Magnum")
@pytest.mark.usual(12)
def test_lost_responses(magnum: Magnum) -> None:
    """Each request is processed, but its response is lost: one group with the requested size."""
    magnum.fault("lost-reply", "--value", "1")
    assert magnum.group(flavor="m2.medium", node_count=1)["changed"]
    magnum.fault("lost-reply", "--value", "1")
    assert magnum.group(node_count=2)["changed"]
    magnum.fault("lost-reply", "--value", "1")
    assert magnum.group(max_node_count=4)["changed"]
    live = magnum.live()
    assert (live["node_count"], live["max_node_count"]) == (2, 4)
    magnum.fault("lost-reply", "--value", "1")
    assert magnum.group(state="absent")["changed"]
    assert magnum.api.group(CLUSTER, magnum.named("g")) is None


@pytest.mark.sampled(1, group="waits for Magnum")
@pytest.mark.usual(20)
def test_a_token_that_expires_during_a_wait(magnum: Magnum) -> None:
    magnum.fault("token-expiry", "--value", "3")
    since = cloud_requests.mark(magnum.layout)
    done = magnum.group(flavor="m2.medium", labels={"lab_delay": "9"})
    assert not done.get("failed"), done["msg"]
    assert requests_of(magnum, since)["keystone POST"] > 1
