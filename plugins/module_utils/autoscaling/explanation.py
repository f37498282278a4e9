# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the objects that OpenShift's cluster autoscaler uses, and explains for a report whether it scales the pools up from zero nodes."""

from __future__ import annotations

import typing as t

from ..catalog import cluster_autoscaler as autoscaler
from ..catalog.machine_api import (
    CLUSTER_VERSION_PATH,
    MACHINE_API_NAMESPACE,
    MACHINE_API_PATH,
    AutoscalerRules,
    machine_sets_path,
)
from ..catalog.olm import OPENSHIFT
from ..cluster_state.autoscaling import AutoscalerState, ScalingExplanation, machine_sets_of
from ..cluster_state.distribution import is_openshift
from ..cluster_state.pool_assignment import assign_pools
from ..common.nested import get_nested
from ..kube.errors import ApiError
from ..kube.paths import object_path
from ..schema.providers import PROVIDERS
from .prediction import explain_pools
from .scaling_changes import ClusterObjects, uses_priorities

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.client import Client
    from ..pools.plan import Plan, PoolPlan

Object = dict[str, t.Any]
T = t.TypeVar("T")
MachineSetPreview = t.Callable[[t.Sequence[Object], t.Sequence[Object], AutoscalerRules], list[Object]]

_VERSION = "ClusterVersion"


def add_scaling(
    client: Client, plan: Plan, nodes: t.Sequence[Node], info: Object, preview: MachineSetPreview
) -> AutoscalerRules | None:
    """Add the explanations of all pools to the result of gpu_info; returns the autoscaler's rules, or None if they are not known.

    Sends no request if the cluster is not OpenShift, or if the cloud scales node groups itself; otherwise four requests, and another one for the ConfigMap
    of the Priority expander if the autoscaler uses it or will use it. `preview` returns the MachineSets after a run of the module machineset.
    """
    cloud = plan.cluster.cloud
    if not plan.pools or (cloud is not None and not PROVIDERS[cloud.provider].scaled_by_openshift):
        return None
    if plan.cluster.distribution != OPENSHIFT and not any(map(is_openshift, nodes)):
        return None
    namespace = cloud.options.get("namespace", MACHINE_API_NAMESPACE) if cloud else MACHINE_API_NAMESPACE
    objects, problems = read_objects(client, plan, nodes, namespace)
    state = objects.state
    explained: list[ScalingExplanation] = []
    if MACHINE_API_PATH not in problems:
        members = assign_pools(plan.pools, nodes).by_pool
        relevant = {pool.name for pool in plan.pools if _is_relevant(pool, state, members[pool.name])}
        after = preview(plan.nodegroups, objects.machine_sets, state.rules)
        explained = [item for item in explain_pools(plan, objects, after) if item.pool in relevant]
    info["autoscaling"] = {
        "version": state.version,
        "not_read": list(problems.values()),
        "machine_sets": [item.as_dict() for item in explained],
    }
    return state.rules if len(state.possible_rules) == 1 else None


def read_objects(
    client: Client, plan: Plan, nodes: t.Sequence[Node], namespace: str
) -> tuple[ClusterObjects, dict[str, str]]:
    """The objects that the autoscaler reads, and a sentence for each kind that could not be read, by kind (for MachineSets, by MACHINE_API_PATH)."""
    problems: dict[str, str] = {}
    none: tuple[Object, ...] = ()

    def read(key: str, what: str, request: t.Callable[[], T], instead: T) -> T:
        try:
            return request()
        except ApiError as error:
            if not error.lacks_right:
                raise
            problems[key] = f"{what} could not be read: {error.message}"
            return instead

    def machine_sets() -> tuple[Object, ...]:
        return tuple(client.list(machine_sets_path(namespace)))

    try:
        listed = read(MACHINE_API_PATH, "MachineSets", machine_sets, none)
    except ApiError as error:
        if not error.not_found:
            raise
        problems[MACHINE_API_PATH] = (
            "the cluster has no MachineSets (machine.openshift.io/v1beta1), which its autoscaler scales"
        )
        return ClusterObjects(), problems
    version = read(_VERSION, "ClusterVersion version", lambda: client.get_once(CLUSTER_VERSION_PATH), None)
    scalers = read(
        autoscaler.MACHINE_AUTOSCALER_KIND,
        "MachineAutoscalers",
        lambda: client.list_known(autoscaler.machine_autoscalers_path(namespace)),
        none,
    )
    cluster = read(
        autoscaler.KIND,
        f"ClusterAutoscaler {autoscaler.NAME}",
        lambda: client.get(autoscaler.CLUSTER_AUTOSCALER_PATH),
        None,
    )
    priorities = None
    if uses_priorities(plan, cluster):
        path = object_path("v1", "ConfigMap", autoscaler.PRIORITY_CONFIGMAP, namespace)
        name = f"ConfigMap {namespace}/{autoscaler.PRIORITY_CONFIGMAP}"
        priorities = read(autoscaler.PRIORITY_CONFIGMAP, name, lambda: client.get(path), None)
    objects = ClusterObjects(
        version=str(get_nested(version, "status", "desired", "version") or ""),
        machine_sets=listed,
        machine_autoscalers=scalers,
        cluster_autoscaler=cluster,
        priorities=priorities,
        nodes=tuple(nodes),
        unread=frozenset(set(problems) - {_VERSION}),
    )
    return objects, problems


def _is_relevant(pool: PoolPlan, state: AutoscalerState, members: t.Collection[str]) -> bool:
    """Whether MachineSets create, or could create, nodes of the pool. If none of the pool's nodes has a Machine, they cannot."""
    if pool.nodegroup is not None or machine_sets_of(pool, state):
        return True
    if state.cluster_autoscaler is None and not state.machine_autoscalers:
        return False
    nodes = [node for node in state.nodes if node.name in members]
    return not nodes or any(autoscaler.MACHINE_ANNOTATION in node.annotations for node in nodes)
