# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One Lease of a cluster for several threads of a run: the first user acquires it, the last one releases it."""

from __future__ import annotations

import contextlib
import threading
import typing as t

if t.TYPE_CHECKING:
    from ..kube.lease import Lease


class SharedLease:
    """Acquires a new Lease whenever a first user comes, and releases it after the last one."""

    def __init__(self, make: t.Callable[[], Lease]) -> None:
        """Acquire nothing yet; `make` returns a Lease that has not been entered."""
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._lease: Lease | None = None

    def check(self) -> None:
        """Raise LeaseLost when the Lease is held and was lost."""
        lease = self._lease
        if lease is not None:
            lease.check()

    @contextlib.contextmanager
    def held(self) -> t.Iterator[Lease]:
        """Hold the Lease; raises LeaseHeld while another run has it, and LeaseLost when the last user ends and it was lost."""
        with self._lock:
            if self._lease is None:
                lease = self._make()
                lease.__enter__()
                self._lease = lease
            lease = self._lease
            self._users += 1
        try:
            yield lease
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._lease = None
                    lease.__exit__(None, None, None)
