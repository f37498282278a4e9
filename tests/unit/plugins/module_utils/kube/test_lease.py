# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a lease, and what makes a holder lose it: on a server that checks versions, with clocks that the test moves."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube import lease as module
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import (
    HOLDER_ANNOTATION,
    URL_ANNOTATION,
    Lease,
    LeaseHeld,
    LeaseLost,
    elapsed,
    holder_of,
)
from tests.helpers.polling import until

from .lease_server import Clock, Server

Object = dict[str, Any]
RUN = "laptop-17-99"
PROD, TEST = holder_of(RUN, "prod"), holder_of(RUN, "test")
OTHER = "awx-7/prod"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that renews looks at the test's clocks more often."""
    monkeypatch.setattr(module, "_TICK", 0.01)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lease(server: Any, clock: Clock, holder: str, **options: Any) -> Lease:
    """Renewed only when the test moves the clock; a waiting one moves it."""
    given: dict[str, Any] = {"duration": 30, "wait_timeout": 0, "wall_clock": clock, "sleep": clock.pass_by, **options}
    return Lease(server, holder, clock=clock, **given)


def elsewhere(server: Server) -> None:
    """The holder's processes are on another machine, of which nothing can be known."""
    assert server.lease is not None
    server.lease["metadata"]["annotations"].pop(HOLDER_ANNOTATION)


def test_two_inventory_hosts_of_one_run_do_not_share_it(server: Server, clock: Clock) -> None:
    with lease(server, clock, PROD):
        with pytest.raises(
            LeaseHeld, match=r"Inventory host prod of this same run.*One inventory host represents one cluster"
        ):
            lease(server, clock, TEST).__enter__()
        assert server.spec["holderIdentity"] == PROD
    with lease(server, clock, TEST):
        assert (server.spec["holderIdentity"], server.spec["leaseTransitions"]) == (TEST, 1)


def test_another_run_is_named(server: Server, clock: Clock) -> None:
    with (
        lease(server, clock, OTHER),
        pytest.raises(LeaseHeld, match=f"Another run, {OTHER}, .*raise gpu_cluster.lease.wait_timeout"),
    ):
        lease(server, clock, PROD).__enter__()


URL = "https://awx.example.com/#/jobs/playbook/7"


def annotations_of(server: Server) -> dict[str, str]:
    assert server.lease is not None
    return dict(server.lease["metadata"]["annotations"])


def test_the_page_of_the_run_is_in_the_lease_as_long_as_it_is_held(server: Server, clock: Clock) -> None:
    with lease(server, clock, OTHER, url=URL) as held:
        assert annotations_of(server)[URL_ANNOTATION] == URL
        clock.pass_by(11)
        until(lambda: renewed(server, held))
        assert annotations_of(server)[URL_ANNOTATION] == URL
    assert URL_ANNOTATION not in annotations_of(server)


def test_the_page_of_a_dead_run_does_not_stay(server: Server, clock: Clock) -> None:
    killed = lease(server, clock, OTHER, url=URL)
    killed._put(None)
    elsewhere(server)
    with lease(server, clock, PROD, wait_timeout=60):
        assert server.spec["holderIdentity"] == PROD
        assert URL_ANNOTATION not in annotations_of(server)


@pytest.mark.parametrize(
    ("holder", "url", "text"),
    [
        (OTHER, URL, f"Another run, {OTHER} ({URL}), has been changing this cluster"),
        (OTHER, "", f"Another run, {OTHER}, has been changing"),
        (OTHER, "https://user:secret@awx.example.com/", f"Another run, {OTHER}, has been changing"),
        (OTHER, "javascript:alert(1)", f"Another run, {OTHER}, has been changing"),
        (OTHER, 7, f"Another run, {OTHER}, has been changing"),
        ("a\nok: [prod]\x1b[2J", "", r"Another run, a\nok: [prod]\u001b[2J, has been changing"),
        ("a" * 300, "", f"Another run, {'a' * 200}..., has been changing"),
        (f"{RUN}/b\x1b[2J", "", r"Inventory host b\u001b[2J of this same run"),
        (f"{RUN}/{'b' * 300}", "", f"Inventory host {'b' * 200}... of this same run"),
    ],
)
def test_what_a_lease_says_about_its_holder_is_text_of_others(
    server: Server, clock: Clock, holder: str, url: Any, text: str
) -> None:
    reports: list[str] = []
    progress = Progress(None)
    progress.report = lambda text, *_counts, **_options: reports.append(text)  # type: ignore[method-assign]
    annotations = {URL_ANNOTATION: url} if url else {}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    server._stored({"metadata": {"uid": "u", "annotations": annotations}, "spec": spec})
    with pytest.raises(LeaseHeld) as caught:
        lease(server, clock, PROD, wait_timeout=5, progress=progress).__enter__()
    assert text in str(caught.value)
    assert len(str(caught.value)) < 1000
    shown = [*reports, str(caught.value)]
    assert reports
    assert all(line.isprintable() and "secret" not in line and "javascript" not in line for line in shown)
    assert all((URL in line) == (url == URL) for line in shown)


def test_two_modules_of_one_host_share_it_until_the_last_one_ends(server: Server, clock: Clock) -> None:
    first, second = lease(server, clock, PROD), lease(server, clock, PROD)
    first.__enter__()
    with second:
        assert server.spec["leaseTransitions"] == 0
    # The second has ended, and no other holder gets the lease while the first is working.
    assert server.spec["holderIdentity"] == PROD
    with pytest.raises(LeaseHeld):
        lease(server, clock, OTHER).__enter__()
    clock.pass_by(11)
    until(lambda: renewed(server, first))
    first.check()
    first.__exit__(None, None, None)
    assert server.spec["holderIdentity"] == ""


def invisible(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease exists for a creation, and does not exist for a read."""
    server._stored({"metadata": {"uid": "u"}, "spec": {}})
    monkeypatch.setattr(server, "get", lambda path: None)


def always_changed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is free, and every write is rejected as a conflict."""
    server._stored({"metadata": {"uid": "u"}, "spec": {}})
    server.failure = ApiError("modified", status=409)


def always_deleted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is free, and is gone when it is written."""
    server._stored({"metadata": {"uid": "u"}, "spec": {}})
    server.failure = ApiError("no such lease", status=404)


@pytest.mark.parametrize(
    ("behavior", "text"),
    [
        (invisible, r"already exists \(409\), but does not return it \(404\)"),
        (always_changed, "rejects each write as a conflict"),
        (always_deleted, "rejects each write as a conflict"),
    ],
)
@pytest.mark.parametrize("wait_timeout", [0, 60])
def test_the_wait_ends_although_every_write_is_a_conflict(
    server: Server,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    behavior: Callable[[Server, pytest.MonkeyPatch], None],
    text: str,
    wait_timeout: int,
) -> None:
    behavior(server, monkeypatch)
    began = clock()
    with pytest.raises(LeaseHeld, match=f"kube-system/accel-gpu could not be written .*{text}"):
        lease(server, clock, PROD, wait_timeout=wait_timeout).__enter__()
    assert clock() - began == pytest.approx(wait_timeout, abs=2)


def test_a_lease_that_is_deleted_before_the_write_is_created(server: Server, clock: Clock) -> None:
    server._stored({"metadata": {"uid": "u"}, "spec": {}})
    stale, read = copy.deepcopy(server.lease), server.get

    def once(path: str) -> Object | None:
        server.lease, server.get = None, read  # type: ignore[method-assign]
        return stale

    server.get = once  # type: ignore[method-assign, assignment]
    with lease(server, clock, PROD):
        assert server.spec["holderIdentity"] == PROD


def renewed(server: Server, held: Lease) -> bool:
    """Whether the holder has taken the version that there is for its own."""
    assert server.lease is not None
    return (
        held._held is not None
        and held._held["metadata"]["resourceVersion"] == server.lease["metadata"]["resourceVersion"]
    )


def stolen(server: Server) -> None:
    server.edit(holderIdentity=OTHER, leaseTransitions=1)


def stolen_and_released(server: Server) -> None:
    server.edit(holderIdentity="", leaseTransitions=1)


def stolen_and_back_with_ourselves(server: Server) -> None:
    server.edit(leaseTransitions=2)


def deleted(server: Server) -> None:
    server.lease = None


def recreated(server: Server) -> None:
    assert server.lease is not None
    server.lease["metadata"]["uid"] = "another"
    server.edit()


def restored(server: Server) -> None:
    """The cluster is restored from a backup that was made while this run held the lease."""
    server.edit(renewTime="2000-01-01T00:00:00.000000Z")


def released_manually(server: Server) -> None:
    server.edit(holderIdentity="")


LOSSES: dict[Callable[[Server], None], str] = {
    stolen: "another run, awx-7/prod, took it",
    stolen_and_released: "another run held it in the meantime",
    stolen_and_back_with_ourselves: "another run held it in the meantime",
    released_manually: "another run held it in the meantime",
    deleted: "it was deleted",
    recreated: "it was deleted",
    restored: "set back to an earlier state",
}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_renewal_does_not_take_it_again(server: Server, clock: Clock, loss: Callable[[Server], None]) -> None:
    held = lease(server, clock, PROD)
    held.__enter__()
    loss(server)
    before = copy.deepcopy(server.lease)
    clock.pass_by(11)
    assert held.lost.wait(5)
    with pytest.raises(LeaseLost, match=LOSSES[loss]):
        held.check()
    with pytest.raises(LeaseLost):
        held.__exit__(None, None, None)
    assert server.lease == before


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_release_does_not_write_over_it(server: Server, clock: Clock, loss: Callable[[Server], None]) -> None:
    held = lease(server, clock, PROD)
    held.__enter__()
    loss(server)
    before = copy.deepcopy(server.lease)
    with pytest.raises(LeaseLost, match=LOSSES[loss]):
        held.__exit__(None, None, None)
    assert held.lost.is_set()
    assert server.lease == before


def test_an_error_of_the_work_is_not_hidden_by_a_loss_that_the_release_finds(server: Server, clock: Clock) -> None:
    held = lease(server, clock, PROD)
    held.__enter__()
    deleted(server)
    held.__exit__(KeyError, KeyError(), None)
    assert held.lost.is_set()


@pytest.mark.parametrize("status", [403, 500, None])
def test_a_release_that_fails_otherwise_is_left_to_expire(server: Server, clock: Clock, status: int | None) -> None:
    """The lease was held to the end; whether it was released does not matter for the work."""
    held = lease(server, clock, PROD)
    held.__enter__()
    server.failure = ApiError("no", status=status)
    held.__exit__(None, None, None)
    assert not held.lost.is_set()


@pytest.mark.parametrize("status", [403, 500, None])
def test_nothing_is_known_of_a_lease_that_cannot_be_read_again(
    server: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    held = lease(server, clock, PROD)
    held.__enter__()
    server.edit(renewTime="2999-01-01T00:00:00.000000Z")

    def fail(path: str, query: Any = None) -> None:
        raise ApiError("no", status=status)

    monkeypatch.setattr(server, "get", fail)
    held.__exit__(None, None, None)
    assert not held.lost.is_set()


def test_a_release_whose_answer_was_lost_is_no_loss(server: Server, clock: Clock) -> None:
    """The client retries, and the server reports a conflict with the client's own first write."""
    held = lease(server, clock, PROD)
    held.__enter__()
    server.answer_lost = True
    held.__exit__(None, None, None)
    assert not held.lost.is_set()
    assert server.spec["holderIdentity"] == ""


def test_what_others_write_beside_it_stays(server: Server, clock: Clock) -> None:
    """A foreign annotation neither ends the lease nor gets lost."""
    with lease(server, clock, PROD) as held:
        assert server.lease is not None
        server.lease["metadata"]["annotations"]["example.com/note"] = "kept"
        server.edit()
        clock.pass_by(11)
        until(lambda: renewed(server, held))
        held.check()
    assert server.lease["metadata"]["annotations"] == {"example.com/note": "kept"}


def test_stopped_for_longer_than_it_lasts(server: Server, clock: Clock) -> None:
    """Even without another holder: data that was read before may be outdated."""
    held = lease(server, clock, PROD)
    held.__enter__()
    clock.pass_by(90)
    with pytest.raises(LeaseLost, match="not renewed for 90 s and is valid for 30 s"):
        held.check()
    # Waits without a request end too, within a tick of the real clock.
    assert held.lost.wait(5)


def test_stopped_in_the_middle_of_a_renewal(server: Server, clock: Clock) -> None:
    """It was carried out before the stop; afterwards the lease is as old as the request, not as the answer."""
    held = lease(server, clock, PROD)
    held.__enter__()
    server.while_asked = lambda: clock.pass_by(90)
    clock.pass_by(11)
    assert held.lost.wait(5)
    with pytest.raises(LeaseLost, match="not renewed for 90 s"):
        held.check()


def test_a_machine_that_slept_unnoticed_asks_when_its_time_of_day_is_right_again(server: Server, clock: Clock) -> None:
    wall = Clock()
    held = lease(server, clock, PROD, wall_clock=wall)
    held.__enter__()
    stolen(server)
    wall.pass_by(3600)
    assert held.lost.wait(5)
    with pytest.raises(LeaseLost, match="took it"):
        held.check()


def test_taken_from_a_slow_server_it_is_renewed_at_once(server: Server, clock: Clock) -> None:
    with lease(server, clock, PROD):
        pass
    delays = iter([20.0])
    server.while_asked = lambda: clock.pass_by(next(delays, 0.0))
    with lease(server, clock, PROD) as held:
        clock.pass_by(15)
        held.check()


def test_without_it_nothing_is_asked_but_about_itself(server: Server, clock: Clock) -> None:
    held = lease(server, clock, PROD)
    assert server.guard is None
    held.__enter__()
    assert server.guard is not None
    server.guard("/api/v1/nodes")
    clock.pass_by(31)
    with pytest.raises(LeaseLost):
        server.guard("/api/v1/nodes")
    server.guard("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu")
    server.guard("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
    with pytest.raises(LeaseLost):
        held.__exit__(None, None, None)
    assert server.guard is None


def test_of_two_leases_each_guards(server: Server, clock: Clock) -> None:
    inner = Server()
    client = inner
    late = Clock()
    outer = lease(client, late, PROD, name="outer")
    outer.__enter__()
    inner.lease = None
    with lease(client, clock, PROD, name="inner"):
        assert client.guard is not None
        client.guard("/api/v1/nodes")
        late.pass_by(31)
        with pytest.raises(LeaseLost, match="outer"):
            client.guard("/api/v1/nodes")


def test_check_mode_neither_asks_nor_guards(server: Server, clock: Clock) -> None:
    with lease(server, clock, PROD, active=False) as held:
        clock.pass_by(90)
        held.check()
    assert server.lease is None
    assert server.guard is None


def test_the_clock_goes_on_in_a_machine_that_sleeps() -> None:
    assert abs(elapsed() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 5
