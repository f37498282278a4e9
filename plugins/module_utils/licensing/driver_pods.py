# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Represents the driver pods of vGPU nodes, and the license state that is read from each pod (pure).

Source: gpu-operator assets/state-driver/0500_daemonset.yaml and manifests/state-driver/0500_daemonset.yaml (labels, container name).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import COMPONENT_LABEL, DRIVER_COMPONENT, DRIVER_CONTAINER, VGPU_PRESENT_LABEL
from ..cluster_state.node import Node
from ..cluster_state.node_check import NOT_READY
from ..cluster_state.operand_pods import container_failures, is_ready, node_of
from ..kube.metadata import is_deleting
from ..kube.paths import object_path
from .gridd_conf import profile_class
from .status import UNLICENSED, LicenseStatus
from .targets import declared_vgpu_types, vgpu_pools

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import Plan
    from .connectivity import ServiceCheck

Document = t.Mapping[str, t.Any]

DRIVER_POD_SELECTOR = f"{COMPONENT_LABEL}={DRIVER_COMPONENT}"
# The files of the license client in the driver container (gpu-driver-container rhel9/nvidia-driver).
CONFIG_PATH = "/etc/nvidia/gridd.conf"
TOKEN_PATH = "/etc/nvidia/ClientConfigToken/client_configuration_token.tok"


@dataclass(frozen=True)
class DriverPod:
    """A driver pod.

    `started` is the start time of the driver container, and `failure` is the reason why the container does not run; empty if it runs. `ready` shows
    whether the driver is loaded. `log_container` is the container whose log may show the failure; empty if the log does not exist.
    """

    name: str
    namespace: str
    node: str
    started: str | None = None
    failure: str = ""
    uid: str = ""
    ready: bool = field(default=False, compare=False)
    log_container: str = field(default="", compare=False)

    @property
    def failure_text(self) -> str:
        """The failure, or the statement that the pod is not ready, as sentences with a command that shows more details."""
        command = f"logs {self.name} -c {self.log_container}" if self.log_container else f"describe pod {self.name}"
        failure = self.failure or f"pod {self.name} is not ready"
        return f"The driver does not run: {failure}. Run kubectl -n {self.namespace} {command}."

    @property
    def path(self) -> str:
        """The path of the pod."""
        return object_path("v1", "Pod", self.name, self.namespace)


@dataclass(frozen=True)
class LicenseNode:
    """A vGPU node, with its pool and its driver pod if these exist. `not_required` is the reason why the node needs no license now; empty if it needs
    one.
    """

    name: str
    pool: str | None
    vgpu_type: str
    driver_version: str
    pod: DriverPod | None
    not_required: str = ""

    @property
    def running_pod(self) -> DriverPod | None:
        """The node's driver pod, if the driver is running."""
        return self.pod if self.pod is not None and not self.pod.failure else None

    def is_known_by(self, reading: Reading) -> bool:
        """Whether the driver runs and its state could be read; otherwise, it is not known whether the node needs a change."""
        return self.running_pod is not None and not reading.error

    def class_with(self, reading: Reading) -> str | None:
        """The class of the node's vGPU type, from the driver or from the labels; None if it is not known."""
        reported = reading.status.vgpu_type if reading.status is not None else ""
        return profile_class(reported) or profile_class(self.vgpu_type)


@dataclass(frozen=True)
class Reading:
    """The values that were read from a node: the license state, the fingerprints of the files by path (None for a missing file) and the clock; or an
    error.
    """

    status: LicenseStatus | None = None
    files: t.Mapping[str, str | None] = field(default_factory=dict)
    # Seconds by which the node's clock differs from that of this machine; positive if the node's clock is fast.
    clock_skew: float | None = None
    error: str = ""
    # The results of checking the license servers from the node.
    services: tuple[ServiceCheck, ...] = ()
    # The new files that an earlier rotation has written next to the files in use, but not renamed.
    leftovers: tuple[str, ...] = ()
    # Whether the license client runs; None if this was not read.
    client_runs: bool | None = None
    # Whether the state comes from the metric of dcgm-exporter, which does not show the cause.
    from_metric: bool = False

    @property
    def is_licensed(self) -> bool:
        """Whether the node has a license."""
        return self.status is not None and self.status.is_licensed

    @property
    def is_unlicensed(self) -> bool:
        """Whether the driver reports that the node has no license."""
        return self.status is not None and self.status.state == UNLICENSED


def parse_driver_pods(pods: t.Iterable[Document]) -> dict[str, DriverPod]:
    """The driver pods by node. If a node has several, a pod that is not being deleted takes precedence."""
    by_node: dict[str, DriverPod] = {}
    for pod in pods:
        node = node_of(pod)
        if node and (node not in by_node or not is_deleting(pod)):
            by_node[node] = _driver_pod(pod, node)
    return by_node


def _driver_pod(pod: Document, node: str) -> DriverPod:
    metadata, status = pod["metadata"], pod.get("status") or {}
    states = {item["name"]: item.get("state") or {} for item in status.get("containerStatuses") or ()}
    started = (states.get(DRIVER_CONTAINER, {}).get("running") or {}).get("startedAt")
    failure = log_container = ""
    if started is None:
        first = next(iter(container_failures([pod]).get(node, ())), None)
        failure = f"pod {metadata['name']} is in phase {status.get('phase') or 'unknown'}"
        if first is not None:
            failure, log_container = str(first), first.container if first.restarts else ""
    uid = metadata.get("uid", "")
    return DriverPod(metadata["name"], metadata["namespace"], node, started, failure, uid, is_ready(pod), log_container)


def license_nodes(
    plan: Plan, nodes: t.Iterable[Node], membership: Membership, pods: t.Mapping[str, DriverPod]
) -> list[LicenseNode]:
    """The nodes that need a license, sorted by name: nodes whose label shows that their GPU is a vGPU, and nodes of pools with a vGPU driver."""
    pool_of = {name: pool for pool, names in membership.by_pool.items() for name in names}
    declared = {pool.name: declared_vgpu_types(plan, [pool.name]) for pool in vgpu_pools(plan)}

    def license_node(node: Node) -> LicenseNode:
        pool, pod = pool_of.get(node.name), pods.get(node.name)
        types = (
            []
            if profile_class(node.product)
            else [each for each in declared.get(pool or "", ()) if profile_class(each)]
        )
        product = next(iter(types), node.product)
        return LicenseNode(node.name, pool, product, node.driver or "", pod, _not_required(node, pool, pod))

    return [
        license_node(node)
        for node in sorted(nodes, key=lambda node: node.name)
        if node.labels.get(VGPU_PRESENT_LABEL) == "true"
        or (pool_of.get(node.name) in declared and node.has_gpu and node.labels.get(VGPU_PRESENT_LABEL) != "false")
    ]


def _not_required(node: Node, pool: str | None, pod: DriverPod | None) -> str:
    """Why a node does not need a license now, as the end of a sentence; empty if it does."""
    if not node.ready:
        return f"it {NOT_READY}"
    if pod is None and node.unschedulable:
        return "it is cordoned, and has no driver pod"
    if pod is None and pool is None:
        return "it is in no pool, and has no driver pod"
    return ""
