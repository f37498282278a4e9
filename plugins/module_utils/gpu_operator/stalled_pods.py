# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that are not ready while a wait for the operator makes no progress, so that its progress line names the cause."""

from __future__ import annotations

import itertools
import typing as t

from ..common.wait import StateTimer
from ..helm.workloads import format_failure, pod_failures
from ..kube.errors import ApiError

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from .readiness import OperatorReadiness

# Seconds without a change of the number of ready pods, the most pods that one list reads, and the most that are named.
_STALLED = 60.0
_MAX_READ = 500
_MAX_NAMED = 2


class StalledPods:
    """Reads pods at most once a minute, and only if the number of ready pods has not changed in the meantime."""

    def __init__(self, client: Client, timer: StateTimer | None = None) -> None:
        """Read nothing yet."""
        self._client = client
        self._timer = timer or StateTimer()
        self._found: tuple[str, ...] = ()
        self._found_at: tuple[int, int] | None = None

    def find(self, readiness: OperatorReadiness, namespace: str) -> tuple[str, ...]:
        """The first pods that are not ready, each with its node and the cause; none while the number of ready pods changes."""
        if readiness.unfinished and self._timer.seconds("pods", readiness.pods) >= _STALLED:
            self._timer.forget("pods")
            self._found, self._found_at = self._read(readiness, namespace), readiness.pods
        return self._found if self._found_at == readiness.pods else ()

    def _read(self, readiness: OperatorReadiness, namespace: str) -> tuple[str, ...]:
        apps = sorted({item.app for item in readiness.unfinished if item.app})
        pods = first_pods(self._client, namespace, f"app in ({','.join(apps)})") if apps else []
        return tuple(map(format_failure, pod_failures(pods, limit=_MAX_NAMED)))


def first_pods(client: Client, namespace: str, selector: str) -> list[dict[str, t.Any]]:
    """The first pods with these labels; none without permission to list pods."""
    try:
        pods = client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=selector, limit=_MAX_READ)
        return list(itertools.islice(pods, _MAX_READ))
    except ApiError as error:
        if not error.forbidden:
            raise
        return []
