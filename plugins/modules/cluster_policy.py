#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_policy
short_description: Give the GPU operator's ClusterPolicy what the pools derive, and see that the operator has done it
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Owns the fields of the ClusterPolicy that are derived from the pools, and no others. Whatever else is in it stays, whoever put it there.
  - Maps and scalars are server-side applied under the field manager C(accel.gpu). Of the list C(spec.daemonsets.tolerations) this module
    owns single entries, which it notes in the annotation C(accel.gpu/tolerations); it takes out only those.
  - The policy that counts is the oldest one, under any name, as it is for the operator.
  - If a ConfigMap that the policy is to name does not exist it is created first, because an agent that is told to mount a missing ConfigMap
    never starts. An existing one is left alone; it belongs to M(accel.gpu.gpu_sharing).
  - A policy that names another ConfigMap for the device plugin keeps it with its default, and M(accel.gpu.gpu_sharing) adds the pools' entries
    to that one. Only where it does not exist the name is replaced, since no plugin can start then.
  - A C(spec.migManager.config.name) and a C(spec.mig.strategy) of somebody else's policy that have to change are noted in the annotation
    C(accel.gpu/former), so that M(accel.gpu.uninstall) can put them back.
  - Where a pool has MIG, C(spec.mig.strategy) is taken out whoever set it, because it overrules what each node's own configuration says.
  - An edit that reaches the template of the driver's DaemonSet makes the driver roll on every GPU node, slowly and with GPU pods evicted.
    Such an edit is held back while a driver pod exists, unless O(allow_driver_rollout) is set; everything else is applied.
notes:
  - "What counts as ready: the operator's condition Ready with reason Reconciled (or NoGPUNodes while NFD has found no GPU node); every GPU
    node that NFD has labelled is labelled by the operator; every DaemonSet of the policy has the policy's tolerations in its template, the
    device plugin's mounts the ConfigMap, its status is about its present generation, and the pods wanted, updated and available are as many as
    the nodes that match its selector, affinity and tolerations by this module's own count. C(status.state) alone proves nothing: it is C(ready)
    before the operator has looked at an edit, and while DaemonSets have no desired count yet."
  - A node on which a pod of NVIDIA's fails for longer than a start takes (three restarts, or a minute without its image) is not waited for where
    it is of no pool, or not labelled by gpu-feature-discovery, as long as other GPU nodes work. It is returned as C(unusual_nodes).
  - Pods of such nodes that never become ready would keep a DaemonSet from replacing its pods on all others. Those that are left with an older template
    are then deleted, one of each DaemonSet at a time, so that they are made anew.
  - A converged cluster costs one list of ClusterPolicies, one of DaemonSets and one (paged) of nodes, and nothing else.
  - In check mode on a cluster that has no ClusterPolicy yet (its kind is among O(expected)), C(before) is empty and C(after) holds all derived
    fields. The run that follows finds the object that the chart has created, so that its C(before) shows what the chart put into these fields;
    C(after) and C(changed) are the same.
options:
  allow_driver_rollout:
    description: Whether an edit may roll the driver on the nodes that have one.
    type: bool
    default: false
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.expected
  - accel.gpu.variables
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
seealso:
  - module: accel.gpu.helm_release
  - module: accel.gpu.gpu_sharing
"""

EXAMPLES = r"""
- name: Give the operator what the pools derive, and wait until it has done it
  accel.gpu.cluster_policy:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_defaults: "{{ gpu_defaults | default({}) }}"
    gpu_pools: "{{ gpu_pools }}"
    wait_timeout: 1800

- name: Let a new taint of a pool reach the driver as well, in a maintenance window
  accel.gpu.cluster_policy:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    allow_driver_rollout: true
"""

RETURN = r"""
cluster_policy:
  description: The policy and what the operator has made of it. A time-out fails with it, too.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the policy.
      type: str
      sample: cluster-policy
    ready:
      description: Whether everything was seen to be as the policy says.
      type: bool
    state:
      description: The operator's own C(status.state).
      type: str
    reason:
      description: Reason of its condition.
      type: str
      sample: Reconciled
    waiting:
      description: What is not as it should be; empty when ready.
      type: list
      elements: str
    gpu_nodes:
      description: Number of GPU nodes.
      type: int
    operands:
      description: Of each DaemonSet, the nodes on which a pod belongs and those that have a ready one.
      type: dict
      sample: {"nvidia-driver-daemonset": {"desired": 20, "ready": 20}}
    unreached:
      description: GPU nodes (up to 100) with a taint that no operand tolerates; name it in the taints of a pool.
      type: list
      elements: str
    unusual_nodes:
      description: GPU nodes (up to 100) that were not waited for, since a pod of NVIDIA's fails there, each with its C(name) and the C(reason).
        They are of no pool, or gpu-feature-discovery has not labelled them; a pool that has such a node fails in M(accel.gpu.gpu_sharing).
      type: list
      elements: dict
      returned: always
      sample: [{name: gpu-7, reason: "pod nvidia-driver-daemonset-x7k2p fails: CrashLoopBackOff"}]
    driver_nodes:
      description: On how many nodes the driver rolls because of this change.
      type: int
    driver_upgrade:
      description:
        - How far the operator's driver upgrade is - the number of nodes in each of its C(states) (label
          C(nvidia.com/gpu-driver-upgrade-state)) that is not the last one, and up to 100 nodes that C(failed) or are C(skipped).
      type: dict
      sample: {states: {upgrade-required: 17, drain-required: 1}, failed: [], skipped: []}
    held_back:
      description: Parts of the change that were held back because the driver would have rolled; empty when nothing was.
      type: list
      elements: str
    tolerations:
      description: What the policy has its DaemonSets tolerate once the change is made.
      type: list
      elements: dict
      sample: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
    configmaps:
      description: The ConfigMaps that the policy names, that were not there, and that the module made, or would make.
      type: list
      elements: dict
    note:
      description: In check mode, why the server has not judged the change.
      type: str
"""

import contextlib
import typing as t

from ..module_utils.cluster_state.cluster_policy import policy_tolerations
from ..module_utils.common.results import diff_of
from ..module_utils.gpu_operator.cluster_policy import (
    API_VERSION,
    CHART_NAME,
    KIND,
    DesiredPolicy,
    PolicyChange,
    changes,
    created_by_chart,
    driver_nodes,
    first_contact,
)
from ..module_utils.gpu_operator.cluster_policy_client import ClusterPolicyClient
from ..module_utils.gpu_operator.cluster_policy_result import observed, warnings
from ..module_utils.gpu_operator.detect import adapt_plan
from ..module_utils.gpu_operator.driver_rollout import DriverRollout, UpgradePolicy
from ..module_utils.gpu_operator.readiness import OperatorReadiness, RequiredEffect, configmaps_mounted_by
from ..module_utils.gpu_operator.upgrade_preview import reaching_paths
from ..module_utils.helm.preparation import WaitOptions
from ..module_utils.kube.errors import ApiError
from ..module_utils.kube.module import GpuModule
from ..module_utils.kube.objects import InvalidObjects

Object = dict[str, t.Any]

OPTIONS: dict[str, dict[str, t.Any]] = {
    "allow_driver_rollout": {"type": "bool", "default": False},
}
_ATTEMPTS = 5


class _Found(t.NamedTuple):
    """A policy as it was read, what has to change in it, and what that costs."""

    live: Object | None
    change: PolicyChange
    roll: DriverRollout | None
    held_back: list[str]


def work(module: GpuModule) -> Object:
    """Derive from the pools, read the policy, change what differs, and see that the operator has done it."""
    cluster = ClusterPolicyClient(module.client, module.plan.operator.namespace, module.plan.pools)
    live = _live(module, cluster)
    plan = module.plan = adapt_plan(module.client, module.plan, live)
    wanted = DesiredPolicy.by(plan, live)
    found = _compare(module, cluster, wanted, live)
    lacking = cluster.lacking(plan, found.live) if found.change.changed else []
    changed, note = found.change.changed, None
    if found.change.changed and found.live is not None:
        with contextlib.ExitStack() as held:
            held.enter_context(module.lease())
            if lacking and not module.check_mode:
                cluster.create(lacking)
            changed, note, found = _apply(module, cluster, wanted, found)
    for text in warnings(found.roll, found.held_back):
        module.warn(text)
    told = {
        "name": found.live["metadata"]["name"] if found.live else CHART_NAME,
        "driver_nodes": found.roll.nodes if found.roll and not found.held_back else 0,
        "held_back": found.held_back,
        "tolerations": _tolerations(found),
        "configmaps": lacking,
        **({"note": note} if note else {}),
    }
    before, after = found.change.before, found.change.after
    if lacking:
        after = {**after, "configmaps": [configmap["metadata"]["name"] for configmap in lacking]}
    verdict = _see(
        module, cluster, found, RequiredEffect(_reaching(found, wanted), configmaps_mounted_by(wanted.spec)), told
    )
    for name, reason in sorted(verdict.set_aside.items()) if verdict else ():
        module.warn(f"Node {name} was not waited for: {reason}.")
    result = {
        "changed": changed or bool(lacking) or bool(cluster.replaced),
        "cluster_policy": {**told, **observed(verdict)},
    }
    return {**result, "diff": diff_of(before, after, f"{KIND} {told['name']}")}


def _live(module: GpuModule, cluster: ClusterPolicyClient) -> Object | None:
    live = cluster.policy()
    if live is None and not (module.check_mode and (API_VERSION, KIND) in module.expected.kinds):
        raise InvalidObjects(
            ["The cluster has no ClusterPolicy: install the GPU operator first (role gpu_operator, or its Helm chart)."]
        )
    return live


def _compare(module: GpuModule, cluster: ClusterPolicyClient, wanted: DesiredPolicy, live: Object | None) -> _Found:
    if live is None:
        return _Found(None, created_by_chart(wanted), None, [])
    operator = module.plan.operator
    seeded = first_contact(live) and cluster.installed_by_us(operator.name, operator.namespace)
    change = changes(live, wanted, seeded=seeded)
    paths = [".".join(("spec", *path)) for path in reaching_paths(live, change)]
    nodes = driver_nodes(cluster.daemonsets()) if paths else 0
    if not nodes:
        return _Found(live, change, None, [])
    roll = DriverRollout(
        nodes, UpgradePolicy.of(live["spec"]), tuple(f"{path} of the ClusterPolicy changes" for path in paths)
    )
    if module.params["allow_driver_rollout"]:
        return _Found(live, change, roll, [])
    return _Found(live, changes(live, wanted, seeded=seeded, hold_driver=True), roll, paths)


def _apply(
    module: GpuModule, cluster: ClusterPolicyClient, wanted: DesiredPolicy, found: _Found
) -> tuple[bool, str | None, _Found]:
    """Send it; where somebody else wrote meanwhile, compare with what is there now and try again."""
    for attempt in range(_ATTEMPTS):
        if found.live is None or not found.change.changed:
            break
        try:
            changed, note = cluster.apply(found.change, found.live, check=module.check_mode)
        except ApiError as error:
            if not error.conflict or attempt + 1 == _ATTEMPTS:
                raise
            found = _compare(module, cluster, wanted, _live(module, cluster))
        else:
            return changed, note, found
    return False, None, found


def _see(
    module: GpuModule, cluster: ClusterPolicyClient, found: _Found, effect: RequiredEffect, told: Object
) -> OperatorReadiness | None:
    if found.live is None:
        return None
    name, params = found.live["metadata"]["name"], module.params
    if module.check_mode or not params["wait"]:
        return cluster.look(name, effect)
    waiting = WaitOptions(params["wait_timeout"], params["wait_sleep"], module.progress)
    return cluster.await_ready(
        name, effect, waiting, lambda verdict: {"cluster_policy": {**told, **observed(verdict)}}, module.lease
    )


def _tolerations(found: _Found) -> list[Object]:
    return policy_tolerations(found.change.after if found.live is None or found.change.changed else found.live)


def _reaching(found: _Found, wanted: DesiredPolicy) -> tuple[Object, ...]:
    return () if found.held_back else wanted.tolerations


def main() -> None:
    """Run the module."""
    module = GpuModule(OPTIONS, documents=True, expected=True, wait=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
