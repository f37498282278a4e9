# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a lease: an inventory host of one run, and the processes that work for it at the moment.

Modules of one run and host may hold the lease together (a task in the background and the next one). The Lease lists their
processes, so that the one that ends first does not release it, and a later run on the same machine does not wait for dead ones.
"""

from __future__ import annotations

import json
import os
import typing as t
import uuid

from ..common.process import machine, start_time

HOLDER_ANNOTATION = "accel.gpu/holder"

Object = t.Mapping[str, t.Any]
Process = dict[str, t.Any]


def holder_of(run_id: str, inventory_hostname: str) -> str:
    """The holder's identity; a module that no action plugin has started knows of no inventory host."""
    return f"{run_id}/{inventory_hostname}" if inventory_hostname else run_id


def this_process() -> Process:
    """Identifies one user of a lease: enough to see later, on the same machine, whether its process still runs."""
    return {"id": uuid.uuid4().hex, "machine": machine(), "pid": os.getpid(), "start": start_time(os.getpid())}


def remaining(lease: Object | None) -> list[Process]:
    """The processes that a Lease lists, without those that are known to have ended."""
    return [process for process in _listed(lease) if not _has_ended(process)]


def others(lease: Object | None, holder: str, process: Process) -> list[Process]:
    """The other processes that hold a Lease for the same holder."""
    if ((lease or {}).get("spec") or {}).get("holderIdentity") != holder:
        return []
    return [listed for listed in remaining(lease) if listed.get("id") != process["id"]]


def all_ended(lease: Object | None) -> bool:
    """True when the holder ran on this machine and none of its processes is left: no need to wait until the lease expires."""
    listed = _listed(lease)
    return bool(listed) and all(map(_has_ended, listed))


def annotation(processes: t.Sequence[Process]) -> str:
    """The value of the annotation that lists these processes."""
    return json.dumps(list(processes))


def _listed(lease: Object | None) -> list[Process]:
    text = (((lease or {}).get("metadata") or {}).get("annotations") or {}).get(HOLDER_ANNOTATION)
    try:
        value = json.loads(text or "[]")
    except ValueError:
        return []
    # Before several processes could hold a lease, the annotation had one object.
    found = value if isinstance(value, list) else [value]
    return [process for process in found if isinstance(process, dict)]


def _has_ended(process: Process) -> bool:
    place, pid = process.get("machine"), process.get("pid")
    if not place or place != machine() or not process.get("start") or not isinstance(pid, int):
        return False
    return start_time(pid) != str(process["start"])
