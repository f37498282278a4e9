# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies the holder of a lease: an inventory host of one run and the processes that work for this host.

Modules of one run and host may hold the lease together (for example, a background task and the next task). The Lease lists their
processes, so the first process to end does not release the lease, and a later run on the same machine does not wait for dead processes.
"""

from __future__ import annotations

import os
import typing as t
import uuid

from ..common.nested import parse_json
from ..common.process import machine, start_time

HOLDER_ANNOTATION = "accel.gpu/holder"

Object = t.Mapping[str, t.Any]
Process = dict[str, t.Any]


def holder_of(run_id: str, inventory_hostname: str) -> str:
    """The holder's identity; without an action plugin, the inventory host is unknown, and its name is empty."""
    return f"{run_id}/{inventory_hostname}" if inventory_hostname else run_id


def this_process() -> Process:
    """An entry for this process in the Lease; a later run on the same machine can check whether the process is still running."""
    return {"id": uuid.uuid4().hex, "machine": machine(), "pid": os.getpid(), "start": start_time(os.getpid())}


def remaining(lease: Object | None) -> list[Process]:
    """The processes that a Lease lists, except processes that are known to have exited."""
    return [process for process in _listed(lease) if not _has_ended(process)]


def others(lease: Object | None, holder: str, process: Process) -> list[Process]:
    """The other processes that hold a Lease for the same holder."""
    if ((lease or {}).get("spec") or {}).get("holderIdentity") != holder:
        return []
    return [listed for listed in remaining(lease) if listed.get("id") != process["id"]]


def all_ended(lease: Object | None) -> bool:
    """Whether the holder ran on this machine and all its processes have exited, so that other runs do not have to wait until its Lease expires."""
    listed = _listed(lease)
    return bool(listed) and all(map(_has_ended, listed))


def reason_lost(held: Object, live: Object | None, holder: str) -> str:
    """The reason why the live Lease differs from `held`, the version that `holder` wrote last; empty if the lease is not lost.

    Another process of the same holder may have written the live Lease. Any other difference, including a release in between, means that another
    run may have changed the cluster.
    """
    if live is None or live["metadata"].get("uid") != held["metadata"].get("uid"):
        return "it was deleted"
    now, before = live.get("spec") or {}, held["spec"]
    other = now.get("holderIdentity")
    if other and other != holder:
        return f"another run, {other}, took it"
    if not other or any(now.get(key) != before.get(key) for key in ("leaseTransitions", "acquireTime")):
        return "another run held it in the meantime"
    if str(now.get("renewTime")) < str(before.get("renewTime")):
        return "it was set back to an earlier state (is the cluster being restored from a backup?)"
    return ""


def held_message(name: str, spec: Object, own_holder: str, waited: float) -> str:
    """The message about the run that holds the lease, with its name, the time when it acquired the lease, and the remedy."""
    holder, since, last = (spec.get(key) for key in ("holderIdentity", "acquireTime", "renewTime"))
    run, slash, host = str(holder).partition("/")
    subject, remedy = (
        f"Another run, {holder},",
        "Wait until it finishes, or raise gpu_cluster.lease.wait_timeout (in a task with this module: its option lease_wait_timeout).",
    )
    if slash and run == own_holder.partition("/")[0]:
        subject = f"Inventory host {host} of this same run"
        remedy = "One inventory host represents one cluster: assign each cluster to one host of the inventory."
    return (
        f"{subject} has been changing this cluster since {since}; it last renewed its lease {name} at {last} (waited {waited:.0f} s). "
        f"{remedy} If that run is dead, the lease expires {spec.get('leaseDurationSeconds')} s after its last renewal."
    )


def _listed(lease: Object | None) -> list[Process]:
    text = (((lease or {}).get("metadata") or {}).get("annotations") or {}).get(HOLDER_ANNOTATION)
    return [process for process in parse_json(text, list) or () if isinstance(process, dict)]


def _has_ended(process: Process) -> bool:
    place, pid = process.get("machine"), process.get("pid")
    if not place or place != machine() or not process.get("start") or not isinstance(pid, int):
        return False
    return start_time(pid) != str(process["start"])
