# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds and renews a coordination.k8s.io Lease while a run makes changes, so that only one run at a time changes a cluster."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import threading
import time
import types
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import LEASE_NAME, LEASE_NAMESPACE
from ..common.errors import ModuleFailure
from ..common.progress import Progress
from .cluster_identity import ClusterIdentity
from .errors import ApiError
from .lease_holder import HOLDER_ANNOTATION, all_ended, held_message, others, reason_lost, remaining, this_process
from .paths import collection_path

if t.TYPE_CHECKING:
    from .client import Client

_POLL = 1.0
# The maximum interval in seconds at which a process checks whether its lease has expired, for example because the process was stopped or the
# machine slept.
_TICK = 1.0

Object = dict[str, t.Any]


class LeaseHeld(ModuleFailure):
    """Another run is changing this cluster; the message identifies that run."""

    code = "lease_held"


class LeaseLost(ModuleFailure):
    """The lease could not be renewed, or another run took it; no more requests may be sent."""

    code = "lease_lost"


def elapsed() -> float:
    """The seconds of a clock that, if the system supports it, continues while the machine is suspended, because other machines count that time."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(eq=False)
class Lease:
    """A context manager that holds the lease. Once this run no longer holds it, `lost` is set and check() raises an error.

    The client then sends no more requests, so every wait for the API server also ends. Another holder counts as dead if this
    process has observed no renewal for the duration of the lease, so the clocks of the machines do not have to agree.
    """

    client: Client
    # See lease_holder.holder_of(). All processes of the same holder share the lease.
    holder: str
    namespace: str = LEASE_NAMESPACE
    name: str = LEASE_NAME
    duration: float = 30
    wait_timeout: float = 300
    progress: Progress = field(default_factory=lambda: Progress(None))
    # A lease that is not active (check mode) never sends a request.
    active: bool = True
    identity: ClusterIdentity | None = None
    clock: t.Callable[[], float] = elapsed
    wall_clock: t.Callable[[], float] = time.time
    sleep: t.Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        """Initialize the state; no request is sent yet."""
        self._identity = self.identity or ClusterIdentity(self.client)
        self._process = this_process()
        self._full_name = f"{self.namespace}/{self.name}"
        self._collection = collection_path("coordination.k8s.io/v1", "Lease", self.namespace)
        self._path = f"{self._collection}/{self.name}"
        self._observed: tuple[Object | None] | None = None
        self.untouched = False
        self._held: Object | None = None
        self._renewed_at = self._renewed_wall = 0.0
        self._outer_guard: t.Callable[[str], None] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._reason = ""
        self.lost = threading.Event()

    def observe(self) -> None:
        """Read the Lease. Once it is acquired, `untouched` is True if no other run has held it since this call.

        In that case, no other run has invalidated data that was read from the cluster after this call.
        """
        if self.active:
            with contextlib.suppress(ApiError):
                self._observed = self._identity.last_read(self._path) or (self.client.get(self._path),)

    def __enter__(self) -> Lease:
        """Acquire the lease. Waits for another active holder for at most `wait_timeout` seconds, then raises LeaseHeld."""
        if self.active:
            observed, self._observed = self._observed, None
            self.untouched = observed is not None and self._is_unused(observed[0]) and self._write(observed[0])
            if not self.untouched:
                self._acquire()
            self._identity.record_acquired(self._path, self._release)
            if self.clock() - self._renewed_at > self.duration / 3:
                # If the server was slow, the remaining time of the lease may be too short.
                self._renew()
            self._outer_guard, self.client.guard = self.client.guard, self._admit
            self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        """Release the lease. Raises LeaseLost if the lease was lost and there is no other error, even if the loss is noticed only at the release."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join(timeout=self.duration)
        self.client.guard = self._outer_guard
        if self.lost.is_set():
            if error is None:
                self.check()
            return
        self._release()
        if self.lost.is_set() and error is None:
            raise LeaseLost(
                f"The lease {self._full_name} was lost before the run ended: {self._reason}. All requests were sent by then, but another run may "
                "have changed the cluster in the meantime; run the playbook again."
            )

    def check(self) -> None:
        """Raise LeaseLost unless this run holds the lease; must be called before each change."""
        if not self.active:
            return
        self._expire()
        if self.lost.is_set():
            raise LeaseLost(
                f"The lease {self._full_name} was lost: {self._reason}. No more requests were sent; run the playbook again."
            )

    def _admit(self, path: str) -> None:
        """The client's guard, which allows only requests for the Lease itself once the lease is lost."""
        if self._outer_guard is not None:
            self._outer_guard(path)
        if path not in (self._path, self._collection):
            self.check()

    def _lose(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.lost.set()

    def _expire(self) -> None:
        """Mark the lease as lost if it was not renewed in time, because this process was stopped, its machine slept, or the server did not respond."""
        silent = self.clock() - self._renewed_at
        if silent > self.duration:
            self._lose(
                f"it was not renewed for {silent:.0f} s and is valid for {self.duration:.0f} s (was this process stopped, or did the API server "
                "not respond?)"
            )

    def _acquire(self) -> None:
        """Wait and write until the Lease is written. `wait_timeout` limits the whole time, also if the server rejects every write as a conflict."""
        start = self.clock()
        for attempt in itertools.count(1):
            live = self._wait(start)
            if self._write(live):
                return
            waited = self.clock() - start
            # A run that has just lost a race reads the Lease once more, which names the winner.
            if attempt > 1 and waited >= self.wait_timeout:
                raise LeaseHeld(
                    f"The lease {self._full_name} could not be written in {attempt} attempts (waited {waited:.0f} s): the API server "
                    f"{'answers that it already exists (409), but does not return it (404)' if live is None else 'rejects each write as a conflict'}. Check it "
                    f"with kubectl -n {self.namespace} get lease {self.name}, and check the admission webhooks for leases.coordination.k8s.io; then run "
                    "the playbook again."
                )
            if attempt > 1:
                self.sleep(min(_POLL, max(0.05, start + self.wait_timeout - self.clock())))

    def _wait(self, start: float) -> Object | None:
        """Wait until the Lease may be acquired. Returns the Lease, or None if it does not exist yet."""
        last_renewal: tuple[t.Any, ...] | None = None
        renewed_at = start
        while True:
            live = self.client.get(self._path)
            if live is None:
                return None
            if self._is_free(live):
                return live
            spec = live.get("spec") or {}
            holder = spec.get("holderIdentity")
            now = self.clock()
            if last_renewal != (holder, spec.get("renewTime")):
                last_renewal, renewed_at = (holder, spec.get("renewTime")), now
            if now - renewed_at > float(spec.get("leaseDurationSeconds") or self.duration):
                return live
            if now - start >= self.wait_timeout:
                raise LeaseHeld(held_message(self._full_name, spec, self.holder, now - start))
            self.progress.report(f"waiting for {holder}, which is changing this cluster ({now - start:.0f} s)")
            self.sleep(min(_POLL, max(0.05, start + self.wait_timeout - now)))

    def _is_free(self, live: Object | None) -> bool:
        self._identity.require(self._path, live)
        holder = ((live or {}).get("spec") or {}).get("holderIdentity")
        return live is None or not holder or holder == self.holder or all_ended(live)

    def _is_unused(self, live: Object | None) -> bool:
        """Whether the Lease is free and no other process of this run holds it."""
        return self._is_free(live) and not remaining(live)

    def _write(self, live: Object | None) -> bool:
        """Write the Lease with this holder. Returns False if another process wrote or deleted the Lease first."""
        try:
            self._put(live)
        except ApiError as error:
            # A Lease that was deleted after it was read is created in the next attempt.
            if not (error.conflict or (error.not_found and live is not None)):
                raise
            return False
        return True

    def _put(self, live: Object | None, budget: float | None = None) -> None:
        """Write the Lease with this holder, replacing the version that was read."""
        # The time is taken before the request, because the request may take a long time, or this process may be stopped in between.
        began = self.clock(), self.wall_clock()
        if live is None:
            self._held = self.client.create(self._collection, self._body(None), budget=budget)
        else:
            self._held = self.client.replace(self._path, self._body(live), budget=budget)
        self._renewed_at, self._renewed_wall = began

    def _keep(self) -> None:
        while not self._stop.wait(min(_TICK, self.duration / 10)):
            self._expire()
            if self.lost.is_set():
                return
            # After a sleep that CLOCK_BOOTTIME does not count, the time of day of a virtual machine is corrected.
            passed = max(self.clock() - self._renewed_at, self.wall_clock() - self._renewed_wall)
            if passed < self.duration / 3:
                continue
            try:
                self._renew()
            except ApiError as error:
                # As in client-go, give up well before other runs may acquire the Lease.
                if self.clock() - self._renewed_at >= self.duration * 2 / 3:
                    self._lose(f"it could not be renewed in time ({error.message})")

    def _renew(self) -> None:
        budget = self.duration / 6
        try:
            self._put(self._held, budget)
            return
        except ApiError as error:
            if not (error.conflict or error.not_found):
                raise
        live = self.client.get(self._path)
        reason = self._reason_lost(live)
        if live is None or reason:
            self._lose(reason)
            return
        # Another module of this run and host has written the Lease.
        self._put(live, budget)

    def _release(self) -> None:
        for dummy in range(2):
            if self._held is None:
                return
            body = self._body(self._held)
            remaining = others(self._held, self.holder, self._process)
            if remaining:
                body["metadata"]["annotations"][HOLDER_ANNOTATION] = json.dumps(remaining)
            else:
                body["spec"].update(holderIdentity="", leaseDurationSeconds=1)
                del body["metadata"]["annotations"][HOLDER_ANNOTATION]
            try:
                self.client.replace(self._path, body, budget=5)
                return
            except ApiError as error:
                if not (error.conflict or error.not_found):
                    # This run has held the Lease until the end, and the Lease will expire.
                    return
            try:
                live = self.client.get(self._path)
            except ApiError:
                return
            if _is_written(live, body):
                # The first of two attempts, whose response was lost, has released the Lease.
                return
            reason = self._reason_lost(live)
            if reason:
                self._lose(reason)
                return
            self._held = live

    def _reason_lost(self, live: Object | None) -> str:
        return reason_lost(self._held, live, self.holder) if self._held is not None else ""

    def _body(self, live: Object | None) -> Object:
        """The Lease with this holder, and with the uid and the resourceVersion of the version that was read."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (live or {}).get("spec") or {}
        same = before.get("holderIdentity") == self.holder
        processes = [*others(live, self.holder, self._process), self._process]
        metadata: Object = {
            "name": self.name,
            "namespace": self.namespace,
            "annotations": {**self._identity.annotations(self._path, live), HOLDER_ANNOTATION: json.dumps(processes)},
        }
        if live is not None:
            metadata.update({key: live["metadata"].get(key) for key in ("uid", "resourceVersion")})
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": int(self.duration),
                "acquireTime": before.get("acquireTime") if same else now,
                "renewTime": now,
                "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if same or live is None else 1),
            },
        }


def _is_written(live: Object | None, body: Object) -> bool:
    """Whether a Lease is equal to the version that this process wrote."""
    if live is None or live["metadata"].get("uid") != body["metadata"].get("uid"):
        return False
    now, written = live.get("spec") or {}, body["spec"]
    return all(
        (now.get(key) or "") == (written[key] or "") for key in ("holderIdentity", "renewTime", "leaseTransitions")
    )
