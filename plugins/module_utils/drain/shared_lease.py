# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The right to change a cluster, for many threads of one run: taken by the first that needs it, given back by the last."""

from __future__ import annotations

import contextlib
import threading
import typing as t

if t.TYPE_CHECKING:
    from ..kube.lease import Lease


class SharedLease:
    """Leases of one cluster one after the other; each is held as long as anybody works under it."""

    def __init__(self, make: t.Callable[[], Lease]) -> None:
        """Take none yet; `make` gives a lease that has not been entered."""
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._held: contextlib.ExitStack | None = None
        self._lease: Lease | None = None

    def check(self) -> None:
        """Raise LeaseLost where it is held and was lost."""
        lease = self._lease
        if lease is not None:
            lease.check()

    @contextlib.contextmanager
    def held(self) -> t.Iterator[Lease]:
        """Hold it; raises LeaseHeld where another run does, and at the end of the last user LeaseLost if it was lost."""
        with self._lock:
            if self._lease is None:
                lease = self._make()
                stack = contextlib.ExitStack()
                stack.enter_context(lease)
                self._held, self._lease = stack, lease
            self._users += 1
            lease = self._lease
        try:
            yield lease
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and self._held is not None:
                    stack, self._held, self._lease = self._held, None, None
                    stack.close()
