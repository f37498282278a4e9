#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_policy
short_description: Configure the GPU operator's ClusterPolicy for the pools and wait until the operator has applied it
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Manages the fields of the ClusterPolicy that are derived from the pools. All other fields are left unchanged.
  - Maps and scalars are set through server-side apply with the field manager C(accel.gpu). In the list C(spec.daemonsets.tolerations), the module owns only
    the entries that it records in the annotation C(accel.gpu/tolerations). It never removes other entries.
  - The oldest ClusterPolicy is configured, regardless of its name, because the operator uses only the oldest one.
  - If OLM manages the operator, a missing ClusterPolicy is created from the operator's example. In a ClusterPolicy that was created this way, the module also
    manages the fields that C(gpu_cluster.operator) declares.
  - If the policy will refer to a ConfigMap that does not exist, the module creates this ConfigMap first, because a pod that mounts a missing ConfigMap never
    starts. The module does not change existing ConfigMaps, because M(accel.gpu.gpu_sharing) manages them.
  - If the policy already names a different ConfigMap for the device plugin, the module keeps this name and the default configuration, and
    M(accel.gpu.gpu_sharing) adds the pools' entries to that ConfigMap. The module replaces the name only if no ConfigMap with this name exists, because the
    device plugin could not start in that case.
  - If C(spec.migManager.config.name) or C(spec.mig.strategy) of a foreign policy must change, the module records the previous value in the annotation
    C(accel.gpu/former), so that M(accel.gpu.uninstall) can restore it.
  - If a pool uses MIG, the module removes C(spec.mig.strategy), because this field overrides each node's own configuration. A
    strategy that all these pools declare stays. The module fails before any change if partitioned nodes outside the pools depend on the field.
  - If a pool declares C(driver), the module sets C(spec.driver.useNvidiaDriverCRD) and creates an NVIDIADriver with the name C(accel-gpu-<pool>) for each
    pool. Each NVIDIADriver selects nodes by the label C(accel.gpu/pool). The module first sets this label on nodes that lack it. Keys that a pool does not
    declare use the values in C(spec.driver) of the ClusterPolicy. In operator v26.7 and later, the NVIDIADriver C(accel-gpu) is the default for all other
    nodes. With earlier releases, the module fails if GPU nodes belong to no pool, because these nodes would have no driver.
  - Foreign NVIDIADriver objects are not changed. The module fails if a foreign object has the name of an object that the module must create. The module also
    fails if a foreign object selects nodes of a pool, because the operator rejects this overlap.
  - If C(driver) is removed from a pool, the nodes of the pool keep their driver. If a pool is removed, its NVIDIADriver is not deleted. A warning is shown in
    both cases.
  - A change to the driver DaemonSet's template restarts the driver on every GPU node, which takes a long time and evicts GPU pods. While a driver pod exists,
    such a change is held back unless O(allow_driver_rollout) is set. All other changes are applied.
  - In operator v26.7.0 and later, a change that does not affect the driver configuration digest, such as a change to a toleration, is not held back. While
    the operator restarts the driver pod of a node, the node is cordoned, but no GPU pods are evicted.
notes:
  - The module considers the operator ready when all of the following conditions are met. (1) The condition Ready of the operator has the reason Reconciled,
    or NoGPUNodes while NFD has found no GPU node. (2) The operator has labeled every GPU node that NFD has labeled. (3) The DaemonSet of the device plugin
    mounts the ConfigMap. (4) The template of every DaemonSet of the policy contains the policy's tolerations, and the status of the DaemonSet refers to the
    current generation. (5) For every DaemonSet, the numbers of desired, updated and available pods are all equal to the number of nodes that match the
    DaemonSet's selector, affinity and tolerations. The module counts these nodes itself.
  - C(status.state) alone is not sufficient, because it can be C(ready) before the operator has processed a change and while DaemonSets do not have a desired
    count yet.
  - If an NVIDIA pod keeps failing on a node but other GPU nodes work, the module does not wait for this node. Such nodes are returned in C(unusual_nodes). A
    pod counts as failing if it has restarted at least three times, or if its image still cannot be pulled after a minute.
  - If such a node belongs to a pool and gpu-feature-discovery has labeled it, the module continues without the node only if the number of ready pods has not
    changed for a minute and the failing container is in back-off, that is, waiting for its next start. The node is then also returned in C(broken_nodes).
    Once all other nodes are ready, the module fails and names the node and the cause, unless O(sharing_follows) is set.
  - Pods that never become ready can prevent a DaemonSet from replacing its pods on all other nodes. If all such pods are on nodes in C(unusual_nodes), the
    module deletes the remaining pods with an older template, one pod of each DaemonSet at a time, so that they are recreated. If one of these nodes is in
    C(broken_nodes), the module does this only if the failing pod on that node belongs to another DaemonSet, not to the one that is being updated.
  - If nothing differs, the module only lists the ClusterPolicies, the DaemonSets, the nodes (in pages) and the RuntimeClasses, once each.
  - In check mode, if the cluster has no ClusterPolicy and the kind is listed in O(expected), C(before) in the diff is empty and C(after) contains all derived
    fields. A real run changes the object that the chart has created, so C(before) then contains the chart's values of these fields. C(after) and C(changed)
    are the same in both cases.
options:
  allow_driver_rollout:
    description: Whether a change may restart the driver on nodes that have a driver pod.
    type: bool
    default: false
  sharing_follows:
    description:
      - Used by this collection's role P(accel.gpu.gpu_operator#role). This option is not a stable interface.
      - Whether M(accel.gpu.gpu_sharing) runs next with the result of this module. In this case, nodes in C(broken_nodes) do not cause this module to fail.
        Instead, M(accel.gpu.gpu_sharing) fails after all other nodes are done.
      - The module then also does not wait for nodes of pools on which the device plugin or gpu-feature-discovery fails because of the node's label
        C(nvidia.com/device-plugin.config), if M(accel.gpu.gpu_sharing) replaces this label.
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
  - accel.gpu.attributes.progress
seealso:
  - module: accel.gpu.helm_release
  - module: accel.gpu.gpu_sharing
"""

EXAMPLES = r"""
- name: Configure the operator for the pools and wait until it is ready
  accel.gpu.cluster_policy:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_defaults: "{{ gpu_defaults | default({}) }}"
    gpu_pools: "{{ gpu_pools }}"
    wait_timeout: 1800

- name: Add the toleration for a pool's new taint to the driver, too, during a maintenance window
  accel.gpu.cluster_policy:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    allow_driver_rollout: true
"""

RETURN = r"""
cluster_policy:
  description: The policy and the state of the operator. Also returned after a timeout.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the policy.
      type: str
      returned: always
      sample: cluster-policy
    ready:
      description: Whether the operator is ready.
      type: bool
      returned: always
      sample: true
    state:
      description: The C(status.state) that the operator reports.
      type: str
      returned: always
      sample: ready
    reason:
      description: The reason in the operator's condition Ready or Error.
      type: str
      returned: always
      sample: Reconciled
    waiting:
      description: The conditions that are not met. Empty if the operator is ready.
      type: list
      elements: str
      returned: always
      sample: ["DaemonSet nvidia-driver-daemonset: 19 of 20 pods are ready"]
    gpu_nodes:
      description: Number of GPU nodes.
      type: int
      returned: always
      sample: 20
    operands:
      description: For each DaemonSet, the number of nodes that need a pod and the number of nodes with a ready pod.
      type: dict
      returned: always
      contains:
        NAME:
          description: 'The entry for one DaemonSet, with its name as the key.'
          type: dict
          returned: always
          contains:
            desired: {description: Number of nodes that need a pod., type: int, returned: always, sample: 20}
            ready: {description: Number of nodes with a ready pod., type: int, returned: always, sample: 20}
    untolerated_nodes:
      description: Up to 100 GPU nodes that have a taint that no operand tolerates. To resolve this, add the taint to a pool.
      type: list
      elements: str
      returned: always
      sample: [gpu-9]
    unusual_nodes:
      description:
        - Up to 100 GPU nodes for which the module did not wait because an NVIDIA pod fails on them.
        - If such a node belongs to a pool, this module or M(accel.gpu.gpu_sharing) fails after all other nodes are done.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name of the node., type: str, returned: always, sample: gpu-7}
        reason: {description: The failing pod and the cause., type: str, returned: always, sample: 'pod nvidia-driver-daemonset-x7k2p
          fails: CrashLoopBackOff'}
    broken_nodes:
      description: Names of the C(unusual_nodes) that belong to a pool and that gpu-feature-discovery has labeled.
      type: list
      elements: str
      returned: always
      sample: [gpu-7]
    driver_nodes:
      description: Number of nodes on which this change restarts the driver.
      type: int
      returned: always
      sample: 0
    driver_upgrade:
      description:
        - Progress of the operator's driver upgrade.
      type: dict
      returned: always
      contains:
        states: {description: 'Number of nodes in each state of the label C(nvidia.com/gpu-driver-upgrade-state), except the final state.', type: dict,
          returned: always, sample: {upgrade-required: 1}}
        failed: {description: Up to 100 nodes on which the upgrade failed., type: list, elements: str, returned: always, sample: []}
        skipped: {description: Up to 100 nodes that the upgrade skips., type: list, elements: str, returned: always, sample: []}
    runtime_classes:
      description: The RuntimeClasses that the operands use, with their handlers in the container runtime. Empty until the operands run.
      type: dict
      returned: always
      sample: {nvidia: nvidia}
    held_back:
      description: Parts of the change that were held back because they would restart the driver.
      type: list
      elements: str
      returned: always
      sample: [spec.daemonsets.tolerations]
    nvidia_drivers:
      description:
        - The NVIDIADriver objects that the module changes or, in check mode, would change.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name of the object., type: str, returned: always, sample: accel-gpu-train}
        pool: {description: Pool of the object. Empty for the default object., type: str, returned: always, sample: train}
        nodes: {description: Number of nodes on which the change restarts the driver., type: int, returned: always, sample: 2}
        created: {description: Whether the change creates the object., type: bool, returned: always, sample: false}
    tolerations:
      description: The tolerations that all of the operator's DaemonSets have after the change.
      type: list
      elements: dict
      returned: always
      contains:
        key: {description: Key of the taint., type: str, returned: if set, sample: nvidia.com/gpu}
        operator: {description: V(Exists) or V(Equal)., type: str, returned: if set, sample: Exists}
        value: {description: Value of the taint., type: str, returned: if set, sample: 'yes'}
        effect: {description: Effect of the taint., type: str, returned: if set, sample: NoSchedule}
    configmaps:
      description: The missing ConfigMaps that the module created or, in check mode, would create.
      type: list
      elements: dict
      returned: always
      sample: []
    unchecked:
      description: The reason why the API server did not validate the changes in check mode.
      type: str
      returned: in check mode, if the user is not allowed to send a dry run
      sample: "not checked by the server: this user is not allowed to send a dry run"
code:
  description:
    - The reason for the failure. V(timeout) - the operator is not ready after O(wait_timeout), or waiting longer would not help.
      V(partial) - the operator is ready, except on C(broken_nodes).
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable
      connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost the
      Lease. For all other errors of the API server, the code is the HTTP status.
  returned: failure
  type: raw
  sample: timeout
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import dataclasses
import typing as t

from ..module_utils.catalog.taints import format_toleration
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import diff_of
from ..module_utils.core.values import Object
from ..module_utils.core.waits import WaitOptions
from ..module_utils.gpu_operator.cluster_policy import (
    POLICY_KIND,
    SWITCH,
    DesiredPolicy,
    DriverRollout,
    PolicyChange,
    changed_fields,
    held_back_warning,
    initial_change,
    is_in_place,
    plan_change,
    policy_tolerations,
    policy_version,
    removed_mig_strategy,
)
from ..module_utils.gpu_operator.cluster_policy_client import ClusterPolicyClient, create_policy, plan_of_operator
from ..module_utils.gpu_operator.detect import adapt_plan
from ..module_utils.gpu_operator.driver_objects import (
    DriverObjects,
    apply_driver_objects,
    refused_objects,
    rolled_nodes,
)
from ..module_utils.gpu_operator.installation import lost_mig_devices
from ..module_utils.gpu_operator.readiness import (
    OperatorReadiness,
    RequiredEffect,
    driver_nodes,
    is_driver,
    mounted_configmaps,
)
from ..module_utils.kube.errors import retry_conflicts
from ..module_utils.kube.paths import NODES
from ..module_utils.pools.module import PlanModule

OPTIONS: dict[str, dict[str, t.Any]] = {
    "allow_driver_rollout": {"type": "bool", "default": False},
    "sharing_follows": {"type": "bool", "default": False},
}


class _PolicyDiff(t.NamedTuple):
    """Holds a policy as it was read, the changes to the policy and the NVIDIADriver objects, the resulting driver rollout, and the changes held back."""

    live: Object | None
    change: PolicyChange
    rollout: DriverRollout | None = None
    held_back: t.Sequence[str] = ()
    objects: DriverObjects = DriverObjects()
    held_tolerations: t.Sequence[Object] = ()

    @property
    def changed(self) -> bool:
        """Whether any change must be sent."""
        return self.change.changed or bool(self.objects.changes or self.objects.label_edits)


def work(module: PlanModule) -> Object:
    """Derive the policy from the pools, apply the differences, and wait until the operator is ready."""
    cluster = ClusterPolicyClient(module.client, module.plan.operator.namespace, module.plan.pools)
    live = cluster.policy()
    plan = module.plan = adapt_plan(module.client, module.plan, live)
    if live is None:
        plan = module.plan = plan_of_operator(module.client, plan, module.expected, check=module.check_mode)
    # A policy that was just created does not name the namespace yet.
    cluster.namespace = plan.operator.namespace
    desired = DesiredPolicy.derive(plan, live)
    initial, configmaps = None, []
    if live is None and not module.check_mode:
        initial, configmaps = initial_change(desired).after, cluster.missing_configmaps(plan, None)
        with module.lease():
            cluster.create(configmaps)
            live = create_policy(module.client, plan, cluster, desired)
        desired = DesiredPolicy.derive(plan, live)
    diff = _compare(module, cluster, desired, live)
    changed, unchecked = diff.changed, None
    if diff.changed and diff.live is not None:
        with module.lease() as lease:
            if initial is None and diff.change.changed:
                # Another run that held the Lease may have created and filled the ConfigMaps.
                configmaps = cluster.missing_configmaps(plan, diff.live)
            if configmaps and not module.check_mode:
                cluster.create(configmaps)
            changed, unchecked, diff = _apply(module, cluster, desired, diff, lease.check)
    _warn_about_driver(module, diff)
    cluster.labels_nodes, cluster.by_olm = bool(diff.objects.required_names), plan.operator.olm is not None
    cluster.sharing_follows = module.params["sharing_follows"]
    result = {
        "name": diff.live["metadata"]["name"] if diff.live else desired.name,
        "driver_nodes": diff.rollout.nodes if diff.rollout and not diff.held_back else 0,
        "held_back": list(diff.held_back),
        "nvidia_drivers": diff.objects.results(),
        "tolerations": [
            item
            for item in policy_tolerations(diff.live if diff.live and not diff.change.changed else diff.change.after)
            if item not in diff.held_tolerations
        ],
        "configmaps": configmaps,
        **({"unchecked": unchecked} if unchecked else {}),
    }
    effect = RequiredEffect(() if diff.held_back else desired.tolerations, mounted_configmaps(desired.spec))
    readiness = _read_readiness(module, cluster, diff, effect, result)
    for name, reason in sorted(readiness.ignored_nodes.items()):
        module.warn(f"The run did not wait for node {name}: {reason}.")
    objects_before, objects_after = diff.objects.diff()
    before, after = ({}, initial) if initial else (diff.change.before, diff.change.after)
    before, after = {**before, **objects_before}, {**after, **objects_after}
    if configmaps:
        after = {**after, "configmaps": [configmap["metadata"]["name"] for configmap in configmaps]}
    return {
        "changed": changed or initial is not None or bool(configmaps) or bool(cluster.replaced_pods),
        "cluster_policy": {**result, **readiness.as_dict()},
        "diff": diff_of(before, after, f"{POLICY_KIND} {result['name']}"),
    }


def _compare(
    module: PlanModule, cluster: ClusterPolicyClient, desired: DesiredPolicy, live: Object | None
) -> _PolicyDiff:
    if live is None:
        return _PolicyDiff(None, initial_change(desired))
    seeded = cluster.is_seeded(live, module.plan.operator)
    change = plan_change(live, desired, seeded=seeded)
    # The role gpu_operator also checks this in its first step. Before the first run has finished, the strategy is the chart's default.
    if not seeded and removed_mig_strategy(live, module.plan.policy):
        problem = lost_mig_devices(live, module.plan, module.client.list(NODES))
        if problem:
            raise InvalidOptions([problem])
    objects = cluster.driver_objects(module.plan, live)
    version = policy_version(live)
    problems = objects.problems or refused_objects(module.client, objects, version, check=module.check_mode)
    if problems:
        raise InvalidOptions(list(problems))
    paths = [".".join(("spec", *path)) for path in change.driver_paths]
    daemonsets = list(filter(is_driver, cluster.daemonsets())) if paths else []
    nodes = rolled_nodes(driver_nodes(daemonsets), change.driver_paths, (), replaced=False)
    reasons = changed_fields(paths) if nodes else []
    if not nodes and not objects.rolled_nodes:
        return _PolicyDiff(live, change, objects=objects)
    switches = SWITCH in change.driver_paths
    rollout = cluster.rollout(live, nodes, objects, [*reasons, *objects.reasons], switches=switches)
    keeps_driver = is_in_place(change.driver_paths, version, rollout.upgrade_policy, daemonsets)
    in_place = not objects.rolled_nodes and keeps_driver
    rollout = dataclasses.replace(rollout, in_place=in_place)
    if module.params["allow_driver_rollout"] or in_place:
        return _PolicyDiff(live, change, rollout, objects=objects)
    held_back = [*(paths if nodes else ()), *(f"NVIDIADriver {item.name}" for item in objects.changes if item.nodes)]
    if nodes:
        change = plan_change(live, desired, seeded=seeded, hold_driver=True)
    tolerations = objects.held_tolerations
    # The operator uses NVIDIADriver objects only after the switch.
    objects = DriverObjects(notes=objects.notes) if nodes and switches else objects.without_rolled()
    return _PolicyDiff(live, change, rollout, held_back, objects, tolerations)


def _apply(
    module: PlanModule,
    cluster: ClusterPolicyClient,
    desired: DesiredPolicy,
    diff: _PolicyDiff,
    check_lease: t.Callable[[], None],
) -> tuple[bool, str | None, _PolicyDiff]:
    """Send the changes. After a conflict, compare with the new state and try again."""

    def send(diff: _PolicyDiff) -> tuple[bool, str | None, _PolicyDiff]:
        if diff.live is None or not diff.changed:
            return False, None, diff
        apply_driver_objects(module.client, diff.objects, check_lease, check=module.check_mode)
        changed, unchecked = cluster.apply(diff.change, diff.live, check=module.check_mode)
        return changed or bool(diff.objects.changes or diff.objects.label_edits), unchecked, diff

    def compare() -> _PolicyDiff:
        return _compare(module, cluster, desired, cluster.policy())

    return retry_conflicts(send, diff, compare) or (False, None, diff)


def _warn_about_driver(module: PlanModule, diff: _PolicyDiff) -> None:
    for toleration in module.plan.policy.kept_tolerations:
        module.warn(
            f"The ClusterPolicy keeps the toleration for the taint {format_toleration(toleration)}: no pool declares this taint, but GPU nodes "
            "still have it and would lose their GPUs. The toleration is removed by the first run that finds no GPU node with the taint."
        )
    for note in diff.objects.notes:
        module.warn(note)
    if diff.rollout and diff.held_back:
        module.warn(held_back_warning(diff.held_back, diff.rollout))
    elif diff.rollout:
        module.warn(diff.rollout.announcement)


def _read_readiness(
    module: PlanModule, cluster: ClusterPolicyClient, diff: _PolicyDiff, effect: RequiredEffect, result: Object
) -> OperatorReadiness:
    if diff.live is None:
        return OperatorReadiness("", "", 0, waiting=("the ClusterPolicy does not exist yet",))
    name, params = diff.live["metadata"]["name"], module.params
    if module.check_mode or not params["wait"]:
        return cluster.with_reasons(cluster.read_readiness(name, effect))
    waiting = WaitOptions(params["wait_timeout"], params["wait_sleep"], module.progress)
    return cluster.await_ready(
        name, effect, waiting, lambda readiness: {"cluster_policy": {**result, **readiness.as_dict()}}, module.lease
    )


def main() -> None:
    """Run the module."""
    module = PlanModule(OPTIONS, expected=True, wait=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
