# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the state of the cluster for a change of sharing, and follows its nodes."""

from __future__ import annotations

import functools
import threading
import time
import typing as t
from dataclasses import dataclass, field

from ..catalog.openshift import MACHINE_ANNOTATION
from ..catalog.taints import format_taint, taint_identity, untolerated_taints
from ..core.messages import abbreviate
from ..core.values import Object
from ..core.waits import RunCommand, StateTimer
from ..gpu_operator.cluster_policy import active_policy, policy_tolerations, untolerated_by_driver, uses_driver_objects
from ..kube.errors import ApiError
from ..kube.fields import is_older_version
from ..kube.objects import follow
from ..kube.paths import CLUSTER_POLICIES, NODES, NVIDIA_DRIVERS
from ..nodes.mig import KnownLayouts, MigAllocation, allocate
from ..nodes.node import Node, parse_node
from ..nodes.node_metadata import obsolete_taints, patch_node
from ..nodes.ownership import (
    NodeEdit,
    assign_pools,
    edit_of,
    machine_set_owner,
    undeclared_taints,
    with_recorded_taints,
)
from ..nodes.pods import PodsByNode, pods_by_node, pods_on
from ..sharing_modes import mig_parted
from ..sharing_modes.mig import Layout, fit_error, format_layout
from .change_plan import EVERYTHING, PRESENT, ChangePlan, ConfigMaps, Scope, SharingConfigMaps, plan_sharing_changes

if t.TYPE_CHECKING:
    from ..catalog.taints import Toleration
    from ..core.waits import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..nodes.node_check import Patch
    from ..pools.plan import Membership, Plan, PoolPlan

# Reads the cluster and compares it with the pools: finds the required changes, and the layouts, demands and taints that cannot be applied.


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


# Keeps the nodes up to date with one watch, which many threads share while each waits for one node.

T = t.TypeVar("T")
# A wait calls its check each time after this number of seconds.
_CHECK = 1.0


class WatchedNodes:
    """A context manager that keeps the nodes up to date inside its block. It keeps the newest version of a node, regardless of the request that returned it."""

    def __init__(
        self,
        client: Client,
        nodes: t.Mapping[str, Node],
        resource_version: str,
        *,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the nodes and the resource version of a list request."""
        self._client = client
        self._nodes = dict(nodes)
        self._version = resource_version
        self._clock = clock
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._error: Exception | None = None

    def __enter__(self) -> WatchedNodes:
        """Start the watch."""
        threading.Thread(target=self._watch, name="nodes", daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop the watch; the thread ends when its current request ends."""
        self._stop.set()

    def get(self, name: str) -> Node | None:
        """The latest version of a node; None if the node is gone."""
        with self._changed:
            return self._nodes.get(name)

    def all(self) -> dict[str, Node]:
        """The latest versions of all nodes."""
        with self._changed:
            return dict(self._nodes)

    def note(self, node: Node) -> None:
        """Store the version from the server's response to a change, so that no wait uses an older version."""
        with self._changed:
            self._keep_newest(node)

    def wait(
        self, name: str, judge: t.Callable[[Node | None], T | None], timeout: float, check: t.Callable[[], None]
    ) -> T | None:
        """Wait for the first result of `judge` that is not None, and return it; return None after `timeout` seconds.

        `check` is called about once a second and may raise an exception. If an error has ended the watch, that error is raised.
        """
        deadline = self._clock() + timeout
        while True:
            check()
            with self._changed:
                if self._error is not None:
                    raise self._error
                verdict = judge(self._nodes.get(name))
                seconds_left = deadline - self._clock()
                if verdict is not None or seconds_left <= 0:
                    return verdict
                self._changed.wait(min(seconds_left, _CHECK))

    def _watch(self) -> None:
        try:
            for event, objects in follow(self._client, NODES, self._version, self._list, self._stop):
                if event is not None:
                    self._apply(parse_node(event["object"]), event["type"] == "DELETED")
                if objects is not None:
                    with self._changed:
                        self._nodes = {node.name: node for node in map(parse_node, objects)}
                        self._changed.notify_all()
        except Exception as error:
            self._fail(error)

    def _list(self) -> tuple[t.Sequence[Object], str]:
        listing = self._client.list(NODES)
        return tuple(listing), listing.resource_version

    def _apply(self, node: Node, deleted: bool) -> None:
        with self._changed:
            if deleted:
                self._nodes.pop(node.name, None)
                self._changed.notify_all()
            else:
                self._keep_newest(node)

    def _keep_newest(self, node: Node) -> None:
        known = self._nodes.get(node.name)
        if known is None or not is_older_version(node.resource_version, known.resource_version):
            self._nodes[node.name] = node
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


class WatchedNode:
    """Reads, patches and awaits one node; the result records whether the node was patched."""

    def __init__(self, context: RolloutContext, result: NodeResult) -> None:
        """Store the arguments; no request is sent yet."""
        self._context = context
        self._result = result
        self.name = result.node

    @property
    def latest(self) -> Node | None:
        """The latest known version; None if the node is gone."""
        return self._context.nodes.get(self.name)

    def read(self) -> Node | None:
        """Read the node from the server; None if it is gone."""
        raw = self._context.client.get(f"{NODES}/{self.name}")
        return self._note(raw) if raw else None

    def write(self, make_patch: t.Callable[[Node], Patch | None]) -> Node | None:
        """Send the patch that `make_patch` returns for the node, if any; returns the patched node, or None if it is gone.

        What the patch removes from the node is first removed from the node's Machine.
        """
        client, check = self._context.client, self._context.lease.check

        def make_edit(node: Node) -> NodeEdit | None:
            patch = make_patch(node)
            if patch is None:
                return None
            return edit_of(node, patch)

        node = self.latest
        edit = make_edit(node) if node is not None else None
        if edit is None:
            return node
        try:
            result = patch_node(client, edit, lambda raw: make_edit(self._note(raw)), check, answer=True)
        except ApiError as error:
            self._result.written |= error.maybe_applied
            raise
        if result.status == "gone":
            return None
        if result.node is None:
            return self.latest
        self._result.written = True
        return self._note(result.node)

    def _note(self, raw: t.Mapping[str, t.Any]) -> Node:
        node = parse_node(raw)
        self._context.nodes.note(node)
        return node

    def wait(
        self,
        judge: t.Callable[[Node | None], t.Any],
        check: t.Callable[[], None] = lambda: None,
        *,
        timeout: float | None = None,
    ) -> t.Any:
        """Wait for the first result of `judge` that is not None, and return it; return None after `timeout` seconds (default: the run's `wait_timeout`).

        `judge` is called whenever a node changes, and must not send requests. `check` is called about once a second, and may send requests and
        raise exceptions.
        """

        def check_all() -> None:
            self._context.lease.check()
            check()

        limit = self._context.wait_timeout if timeout is None else timeout
        return self._context.nodes.wait(self.name, judge, limit, check_all)


# The shared context of a run, and the result of one node's change.

DONE, ROLLED_BACK, QUARANTINED, UNCORDONED, GONE = "done", "rolled-back", "quarantined", "uncordoned", "gone"
# The outcome if the run was stopped during the change and the node is still cordoned.
INTERRUPTED = "interrupted"


@dataclass
class NodeResult:
    """The result of one node's change; `failure` is the message if the node does not match its declaration, otherwise empty.

    written: whether a patch of the node, or the eviction of a pod, was accepted or may have been accepted.
    error: the error that stopped the change and would also stop all other changes.
    """

    node: str
    outcome: str = DONE
    failure: str = ""
    written: bool = False
    evicted: list[str] = field(default_factory=list)
    repaired: str = ""
    error: Exception | None = None

    @property
    def completed(self) -> bool:
        """Whether the change was made; a node that failed or disappeared does not count, even if it was patched."""
        return self.outcome == DONE and not self.failure


class NodeFailure(Exception):
    """Raised if a change cannot be completed; `reason` is the value of the taint that a quarantined node gets."""

    def __init__(self, reason: str, message: str) -> None:
        """Store the reason and the message."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The context that all parts of a run share.

    run_command: runs a program, waits until it exits, and returns its exit status, stdout and stderr. reboot_lock: held while a reboot command runs.
    since: measures how long each node has had its current differences.
    """

    client: Client
    plan: Plan
    scope: Scope
    reader: StateReader
    progress: Progress
    run_id: str
    run_command: RunCommand
    wait_timeout: float
    since: StateTimer = field(default_factory=StateTimer)
    reboot_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def namespace(self) -> str:
        """The namespace of the operator."""
        return self.plan.config.namespace


@dataclass(frozen=True, kw_only=True)
class RolloutContext(RunContext):
    """The context that all changes of a rolling update share; `report` takes a node's name and a progress message.

    plugin_entries: the configurations of the device plugin that a release may restore. existing_entries: all configurations that exist.
    """

    lease: Lease
    nodes: WatchedNodes
    held_back: t.Collection[str]
    report: t.Callable[[str, str], None]
    plugin_entries: t.Collection[str] = ()
    existing_entries: t.Collection[str] = ()
