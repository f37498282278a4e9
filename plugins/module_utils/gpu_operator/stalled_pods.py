# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the pods that are not ready while a wait for the operator makes no progress."""

from __future__ import annotations

import typing as t

from ..cluster_state.operand_pods import is_ready, node_of
from ..common.wait import StateTimer
from ..kube.errors import ApiError

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from .readiness import OperatorReadiness

Object = dict[str, t.Any]

# Pods are read if the number of ready pods has not changed for this number of seconds, and again at this interval.
_INTERVAL = 60.0
# The maximum number of nodes whose pods are returned, and the number of pods in one page.
_MAX_NODES = 100
_PAGE = 500


class StalledPods:
    """Reads pods at most once a minute and only while the number of ready pods does not change."""

    def __init__(self, client: Client, timer: StateTimer | None = None) -> None:
        """Store the arguments; nothing is read yet."""
        self._client = client
        self._timer = timer or StateTimer()
        self._pods: list[Object] = []
        self._next_read = _INTERVAL

    def find(self, readiness: OperatorReadiness, namespace: str) -> list[Object]:
        """The unready pods of unfinished operands, on up to 100 nodes; empty if the number of ready pods has changed within the last minute.

        The same list object is returned until the pods are read again.
        """
        seconds = self._timer.seconds("ready pods", readiness.pods)
        if seconds < _INTERVAL or not readiness.unfinished:
            self._next_read = _INTERVAL
            if self._pods:
                self._pods = []
        elif seconds >= self._next_read:
            self._pods, self._next_read = self._read(readiness, namespace), seconds + _INTERVAL
        return self._pods

    def _read(self, readiness: OperatorReadiness, namespace: str) -> list[Object]:
        apps = sorted({item.app for item in readiness.unfinished if item.app})
        pods = permitted_pods(self._client, namespace, f"app in ({','.join(apps)})") if apps else ()
        unready: list[Object] = []
        nodes: set[str] = set()
        for pod in pods:
            if not is_ready(pod):
                unready.append(pod)
                nodes.add(node_of(pod))
            if len(nodes) == _MAX_NODES:
                break
        return unready


def permitted_pods(client: Client, namespace: str, selector: str) -> t.Iterator[Object]:
    """The pods with these labels, read page by page; empty if the user is not allowed to list pods."""
    try:
        yield from client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=selector, limit=_PAGE)
    except ApiError as error:
        if not error.forbidden:
            raise
