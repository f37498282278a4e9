# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The five verbs of gpu_sharing: a preview, or a run that ends with the proof or with how far it came."""

from __future__ import annotations

import functools
import json
import typing as t

from ..catalog.names import MIG_CONFIG_LABEL
from ..cluster_state.unusual_nodes import unusual_nodes
from ..common import private_file
from ..common.errors import ConnectionProblem, InvalidOptions, ReleaseRefused
from ..common.results import diff_of
from ..pools.derive import derive
from . import scope as scopes
from .diagnosis import diagnose, diagnose_node
from .preconditions import unread_entries
from .reader import ExpectedPolicy, FleetState, StateReader
from .readiness_watch import ObservedNodes, ReadinessWatch
from .reboot import Rebooter
from .reconciler import Reconciler
from .result import after_discovery, result, warnings
from .rollout import Rollout, RolloutContext

if t.TYPE_CHECKING:
    from ..kube.lease import Lease
    from ..kube.module import GpuModule


def operate(module: GpuModule, scope: scopes.Scope) -> dict[str, t.Any]:
    """Preview in check mode, else apply and prove."""
    policy = module.params["expected_policy"] if module.check_mode else {}
    expected = ExpectedPolicy(tuple(policy.get("tolerations") or ()), tuple(policy.get("configmaps") or ()))
    reader = StateReader(module.client, module.plan, scope=scope, expected=expected)
    watcher = ReadinessWatch(module.client, module.plan, reader, scope, module.progress)
    ways = RolloutContext(
        run_id=module.run_id,
        progress=module.progress,
        rebooter=Rebooter(module.run_command),
        tell=functools.partial(diagnose_node, module.client, module.plan, watcher.since),
        since=watcher.since,
        wait_timeout=module.params["wait_timeout"],
    )
    rollout = Rollout(module.client, module.plan, reader, scope, ways)
    lease = module.lease()
    lease.look()
    fleet = reader.read()
    # Within a preview of site the policy is as it was, and will be another one.
    if fleet.problems:
        raise InvalidOptions(fleet.problems)
    if not policy and any(edit.labels.get(MIG_CONFIG_LABEL) in fleet.plan.mig.entries for edit in fleet.profile.edits):
        reason = unread_entries(module.client, module.plan)
        if reason:
            raise InvalidOptions([reason])
    refusal = fleet.profile.releases.refusal(frozenset(module.params["allow_release"]))
    if module.check_mode or refusal:
        previewed = _preview(module, rollout, watcher, fleet, refusal)
        if refusal:
            refused = ReleaseRefused(refusal)
            refused.partial = {**previewed, "changed": False}
            raise refused
        return previewed
    return _run(module, scope, rollout, watcher, reader, lease, fleet)


def scope_of(module: GpuModule) -> scopes.Scope:
    """What the options ask for; with state reset the plan is that of the same pools with whole GPUs."""
    state, only = module.params["state"], module.params["pool_names"]
    declared = {pool.name for pool in module.plan.pools}
    scope, problems = scopes.read(state, only, module.params["label_selectors"], declared)
    if state == scopes.RESET and only is not None and not only:
        problems.append("pool_names: names no pool; name the pools to reset, or leave it out to reset all")
    if problems:
        raise InvalidOptions(problems)
    if state == scopes.RESET:
        defaults, pools = scopes.reset(module.params["gpu_defaults"], module.params["gpu_pools"], only)
        module.plan = derive(module.params["gpu_cluster"], defaults, pools)
    return scope


def _preview(
    module: GpuModule, rollout: Rollout, watcher: ReadinessWatch, fleet: FleetState, refusal: str = ""
) -> dict[str, t.Any]:
    """What a run would do; of one that is refused nothing is asked of the server."""
    watcher.look_for_failures(fleet)
    unusual = _unusual(fleet, watcher)
    told = result(fleet, watcher.findings(fleet), None, unusual=unusual)
    later = after_discovery(fleet, watcher.failing)
    if later:
        told["after_discovery"] = later
    unchecked = None if refusal else rollout.preview(fleet)
    if unchecked:
        told["unchecked"] = unchecked
    for text in warnings(fleet, unusual=unusual):
        module.warn(text)
    before, after = fleet.profile.diff()
    if later:
        after["after_discovery"] = later
    return {
        "changed": fleet.profile.changed or bool(later),
        "gpu_sharing": told,
        "diff": diff_of(before, after, "gpu_sharing"),
    }


def _run(
    module: GpuModule,
    scope: scopes.Scope,
    rollout: Rollout,
    watcher: ReadinessWatch,
    reader: StateReader,
    lease: Lease,
    fleet: FleetState,
) -> dict[str, t.Any]:
    before, after = fleet.profile.diff()
    converger = Reconciler(
        reader,
        rollout,
        watcher,
        lease,
        lambda seen: diagnose(module.client, module.plan, seen.findings, seen.undiscovered, watcher.since),
        # A repair proves each node in its turn; of the others it is not asked whether they are as declared.
        wait=module.params["wait"] and not scope.repairs,
        wait_timeout=module.params["wait_timeout"],
        allowed=frozenset(module.params["allow_release"]),
    )
    try:
        seen = converger.converge(fleet)
    except Exception as error:
        seen = watcher.latest or ObservedNodes(fleet, watcher.findings(fleet), [])
        error.partial = {  # type: ignore[attr-defined]
            "gpu_sharing": _result(module, rollout, watcher, seen),
            "changed": rollout.done.any,
            **getattr(error, "partial", {}),
        }
        raise
    for text in warnings(seen.fleet, rollout.done, unusual=_unusual(seen.fleet, watcher)):
        module.warn(text)
    return {
        "changed": rollout.done.any,
        "gpu_sharing": _result(module, rollout, watcher, seen),
        "diff": diff_of(before, after, "gpu_sharing"),
    }


def _result(module: GpuModule, rollout: Rollout, watcher: ReadinessWatch, seen: ObservedNodes) -> dict[str, t.Any]:
    unusual = _unusual(seen.fleet, watcher)
    told = result(seen.fleet, seen.findings, rollout.done, unusual=unusual)
    path = module.params["report_path"]
    if path:
        whole = result(seen.fleet, seen.findings, rollout.done, limit=None, unusual=unusual)
        try:
            private_file.write(path, json.dumps(whole, indent=1), keep_mode=True)
            told["report_path"] = path
        except ConnectionProblem as error:
            # What was done to the cluster must be reported, whatever becomes of the file.
            module.warn(f"The report {error}")
    return told


def _unusual(fleet: FleetState, watcher: ReadinessWatch) -> dict[str, str]:
    """The GPU nodes that are not waited for, with the reason."""
    return unusual_nodes(fleet.plan.pools, fleet.nodes.values(), fleet.membership, watcher.failing)
