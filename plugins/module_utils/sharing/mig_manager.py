# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making sure that NVIDIA's MIG manager knows an entry before a node's label names it."""

from __future__ import annotations

import typing as t

from ..fleet import agents
from ..kube.bulk import run_bounded
from ..kube.errors import ApiError
from ..kube.paths import object_path
from ..kube.wait import wait_until

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..kube.progress import Progress

_TIMEOUT, _INTERVAL = 120.0, 0.5
_TOLD = 5


def renew(client: Client, namespace: str, nodes: t.Collection[str], lease: Lease, progress: Progress) -> None:
    """Start the MIG manager anew on these nodes, and see it ready there.

    It looks a label's entry up in a copy of the ConfigMap that lags, once: what it does not find has failed for good
    (mig-parted cmd/nvidia-mig-manager). A pod that starts mounts the ConfigMap as it is. Started anew it finds the present
    layout applied already and does nothing. A node without a MIG manager is left alone.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    selector = f"app={agents.MIG_MANAGER}"
    pods = [pod for pod in client.list(path, label_selector=selector) if agents.node_of(pod) in nodes]
    places = {agents.node_of(pod) for pod in pods}
    old = {pod["metadata"]["uid"] for pod in pods}
    names = [pod["metadata"]["name"] for pod in pods]
    calls = [(name, _deleter(client, object_path("v1", "Pod", name, namespace), lease)) for name in names]
    for outcome in run_bounded(calls, stop=lease.lost):
        if outcome.error and not (isinstance(outcome.error, ApiError) and outcome.error.not_found):
            raise outcome.error

    def missing() -> list[str]:
        ready = {
            agents.node_of(pod)
            for pod in client.list(path, label_selector=selector)
            if pod["metadata"]["uid"] not in old and agents.is_ready(pod)
        }
        return sorted(places - ready)

    wait_until(
        missing,
        lambda names: not names,
        timeout=_TIMEOUT,
        interval=_INTERVAL,
        story=lambda names: (
            f"The MIG manager is not ready again on {', '.join(names[:_TOLD])}: "
            f"kubectl -n {namespace} get pods -l {selector} -o wide."
        ),
        progress=progress,
        say=lambda names: f"{len(names)} MIG managers starting with the new configuration",
    )


def _deleter(client: Client, path: str, lease: Lease) -> t.Callable[[], t.Any]:
    def delete() -> t.Any:
        lease.check()
        return client.delete(path)

    return delete
