#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves pools by workloads that the real scheduler places."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_validation
short_description: Prove by workloads that pools share their GPUs as declared
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - On one node of each pool, all pools at once, runs pods that request the pool's resource, tolerate its taints
    and list the device that they were given.
  - A pool is proven when its pods were scheduled by the cluster's own scheduler, all ran at the same time, all
    completed, and their logs show the devices that the mode stands for. No two pods on one GPU where GPUs are
    exclusive, and no more pods on a GPU than it has shares.
  - Where nobody else holds a share of the node and the pods hold all of a resource, one pod more has to wait. Where
    GPUs or MIG devices are shared and requests for more than one share are to fail, one that asks for two is refused.
  - The node with the most shares free is taken; pods of others are not touched. A pool whose shares are all in use is
    told as V(busy), with a warning.
  - The pods are taken away whatever happens, and so are those that a killed run has left.
  - What was proven is kept as evidence in the ConfigMap C(accel-gpu-validation). While the pool, the kinds of its
    nodes, their drivers and the image stay the same, it is not proven again, and nothing is sent.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  force:
    description:
      - Prove the pools again although their evidence stands.
    type: bool
    default: false
  max_pods:
    description:
      - How many pods to run for a pool at most. For a pool that shares GPUs, at least one pod more than its node has
        GPUs is run, since fewer prove nothing about sharing.
    type: int
    default: 8
  hold_seconds:
    description:
      - Seconds for which each pod holds its device, so that all of them are seen to run at the same time.
    type: int
    default: 10
  image_pull_secrets:
    description:
      - Names of Secrets in the pods' namespace with which the image is pulled.
    type: list
    elements: str
    default: []
  run_as_user:
    description:
      - User id of the pods. V(0) leaves it to the platform, as OpenShift's restricted SCC wants it.
    type: int
    default: 65534
  wait_timeout:
    description:
      - Seconds within which the pods of all pools must have completed.
    type: int
    default: 300
  wait_sleep:
    description:
      - Seconds between two looks at the pods.
    type: int
    default: 1
notes:
  - Image and namespace are C(gpu_cluster.validation.image) and C(gpu_cluster.validation.namespace).
seealso:
  - module: accel.gpu.gpu_sharing
"""

EXAMPLES = r"""
- name: Prove every pool
  accel.gpu.gpu_validation:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"

- name: Prove them again, with more pods
  accel.gpu.gpu_validation:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    force: true
    max_pods: 32
"""

RETURN = r"""
gpu_validation:
  description: What was proven.
  returned: always
  type: dict
  contains:
    pools:
      description: By pool, its C(status) (V(proven), V(skipped), V(empty), V(busy), V(failed), V(not_applicable) where the
        pool's labels keep its GPUs from containers, in check mode V(would_run)), and as far as they apply
        C(node), C(pods), C(devices) (holders by device UUID), C(one_more)
        (V(waited) is what one pod more than there are shares has to do), C(two_shares) (V(refused) is how a request for
        two has to end), C(reason) and C(problems).
      type: dict
      returned: always
      sample:
        notebooks:
          status: proven
          node: t4-1
          pods: 4
          devices: {GPU-3f0b8f60-8a52-4b8c-9d53-5f0d3e6b2b11: 4}
          one_more: waited
          two_shares: refused
    leftovers:
      description: How many pods of a killed run were taken away.
      type: int
      returned: always
    seconds:
      description: How long it took.
      type: float
      returned: always
    after_discovery:
      description: Pools of which nothing can be said before the cluster's hardware is discovered.
      type: dict
      returned: in check mode, when there are such
"""

import time
import typing as t

from ..module_utils.cluster_state.pool_assignment import awaited_nodes, undiscovered_cluster
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.common.results import diff_of
from ..module_utils.drain.operand_diagnosis import failing_operands
from ..module_utils.gpu_operator.detect import adapt_plan_to_cluster
from ..module_utils.kube.module import GpuModule
from ..module_utils.validation import evidence
from ..module_utils.validation.pods import NotTestable, Workload
from ..module_utils.validation.pool_test import PoolTest
from ..module_utils.validation.validator import ValidationState, Validator, elapsed


def work(module: GpuModule) -> dict[str, t.Any]:
    """Skip what stands, prove the rest."""
    began = time.monotonic()
    params = module.params
    module.plan = adapt_plan_to_cluster(module.client, module.plan)
    workload = Workload(
        namespace=module.plan.validation.namespace,
        image=module.plan.validation.image,
        run_id=module.run_id,
        hold=params["hold_seconds"],
        deadline=params["wait_timeout"] + params["hold_seconds"],
        image_pull_secrets=tuple(params["image_pull_secrets"]),
        run_as_user=params["run_as_user"] or None,
    )
    proving = Validator(
        module.client, module.plan, workload, params["max_pods"], module.progress, float(params["wait_sleep"])
    )
    state = proving.read()
    pools = _standing(module, state)
    told: dict[str, t.Any] = {"pools": pools, "leftovers": len(state.leftovers), "seconds": 0.0}
    due = [name for name, pool in pools.items() if pool["status"] == "would_run"]
    before = {name: _evidence(pool) for name, pool in pools.items()}
    later = _after_discovery(module, state) if module.check_mode else {}
    if later:
        told["after_discovery"] = later
    changed = bool(due or later or state.leftovers)
    problems: list[str] = []
    if changed and not module.check_mode:
        with module.lease() as lease:
            # Another run may have proven, or left, something while this one waited for its lease.
            state = proving.read()
            pools.update(_standing(module, state))
            if state.leftovers:
                proving.clean()
            problems = _prove(module, proving, state, pools, lease)
        told["seconds"] = elapsed(began)
        changed = bool(state.leftovers) or any(pool["status"] in ("proven", "failed") for pool in pools.values())
    after = {name: "proven" if pool["status"] == "would_run" else _evidence(pool) for name, pool in pools.items()}
    result = {"changed": changed, "gpu_validation": told, "diff": diff_of(before, after, "gpu_validation")}
    if problems:
        module.fail_json(msg="Not proven by workloads:\n" + "\n".join(problems), **result)
    return result


def _standing(module: GpuModule, state: ValidationState) -> dict[str, dict[str, t.Any]]:
    """What is known of each pool before anything runs."""
    pools: dict[str, dict[str, t.Any]] = {}
    for pool in module.plan.pools:
        entry = state.noted.get(pool.name) or {}
        if not state.members(pool.name):
            pools[pool.name] = {"status": "empty", "reason": "no node of the cluster belongs to it"}
        elif pool.without_containers:
            pools[pool.name] = {"status": "not_applicable", "reason": pool.without_containers}
        elif state.current(pool.name) and not module.params["force"]:
            pools[pool.name] = {"status": "skipped", **evidence.is_current(entry)}
        else:
            reason = (
                "forced" if state.current(pool.name) else "changed since it was proven" if entry else "never proven"
            )
            pools[pool.name] = {"status": "would_run", "reason": reason}
    return pools


def _evidence(pool: t.Mapping[str, t.Any]) -> str:
    """What there is to show for a pool: that it is proven, or why not."""
    words = {"skipped": "proven", "would_run": str(pool.get("reason"))}
    return words.get(pool["status"], str(pool["status"]))


def _prove(
    module: GpuModule, proving: Validator, state: ValidationState, pools: dict[str, dict[str, t.Any]], lease: t.Any
) -> list[str]:
    """Run what is due; writes what became of it into `pools` and returns the problems."""
    due = [pool for pool in module.plan.pools if pools[pool.name]["status"] == "would_run"]
    problems: list[str] = []
    trials: list[PoolTest] = []
    if not due:
        return problems
    for name, site in proving.sites(due, state).items():
        if isinstance(site, NotTestable):
            pools[name] = {"status": "busy" if site.busy else "failed", "reason": site.reason}
            if site.busy:
                module.warn(f"Pool {name} was not proven: {site.reason}.")
            else:
                problems.append(f"{name}: {site.reason}")
        else:
            trials.append(proving.trial(next(pool for pool in due if pool.name == name), site))
    if not trials:
        return problems
    proofs = proving.prove(trials, module.params["wait_timeout"], lease)
    for trial in trials:
        name, proof = trial.pool.name, proofs[trial.pool.name]
        pools[name] = {
            "status": "failed" if proof.problems else "proven",
            "node": trial.site.node.name,
            "pods": trial.site.pods,
            "devices": dict(proof.devices),
            **trial.told,
            "problems": list(proof.problems),
        }
        problems += [f"{name} on {trial.site.node.name}: {problem}" for problem in proof.problems]
    good = {t_.pool.name: (t_, proofs[t_.pool.name]) for t_ in trials if not proofs[t_.pool.name].problems}
    if good:
        proving.note(good, state, lease)
    return problems


def _after_discovery(module: GpuModule, state: ValidationState) -> dict[str, t.Any]:
    empty = list(state.membership.empty)
    if not empty:
        return {}
    waiting = awaited_nodes(module.plan.pools, state.nodes.values(), state.membership)
    failing = failing_operands(module.client, module.plan.config.namespace, waiting, time.time())
    if undiscovered_cluster(state.nodes.values()) or set(waiting) - set(failing):
        return {"pools": empty}
    return {}


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "force": {"type": "bool", "default": False},
        "max_pods": {"type": "int", "default": 8},
        "hold_seconds": {"type": "int", "default": 10},
        "image_pull_secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
        "run_as_user": {"type": "int", "default": 65534},
        "wait_timeout": {"type": "int", "default": 300},
        "wait_sleep": {"type": "int", "default": 1},
    }
    module = GpuModule(spec, documents=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
