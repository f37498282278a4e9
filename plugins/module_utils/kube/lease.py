# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies the cluster, and lets one run at a time change it."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import shlex
import threading
import time
import types
import typing as t
import uuid
from dataclasses import dataclass, field

from ..catalog.names import CLUSTER_NAME_ANNOTATION, LEASE_NAME, LEASE_NAMESPACE
from ..core.errors import ModuleFailure
from ..core.files import start_time, this_machine
from ..core.messages import visible, web_url
from ..core.values import Document, Object, parse_json
from ..core.waits import Progress
from .errors import ApiError, WrongCluster, retry_conflicts
from .paths import NAMESPACES, collection_path, object_path

if t.TYPE_CHECKING:
    from .client import Client

# Reads the UID and the recorded name of a cluster, which identify the cluster regardless of the kubeconfig or the address.
#
# The name is an annotation of the Lease kube-system/accel-gpu, which every run that changes the cluster acquires. The first run records
# its gpu_cluster.name in the same write, so if two runs with different names start at the same time, one of them fails.

RECORD = f"Lease {LEASE_NAMESPACE}/{LEASE_NAME}"
_RECORD_PATH = object_path("coordination.k8s.io/v1", "Lease", LEASE_NAME, LEASE_NAMESPACE)
_UID_PATH = f"{NAMESPACES}/{LEASE_NAMESPACE}"


class ClusterIdentity:
    """Compares the identity that gpu_cluster declares (`name`, `uid`) with that of the cluster; `renamed_from` is the previous name in a run that renames it.

    If gpu_cluster has neither a name nor a UID, nothing is compared or recorded.
    """

    def __init__(
        self,
        client: Client,
        cluster: t.Mapping[str, t.Any] | None = None,
        *,
        renamed_from: str = "",
        records: bool = True,
    ) -> None:
        """Store the arguments; no request is sent yet. `records` is true if acquiring the lease records the name."""
        cluster = cluster or {}
        self._client = client
        self.name = str(cluster.get("name") or "")
        self.renamed_from = renamed_from
        self.uid = str(cluster.get("uid") or "")
        self._records = records and bool(self.name)
        self._lock = threading.Lock()
        self._read: tuple[Object | None] | None = None
        self.recorded = ""
        # The previous name and the name that this module has recorded; None if the module has recorded no name.
        self.change: tuple[str, str] | None = None

    def verify(self) -> None:
        """Compare the declared identity with that of the cluster, before other requests are sent; raises WrongCluster."""
        if self.name:
            lease = self._client.get(_RECORD_PATH)
            self._read = (lease,)
            self.require(_RECORD_PATH, lease)
        if self.uid:
            self._require_uid()

    def last_read(self, path: str) -> tuple[Object | None] | None:
        """The Lease at a path, if verify() has read it; only the first call returns it, and later calls return None."""
        if path != _RECORD_PATH:
            return None
        lease, self._read = self._read, None
        return lease

    def require(self, path: str, lease: Object | None) -> None:
        """Raise WrongCluster if the Lease at a path records another name."""
        if path != _RECORD_PATH or not self.name:
            return
        self.recorded = recorded_name(lease)
        if self.recorded not in ("", self.name, self.renamed_from):
            raise WrongCluster(
                f"This is a different cluster: gpu_cluster.name is {self.name!r}, but the cluster at {self._client.connection.address} is "
                f"recorded as {self.recorded!r} (annotation {CLUSTER_NAME_ANNOTATION} of {RECORD}). Use the kubeconfig, context or credential "
                f"of {self.name!r}. If the cluster {self.recorded!r} should now be called {self.name!r}, add -e "
                f"gpu_renamed_from={shlex.quote(self.recorded)} to one run (option renamed_from of the module)."
            )

    def annotations(self, path: str, lease: Object | None) -> dict[str, str]:
        """The annotations to write to the Lease at a path; foreign annotations are kept."""
        annotations = dict(((lease or {}).get("metadata") or {}).get("annotations") or {})
        if path == _RECORD_PATH and self._records and recorded_name(lease) in ("", self.renamed_from):
            annotations[CLUSTER_NAME_ANNOTATION] = self.name
        return annotations

    def record_acquired(self, path: str, release: t.Callable[[], None]) -> None:
        """After the Lease at a path was acquired, record the name if it belongs in a different Lease.

        If another run has recorded a different name in the meantime, releases the lease and raises WrongCluster.
        """
        if not self._records:
            return
        with self._lock:
            if path != _RECORD_PATH:
                try:
                    self._record()
                except Exception:
                    release()
                    raise
            if self.pending is not None:
                self.change = self.change or self.pending
                self.recorded = self.name

    @property
    def pending(self) -> tuple[str, str] | None:
        """The recorded name, and the name that the next change of the cluster will record; None if they are equal."""
        return (self.recorded, self.name) if self._records and self.recorded != self.name else None

    @property
    def renames(self) -> bool:
        """Whether the recorded name is `renamed_from`, so that recording the new name is itself a change."""
        return self.pending is not None and bool(self.recorded)

    def _record(self) -> None:
        """Write the name to its Lease, because the run's lock is a Lease in another namespace."""
        body = self._record_body()
        if body is not None:
            retry_conflicts(self._send_record, body, self._record_body)

    def _record_body(self) -> Object | None:
        """The Lease to write, with the name; None if the Lease already has the name."""
        lease = self._client.get(_RECORD_PATH)
        self.require(_RECORD_PATH, lease)
        if self.pending is None:
            return None
        metadata = {"name": LEASE_NAME, "namespace": LEASE_NAMESPACE}
        body = lease or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
        body["metadata"]["annotations"] = self.annotations(_RECORD_PATH, lease)
        return body

    def _send_record(self, body: Object) -> Object:
        if "resourceVersion" in body["metadata"]:
            return self._client.replace(_RECORD_PATH, body)
        return self._client.create(_RECORD_PATH.rpartition("/")[0], body)

    def _require_uid(self) -> None:
        uid = _uid_of(self._client.get(_UID_PATH))
        if uid != self.uid:
            raise WrongCluster(
                f"This is a different cluster: gpu_cluster.uid is {self.uid!r}, but the namespace {LEASE_NAMESPACE} of the cluster at "
                f"{self._client.connection.address} has the UID {uid or 'none'!r}. Use the kubeconfig, context or credential of the intended "
                "cluster; correct gpu_cluster.uid if the cluster was created again."
            )


def recorded_name(lease: t.Mapping[str, t.Any] | None) -> str:
    """The cluster's name on its Lease; empty if no name is recorded."""
    return str((((lease or {}).get("metadata") or {}).get("annotations") or {}).get(CLUSTER_NAME_ANNOTATION) or "")


def read_uid(client: Client) -> str:
    """The UID of the namespace kube-system, for a report; empty if the user is not allowed to read it."""
    return _uid_of(_get_if_allowed(client, _UID_PATH))


def identity_report(client: Client, identity: ClusterIdentity) -> dict[str, t.Any]:
    """The identity of the cluster, for a report; values that the user is not allowed to read are None."""
    recorded = identity.recorded if identity.name else read_recorded_name(client)
    return {
        "uid": read_uid(client) or None,
        "recorded_name": recorded or None,
        "name_to_record": identity.name if identity.pending else None,
        "server": client.connection.server,
        "origin": client.connection.origin,
    }


def read_recorded_name(client: Client) -> str:
    """The recorded name of a cluster whose name the run does not declare, for a report; empty if the user is not allowed to read it."""
    return recorded_name(_get_if_allowed(client, _RECORD_PATH))


def _get_if_allowed(client: Client, path: str) -> Object | None:
    try:
        return client.get(path)
    except ApiError as error:
        if not error.forbidden:
            raise
        return None


def _uid_of(namespace: Object | None) -> str:
    return str(((namespace or {}).get("metadata") or {}).get("uid") or "")


# Identifies the holder of a lease: an inventory host of one run and the processes that work for this host.
#
# Modules of one run and host may hold the lease together (for example, a background task and the next task). The Lease lists their
# processes, so the first process to end does not release the lease, and a later run on the same machine does not wait for dead processes.

HOLDER_ANNOTATION = "accel.gpu/holder"
# The page of the run that holds the lease, such as that of an AWX job.
URL_ANNOTATION = "accel.gpu/holder-url"
# What a Lease says about its holder is text of others.
_MAX_HOLDER = 200
Process = dict[str, t.Any]


def holder_of(run_id: str, inventory_hostname: str) -> str:
    """The holder's identity; without an action plugin, the inventory host is unknown, and its name is empty."""
    return f"{run_id}/{inventory_hostname}" if inventory_hostname else run_id


def this_process() -> Process:
    """An entry for this process in the Lease; a later run on the same machine can check whether the process is still running."""
    return {"id": uuid.uuid4().hex, "machine": this_machine(), "pid": os.getpid(), "start": start_time(os.getpid())}


def remaining(lease: Document | None) -> list[Process]:
    """The processes that a Lease lists, except processes that are known to have exited."""
    return [process for process in _listed(lease) if not _has_ended(process)]


def others(lease: Document | None, holder: str, process: Process) -> list[Process]:
    """The other processes that hold a Lease for the same holder."""
    if ((lease or {}).get("spec") or {}).get("holderIdentity") != holder:
        return []
    return [listed for listed in remaining(lease) if listed.get("id") != process["id"]]


def all_ended(lease: Document | None) -> bool:
    """Whether the holder ran on this machine and all its processes have exited, so that other runs do not have to wait until its Lease expires."""
    listed = _listed(lease)
    return bool(listed) and all(map(_has_ended, listed))


def reason_lost(held: Document, live: Document | None, holder: str) -> str:
    """The reason why the live Lease differs from `held`, the version that `holder` wrote last; empty if the lease is not lost.

    Another process of the same holder may have written the live Lease. Any other difference, including a release in between, means that another
    run may have changed the cluster.
    """
    if live is None or live["metadata"].get("uid") != held["metadata"].get("uid"):
        return "it was deleted"
    now, before = live.get("spec") or {}, held["spec"]
    other = now.get("holderIdentity")
    if other and other != holder:
        return f"another run, {named_holder(live)}, took it"
    if not other or any(now.get(key) != before.get(key) for key in ("leaseTransitions", "acquireTime")):
        return "another run held it in the meantime"
    if str(now.get("renewTime")) < str(before.get("renewTime")):
        return "it was set back to an earlier state (is the cluster being restored from a backup?)"
    return ""


def named_holder(lease: Document) -> str:
    """The run that holds a Lease, with its page if it has one: `awx-7/prod (https://awx.example.com/#/jobs/playbook/7)`."""
    holder = _shown((lease.get("spec") or {}).get("holderIdentity"))
    url = web_url(str(((lease.get("metadata") or {}).get("annotations") or {}).get(URL_ANNOTATION) or ""))
    return f"{holder} ({url})" if url else holder


def held_message(name: str, lease: Document, own_holder: str, waited: float) -> str:
    """The message about the run that holds the lease, with its name and its page, the time when it acquired the lease, and the remedy."""
    spec = lease.get("spec") or {}
    holder, since, last = (spec.get(key) for key in ("holderIdentity", "acquireTime", "renewTime"))
    run, slash, host = str(holder).partition("/")
    subject, remedy = (
        f"Another run, {named_holder(lease)},",
        "Wait until it finishes, or raise gpu_cluster.lease.wait_timeout (in a task with this module: its option lease_wait_timeout).",
    )
    if slash and run == own_holder.partition("/")[0]:
        subject = f"Inventory host {_shown(host)} of this same run"
        remedy = "One inventory host represents one cluster: assign each cluster to one host of the inventory."
    return (
        f"{subject} has been changing this cluster since {since}; it last renewed its lease {name} at {last} (waited {waited:.0f} s). "
        f"{remedy} If that run is dead, the lease expires {spec.get('leaseDurationSeconds')} s after its last renewal."
    )


def _shown(value: object) -> str:
    text = visible(str(value))
    return text if len(text) <= _MAX_HOLDER else f"{text[:_MAX_HOLDER]}..."


def _listed(lease: Document | None) -> list[Process]:
    text = (((lease or {}).get("metadata") or {}).get("annotations") or {}).get(HOLDER_ANNOTATION)
    return [process for process in parse_json(text, list) or () if isinstance(process, dict)]


def _has_ended(process: Process) -> bool:
    place, pid = process.get("machine"), process.get("pid")
    if not place or place != this_machine() or not process.get("start") or not isinstance(pid, int):
        return False
    return start_time(pid) != str(process["start"])


# Holds and renews a coordination.k8s.io Lease while a run makes changes, so that only one run at a time changes a cluster.

_POLL = 1.0
# The maximum interval in seconds at which a process checks whether its lease has expired, for example because the process was stopped or the
# machine slept.
_TICK = 1.0


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
    # See holder_of(). All processes of the same holder share the lease.
    holder: str
    # The page of this run; empty if it has none.
    url: str = ""
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
                raise LeaseHeld(held_message(self._full_name, live, self.holder, now - start))
            self.progress.report(
                f"waiting for {named_holder(live)}, which is changing this cluster ({now - start:.0f} s)"
            )
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
                for annotation in (HOLDER_ANNOTATION, URL_ANNOTATION):
                    body["metadata"]["annotations"].pop(annotation, None)
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
        annotations = {**self._identity.annotations(self._path, live), HOLDER_ANNOTATION: json.dumps(processes)}
        # The page of a previous holder, which was killed, must not stay.
        annotations.pop(URL_ANNOTATION, None)
        if self.url:
            annotations[URL_ANNOTATION] = self.url
        metadata: Object = {"name": self.name, "namespace": self.namespace, "annotations": annotations}
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
