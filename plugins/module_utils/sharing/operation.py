# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The five verbs of node_profile: a preview, or a run that ends with the proof or with how far it came."""

from __future__ import annotations

import functools
import json
import typing as t

from ..catalog.names import MIG_CONFIG_LABEL
from ..pools.derive import derive
from ..running.errors import InvalidOptions
from ..running.results import diff_of
from . import scope as scopes
from .converging import Converger
from .held import unread
from .reading import Expected, Fleet, Reader
from .reboot import Rebooter
from .result import after_discovery, result, warnings
from .rollout import Rollout, Ways
from .seeing import Seen, Watcher
from .story import of_node, story

if t.TYPE_CHECKING:
    from ..fleet.proof import Finding
    from ..kube.lease import Lease
    from ..kube.module import GpuModule


def operate(module: GpuModule, scope: scopes.Scope) -> dict[str, t.Any]:
    """Preview in check mode, else apply and prove."""
    policy = module.params["expected_policy"] if module.check_mode else {}
    expected = Expected(tuple(policy.get("tolerations") or ()), tuple(policy.get("configmaps") or ()))
    reader = Reader(module.client, module.plan, scope=scope, expected=expected)
    watcher = Watcher(module.client, module.plan, reader, scope, module.progress)
    ways = Ways(
        run_id=module.run_id,
        progress=module.progress,
        rebooter=Rebooter(module.run_command),
        tell=functools.partial(of_node, module.client, module.plan),
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
        reason = unread(module.client, module.plan)
        if reason:
            raise InvalidOptions([reason])
    if module.check_mode:
        return _preview(module, rollout, watcher, fleet)
    return _run(module, scope, rollout, watcher, reader, lease, fleet)


def scope_of(module: GpuModule) -> scopes.Scope:
    """What the options ask for; with state reset the plan is that of the same pools with whole GPUs."""
    state, only = module.params["state"], module.params["only"]
    declared = {pool.name for pool in module.plan.pools}
    scope, problems = scopes.read(state, only, module.params["label_selectors"], declared)
    if problems:
        raise InvalidOptions(problems)
    if state == scopes.RESET:
        defaults, pools = scopes.reset(module.params["defaults"], module.params["pools"], only)
        module.plan = derive(module.params["cluster"], defaults, pools)
    return scope


def _preview(module: GpuModule, rollout: Rollout, watcher: Watcher, fleet: Fleet) -> dict[str, t.Any]:
    told = result(fleet, watcher.findings(fleet), None)
    later = after_discovery(fleet)
    if later:
        told["after_discovery"] = later
    unchecked = rollout.preview(fleet)
    if unchecked:
        told["unchecked"] = unchecked
    for text in warnings(fleet):
        module.warn(text)
    before, after = fleet.profile.diff()
    if later:
        after["after_discovery"] = later
    return {
        "changed": fleet.profile.changed or bool(later),
        "node_profile": told,
        "diff": diff_of(before, after, "node_profile"),
    }


def _run(
    module: GpuModule,
    scope: scopes.Scope,
    rollout: Rollout,
    watcher: Watcher,
    reader: Reader,
    lease: Lease,
    fleet: Fleet,
) -> dict[str, t.Any]:
    before, after = fleet.profile.diff()
    converger = Converger(
        reader,
        rollout,
        watcher,
        lease,
        lambda seen: story(module.client, module.plan, seen.findings, seen.undiscovered, watcher.since),
        # A repair proves each node in its turn; of the others it is not asked whether they are as declared.
        wait=module.params["wait"] and not scope.repairs,
        wait_timeout=module.params["wait_timeout"],
    )
    try:
        seen = converger.converge(fleet)
    except Exception as error:
        seen = watcher.latest or Seen(fleet, watcher.findings(fleet), [])
        error.partial = {  # type: ignore[attr-defined]
            "node_profile": _result(module, rollout, seen.fleet, seen.findings),
            "changed": rollout.done.any,
            **getattr(error, "partial", {}),
        }
        raise
    for text in warnings(seen.fleet, rollout.done):
        module.warn(text)
    return {
        "changed": rollout.done.any,
        "node_profile": _result(module, rollout, seen.fleet, seen.findings),
        "diff": diff_of(before, after, "node_profile"),
    }


def _result(module: GpuModule, rollout: Rollout, fleet: Fleet, findings: dict[str, Finding]) -> dict[str, t.Any]:
    told = result(fleet, findings, rollout.done)
    path = module.params["report_path"]
    if path:
        with open(path, "w", encoding="utf-8") as handle:
            json.dump(result(fleet, findings, rollout.done, limit=None), handle, indent=1)
        told["report_path"] = path
    return told
