# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the cluster and compares it with the pools: finds the required changes, and the layouts, demands and taints that cannot be applied."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..catalog.cluster_autoscaler import MACHINE_ANNOTATION
from ..catalog.taints import format_taint, taint_identity, untolerated_taints
from ..cluster_state.cluster_policy import active_policy, policy_tolerations, uses_driver_objects
from ..cluster_state.gpu_pods import PodsByNode
from ..cluster_state.mig_allocation import KnownLayouts, MigAllocation, allocate
from ..cluster_state.node import Node, parse_node
from ..cluster_state.nvidia_driver import untolerated_by_driver
from ..cluster_state.ownership import machine_set_owner, undeclared_taints, with_recorded_taints
from ..cluster_state.pool_assignment import assign_pools
from ..drain.pods_on_nodes import pods_by_node, pods_on
from ..kube.machine_metadata import obsolete_taints
from ..kube.paths import CLUSTER_POLICIES, NODES, NVIDIA_DRIVERS
from ..mig.fit_error import fit_error
from ..mig.layout import Layout, format_layout
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate
from .change_plan import ChangePlan, plan_sharing_changes
from .configmaps import ConfigMaps, SharingConfigMaps
from .scope import EVERYTHING, PRESENT, Scope

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan, Toleration


@dataclass(frozen=True)
class ClusterState:
    """The state of the cluster at one point in time, and its differences from the pools.

    plan: the plan with each demand allocated to these nodes. missing: the devices of a demand that do not fit, by pool.
    problems: messages about problems that prevent a run. warnings: messages about findings that do not prevent it.
    """

    nodes: dict[str, Node]
    resource_version: str
    membership: Membership
    changes: ChangePlan
    plan: Plan
    missing: t.Mapping[str, t.Mapping[str, int]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def pool_of(self, node: str) -> PoolPlan | None:
        """The pool of a node; None if it belongs to no pool."""
        return self._pools.get(self.changes.pool_of.get(node, ""))

    @functools.cached_property
    def _pools(self) -> dict[str, PoolPlan]:
        return {pool.name: pool for pool in self.plan.pools}

    def members(self, pool: str) -> list[Node]:
        """The nodes of a pool."""
        return [self.nodes[name] for name in self.membership.by_pool.get(pool, ()) if name in self.nodes]


class StateReader:
    """Reads the nodes, the ConfigMaps and, if the result depends on them, the pods on the nodes."""

    def __init__(
        self, client: Client, plan: Plan, *, scope: Scope = EVERYTHING, expected: t.Mapping[str, t.Any] | None = None
    ) -> None:
        """Store the arguments; no request is sent yet.

        `expected`: objects that count as present even if they do not exist yet, in the format of the option expected_policy.
        """
        self._client = client
        self._plan = plan
        self._scope = scope
        self.expected_tolerations = (expected or {}).get("tolerations") or ()
        self.configmaps = SharingConfigMaps(client, plan, (expected or {}).get("configmaps") or ())
        # The layouts that this run has chosen for the nodes of pools with a demand; the choice does not change during the
        # run.
        self._settled: dict[str, Layout] = {}

    def read(self) -> ClusterState:
        """Read the nodes (one paged list) and one or both ConfigMaps, and compare them with the pools."""
        listing = self._client.list(NODES)
        nodes = {node.name: node for node in map(parse_node, listing)}
        return self.compare(nodes, listing.resource_version)

    def read_again(self) -> ClusterState:
        """Read the cluster and choose the layouts again, because another run may have changed the cluster in the meantime."""
        self._settled = {}
        return self.read()

    def compare(self, nodes: dict[str, Node], resource_version: str) -> ClusterState:
        """Compare these nodes with the pools; pods are listed only if the result may depend on them."""
        membership = assign_pools(self._plan.pools, list(nodes.values()))
        nodes = self._with_obsolete_taints(nodes, membership)
        node_list = list(nodes.values())
        configmaps = self.configmaps.read(node_list)
        spread = functools.partial(
            plan_demand, self._plan, node_list, membership, configmaps, scope=self._scope, settled=self._settled
        )
        allocation = spread()
        pods = self.list_pods() if allocation.needs_usage else None
        if pods is not None:
            allocation = spread(pods)
        plan = allocation.plan
        compare = functools.partial(plan_sharing_changes, plan, node_list, membership, configmaps, scope=self._scope)
        changes = compare(pods=pods)
        held_back = taints_to_hold_back(self._client, plan, changes.new_taints, self.expected_tolerations)
        if held_back:
            changes = compare(held_back, pods=pods)
        if changes.needs_pods:
            changes = compare(held_back, pods=self.list_pods())
        self._settled = {
            name: node_plan.sharing.layout for pool in plan.pools for name, node_plan in pool.by_node.items()
        }
        return ClusterState(
            nodes,
            resource_version,
            membership,
            changes,
            plan,
            allocation.missing,
            problems=(
                *layout_problems(plan, node_list, membership, configmaps),
                *demand_problems(allocation, nodes, membership, self._scope),
            ),
            warnings=(*configmaps.generated.warnings, *configmaps.capacity.warnings),
        )

    def _with_obsolete_taints(self, nodes: dict[str, Node], membership: Membership) -> dict[str, Node]:
        """The nodes, with records of the taints of their MachineSets that their pools no longer declare.

        Requests are sent only for nodes with a Machine that have a taint which neither their pool declares nor a record contains.
        """
        changed: dict[str, Node] = {}
        read: dict[str, t.Any] = {}
        for pool in self._plan.pools:
            groups = {member.name for member in pool.nodegroup.members} if pool.nodegroup else set()
            for node in (nodes[name] for name in membership.by_pool[pool.name] if groups):
                undeclared = undeclared_taints(node, pool) if MACHINE_ANNOTATION in node.annotations else []
                identities = {taint_identity(taint) for taint in undeclared}
                obsolete = identities and obsolete_taints(
                    self._client,
                    node.annotations[MACHINE_ANNOTATION],
                    identities,
                    read,
                    functools.partial(_is_managed, groups),
                )
                if obsolete:
                    taints = [taint for taint in undeclared if taint_identity(taint) in obsolete]
                    changed[node.name] = with_recorded_taints(node, taints)
        return {**nodes, **changed} if changed else nodes

    def list_pods(self, node: str | None = None) -> PodsByNode:
        """The pods on one node, or on all nodes."""
        return pods_by_node(self._client, pods_on(self._client, node), self._plan.config.namespace)


def _is_managed(groups: t.Collection[str], machine_set: t.Mapping[str, t.Any]) -> bool:
    """Whether a MachineSet belongs to one of the node groups."""
    return machine_set_owner(machine_set, new=True) in groups


def plan_demand(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    pods: PodsByNode | None = None,
    *,
    scope: Scope = EVERYTHING,
    settled: t.Mapping[str, Layout] | None = None,
) -> MigAllocation:
    """Allocate each demand to the nodes of its pool.

    `pods` contains the pods on the nodes, or is None if they have not been listed. Nodes outside the scope keep their layout. `settled` contains
    the layouts that the same run has already chosen.
    """

    def may_change(node: Node, pool: PoolPlan) -> bool:
        return not scope.repairs and scope.contains(node, pool)

    known = KnownLayouts(
        entries={
            **plan.mig.default_entries,
            **configmaps.generated.entries,
            **mig_parted.parse_configmap(configmaps.mig),
        },
        geometries=configmaps.capacity.geometries,
        nodes_in_use=None if pods is None else {name for name, users in pods.gpu_pods.items() if users},
        previous=settled or {},
    )
    return allocate(plan, nodes, membership, known, may_change)


def layout_problems(plan: Plan, nodes: t.Sequence[Node], membership: Membership, configmaps: ConfigMaps) -> list[str]:
    """A message for each layout that does not fit the MIG profiles of its nodes' GPUs."""
    geometries = configmaps.capacity.geometries
    problems = []
    for pool in plan.pools:
        nodes_by_reason: dict[str, list[str]] = {}
        for name in membership.by_pool[pool.name]:
            for part in pool.sharing.layout if name in geometries else ():
                reason = fit_error(geometries[name], part.profiles)
                if reason:
                    nodes_by_reason.setdefault(reason, []).append(name)
        problems += [
            f"gpu_pools: the layout of pool {pool.name} does not fit {abbreviate(names)}: the GPU {reason}"
            for reason, names in nodes_by_reason.items()
        ]
    return problems


def demand_problems(
    allocation: MigAllocation, nodes: t.Mapping[str, Node], membership: Membership, scope: Scope = EVERYTHING
) -> list[str]:
    """A message for each demand that does not fit the nodes of its pool.

    Pools with nodes that are not discovered or not ready are skipped, because these nodes may add capacity. The result is empty if the run's
    scope does not include whole pools.
    """
    if scope.state != PRESENT or scope.requirements:
        return []
    problems = []
    for pool in allocation.plan.pools:
        missing = allocation.missing.get(pool.name)
        members = [nodes[name] for name in membership.by_pool[pool.name] if name in nodes]
        in_scope = scope.pools is None or pool.name in scope.pools
        if missing and in_scope and members and all(node.discovered and node.ready for node in members):
            problems.append(
                f"gpu_pools: sharing.demand of pool {pool.name} is {format_layout(pool.sharing.demand)}, but its {len(members)} node(s) "
                f"have no room for {format_layout(missing)} of it; reduce the demand, or add nodes to the pool"
            )
    return problems


def taints_to_hold_back(
    client: Client, plan: Plan, new: t.Collection[str], expected: t.Sequence[Toleration]
) -> set[str]:
    """The new taints (in the format of format_taint()) that NVIDIA's pods would not tolerate after a restart.

    The pods have the tolerations of the active ClusterPolicy and those that the policy is `expected` to get. Without a policy, there are no pods.
    If NVIDIADriver objects describe the driver, the tolerations of a pool's object must cover the pool's taints as well.
    """
    taints = [taint for pool in plan.pools for taint in pool.taints if format_taint(taint) in new]
    if not taints:
        return set()
    policy = active_policy(client.list_known(CLUSTER_POLICIES))
    if policy is None:
        return set()
    held = {format_taint(taint) for taint in untolerated_taints([*policy_tolerations(policy), *expected], taints)}
    if not uses_driver_objects(policy.get("spec") or {}):
        return held
    drivers = client.list_known(NVIDIA_DRIVERS)
    for pool in plan.pools:
        of_pool = [taint for taint in pool.taints if format_taint(taint) in new]
        held |= {format_taint(taint) for taint in untolerated_by_driver(drivers, pool.name, of_pool, expected)}
    return held
