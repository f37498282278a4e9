#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validates pools with workloads that the cluster's scheduler places."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_validation
short_description: Run workloads to verify that GPUs compute correctly and are shared as their pools declare
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - For each pool, in parallel, runs pods on one node. They request the pool's resource, tolerate its taints, list their device with C(nvidia-smi -L), run a
    CUDA kernel on it, compare the result with the CPU's, and hold the device.
  - A pool is verified when the cluster's scheduler has scheduled its pods, all pods have run at the same time and completed, and the kernel has passed in each
    of them. In addition, the logs of the pods must show the devices of the sharing mode. Exclusive GPUs have one pod each, and shared GPUs have no more pods
    than shares.
  - The kernel is NVIDIA's CUDA sample vectorAdd. Its image is the newest one that the driver of the node supports (C(gpu_cluster.validation)). If a validation
    fails, the result contains the node, the end of the log, an explanation and the remedy.
  - O(load_seconds), O(all_reduce) and O(all_reduce_nodes) add a load test and measurements with NCCL. None of them runs
    unless it is requested.
  - If no other pod holds a share of the node and the pods hold all units of a resource, the module verifies that one additional pod must wait. If GPUs or
    MIG devices are shared and requests for more than one share must fail, it verifies that a request for two shares is rejected.
  - The module uses the node with the most free shares, and does not affect other pods. If all shares of a pool are in use, the
    pool's status is V(busy), and a warning is shown.
  - The pods are always deleted, including pods that a killed run has left.
  - The results are stored as evidence in the ConfigMap C(accel-gpu-validation). As long as the pool, the kinds of its nodes, their drivers and the image do
    not change, and no additional program is requested, the pool is skipped and no request is sent.
  - A failed validation is also stored there, and M(accel.gpu.gpu_info) shows it until the pool is verified. If no pod could use a device, for example
    because of a quota or because all nodes have maintenance taints, the failure does not replace current evidence.
  - A node with taints that the pool does not declare is not used. If the API server rejects a pod, only the validation of its pool fails.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  force:
    description:
      - Whether to validate pools again even if their evidence is current.
    type: bool
    default: false
  max_pods:
    description:
      - Maximum number of pods for each pool, V(1) to V(1000). For a pool that shares GPUs, the number of pods always exceeds the number of GPUs of its node,
        because fewer pods could not verify sharing.
    type: int
    default: 8
  hold_seconds:
    description:
      - Number of seconds that each pod holds its device, V(1) to V(3600), so that all pods run at the same time.
    type: int
    default: 10
  kernel_timeout:
    description:
      - Seconds after which a kernel that has not finished counts as hung, V(1) to V(3600). Other pools are not affected.
    type: int
    default: 60
  load_seconds:
    description:
      - Number of seconds, V(0) (no load) to V(86400), for which each pod puts load on its device before it runs the kernel. The load is NVIDIA's CUDA sample
        nbody in an init container of the same pod.
    type: int
    default: 0
  all_reduce:
    description:
      - Whether to measure an all-reduce (C(nccl-tests)) across all free GPUs of a node. It is not measured in pools whose GPUs are shared or partitioned.
    type: bool
    default: false
  all_reduce_nodes:
    description:
      - Number of nodes, V(2) to V(64), between which an all-reduce over the pod network is measured. V(0) disables the measurement.
    type: int
    default: 0
  min_bandwidth:
    description:
      - Lowest accepted bus bandwidth of O(all_reduce) in GB/s. With V(0), the bandwidth is only reported.
      - A map contains a number for each pool, by name. In pools that are not in the map, the bandwidth is only reported.
    type: raw
    default: 0
  min_network_bandwidth:
    description:
      - Lowest accepted bus bandwidth of O(all_reduce_nodes) in GB/s, or a map as for O(min_bandwidth). With V(0), the bandwidth is only reported.
    type: raw
    default: 0
  all_reduce_timeout:
    description:
      - Seconds within which the pods of an all-reduce must complete, V(30) to V(7200), including the pull of NCCL's large image. The measurement itself is
        stopped after a third of this time.
    type: int
    default: 900
  image_pull_secrets:
    description:
      - Names of Secrets in the pods' namespace for pulling the image. If the list is empty, those of C(gpu_cluster.operator.image_pull_secrets) are used.
    type: list
    elements: str
    default: []
  run_as_user:
    description:
      - User ID of the pods, at most 2147483647. With V(0), the platform assigns it.
      - On OpenShift, the default is also treated as V(0), because the pods require the security context constraint C(restricted-v2), which does not allow a
        fixed user ID.
    type: int
    default: 65534
  wait_timeout:
    description:
      - Seconds to wait until the pods of all pools have completed, V(1) to V(86400), in addition to O(load_seconds).
    type: int
    default: 300
  wait_sleep:
    description:
      - Seconds between two reads of the pods, V(1) to V(60).
    type: int
    default: 1
notes:
  - The images and the namespace are set in C(gpu_cluster.validation).
seealso:
  - module: accel.gpu.gpu_sharing
"""

EXAMPLES = r"""
- name: Validate every pool
  accel.gpu.gpu_validation:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"

- name: Validate them again, with more pods
  accel.gpu.gpu_validation:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    force: true
    max_pods: 32

- name: Put load on the GPUs for ten minutes, and measure NVLink and the network
  accel.gpu.gpu_validation:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    load_seconds: 600
    all_reduce: true
    all_reduce_nodes: 2
    min_bandwidth: {train-h100: 300, train-a100: 180}
"""

RETURN = r"""
gpu_validation:
  description: The results.
  returned: always
  type: dict
  contains:
    pools:
      description:
        - By pool, its C(status) - V(verified), V(skipped), V(empty), V(busy), V(failed), V(not_applicable) if the pool's labels make its GPUs unavailable to
          containers, or V(would_run) in check mode.
        - If applicable, each pool also contains C(node), C(pods), C(devices) (number of pods by device UUID), C(image), C(reason), and C(problems) with one
          entry for each failed pod.
        - C(kernel) is V(passed) or V(failed), and is only returned if the kernel has run. For C(one_more), V(waited) is the expected result if there is one
          more pod than shares. For C(two_shares), V(refused) is the expected result for a request for two shares.
        - C(load) contains the C(seconds) of the load, and the pods' C(min_gflops) and C(max_gflops).
        - C(all_reduce) and C(network_all_reduce) contain C(nodes), C(gpus) and C(bus_bandwidth) in GB/s, or C(skipped) with the reason.
      type: dict
      returned: always
      sample:
        notebooks:
          status: verified
          node: t4-1
          pods: 4
          devices: {GPU-3f0b8f60-8a52-4b8c-9d53-5f0d3e6b2b11: 4}
          image: nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0
          kernel: passed
          one_more: waited
          two_shares: refused
      contains:
        NAME:
          description: 'One pool, by its name.'
          type: dict
          returned: always
          sample: {status: verified, node: t4-1, pods: 4, devices: {GPU-3f0b8f60-8a52-4b8c-9d53-5f0d3e6b2b11: 4},
            image: 'nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0',
            kernel: passed, one_more: waited, two_shares: refused}
          contains:
            status: {description: 'V(verified), V(skipped), V(empty), V(busy), V(failed), V(not_applicable) or V(would_run).',
              type: str, returned: always, sample: verified}
            reason: {description: The reason for this status., type: str, returned: if no pod has run, sample: no node of the cluster belongs to it}
            node: {description: The node on which pods have run., type: str, returned: if pods have run, sample: t4-1}
            pods: {description: Number of pods., type: int, returned: if pods have run, sample: 4}
            devices: {description: Number of pods by device UUID., type: dict, returned: if pods have run,
              sample: {GPU-3f0b8f60-8a52-4b8c-9d53-5f0d3e6b2b11: 4}}
            problems: {description: One entry for each problem., type: list, elements: str, returned: if pods have run, sample: []}
            image: {description: Image of the validation pods., type: str, returned: if pods have run,
              sample: 'nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0'}
            kernel: {description: V(passed) or V(failed)., type: str, returned: if it has run, sample: passed}
            one_more: {description: V(waited) is the expected result if there is one more pod than shares., type: str,
              returned: if it was tested, sample: waited}
            two_shares: {description: V(refused) is the expected result for a request for two shares., type: str, returned: if
              it was tested, sample: refused}
            load: {description: The result of the load., type: dict, returned: if it has run, sample: {seconds: 30, min_gflops: 7900,
              max_gflops: 8010}}
            all_reduce: {description: The result of NCCL on one node., type: dict, returned: if it was requested, sample: {
              nodes: [a100-1], gpus: 8, bus_bandwidth: 360.5}}
            network_all_reduce: {description: The result of NCCL on several nodes., type: dict, returned: if it was requested,
              sample: {nodes: [a100-1, a100-2], gpus: 16, bus_bandwidth: 180.2}}
    leftovers:
      description: Number of deleted pods that killed runs had left.
      type: int
      returned: always
      sample: 0
    seconds:
      description: Duration of the validation in seconds.
      type: float
      returned: always
      sample: 34.2
    after_discovery:
      description: Pools that cannot be previewed before the cluster's hardware is discovered.
      type: dict
      returned: in check mode, when there are such pools
      sample: {pools: [train]}
      contains:
        pools: {description: The pools., type: list, elements: str, returned: always, sample: [train]}
code:
  description:
    - The reason for the failure. If there is no code, RV(gpu_validation.pools) contains the problems of the pools.
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster than O(gpu_cluster) declares.
      V(connection) - no usable connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease.
      V(lease_lost) - this run lost it. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: lease_held
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import time
import typing as t
from dataclasses import replace

from ..module_utils.cluster_state.pool_assignment import awaited_nodes, is_undiscovered
from ..module_utils.common.results import diff_of
from ..module_utils.drain.operand_diagnosis import failing_operands
from ..module_utils.gpu_operator.detect import adapt_plan_to_cluster
from ..module_utils.kube.plan_module import PlanModule
from ..module_utils.validation import evidence
from ..module_utils.validation.evaluation import DeviceCheck, PoolTest
from ..module_utils.validation.node_program_runner import NodeProgramRunner
from ..module_utils.validation.options import option_spec, read_options
from ..module_utils.validation.pods import Workload
from ..module_utils.validation.sites import NotTestable
from ..module_utils.validation.validator import ValidationState, Validator, undeleted

if t.TYPE_CHECKING:
    from ..module_utils.kube.lease import Lease
    from ..module_utils.pools.plan import PoolPlan
    from ..module_utils.validation.sites import UsedGpus

PoolResult = dict[str, t.Any]


def work(module: PlanModule) -> dict[str, t.Any]:
    """Skip pools with current evidence, and validate the others."""
    started = time.monotonic()
    options = read_options(module.params, [pool.name for pool in module.plan.pools])
    plan = module.plan = adapt_plan_to_cluster(module.client, module.plan)
    workload = Workload(plan.validation, module.run_id, options)
    validator = Validator(module.client, plan, workload, module.progress)
    state = validator.read()
    pools = _initial_results(module, state, workload)
    result: dict[str, t.Any] = {"pools": pools, "leftovers": len(state.leftovers), "seconds": 0.0}
    before = {name: _summary(pool) for name, pool in pools.items()}
    later = _after_discovery(module, state) if module.check_mode else {}
    if later:
        result["after_discovery"] = later
    changed = bool(later or state.leftovers) or any(pool["status"] == "would_run" for pool in pools.values())
    problems: list[str] = []
    if changed and not module.check_mode:
        with module.lease() as lease:
            # Another run may have changed the state while this run waited for the lease.
            state = validator.read()
            pools.update(_initial_results(module, state, workload))
            if state.leftovers and (remaining := validator.pods.delete_leftovers()):
                module.warn(f"From a former run: {undeleted(remaining)}.")
            problems = _validate(module, validator, state, pools, lease)
        result["seconds"] = round(time.monotonic() - started, 1)
        changed = bool(state.leftovers) or any(pool["status"] in ("verified", "failed") for pool in pools.values())
    after = {name: "verified" if pool["status"] == "would_run" else _summary(pool) for name, pool in pools.items()}
    output = {"changed": changed, "gpu_validation": result, "diff": diff_of(before, after, "gpu_validation")}
    if problems:
        module.fail_json(msg="Not verified by workloads:\n" + "\n".join(problems), **output)
    return output


def _initial_results(module: PlanModule, state: ValidationState, workload: Workload) -> dict[str, PoolResult]:
    """The known results of each pool before any pod runs."""
    pools: dict[str, PoolResult] = {}
    for pool in module.plan.pools:
        entry, current = state.evidence.get(pool.name) or {}, state.is_current(pool.name)
        covered = current and evidence.covers(entry, workload.options_of(pool))
        if not state.members(pool.name):
            pools[pool.name] = {"status": "empty", "reason": "no node of the cluster belongs to it"}
        elif pool.reason_without_containers:
            pools[pool.name] = {"status": "not_applicable", "reason": pool.reason_without_containers}
        elif covered and not workload.options["force"]:
            pools[pool.name] = {"status": "skipped", **evidence.entry_results(entry)}
        else:
            more = "verified, but not with all programs of this run"
            reason = (
                "forced"
                if covered
                else more
                if current
                else "not verified"
                if not entry
                else "its last validation failed"
                if evidence.has_failed(entry)
                else "changed since it was verified"
            )
            pools[pool.name] = {"status": "would_run", "reason": reason}
    return pools


def _summary(pool: PoolResult) -> str:
    """The text for a pool in the diff: verified, or the reason why it is not."""
    texts = {"skipped": "verified", "would_run": str(pool.get("reason"))}
    return texts.get(pool["status"], str(pool["status"]))


def _validate(
    module: PlanModule,
    validator: Validator,
    state: ValidationState,
    pools: dict[str, PoolResult],
    lease: Lease,
) -> list[str]:
    """Validate the remaining pools; write their results into `pools` and return the problems."""
    remaining = {pool.name: pool for pool in module.plan.pools if pools[pool.name]["status"] == "would_run"}
    if not remaining:
        return []
    problems: list[str] = []
    tests: list[PoolTest] = []
    entries: dict[str, dict[str, t.Any]] = {}
    used = validator.used_gpus()
    for name, site in validator.choose_sites(remaining.values(), state, used).items():
        if not isinstance(site, NotTestable):
            tests.append(PoolTest(remaining[name], site, validator.workload))
            continue
        pools[name] = {"status": "busy" if site.busy else "failed", "reason": site.reason}
        if site.busy:
            module.warn(f"Pool {name} was not validated: {site.reason}.")
            continue
        problems.append(f"{name}: {site.reason}")
        if not state.is_current(name):
            entries[name] = evidence.failed_entry(state.fingerprint_inputs[name], "", {}, [site.reason], time.time())
    results = validator.run(tests, lease) if tests else {}
    _measure(validator, state, used, results, remaining, lease)
    for test in tests:
        name, result = test.pool.name, results[test.pool.name]
        pools[name] = {
            "status": "failed" if result.problems else "verified",
            "node": test.site.node.name,
            "pods": test.site.pods,
            "devices": dict(result.devices),
            **result.programs,
            **test.answers,
            "problems": list(result.problems),
        }
        problems += [f"{name} on {test.site.node.name}: {problem}" for problem in result.messages]
        inputs, node = state.fingerprint_inputs[name], test.site.node.name
        if not result.problems:
            measured = {**result.programs, **test.answers}
            entries[name] = evidence.verified_entry(inputs, node, result.devices, measured)
        elif test.disproves or not state.is_current(name):
            entries[name] = evidence.failed_entry(inputs, node, result.devices, result.messages, time.time())
    validator.record(entries, state, lease)
    return problems


def _measure(
    validator: Validator,
    state: ValidationState,
    used: UsedGpus,
    results: dict[str, DeviceCheck],
    pools: t.Mapping[str, PoolPlan],
    lease: Lease,
) -> None:
    """Run the requested programs that use whole nodes, on the pools whose kernels have passed; add their results to `results`."""
    passed = {name: (pools[name], state.members(name)) for name, result in results.items() if not result.problems}
    runner = NodeProgramRunner(validator.pods, validator.workload)
    for name, measured in runner.run(passed, used, lease).items():
        programs = {**results[name].programs, **{key: dict(one.values) for key, one in measured.items()}}
        problems = tuple(problem for one in measured.values() for problem in one.problems)
        summary = tuple(problem for one in measured.values() for problem in one.summary or one.problems)
        results[name] = replace(results[name], programs=programs, problems=problems, summary=summary)


def _after_discovery(module: PlanModule, state: ValidationState) -> dict[str, t.Any]:
    empty = list(state.membership.empty)
    if not empty:
        return {}
    nodes = state.nodes.values()
    waiting = awaited_nodes(module.plan.pools, nodes, state.membership)
    failing = failing_operands(module.client, module.plan.config.namespace, waiting, time.time())
    return {"pools": empty} if is_undiscovered(nodes) or set(waiting) - set(failing) else {}


def main() -> None:
    """Run the module."""
    module = PlanModule(option_spec(), lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
