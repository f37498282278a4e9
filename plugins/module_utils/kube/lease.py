# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time changes a cluster: a coordination.k8s.io Lease, held and renewed while the changes are made."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import threading
import time
import types
import typing as t

from ..catalog.names import LEASE_NAME, LEASE_NAMESPACE
from ..running.progress import Progress
from .errors import ApiError
from .paths import object_path

HOLDER_ANNOTATION = "accel.gpu/holder"
_POLL = 1.0

Object = dict[str, t.Any]


class Writer(t.Protocol):
    """The part of a client that a lease needs."""

    def get(self, path: str, query: t.Mapping[str, t.Any] | None = None) -> Object | None:
        """The object at a path, or None."""

    def create(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        """Create in a collection."""

    def replace(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        """Write the whole object."""


class LeaseHeld(Exception):
    """Another run is changing this cluster; names it and says how long it has."""


class LeaseLost(Exception):
    """The lease could not be renewed or was taken: nothing more may be sent."""

    def __init__(self, message: str) -> None:
        """Nothing was reached yet, as far as the lease knows."""
        super().__init__(message)
        self.partial: dict[str, t.Any] = {}


class Lease:
    """A context manager; inside it, `lost` is set (and check() raises) once the lease is no longer ours.

    Whether a holder is dead is told by how long *we* have seen it not renew, so that clocks need not agree.
    """

    def __init__(
        self,
        client: Writer,
        run_id: str,
        *,
        namespace: str = LEASE_NAMESPACE,
        name: str = LEASE_NAME,
        duration: float = 30,
        wait_timeout: float = 300,
        progress: Progress | None = None,
        active: bool = True,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        """Send nothing yet; a lease that is not active (check mode) never sends anything."""
        self._client = client
        self._run_id = run_id
        self._namespace, self._name = namespace, name
        self._collection = object_path("coordination.k8s.io/v1", "Lease", "", namespace).rstrip("/")
        self._path = f"{self._collection}/{name}"
        self._duration = duration
        self._wait_timeout = wait_timeout
        self._progress = progress or Progress(None)
        self._active = active
        self._clock = clock
        self._sleep = sleep
        self._looked: tuple[Object | None] | None = None
        self.untouched = False
        self._held: Object | None = None
        self._renewed_at = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = threading.Event()

    def look(self) -> None:
        """Note who holds it. Once it is ours, `untouched` tells whether nobody else has held it since this look.

        Then what was read after the look is what there is, as far as other runs are concerned.
        """
        if self._active:
            with contextlib.suppress(ApiError):
                self._looked = (self._client.get(self._path),)

    def __enter__(self) -> Lease:
        """Take the lease, waiting for a living holder up to the limit; raises LeaseHeld."""
        if self._active:
            looked, self._looked = self._looked, None
            self.untouched = looked is not None and self._is_free(looked[0]) and self._taken(looked[0])
            if not self.untouched:
                self._take(self._wait())
            self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        """Give the lease back; raises LeaseLost if it was lost and nothing else went wrong."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join(timeout=self._duration)
        if not self.lost.is_set():
            self._release()
        elif error is None:
            self.check()

    def check(self) -> None:
        """Raise LeaseLost unless the lease is ours now; to be called before each change."""
        if not self._active:
            return
        if self._clock() - self._renewed_at > self._duration:
            self.lost.set()
        if self.lost.is_set():
            raise LeaseLost(
                f"The lease {self._namespace}/{self._name} was lost: it could not be renewed in time or another run "
                "took it. Nothing more was sent; run again."
            )

    def _wait(self) -> Object | None:
        """The lease as it is when it may be taken; None when there is none yet."""
        start = self._clock()
        seen: tuple[t.Any, ...] | None = None
        seen_at = start
        while True:
            live = self._client.get(self._path)
            if live is None:
                return None
            if self._is_free(live):
                return live
            spec = live.get("spec") or {}
            holder = spec.get("holderIdentity")
            now = self._clock()
            if seen != (holder, spec.get("renewTime")):
                seen, seen_at = (holder, spec.get("renewTime")), now
            if now - seen_at > float(spec.get("leaseDurationSeconds") or self._duration):
                return live
            if now - start >= self._wait_timeout:
                raise LeaseHeld(self._story(spec, now - start))
            self._progress.say(f"waiting for {holder}, which is changing this cluster ({now - start:.0f} s)")
            self._sleep(min(_POLL, max(0.05, start + self._wait_timeout - now)))

    def _is_free(self, live: Object | None) -> bool:
        holder = ((live or {}).get("spec") or {}).get("holderIdentity")
        return live is None or not holder or holder == self._run_id or _died_here(live)

    def _take(self, live: Object | None) -> None:
        while not self._taken(live):
            live = self._wait()

    def _taken(self, live: Object | None) -> bool:
        """Whether it is ours now; not when somebody was faster."""
        try:
            if live is None:
                self._note(self._client.create(self._collection, self._body(None)))
            else:
                self._note(self._client.replace(self._path, self._body(live)))
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def _keep(self) -> None:
        while not self._stop.wait(self._duration / 3):
            try:
                self._renew()
            except ApiError:
                # As client-go does, give up well before anybody else may believe us dead.
                if self._clock() - self._renewed_at >= self._duration * 2 / 3:
                    self.lost.set()
            if self.lost.is_set():
                return

    def _renew(self) -> None:
        budget = self._duration / 6
        try:
            self._note(self._client.replace(self._path, self._body(self._held), budget=budget))
            return
        except ApiError as error:
            if not (error.conflict or error.not_found):
                raise
        live = self._client.get(self._path)
        holder = ((live or {}).get("spec") or {}).get("holderIdentity")
        if live is None or holder not in (self._run_id, "", None):
            self.lost.set()
            return
        # Another module of this same run has renewed or released it.
        self._note(self._client.replace(self._path, self._body(live), budget=budget))

    def _release(self) -> None:
        for dummy in range(2):
            if self._held is None:
                return
            body = self._body(self._held)
            body["spec"].update(holderIdentity="", leaseDurationSeconds=1)
            body["metadata"]["annotations"] = {}
            try:
                self._client.replace(self._path, body, budget=5)
                return
            except ApiError as error:
                # It runs out by itself.
                if not error.conflict:
                    return
            live = self._client.get(self._path)
            same = live is not None and live["spec"].get("holderIdentity") == self._run_id
            self._held = live if same else None

    def _note(self, live: Object) -> None:
        self._held = live
        self._renewed_at = self._clock()

    def _body(self, live: Object | None) -> Object:
        """The lease with us as its holder; carries the resourceVersion of what was read."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (live or {}).get("spec") or {}
        same = before.get("holderIdentity") == self._run_id
        metadata: Object = {
            "name": self._name,
            "namespace": self._namespace,
            "annotations": {HOLDER_ANNOTATION: json.dumps(_process())},
        }
        if live is not None:
            metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._run_id,
                "leaseDurationSeconds": int(self._duration),
                "acquireTime": before.get("acquireTime") if same else now,
                "renewTime": now,
                "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if same or live is None else 1),
            },
        }

    def _story(self, spec: t.Mapping[str, t.Any], waited: float) -> str:
        holder, since, last = (spec.get(key) for key in ("holderIdentity", "acquireTime", "renewTime"))
        return (
            f"Another run, {holder}, has been changing this cluster since {since}; its lease "
            f"{self._namespace}/{self._name} was renewed last at {last} (waited {waited:.0f} s). Wait for its end, or "
            f"raise lease_wait_timeout. If that run is dead, the lease runs out {spec.get('leaseDurationSeconds')} s "
            "after its last renewal."
        )


def _process() -> dict[str, t.Any]:
    """Who we are to processes of the same machine: enough to tell later whether we are dead."""
    return {"machine": _machine(), "pid": os.getpid(), "start": _start_of(os.getpid())}


def _died_here(live: Object) -> bool:
    """True when the holder was a process of this very machine and it is gone, so that nobody waits for it."""
    try:
        noted = json.loads(((live["metadata"].get("annotations") or {}).get(HOLDER_ANNOTATION)) or "{}")
    except ValueError:
        return False
    if not isinstance(noted, dict) or not _machine() or noted.get("machine") != _machine() or not noted.get("start"):
        return False
    return _start_of(int(noted["pid"])) != str(noted["start"])


def _machine() -> str:
    """The machine since its boot and the process namespace (a container has its own); empty where that is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return f"{handle.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """When a process began, in ticks since boot; empty when there is none (a zombie counts as none)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            after_name = handle.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if after_name[0] == "Z" else after_name[19]
