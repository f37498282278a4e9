# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making the kubelet renew the copies of a ConfigMap that NVIDIA's agents have mounted."""

from __future__ import annotations

import typing as t

from ..catalog.names import REFRESH_ANNOTATION
from ..cluster_state import operand_pods
from ..common.parallel import run_bounded
from ..kube.errors import ApiError
from ..kube.paths import object_path

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease


def refresh(client: Client, namespace: str, values: t.Mapping[str, str], lease: Lease) -> int:
    """Touch the agents' pods on the nodes that `values` names, each with its value; how many were touched.

    A mounted ConfigMap lags by a minute or more; a change of the pod's annotations has the kubelet look at once. It comes
    before the label that names a new entry.
    """
    calls = []
    for pod in client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=operand_pods.SELECTOR):
        value = values.get(operand_pods.node_of(pod))
        if value is not None:
            name = pod["metadata"]["name"]
            calls.append((name, _toucher(client, object_path("v1", "Pod", name, namespace), value, lease)))
    outcomes = run_bounded(calls, stop=lease.lost)
    for outcome in outcomes:
        # A pod that has gone meanwhile is replaced by one that reads the ConfigMap as it is.
        if outcome.error and not (isinstance(outcome.error, ApiError) and outcome.error.not_found):
            raise outcome.error
    return sum(1 for outcome in outcomes if outcome.ok)


def _toucher(client: Client, path: str, value: str, lease: Lease) -> t.Callable[[], None]:
    def touch() -> None:
        lease.check()
        client.strategic_merge(path, {"metadata": {"annotations": {REFRESH_ANNOTATION: value}}})

    return touch
