# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module gpu_sharing: a preview in check mode, else a run with its result."""

from __future__ import annotations

import json
import typing as t

from ..catalog.names import MIG_CONFIG_LABEL
from ..cluster_state.warnings import unusual_nodes
from ..common import private_file
from ..common.errors import ConnectionProblem, InvalidOptions, ReleaseRefused
from ..common.results import diff_of
from ..pools.derive import derive
from .preconditions import mig_config_problem
from .reader import ClusterState, ExpectedPolicy, StateReader
from .readiness_watch import ObservedNodes, ReadinessWatch
from .reboot import Rebooter
from .reconciler import Reconciler
from .result import after_discovery, build_result, warnings
from .rollout import Rollout, RolloutResult
from .run_context import RunContext
from .scope import RESET, Scope, parse_scope, without_sharing

if t.TYPE_CHECKING:
    from ..kube.lease import Lease
    from ..kube.module import GpuModule


def scope_of(module: GpuModule) -> Scope:
    """The scope that the options define; with state reset the module's plan becomes that of the same pools with whole GPUs."""
    params = module.params
    state, pool_names = params["state"], params["pool_names"]
    declared = {pool.name for pool in module.plan.pools}
    scope, problems = parse_scope(state, pool_names, params["label_selectors"], declared)
    if state == RESET and pool_names is not None and not pool_names:
        problems.append("pool_names: names no pool; name the pools to reset, or leave it out to reset all")
    if problems:
        raise InvalidOptions(problems)
    if state == RESET:
        defaults, pools = without_sharing(params["gpu_defaults"], params["gpu_pools"], pool_names)
        module.plan = derive(params["gpu_cluster"], defaults, pools)
    return scope


class SharingOperation:
    """One call of the module."""

    def __init__(self, module: GpuModule, scope: Scope) -> None:
        """Keep the arguments; nothing is read."""
        self._module = module
        self._allowed = frozenset(module.params["allow_release"])
        self._policy = module.params["expected_policy"] if module.check_mode else {}
        expected = ExpectedPolicy(
            tuple(self._policy.get("tolerations") or ()), tuple(self._policy.get("configmaps") or ())
        )
        self._context = RunContext(
            client=module.client,
            plan=module.plan,
            scope=scope,
            reader=StateReader(module.client, module.plan, scope=scope, expected=expected),
            progress=module.progress,
            run_id=module.run_id,
            rebooter=Rebooter(module.run_command),
            wait_timeout=module.params["wait_timeout"],
        )
        self._watch = ReadinessWatch(self._context)
        self._rollout = Rollout(self._context)

    def execute(self) -> dict[str, t.Any]:
        """Preview in check mode, else apply and verify; returns the module's result."""
        lease = self._module.lease()
        lease.observe()
        state = self._context.reader.read()
        if state.problems:
            raise InvalidOptions(state.problems)
        uses_mig_entries = any(
            edit.labels.get(MIG_CONFIG_LABEL) in state.plan.mig.entries for edit in state.changes.edits
        )
        # In a preview of site the ClusterPolicy is still the old one.
        if uses_mig_entries and not self._policy:
            problem = mig_config_problem(self._context.client, self._context.plan)
            if problem:
                raise InvalidOptions([problem])
        refusal = state.changes.releases.refusal(self._allowed)
        if refusal:
            refused = ReleaseRefused(refusal)
            refused.partial = {**self._preview(state, check_on_server=False), "changed": False}
            raise refused
        if self._module.check_mode:
            return self._preview(state, check_on_server=True)
        return self._run(state, lease)

    def _preview(self, state: ClusterState, *, check_on_server: bool) -> dict[str, t.Any]:
        self._watch.look_for_failures(state)
        unusual, predicted = self._unusual(state), RolloutResult.predict(state.changes)
        result = build_result(state, self._watch.findings(state), predicted, unusual)
        later = after_discovery(state, self._watch.failing)
        if later:
            result["after_discovery"] = later
        unchecked = self._rollout.dry_run(state) if check_on_server else None
        if unchecked:
            result["unchecked"] = unchecked
        for text in warnings(state, predicted, unusual):
            self._module.warn(text)
        before, after = state.changes.diff()
        if later:
            after["after_discovery"] = later
        return {
            "changed": state.changes.changed or bool(later),
            "gpu_sharing": result,
            "diff": diff_of(before, after, "gpu_sharing"),
        }

    def _run(self, state: ClusterState, lease: Lease) -> dict[str, t.Any]:
        before, after = state.changes.diff()
        # A repair verifies each node that it changes, and does not require the others to be as declared.
        wait = self._module.params["wait"] and not self._context.scope.repairs
        reconciler = Reconciler(self._context, self._rollout, self._watch, wait=wait, allowed=self._allowed)
        try:
            observed = reconciler.reconcile(state, lease)
        except Exception as error:
            observed = self._watch.latest or ObservedNodes(state, self._watch.findings(state), [])
            error.partial = {  # type: ignore[attr-defined]
                "gpu_sharing": self._result(observed),
                "changed": self._rollout.done.any,
                **getattr(error, "partial", {}),
            }
            raise
        for text in warnings(observed.state, self._rollout.done, self._unusual(observed.state)):
            self._module.warn(text)
        return {
            "changed": self._rollout.done.any,
            "gpu_sharing": self._result(observed),
            "diff": diff_of(before, after, "gpu_sharing"),
        }

    def _result(self, observed: ObservedNodes) -> dict[str, t.Any]:
        """The result; `report_path` gets the one without limits."""
        done, unusual = self._rollout.done, self._unusual(observed.state)
        result = build_result(observed.state, observed.findings, done, unusual)
        path = self._module.params["report_path"]
        if path:
            unlimited = build_result(observed.state, observed.findings, done, unusual, limit=None)
            try:
                private_file.write(path, json.dumps(unlimited, indent=1), keep_mode=True)
                result["report_path"] = path
            except ConnectionProblem as error:
                # The changes of the cluster are reported even if the file cannot be written.
                self._module.warn(f"The report {error}")
        return result

    def _unusual(self, state: ClusterState) -> dict[str, str]:
        """The GPU nodes that are not waited for, with the reason."""
        return unusual_nodes(state.plan.pools, state.nodes.values(), state.membership, self._watch.failing)
