# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operation of gpu_sharing and what gpu_info previews of it."""

from __future__ import annotations

import collections
import contextlib
import json
import time
import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import CONFIG_LABEL, FIELD_MANAGER, MIG_CONFIG_LABEL, POOL_LABEL
from ..core.errors import ConnectionProblem, InvalidOptions, PartialFailure, ReleaseRefused
from ..core.files import write_private_file
from ..core.messages import MAX_LISTED, MAX_NAMED, abbreviate, abbreviate_nodes, diff_of, join_words
from ..core.values import Document, get_nested
from ..core.waits import WaitTimeout
from ..gpu_operator.cluster_policy import active_policy
from ..kube.errors import ApiError
from ..kube.fields import reverts_changes, writers
from ..kube.paths import CLUSTER_POLICIES, DISRUPTION_BUDGETS, NODES
from ..nodes.impact import (
    OPERATOR,
    NodeImpact,
    OperandRestart,
    RunningPods,
    describe_refused,
    evictions_by_operator,
    impact_by_pool,
    refused_evictions,
)
from ..nodes.node_check import check_node
from ..nodes.node_metadata import read_reverted
from ..nodes.ownership import assign_pools, is_undiscovered
from ..nodes.pods import (
    STOPPED_FOR_MIG,
    app_of,
    describe_failures,
    failing_operands,
    foreign_plugins,
    operand_failures,
    operands_by_node,
    pods_by_node,
    read_operand_pods,
    read_plugin_pods,
)
from ..nodes.pool_edit import lost_layouts
from ..nodes.warnings import (
    all_warnings,
    as_list,
    hidden_messages,
    hidden_nodes,
    pools_without_visible_nodes,
    unusual_nodes,
)
from ..schema.variables import explain_missing, missing_operands, remedy_for_pools, runs
from ..sharing_modes import mig_parted
from .change_plan import POOL_NAMES, PRESENT, RESET, ChangePlan, ConfigMaps, SharingConfigMaps, plan_sharing_changes
from .reader import ClusterState, RunContext, StateReader, layout_problems, plan_demand
from .rollout import Rollout, RolloutResult, after_discovery, build_result, warnings
from .verification import ObservedNodes, ReadinessWatch, diagnose

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..nodes.mig import MigAllocation
    from ..nodes.node import Node
    from ..nodes.pods import ContainerFailure, PodOnNode
    from ..pools.module import PlanModule
    from ..pools.plan import Membership, Plan
    from .change_plan import ConfigMapEntries, Scope

# Implements the module gpu_sharing: previews the changes in check mode; otherwise applies changes until the cluster matches the declaration.

# The maximum number of times that a run applies changes, in case another tool keeps undoing them.
_MAX_ROUNDS = 5


class SharingOperation:
    """Executes one call of the module."""

    def __init__(self, module: PlanModule, scope: Scope) -> None:
        """Store the arguments; no request is sent yet."""
        self._module = module
        self._allowed = frozenset(module.params["allow_release"])
        self._expected = module.params["expected_policy"] if module.check_mode else {}
        self._context = RunContext(
            client=module.client,
            plan=module.plan,
            scope=scope,
            reader=StateReader(module.client, module.plan, scope=scope, expected=self._expected),
            progress=module.progress,
            run_id=module.run_id,
            run_command=module.run_command,
            wait_timeout=module.params["wait_timeout"],
        )
        self._watch = ReadinessWatch(self._context)
        self._rollout = Rollout(self._context)
        # The broken nodes in the result of cluster_policy, and the subset that this run reports as failed, with the reasons.
        self._broken = set(map(str, module.params["expected_policy"].get("broken_nodes") or ()))
        self._reported: dict[str, str] = {}
        # The result of a failed run contains the newest state of the cluster, and the result of the last wait if nothing has changed since then.
        self._latest: ClusterState | None = None
        self._observed: ObservedNodes | None = None

    def execute(self) -> dict[str, t.Any]:
        """Preview the changes in check mode, otherwise apply and verify them; returns the module's result."""
        lease = self._module.lease()
        lease.observe()
        state = self._context.reader.read()
        if state.problems:
            raise InvalidOptions(state.problems)
        # In a preview of site, the ClusterPolicy has not been changed yet.
        if not self._expected and (problems := list(self._policy_problems(state))):
            raise InvalidOptions(problems)
        refusal = state.changes.releases.refusal(self._allowed)
        if refusal:
            refused = ReleaseRefused(refusal)
            refused.partial = {**self._preview(state, check_on_server=False), "changed": False}
            raise refused
        self._require_confirmation(state)
        if self._module.check_mode:
            return self._preview(state, check_on_server=True)
        if self._exclude_broken(state):
            state = self._context.reader.compare(dict(state.nodes), state.resource_version)
        return self._run(state, lease)

    def _require_confirmation(self, state: ClusterState) -> None:
        """Raise NotConfirmed before the first change if a reset includes all pools and is not confirmed."""
        scope = self._context.scope
        if scope.state != RESET or scope.pools is not None or not state.changes.changed:
            return
        pools = [pool.name for pool in state.plan.pools]
        nodes = [change.node for change in state.changes.node_changes]
        self._module.require_confirmation(
            f"This ends the sharing of GPUs in all {len(pools)} pools of cluster {self._module.name_to_confirm()} ({', '.join(pools)}) and evicts the pods "
            f"that cannot keep running. To reset only some pools, set {POOL_NAMES}.",
            f"It changes {abbreviate_nodes(nodes)}." if nodes else "",
        )

    def _policy_problems(self, state: ClusterState) -> t.Iterator[str]:
        """The reasons why the operator would not apply the new configurations of nodes, or why a wait for nodes that differ from their pools cannot end.

        The ClusterPolicy is read only if there are such nodes.
        """
        pools = {
            change.pool.name: change.pool
            for change in state.changes.node_changes
            if change.pool
            and change.edit
            and any(change.edit.labels.get(label) for label in (CONFIG_LABEL, MIG_CONFIG_LABEL))
        }
        if self._module.params.get("wait") and not self._context.scope.repairs:
            members = ((node, state.pool_of(name)) for name, node in state.nodes.items())
            pools |= {
                pool.name: pool
                for node, pool in members
                if pool and node.ready and self._context.scope.contains(node, pool) and check_node(node, pool)
            }
        if not pools:
            return
        policy = active_policy(self._context.client.list_known(CLUSTER_POLICIES))
        if policy is None:
            return
        spec, title = policy.get("spec") or {}, f"ClusterPolicy {policy['metadata']['name']}"
        declared = [(pool.name, pool.sharing.definition, pool.labels) for pool in pools.values()]
        for part, names in missing_operands(declared, lambda part: runs(spec, part)).items():
            yield (
                f"{title}: spec.{part}.enabled is false, but {explain_missing(part, names)}; set it to true where the policy is managed, "
                f"{remedy_for_pools(part)}"
            )
        named = get_nested(spec, "migManager", "config", "name") or "not set"
        configmap = self._context.plan.mig.name
        uses_entries = any(edit.labels.get(MIG_CONFIG_LABEL) in state.plan.mig.entries for edit in state.changes.edits)
        if uses_entries and named != configmap:
            yield (
                f"{title}: spec.migManager.config.name is {named}, but the layouts of the pools are in {configmap}, where the MIG manager would not "
                "find them; run site, or the role gpu_operator (module cluster_policy), first"
            )

    def _preview(self, state: ClusterState, *, check_on_server: bool) -> dict[str, t.Any]:
        self._watch.look_for_failures(state)
        unusual, predicted = self._unusual(state), RolloutResult.predict(state.changes)
        result = build_result(state, self._watch.findings(state), predicted, unusual)
        later = after_discovery(state, self._watch.failing)
        if later:
            result["after_discovery"] = later
        refused, budget_warnings = read_refused_evictions(self._context.client, state.changes)
        if refused:
            result["refused_evictions"] = refused
        reverted = read_reverted(self._context.client, state.changes.edits)
        lost = layouts_lost_by_releases(state.changes, state.nodes)
        self._warn([*warnings(state, predicted, unusual), *budget_warnings, *reverted, *lost], state)
        before, after = state.changes.diff()
        if later:
            after["after_discovery"] = later
        preview = {
            "changed": state.changes.changed or bool(later),
            "gpu_sharing": result,
            "diff": diff_of(before, after, "gpu_sharing"),
        }
        try:
            unchecked = self._rollout.dry_run(state) if check_on_server else None
        except ApiError as error:
            error.partial = {**error.partial, **preview}
            raise
        if unchecked:
            result["unchecked"] = unchecked
        return preview

    def _exclude_broken(self, state: ClusterState) -> bool:
        """Exclude from all changes the broken nodes on which an operand fails that this run does not restart, for example the driver.

        Returns whether any node was excluded. A broken node can appear to match its pool, because the labels of
        gpu-feature-discovery remain. Running containers are ignored, because they may only be slow.
        """
        failures = self._failures_of_broken(state, without=STOPPED_FOR_MIG)
        broken = {name: failure for name, failure in failures.items() if failure.in_back_off}
        self._report_broken(broken)
        self._context.scope.excluded.update(broken)
        return bool(broken)

    def _failures_of_broken(self, state: ClusterState, without: t.Collection[str] = ()) -> dict[str, ContainerFailure]:
        """The lasting failure of an operand that is not in `without`, by broken node, including nodes that this run would not change."""
        names = (self._broken - self._reported.keys()) & state.changes.pool_of.keys()
        pods = read_operand_pods(self._context.client, self._context.namespace, names)
        return operand_failures((pod for pod in pods if app_of(pod) not in without), time.time())

    def _report_broken(self, failures: t.Mapping[str, ContainerFailure]) -> None:
        namespace = self._context.namespace
        reasons = describe_failures(self._context.client, namespace, failures)
        for name, reason in reasons.items():
            remedy = f"correct the cause (kubectl -n {namespace} describe pod {failures[name].pod}), then run the playbook again"
            self._rollout.done.failed[name] = f"{reason}; {remedy}"
        self._reported.update(reasons)

    def _run(self, state: ClusterState, lease: Lease) -> dict[str, t.Any]:
        before, after = state.changes.diff()
        try:
            observed = self._reconcile(state, lease)
        except Exception as error:
            latest = self._latest or state
            observed = self._observed or ObservedNodes(latest, self._watch.findings(latest), [])
            cordoned = self._rollout.done.left_cordoned
            # The messages of these two errors already name the nodes and their failures.
            if cordoned and not isinstance(error, PartialFailure | WaitTimeout):
                error.add_note(f"Nodes that stay cordoned: {abbreviate(cordoned)}. The next run continues with them.")
            error.partial = {  # type: ignore[attr-defined]
                "gpu_sharing": self._result(observed),
                "changed": self._rollout.done.any,
                **getattr(error, "partial", {}),
            }
            raise
        late = self._watch.late_warnings(observed.state)
        self._warn(
            [*warnings(observed.state, self._rollout.done, self._unusual(observed.state)), *late], observed.state
        )
        return {
            "changed": self._rollout.done.any,
            "gpu_sharing": self._result(observed),
            "diff": diff_of(before, after, "gpu_sharing"),
        }

    def _reconcile(self, state: ClusterState, run_lease: Lease) -> ObservedNodes:
        """Make the changes, including changes to nodes that join or are discovered during the run; acquire the lease before the first change.

        Raises PartialFailure or WaitTimeout if nodes do not match their declaration.
        """
        # A repair verifies each node that it changes, and does not require that other nodes match their declaration.
        wait = self._module.params["wait"] and not self._context.scope.repairs
        changed_at = time.monotonic()
        rounds = 0
        with contextlib.ExitStack() as stack:
            lease: Lease | None = None

            def restart_discovery(nodes: t.Collection[str]) -> None:
                nonlocal lease
                lease = lease or stack.enter_context(run_lease)
                self._rollout.restart_discovery(nodes, lease)

            self._watch.restart_discovery = restart_discovery
            while True:
                if state.changes.changed and rounds < _MAX_ROUNDS:
                    self._require_confirmation(state)
                    # Check this before waiting for the lease; apply() checks again, because the plan may change in the meantime.
                    self._rollout.require_permission_to_evict(state)
                    if lease is None:
                        lease = stack.enter_context(run_lease)
                        if not lease.untouched:
                            # Another run may have changed the cluster before this run acquired the lease.
                            state = self._context.reader.read_again()
                    refusal = state.changes.releases.refusal(self._allowed, begun=self._rollout.done.any)
                    if refusal:
                        raise ReleaseRefused(refusal)
                    # After the changes, the former layouts are not recorded any longer, and the server records this run as the writer.
                    reverted = read_reverted(self._context.client, state.changes.edits) if not rounds else []
                    for text in (*reverted, *layouts_lost_by_releases(state.changes, state.nodes)):
                        self._module.warn(text)
                    self._apply(state, lease)
                    rounds += 1
                    changed_at = time.monotonic()
                    if state.changes.rolling_changes:
                        # A rolling update takes a long time, so nodes may have joined, and other tools may have changed nodes.
                        state = self._latest = self._context.reader.read()
                        if state.changes.node_changes:
                            continue
                if not wait:
                    observed = ObservedNodes(state, self._watch.findings(state), [])
                else:
                    observed = self._observed = self._watch.wait(state, changed_at)
                more = observed.state.changes is not state.changes and observed.state.changes.changed
                # The wait ends early if new nodes are discovered. They are configured before anything is verified.
                if wait and not (more and rounds < _MAX_ROUNDS):
                    if observed.findings and lease is not None:
                        self._rollout.roll_back_failed(observed.state, observed.findings, lease)
                    self._require_verified(observed)
                if not more:
                    break
                state = observed.state
            if lease is not None:
                removed = self._context.reader.configmaps.remove_entries(observed.state.changes, lease)
                self._rollout.done.removed.extend(removed)
        self._report_broken(self._failures_of_broken(observed.state))
        failures = [self._failures()] if self._rollout.done.failed else []
        if wait:
            failures += self._pools_without_visible_nodes(observed.state)
        if failures:
            raise PartialFailure("\n".join(failures))
        return observed

    def _pools_without_visible_nodes(self, state: ClusterState) -> list[str]:
        """Messages about the pools that have no nodes although nodes that may belong to them are hidden from discovery."""
        scope = self._context.scope
        if scope.state != PRESENT or scope.requirements:
            return []
        hidden = hidden_nodes(state.plan, state.nodes.values(), state.membership, self._unusual(state))
        pools = [
            name
            for name in pools_without_visible_nodes(hidden, state.membership)
            if scope.pools is None or name in scope.pools
        ]
        if not pools:
            return []
        messages = hidden_messages(hidden, state.membership, pools)
        return [f"No node of the cluster belongs to: {', '.join(pools)}.", *messages[:MAX_NAMED]]

    def _apply(self, state: ClusterState, lease: Lease) -> None:
        """Send the changes, then exclude the nodes that were reported, so that later changes and waits skip them."""
        self._observed = None
        try:
            self._rollout.apply(state, lease)
        finally:
            # This state includes the nodes that the rolling update has changed and verified, even if the update failed later.
            self._latest = replace(state, nodes=dict(self._rollout.nodes))
        done, changes = self._rollout.done, state.changes
        self._context.scope.excluded.update(done.failed, done.not_started, changes.limited, changes.not_ready)

    def _require_verified(self, observed: ObservedNodes) -> None:
        failed = self._rollout.done.failed
        findings = {name: finding for name, finding in observed.findings.items() if name not in failed}
        if not findings and not observed.undiscovered:
            return
        message = diagnose(self._context, findings, [observed.state.nodes[name] for name in observed.undiscovered])
        alternating = self._watch.alternating(findings)
        if alternating:
            message += (
                f"\nThe labels or resources of {abbreviate(alternating)} change back and forth, so several components write them: check that only one NFD, one "
                "gpu-feature-discovery and one device plugin run there"
            )
        failures = f"{self._failures()}\n" if failed else ""
        raise WaitTimeout(
            f"{failures}{len(findings) + len(observed.undiscovered)} node(s) do not match the declarations of their pools "
            f"(wait_timeout {observed.wait_timeout:.0f} s):\n{message}"
        )

    def _warn(self, texts: t.Iterable[str], state: ClusterState) -> None:
        for text in (*self._context.scope.warnings(state.nodes.values()), *texts):
            self._module.warn(text)

    def _failures(self) -> str:
        done = self._rollout.done
        lines = [abbreviate([f"{name}: {reason}" for name, reason in sorted(done.failed.items())], separator="\n")]
        lines += [
            f"{count} node(s) were not started ({option})"
            for option, count in sorted(collections.Counter(done.not_started.values()).items())
        ]
        return "\n".join([f"{len(done.failed)} node(s) failed:", *lines])

    def _result(self, observed: ObservedNodes) -> dict[str, t.Any]:
        """The module's result. The complete result, without limits on its lists, is written to `report_path`."""
        done, unusual = self._rollout.done, self._unusual(observed.state)
        findings = {**self._watch.findings_of_reported(observed.state), **observed.findings}
        result = build_result(observed.state, findings, done, unusual)
        path = self._module.params["report_path"]
        if path:
            unlimited = build_result(observed.state, findings, done, unusual, limit=None)
            try:
                write_private_file(path, json.dumps(unlimited, indent=1), keep_mode=True)
                result["report_path"] = path
            except ConnectionProblem as error:
                # The changes to the cluster are reported even if the file cannot be written.
                self._module.warn(f"The report {error}")
        return result

    def _unusual(self, state: ClusterState) -> dict[str, str]:
        """The GPU nodes that the run does not wait for, with the reason."""
        failing = {**self._watch.failing, **self._reported}
        return unusual_nodes(state.plan.pools, state.nodes.values(), state.membership, failing)


# Compares the pools with the cluster, for modules that do not change nodes but report the required changes or refuse a release.

Pods = t.Sequence[t.Mapping[str, t.Any]]
# Returns additional data by pool name, read from objects other than nodes; raises ApiError.
PoolReader = t.Callable[["Client", "Plan", t.Sequence["Node"], "Membership"], t.Mapping[str, t.Any]]


@dataclass(frozen=True)
class Overview:
    """The pools with their demands allocated to nodes, the required changes, and the MIG profiles of the nodes' GPUs."""

    allocation: MigAllocation
    membership: Membership
    changes: ChangePlan
    geometries: t.Mapping[str, Geometry]
    warnings: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The plan for these nodes."""
        return self.allocation.plan


def overview(client: Client, plan: Plan, nodes: t.Sequence[Node], pods: t.Callable[[], Pods] | None = None) -> Overview:
    """Compare the pools with the nodes. `pods` returns the pods that have not terminated; it is called only if the choice of GPUs depends on them."""
    membership = assign_pools(plan.pools, nodes)
    configmaps = SharingConfigMaps(client, plan).read(nodes, to_write=False)
    allocation = plan_demand(plan, nodes, membership, configmaps)
    if allocation.needs_usage and pods is not None:
        by_node = pods_by_node(client, pods(), plan.config.namespace)
        allocation = plan_demand(plan, nodes, membership, configmaps, by_node)
    changes = plan_sharing_changes(allocation.plan, nodes, membership, configmaps)
    return Overview(
        allocation,
        membership,
        changes,
        configmaps.capacity.geometries,
        (
            *configmaps.capacity.warnings,
            *layout_problems(allocation.plan, nodes, membership, configmaps),
            *reverted_configmaps(changes, configmaps),
            *lost_entries(changes, nodes),
            *taken_over_file(changes.mig, configmaps.mig),
        ),
    )


def layouts_lost_by_releases(changes: ChangePlan, nodes: t.Mapping[str, Node]) -> list[str]:
    """Warnings about the MIG layouts that nodes had before they were in their pools and that their releases do not restore."""
    released = (
        (nodes[change.node], change.edit) for change in changes.node_changes if change.released_from is not None
    )
    return lost_layouts((node, edit) for node, edit in released if edit is not None)


def lost_entries(changes: ChangePlan, nodes: t.Sequence[Node]) -> list[str]:
    """Warnings about entries that labels of nodes select, and that somebody has removed from the ConfigMaps."""
    texts = []
    for entries, label, program, loss in (
        (changes.device_plugin, CONFIG_LABEL, "device plugin", "lose their GPUs"),
        (changes.mig, MIG_CONFIG_LABEL, "MIG manager", "fail"),
    ):
        selected = {node.name: node.labels[label] for node in nodes if node.labels.get(label) in entries.added}
        if selected:
            missing = sorted(set(selected.values()))
            texts.append(
                f"The ConfigMap of the {program} lacks {abbreviate(missing)}, which the label {label} of {abbreviate_nodes(selected)} selects, so "
                f"something has removed it. The next run adds it again; until then, these nodes {loss} when the {program}'s pod restarts there."
            )
    return texts


def reverted_configmaps(changes: ChangePlan, configmaps: ConfigMaps) -> list[str]:
    """Sentences about the tools that may revert the changes of the ConfigMaps."""
    parts = ((changes.device_plugin, configmaps.device_plugin), (changes.mig, configmaps.mig))
    texts = (reverts_changes(configmap) for entries, configmap in parts if entries.changed and configmap)
    return [text for text in texts if text]


def taken_over_file(entries: ConfigMapEntries, configmap: Document | None) -> t.Iterator[str]:
    """A sentence about the other field managers of the MIG manager's file, if the run writes the file: it has only one key, so a run writes it as a whole."""
    if configmap is None or not entries.changed:
        return
    metadata = configmap["metadata"]
    managers = set(writers(configmap, ("data", mig_parted.KEY))) - {FIELD_MANAGER}
    if managers:
        yield (
            f"ConfigMap {metadata['namespace']}/{metadata['name']}: {join_words(sorted(managers))} has written {mig_parted.KEY}, and a run writes this "
            "file as a whole. The layouts in it stay, also when this collection is uninstalled, but later changes by that tool may remove those of the pools."
        )


def impact_preview(
    client: Client, overview: Overview, nodes: t.Sequence[Node], restart: OperandRestart, pods: Pods
) -> tuple[dict[str, dict[str, int]], ChangePlan, dict[str, tuple[PodOnNode, ...]]]:
    """The impact on each pool (impact.impact), the changes with the evicted pods, and the pods that the operator evicts for the driver, by node.

    `pods` contains all pods that have not terminated; it may be empty if they do not affect the result.
    """
    plan, membership = overview.plan, overview.membership
    by_node = pods_by_node(client, pods, plan.config.namespace)
    changes = plan_sharing_changes(plan, nodes, membership, ConfigMaps(), pods=by_node)
    impacts = {change.node: NodeImpact(change.transition, change.displaced) for change in changes.node_changes}
    running = RunningPods(operands_by_node(pods), by_node.gpu_pods)
    counts = impact_by_pool(plan.pools, nodes, membership, impacts, restart, running)
    return counts, changes, evictions_by_operator(restart, running)


def read_refused_evictions(
    client: Client, changes: ChangePlan, by_operator: t.Mapping[str, t.Sequence[PodOnNode]] | None = None
) -> tuple[list[dict[str, t.Any]], list[str]]:
    """The evictions that PodDisruptionBudgets refuse now, and warnings; the budgets are listed only if the changes evict pods.

    by_operator: the pods that the operator evicts, by node, before it replaces the driver.
    """
    if not changes.evictions and not by_operator:
        return [], []
    try:
        budgets = client.list_known(DISRUPTION_BUDGETS)
    except ApiError as error:
        if not error.forbidden:
            raise
        return [], [
            "This user is not allowed to list PodDisruptionBudgets, so it is unknown whether they prevent the evictions: "
            f"{error.message}"
        ]
    refused = [each.as_dict(OPERATOR) for each in refused_evictions(by_operator or {}, budgets)]
    first = {(each["pod"], each["node"]) for each in refused}
    # The operator is changed before the nodes, so it evicts the pods that both would evict.
    refused += [
        each.as_dict() for each in refused_evictions(changes.evictions, budgets) if (each.pod, each.node) not in first
    ]
    return refused[:MAX_LISTED], [describe_refused(refused)] if refused else []


def add_pool_facts(
    client: Client,
    overview: Overview,
    nodes: t.Sequence[Node],
    readers: t.Mapping[str, PoolReader],
    pools: t.Mapping[str, dict[str, t.Any]],
) -> list[str]:
    """Add the data from each reader to the results of the pools, under the reader's key; returns a warning for each reader that lacks a permission."""
    warnings = []
    for key, read in readers.items():
        try:
            facts = read(client, overview.plan, nodes, overview.membership)
        except ApiError as error:
            if not error.forbidden:
                raise
            warnings.append(
                f"This user is not allowed to read the {key} data of the pools, so the report omits it: {error.message}"
            )
            continue
        for name, fact in facts.items():
            pools[name][key] = fact
    return warnings


def add_nodes(
    client: Client, overview: Overview, nodes: t.Sequence[Node], result: dict[str, t.Any], pods: Pods | None = None
) -> None:
    """Add to the result the nodes that need attention (in several pools or in none, released, undiscovered, unusual) and the warnings about nodes.

    `pods` contains all pods, by which other device plugins are recognized; None if they have not been listed, so that these plugins are searched for.
    More pods are listed only on nodes that are not discovered or that offer no GPU.
    """
    namespace = overview.plan.config.namespace
    if pods is None:
        pods = read_plugin_pods(client, namespace) if any(node.has_gpu for node in nodes) else ()
    membership, released = overview.membership, overview.changes.released
    result["overlaps"] = dict(sorted(membership.overlaps.items())[:MAX_LISTED])
    result["released"] = released[:MAX_LISTED]
    result["unclaimed"] = membership.unclaimed[:MAX_LISTED]
    undiscovered = [node.name for node in nodes if node.has_gpu and not node.discovered]
    suspects = {node.name for node in nodes if node.has_gpu and not any(node.allocatable.values())}
    failing = failing_operands(client, namespace, suspects | set(undiscovered), time.time())
    unusual = unusual_nodes(overview.plan.pools, nodes, membership, failing)
    result["unusual_nodes"] = as_list(unusual, MAX_LISTED)
    result["undiscovered"] = [name for name in undiscovered if name not in unusual][:MAX_LISTED]
    hidden = hidden_nodes(overview.plan, nodes, membership, unusual, before_discovery=is_undiscovered(nodes))
    result["warnings"] += all_warnings(
        nodes,
        membership,
        released,
        unusual,
        run=False,
        hidden=hidden,
        plugins=foreign_plugins(pods, namespace),
    )


def require_allowed(client: Client, plan: Plan, allowed: t.Collection[str]) -> None:
    """Raise ReleaseRefused if gpu_sharing would raise it.

    This function lists the nodes with the label of an undeclared pool (usually none), and sends another list request if some pools do not set
    sharing.mode. Only gpu_sharing finds nodes that leave a declared pool because the pool's match has changed.
    """
    if not any(list(client.list(NODES, label_selector=selector, metadata_only=True)) for selector in _selectors(plan)):
        return
    refusal = StateReader(client, plan).read().changes.releases.refusal(allowed)
    if refusal:
        raise ReleaseRefused(refusal)


def _selectors(plan: Plan) -> t.Iterator[str]:
    """The label selectors for the nodes that may be released or lose their sharing."""
    names = ",".join(sorted(pool.name for pool in plan.pools))
    yield f"{POOL_LABEL},{POOL_LABEL} notin ({names})" if names else POOL_LABEL
    silent = [pool for pool in plan.pools if not pool.declares_sharing]
    if silent:
        whole = ",".join(sorted({pool.config_key for pool in silent}))
        names = ",".join(sorted(pool.name for pool in silent))
        yield f"{POOL_LABEL} in ({names}),{CONFIG_LABEL},{CONFIG_LABEL} notin ({whole})"
