# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of one group, sent as the service takes them: what is not understood in one form is said in the next, and at last refused."""

from __future__ import annotations

import threading
import typing as t

from ...nodegroups.plan import Edits
from ...nodegroups.spec import NodeGroupState
from . import encode
from .decode import WORDS
from .errors import VksError
from .paging import Row
from .transport import VKS, VksTransport

_REFUSED = (400, 422)
# How often autoscaling is switched off before it is said that it stays: an accepted request may be lost.
_TRIES = 2


class GroupUpdates:
    """Sends changes; counts how often each was taken, since one that shows no effect is asked for again."""

    def __init__(self, transport: VksTransport, detail: t.Callable[[str], Row | None]) -> None:
        """Send nothing yet; `detail` reads a group by its id."""
        self._transport = transport
        self._detail = detail
        self._sent: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def metadata(self, path: str, live: NodeGroupState, found: Edits) -> None:
        """Labels, taints and tags as whole maps; what a service keeps that only merges is named with null, and then put as of old."""
        times = self._times(live, "metadata")
        goes = any(encode.removed(edit) for edit in found.values())
        if times == 0 or not goes:
            self._send("PATCH", f"{path}/metadata", encode.metadata_body(found))
            self._count(live, "metadata")
            return
        explicit, old = encode.metadata_body(found, explicit=True), encode.old_metadata_body(found)
        taken = times == 1 and _taken(lambda: self._send("PATCH", f"{path}/metadata", explicit))
        if taken or (times <= 2 and old and _taken(lambda: self._put(path, live, old))):
            self._count(live, "metadata")
            return
        kept = "; ".join(
            f"{field}: {', '.join(encode.removed(edit))}" for field, edit in found.items() if encode.removed(edit)
        )
        raise VksError(
            f"the service keeps what is to be taken off node group {live.name} ({kept}), in every way in which it was asked. "
            "Take it off in the console, or no longer declare it as null or absent",
            status=400,
            method="PATCH",
            path=f"{path}/metadata",
        )

    def unranged(self, path: str, live: NodeGroupState) -> None:
        """Autoscaling off."""
        if self._times(live, "unranged") < _TRIES and _taken(lambda: self._put(path, live, {"autoScaleConfig": None})):
            self._count(live, "unranged")
            return
        raise VksError(
            f"the service keeps the autoscaling of node group {live.name} ({live.low} to {live.high} nodes). Switch it off in the "
            f"console, or declare min_size and max_size, both {max(1, live.count)} to have a fixed number",
            status=400,
            method="PUT",
            path=path,
        )

    def put(self, path: str, live: NodeGroupState, found: Edits) -> None:
        """Numbers, security groups and the strategy; a range and a number that are refused together are sent one by one."""
        body = encode.put_body(found, live)
        bounds = {name: value for name, value in body.items() if name != "numNodes"}
        try:
            self._put(path, live, body)
        except VksError as error:
            if error.status not in _REFUSED or error.busy or "autoScaleConfig" not in body or "numNodes" not in body:
                raise
            if not _taken(lambda: self._put(path, live, bounds)):
                self._put(path, live, {"numNodes": body["numNodes"]})

    def _put(self, path: str, live: NodeGroupState, body: Row) -> None:
        """As little as possible; where an older service demands more, the rest as the group has it now."""
        try:
            self._send("PUT", path, body)
        except VksError as error:
            if error.status not in _REFUSED or error.busy:
                raise
            full = encode.full_put_body(body, self._detail(live.id) or {})
            if not any(name in error.detail for name in full.keys() - body.keys()):
                raise
            self._send("PUT", path, full)

    def _send(self, method: str, path: str, body: Row) -> None:
        self._transport.send(VKS, method, path, body=body)

    def _times(self, live: NodeGroupState, what: str) -> int:
        """How often it was taken, and showed no effect."""
        with self._lock:
            return self._sent.get((live.id, what), 0)

    def _count(self, live: NodeGroupState, what: str) -> None:
        with self._lock:
            self._sent[live.id, what] = self._sent.get((live.id, what), 0) + 1


def ends_range(found: Edits) -> bool:
    """True when autoscaling is to go."""
    return WORDS.high in found and found[WORDS.high][1] is None


def _taken(send: t.Callable[[], None]) -> bool:
    """Whether the service understands it; raises what has other reasons."""
    try:
        send()
    except VksError as error:
        if error.status not in _REFUSED or error.busy:
            raise
        return False
    return True
