# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates, reads and deletes the pods of one run in one namespace."""

from __future__ import annotations

import functools
import typing as t

from ..common.parallel import call_all, run_bounded
from ..common.wait import WaitTimeout, wait_until
from ..kube.errors import ApiError
from .pods import POOL_LABEL, RUN_LABEL, run_label

if t.TYPE_CHECKING:
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease

DELETE_TIMEOUT = 60.0

Pod = dict[str, t.Any]


class PodClient:
    """The validation pods of one run."""

    def __init__(self, client: Client, namespace: str, run_id: str, progress: Progress, interval: float) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._run = f"{RUN_LABEL}={run_label(run_id)}"
        self._progress = progress
        self._interval = interval

    def create(self, bodies: t.Iterable[Pod], lease: Lease) -> dict[str, str]:
        """Create pods in parallel while the lease is held; returns the reasons why the API server has rejected pods, by pod."""

        def create(body: Pod) -> Pod:
            lease.check()
            return self._client.create(self._path, body)

        calls = [(body["metadata"]["name"], functools.partial(create, body)) for body in bodies]
        outcomes = run_bounded(calls, fatal=lambda error: not _is_rejection(error), stop=lease.lost)
        lease.check()
        rejected = {}
        for outcome in outcomes:
            if outcome.error is None:
                continue
            if not _is_rejection(outcome.error):
                raise outcome.error
            rejected[outcome.name] = rejection_reason(str(outcome.error), outcome.name)
        return rejected

    def read(self) -> dict[str, Pod]:
        """The pods of this run by name."""
        return {pod["metadata"]["name"]: pod for pod in self._client.list(self._path, label_selector=self._run)}

    def await_pods(
        self,
        update: t.Callable[[dict[str, Pod]], None],
        done: t.Callable[[], bool],
        timeout: float,
        text: t.Callable[[], str],
    ) -> None:
        """Read the pods until `done` returns True or the timeout has expired; the evaluation reports missing results."""
        try:
            wait_until(
                lambda: update(self.read()),
                lambda dummy: done(),
                timeout=timeout,
                interval=self._interval,
                describe=lambda dummy: "",
                progress=self._progress,
                progress_text=lambda dummy: text(),
            )
        except WaitTimeout:
            return

    def log(self, pod: str, container: str) -> str:
        """The log of a container."""
        return self._client.text(f"{self._path}/{pod}/log", query={"container": container})

    def log_if_any(self, pod: str, container: str) -> str:
        """The log of a container; empty if it has none."""
        try:
            return self.log(pod, container)
        except ApiError:
            return ""

    def logs_if_any(self, pods: t.Sequence[str], container: str) -> dict[str, str]:
        """The logs of a container of several pods; empty for a pod that has none."""
        texts = call_all([(pod, functools.partial(self.log_if_any, pod, container)) for pod in pods])
        return dict(zip(pods, texts, strict=True))

    def logs(self, pods: t.Sequence[str], container: str) -> dict[str, str]:
        """The logs of a container of several pods."""
        texts = call_all([(pod, functools.partial(self.log, pod, container)) for pod in pods])
        return dict(zip(pods, texts, strict=True))

    def leftovers(self) -> list[str]:
        """The pods of other runs that are not being deleted."""
        return [pod["name"] for pod in self._metadata(POOL_LABEL) if not pod.get("deletionTimestamp")]

    def delete(self) -> list[str]:
        """Delete the pods of this run; return the names of those that still exist after the time limit."""
        return self._delete(self._run)

    def delete_leftovers(self) -> list[str]:
        """Delete the pods of all runs; return the names of those that still exist after the time limit."""
        return self._delete(POOL_LABEL)

    def _delete(self, selector: str) -> list[str]:
        self._client.delete(self._path, query={"labelSelector": selector})
        remaining: list[str] = []

        def read() -> list[str]:
            remaining[:] = [pod["name"] for pod in self._metadata(selector)]
            return remaining

        try:
            wait_until(
                read,
                lambda names: not names,
                timeout=DELETE_TIMEOUT,
                interval=min(self._interval, 1.0),
                describe=lambda dummy: "",
                progress=self._progress,
                progress_text=lambda names: f"deleting {len(names)} validation pods",
            )
        except WaitTimeout:
            # The kubelet cannot kill a process that waits for its GPU, so its pod remains. All other pods are deleted.
            return remaining
        return []

    def _metadata(self, selector: str) -> t.Iterator[Pod]:
        return (pod["metadata"] for pod in self._client.list(self._path, label_selector=selector, metadata_only=True))


def rejection_reason(message: str, pod: str) -> str:
    """The message of a rejection without the pod's name, so that all pods of a pool have the same message."""
    return message.removeprefix(f'pods "{pod}" is forbidden: ').removeprefix(f'Pod "{pod}" is invalid: ')


def _is_rejection(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.rejects_object
