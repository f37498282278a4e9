# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making sure that NVIDIA's MIG manager knows an entry before a node's label names it."""

from __future__ import annotations

import contextlib
import typing as t

from ..catalog.names import MIG_STATE_LABEL
from ..cluster_state import operand_pods
from ..common.parallel import run_bounded
from ..common.wait import WaitTimeout, wait_until
from ..kube.errors import ApiError
from ..kube.paths import NODES, object_path

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease

_TIMEOUT, _INTERVAL = 120.0, 0.5
_TOLD = 5
# Nodes of which the MIG manager has said how a change ended.
_ENDED = f"{MIG_STATE_LABEL},{MIG_STATE_LABEL} notin (pending,rebooting)"


def ensure_config_read(
    client: Client, namespace: str, nodes: t.Collection[Node], lease: Lease, progress: Progress | None = None
) -> None:
    """Start the MIG manager anew on these nodes, and see that it has done with the labels that they have now.

    It looks a label's entry up in a copy of the ConfigMap that lags, once: what it does not find has failed for good
    (mig-parted cmd/nvidia-mig-manager). A pod that starts mounts the ConfigMap as it is. Started anew it looks at the
    present label first, finds that layout applied and writes the state again. Were the next label there by then, this state
    would be taken for that label's. So the old state goes before, and the new one is waited for. A node without a MIG
    manager is left alone.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    selector = f"app={operand_pods.MIG_MANAGER}"
    names_of = {node.name for node in nodes}
    # Of one node among thousands nobody wants all pods.
    place = f"spec.nodeName={next(iter(names_of))}" if len(names_of) == 1 else None
    pods = [
        pod
        for pod in client.list(path, label_selector=selector, field_selector=place)
        if operand_pods.node_of(pod) in names_of
    ]
    places = {operand_pods.node_of(pod) for pod in pods}
    told = {node.name for node in nodes if node.name in places and node.mig_config}
    _forget_states(client, [node.name for node in nodes if node.name in told and node.mig_state], lease)
    old = {pod["metadata"]["uid"] for pod in pods}
    names = [pod["metadata"]["name"] for pod in pods]
    calls = [(name, _deleter(client, object_path("v1", "Pod", name, namespace), lease)) for name in names]
    for outcome in run_bounded(calls, stop=lease.lost):
        if outcome.error and not (isinstance(outcome.error, ApiError) and outcome.error.not_found):
            raise outcome.error

    def missing() -> list[str]:
        ready = {
            operand_pods.node_of(pod)
            for pod in client.list(path, label_selector=selector, field_selector=place)
            if pod["metadata"]["uid"] not in old and operand_pods.is_ready(pod)
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
    _await_states(client, told, progress)


def _forget_states(client: Client, names: t.Iterable[str], lease: Lease) -> None:
    def forgetter(name: str) -> t.Callable[[], t.Any]:
        def forget() -> t.Any:
            lease.check()
            return client.patch(f"{NODES}/{name}", {"metadata": {"labels": {MIG_STATE_LABEL: None}}})

        return forget

    for outcome in run_bounded([(name, forgetter(name)) for name in names], stop=lease.lost):
        if outcome.error and not (isinstance(outcome.error, ApiError) and outcome.error.not_found):
            raise outcome.error


def _await_states(client: Client, names: t.Collection[str], progress: Progress | None) -> None:
    """Until the MIG manager of each node has said how its present label ended, or has had its time.

    One that works on a layout which cannot be made may take longer than anybody waits; it comes to the next label then.
    """

    def unsaid() -> set[str]:
        place = f"metadata.name={next(iter(names))}" if len(names) == 1 else None
        ended = client.list(NODES, label_selector=_ENDED, field_selector=place, metadata_only=True)
        return set(names) - {node["metadata"]["name"] for node in ended}

    if not names:
        return
    with contextlib.suppress(WaitTimeout):
        wait_until(
            unsaid,
            lambda left: not left,
            timeout=_TIMEOUT,
            interval=_INTERVAL,
            story=lambda left: "",
            progress=progress,
            say=lambda left: f"{len(left)} MIG managers looking at the present configuration",
        )


def _deleter(client: Client, path: str, lease: Lease) -> t.Callable[[], t.Any]:
    def delete() -> t.Any:
        lease.check()
        return client.delete(path)

    return delete
