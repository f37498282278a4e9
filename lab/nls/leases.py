# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The leases of the nodes, computed from the license state that the simulator writes to each node."""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..api import Api, ApiError, Object
from ..files import write_private
from ..layout import Lab

LICENSE_ANNOTATION = "lab.accel.gpu/license"
_SECONDS = 2.0
_NAMESPACE = uuid.UUID("6b1f3f0e-5a8f-4b70-9d0f-0d3c8e1a9c52")


class LeaseBook:
    """The current leases, by node.

    A lease ends when the node returns it, or at its expiry: a machine that was deleted without returning its lease keeps it.
    """

    def __init__(self, lab: Lab, file: Path) -> None:
        self._api, self._file, self._lock = Api(lab), file, threading.Lock()
        self._leases: dict[str, Object] = json.loads(file.read_text()) if file.exists() else {}

    def watch(self) -> None:
        """Read the nodes regularly: a node that is deleted leaves no other trace of its lease."""
        threading.Thread(target=self._watch, daemon=True).start()

    def current(self) -> list[Object]:
        """Return the leases of all nodes; raise ApiError if the cluster does not answer."""
        with self._lock:
            remaining = leases_after(self._leases, self._api.list("/api/v1/nodes"), datetime.datetime.now(datetime.UTC))
            if remaining != self._leases:
                self._leases = remaining
                write_private(self._file, json.dumps(remaining, indent=2) + "\n")
            return list(remaining.values())

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(_SECONDS):
            try:
                self.current()
            except ApiError as error:
                print(f"nls: {error}", flush=True)


def leases_after(leases: dict[str, Object], nodes: Iterable[Object], now: datetime.datetime) -> dict[str, Object]:
    """Return the leases, with those of deleted nodes that have not expired: by name, with `id`, `node`, `product` and `expiry`."""
    remaining: dict[str, Object] = {}
    names = set()
    for node in nodes:
        metadata = node["metadata"]
        names.add(metadata["name"])
        license_state: Any = json.loads(metadata.get("annotations", {}).get(LICENSE_ANNOTATION, "{}"))
        if license_state.get("status") == "Licensed":
            holder = f"{metadata['uid']}/{license_state.get('driver')}/{license_state.get('pid')}"
            remaining[metadata["name"]] = {
                "id": str(uuid.uuid5(_NAMESPACE, holder)),
                "node": metadata["name"],
                "product": license_state["product"],
                "expiry": license_state["expiry"],
            }
    orphans = {
        name: lease
        for name, lease in leases.items()
        if name not in names and datetime.datetime.fromisoformat(lease["expiry"]) > now
    }
    return orphans | remaining
