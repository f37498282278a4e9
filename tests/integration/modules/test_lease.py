# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease on a real API server: one holder; a dead holder is replaced, and a holder that loses the lease stops."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import HOLDER_ANNOTATION, Lease, LeaseHeld, LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import object_path
from ansible_collections.accel.gpu.plugins.modules import kube_object
from tests.faults.api_proxy import Answer, Request
from tests.helpers.kube import Kube
from tests.programs import REPO


@pytest.fixture
def location(kube: Kube) -> dict[str, Any]:
    """A lease of the test."""
    kube.delete_afterwards(path(kube.prefix))
    return {"namespace": "default", "name": kube.prefix}


def path(name: str) -> str:
    return object_path("coordination.k8s.io/v1", "Lease", name, "default")


def spec(kube: Kube) -> dict[str, Any]:
    actual: dict[str, Any] = kube.require(path(kube.prefix))["spec"]
    return actual


@contextlib.contextmanager
def other_holder(kube: Kube, location: dict[str, Any], **options: Any) -> Iterator[Lease]:
    """Another run holds the lease, on another machine."""
    with Lease(kube.client, "another-run", **location, **options) as lease:
        kube.client.patch(path(kube.prefix), {"metadata": {"annotations": {HOLDER_ANNOTATION: None}}})
        yield lease


def until(done: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def test_a_lease_is_acquired_renewed_and_released(kube: Kube, location: dict[str, Any]) -> None:
    with Lease(kube.client, "run-1", duration=3, **location) as lease:
        first = spec(kube)
        assert (first["holderIdentity"], first["leaseDurationSeconds"]) == ("run-1", 3)
        until(lambda: spec(kube)["renewTime"] != first["renewTime"])
        assert spec(kube)["acquireTime"] == first["acquireTime"]
        lease.check()
    assert spec(kube)["holderIdentity"] == ""
    with Lease(kube.client, "run-2", wait_timeout=0, **location):
        assert spec(kube)["leaseTransitions"] == 1


def test_changes_of_the_holder_since_a_mark_are_detected(kube: Kube, location: dict[str, Any]) -> None:
    for looked, between in ((True, False), (True, True), (False, False), (True, False)):
        lease = Lease(kube.client, "me", **location)
        if looked:
            lease.observe()
        if between:
            with other_holder(kube, location):
                pass
        with lease:
            assert lease.untouched is (looked and not between)
            assert spec(kube)["holderIdentity"] == "me"
    lease = Lease(kube.client, "me", **location)
    with other_holder(kube, location):
        lease.observe()
    with lease:
        assert not lease.untouched


def test_a_live_holder_is_named(kube: Kube, location: dict[str, Any]) -> None:
    with other_holder(kube, location):
        with (
            pytest.raises(LeaseHeld, match="another-run") as caught,
            Lease(kube.client, "me", wait_timeout=0, **location),
        ):
            pass
        assert location["name"] in str(caught.value)


def test_waiting_ends_when_the_holder_releases_the_lease(kube: Kube, location: dict[str, Any]) -> None:
    entered = threading.Event()

    def second() -> None:
        with Lease(kube.client, "second", wait_timeout=30, **location):
            entered.set()

    with other_holder(kube, location):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert not entered.wait(1.5)
    assert entered.wait(20)
    waiting.join()


def test_the_same_run_reacquires_the_lease(kube: Kube, location: dict[str, Any]) -> None:
    """A module of this run was killed while it held the lease."""
    with contextlib.ExitStack() as stack:
        outer = stack.enter_context(Lease(kube.client, "run-1", duration=3, **location))
        with Lease(kube.client, "run-1", wait_timeout=0, duration=3, **location):
            assert spec(kube)["leaseTransitions"] == 0
        # The outer lease acquires again at its next renewal what the inner one has released.
        until(lambda: spec(kube)["holderIdentity"] == "run-1")
        outer.check()


def test_a_dead_holder_elsewhere_is_awaited_only_for_the_duration_of_its_lease(
    kube: Kube, location: dict[str, Any]
) -> None:
    """Its clock is an hour ahead, which must not matter."""
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": dict(location),
        "spec": {
            "holderIdentity": "dead",
            "leaseDurationSeconds": 3,
            "acquireTime": "2099-01-01T00:00:00.000000Z",
            "renewTime": "2099-01-01T00:00:00.000000Z",
        },
    }
    kube.client.create(path("x").rpartition("/")[0], body)
    started = time.monotonic()
    with Lease(kube.client, "me", wait_timeout=60, **location):
        assert time.monotonic() - started >= 3
        assert spec(kube)["holderIdentity"] == "me"


_HOLDER = """
import sys, time
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease
client = Client(ConnectionOptions(kubeconfig=sys.argv[1]), "holder")
with Lease(client, "killed-run", namespace="default", name=sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_killed_holder_on_this_machine_is_not_awaited(kube: Kube, location: dict[str, Any]) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(kube.kubeconfig), location["name"]],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": "build"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LeaseHeld), Lease(kube.client, "me", wait_timeout=0, **location):
            pass
    finally:
        holder.kill()
        holder.wait()
    with Lease(kube.client, "me", wait_timeout=0, **location):
        assert spec(kube)["holderIdentity"] == "me"


_STOPPED = """
import sys
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import wait_until
client = Client(ConnectionOptions(kubeconfig=sys.argv[1]), sys.argv[2])
path = "/api/v1/namespaces/default/configmaps"
with Lease(client, "stopped-run", namespace="default", name=sys.argv[2], duration=3):
    listing = client.list(path)
    list(listing)
    print("held", flush=True)
    if sys.argv[3] == "watch":
        list(client.watch(path, resource_version=listing.resource_version, timeout=600))
    else:
        wait_until(lambda: client.get(path), lambda found: False, timeout=600, describe=str)
"""


def _requests_of(requests: list[Request], agent: str) -> list[Request]:
    """The requests of a run except those for its lease."""
    return [request for request in requests if request.user_agent == agent and "/leases" not in request.path]


def test_a_run_that_was_stopped_longer_than_its_lease_ends_at_once_without_requests(kube: Kube) -> None:
    """In every kind of wait; a suspended laptop or a paused virtual machine is the same case."""
    locations: dict[str, dict[str, Any]] = {
        name: {"namespace": "default", "name": f"{kube.prefix}-{name}"} for name in ("watch", "look")
    }
    for location in locations.values():
        kube.delete_afterwards(path(location["name"]))
    with kube.watched() as watched:
        runs = {
            name: subprocess.Popen(
                [sys.executable, "-c", _STOPPED, str(watched.kubeconfig), location["name"], name],
                cwd=REPO,
                env={**os.environ, "PYTHONPATH": "build"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name, location in locations.items()
        }
        try:
            for name, run in runs.items():
                assert run.stdout is not None
                assert run.stdout.readline() == "held\n"
                # Requests that passed the check just before the stop would be sent after it: the list and the request of the wait are awaited.
                until(lambda agent=locations[name]["name"]: len(_requests_of(watched.proxy.requests, agent)) >= 2)
                run.send_signal(signal.SIGSTOP)
            for location in locations.values():
                with Lease(kube.client, "another-run", wait_timeout=60, **location):
                    pass
            count = len(watched.proxy.requests)
            for run in runs.values():
                run.send_signal(signal.SIGCONT)
            for run in runs.values():
                dummy, errors = run.communicate(timeout=15)
                assert "LeaseLost" in errors.splitlines()[-1]
        finally:
            for run in runs.values():
                run.kill()
                run.wait()
        later = watched.proxy.requests[count:]
    assert [request for location in locations.values() for request in _requests_of(later, location["name"])] == []
    for location in locations.values():
        lease = kube.require(path(location["name"]))["spec"]
        assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("", 1)


def test_a_stolen_lease_is_detected(kube: Kube, location: dict[str, Any]) -> None:
    lease = Lease(kube.client, "me", duration=3, **location)
    lease.__enter__()
    kube.client.patch(path(kube.prefix), {"spec": {"holderIdentity": "thief"}})
    assert lease.lost.wait(20)
    with pytest.raises(LeaseLost):
        lease.check()
    with pytest.raises(LeaseLost, match="run the playbook again"):
        lease.__exit__(None, None, None)
    assert spec(kube)["holderIdentity"] == "thief"


def test_a_lease_deleted_shortly_before_the_end_is_detected(kube: Kube, location: dict[str, Any]) -> None:
    lease = Lease(kube.client, "me", **location)
    lease.__enter__()
    kube.client.delete(path(kube.prefix))
    with pytest.raises(LeaseLost, match="it was deleted"):
        lease.__exit__(None, None, None)
    assert kube.client.get(path(kube.prefix)) is None


def test_a_lease_that_cannot_be_renewed_is_given_up_before_it_expires(kube: Kube, location: dict[str, Any]) -> None:
    with kube.watched() as watched:
        client = kube.connect("accel-gpu-tests", watched.kubeconfig)
        lease = Lease(client, "me", duration=12, **location)
        lease.__enter__()
        started = time.monotonic()
        watched.proxy.before = lambda request: Answer(503) if request.mutating else None
        assert lease.lost.wait(20)
        assert time.monotonic() - started < 12.5
        with pytest.raises(LeaseLost):
            lease.__exit__(None, None, None)


def test_a_short_outage_does_not_lose_the_lease(kube: Kube, location: dict[str, Any]) -> None:
    with kube.watched() as watched:
        lease = Lease(kube.connect("accel-gpu-tests", watched.kubeconfig), "me", duration=9, **location)
        with lease:
            before = spec(kube)["renewTime"]
            refused = threading.Event()

            def once(request: Request) -> Answer | None:
                if request.mutating and not refused.is_set():
                    refused.set()
                    return Answer(503)
                return None

            watched.proxy.before = once
            until(lambda: spec(kube)["renewTime"] != before)
            assert refused.is_set()
            lease.check()


def test_a_module_acquires_the_lease_only_for_changes(kube: Kube) -> None:
    namespace = kube.namespace()
    definition = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}

    def sent(check: bool) -> list[str]:
        with kube.watched() as watched:
            kube.run(
                kube_object.main,
                check=check,
                definitions=[definition],
                lease_namespace=namespace,
                kubeconfig=watched.kubeconfig,
            )
            return [line.partition("/")[0].strip() + line[line.rfind("/") :] for line in watched.new_requests()]

    assert not any(line.endswith(("/leases", "/accel-gpu")) for line in sent(check=True))
    assert sent(check=False) == [
        "GET/c",
        f"GET/{namespace}",
        "GET/accel-gpu",
        "POST/leases",
        "GET/c",
        "PATCH/c",
        "PUT/accel-gpu",
    ]
    assert sent(check=False) == ["GET/c"]


def test_a_module_that_cannot_get_the_lease_names_the_holder(kube: Kube) -> None:
    namespace = kube.namespace()
    definition = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}
    cluster = {"lease": {"wait_timeout": 0}}
    options: dict[str, Any] = {"definitions": [definition], "lease_namespace": namespace, "gpu_cluster": cluster}
    with Lease(kube.client, "another-run", namespace=namespace):
        kept_out = kube.run(kube_object.main, **options)
        assert (kept_out["failed"], kept_out["code"]) == (True, "lease_held")
        assert "another-run" in kept_out["msg"]
        assert kube.run(kube_object.main, check=True, **options)["changed"]
    assert kube.run(kube_object.main, **options)["changed"]
