#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings nodes to the sharing, labels and taints that their pools declare."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_sharing
short_description: Bring GPU nodes to the sharing that their pools declare, and prove it
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Finds out which node belongs to which pool, and gives each its pool's labels, taints, device plugin configuration
    and MIG configuration, in one patch a node.
  - The entries of the device plugin's ConfigMap (the one that the ClusterPolicy names) and of the MIG manager's are added before any
    node names them, and those that no node names any more are collected at the end. Entries of others stay.
  - A change that nobody feels is made at once, in one patch a node. A node of which pods have to go, or whose GPUs are cut, takes its
    turn in a window as wide as its pool's C(rollout.max_unavailable) says. It is cordoned, emptied, changed, proven, and opened again.
    C(docs/rollout.md) tells it minute by minute, and which pods have to go.
  - Pods go by the Eviction API, so that budgets are respected and waited for. Those of DaemonSets and static ones are left alone;
    one that no controller makes again goes only with C(rollout.force).
  - A node that no pool claims any more is released. It gives back what its pool had put on it, in a way that follows the C(rollout) of that
    pool, which is recorded on the node. GPUs that the pool had cut are made whole first, and the node is opened when that is verified.
  - A node whose change fails goes back to the profile with which it was last seen to work, or is left cordoned and tainted with
    the reason (C(rollout.on_failure)). A cordon that was there before stays.
  - What a killed run has begun is noted on the node, and the next run goes on from there.
  - The agents' copies of the ConfigMap lag by a minute or more; the agents' pods on the nodes that change are touched
    first, so that the kubelet renews the copies before a label names what is new in them.
  - Done means seen. The module waits until every node of every pool offers exactly the shares that the pool declares,
    no longer offers the resource of another mode, and carries the labels of gpu-feature-discovery that go with it.
  - A taint that the ClusterPolicy does not tolerate is held back and told in a warning, because NVIDIA's pods could not
    come back on its nodes. Where such a taint is already, it stays.
  - Where nothing differs, a list of the nodes, one of the ClusterPolicies and a look at the lease and at each ConfigMap prove it. Nothing
    is sent.
  - Labels and taints that were on a node before stay. What the module puts is noted in annotations of the node, and is
    taken back when the pool no longer declares it or the node leaves the pool. No other node is touched.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  state:
    description:
      - V(present), what the pools declare.
      - V(reset), whole GPUs, shared by nobody; labels and taints of the pools stay.
      - V(repaired), nothing is changed, and only what is stuck is mended. Operands that were left paused, a MIG manager that has failed
        or is pending for ever, a layout that was taken apart by half, a C(success) that is not true.
      - V(new_nodes), as V(present), for nodes that are new to their pool, that wait with the startup taint, or with which a
        run was not done.
    type: str
    choices: [present, reset, repaired, joined]
    default: present
  pool_names:
    description:
      - Names of the pools whose nodes are touched. Without it all pools'.
    type: list
    elements: str
  label_selectors:
    description:
      - Of these, only nodes that meet every one of these label selectors are touched.
    type: list
    elements: str
    default: []
  allow_release:
    description:
      - Names of pools (or V(all)) whose nodes may be released although the run would release the nodes of more than one pool, or all nodes that
        the collection manages. Without it such a run is refused before anything is changed, in check mode, too.
      - A node is released when it carries the labels of a pool and no pool of O(gpu_pools) claims it any more. The release of the nodes of one
        pool out of several needs no permission and is announced in a warning.
      - Only O(state=present) without O(pool_names) releases nodes.
    type: list
    elements: str
    default: []
  wait:
    description:
      - Whether to wait until the nodes that were changed at once are seen to be as declared. Those that take their turn are always proven.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds that a node may take from its new labels to the proof. Then the module fails, and says which nodes are not as declared, what is seen
        instead, since when, and what to do.
    type: int
    default: 600
  expected_policy:
    description:
      - What the ClusterPolicy will be by the time of the real run, as RV(accel.gpu.cluster_policy#module:cluster_policy) tells its
        C(tolerations) and C(configmaps); only used in check mode.
    type: dict
    default: {}
  report_path:
    description:
      - File for the whole result as JSON. What the module returns names up to 100 nodes.
      - The file is made with mode 0600, one that exists keeps its mode; a symbolic link is refused.
    type: path
notes:
  - A node that several pools match is left as it is and told in a warning. Its label C(accel.gpu/pool) decides.
  - A node that is not ready gets its labels, and is neither waited for nor counted as proven.
seealso:
  - module: accel.gpu.cluster_policy
  - module: accel.gpu.gpu_info
  - module: accel.gpu.gpu_validation
"""

EXAMPLES = r"""
- name: Share the T4 nodes by four, leave the A100 nodes whole
  accel.gpu.gpu_sharing:
    cluster: {name: prod, kubeconfig: ~/.kube/prod}
    pools:
      - name: notebooks
        match: {model: Tesla-T4}
        sharing: {mode: time-slicing, replicas: 4}
      - name: train
        match: {model: A100-SXM4-80GB}
        taints: [{key: restricted-access, value: "yes", effect: NoSchedule}]

- name: Cut the GPUs of one pool, two nodes at a time, with patience for disruption budgets
  accel.gpu.gpu_sharing:
    gpu_cluster: "{{ gpu_cluster }}"
    only: [train]
    pools:
      - name: train
        match: {model: A100-SXM4-80GB}
        sharing: {mode: mig, layout: {3g.40gb: 2}}
        rollout: {max_unavailable: 2, drain_timeout: 3600}

- name: Mend nodes whose MIG change got stuck
  accel.gpu.gpu_sharing:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    state: repaired

- name: Do what the inventory says, without waiting, and keep the full list of nodes
  accel.gpu.gpu_sharing:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_defaults: "{{ gpu_defaults | default({}) }}"
    gpu_pools: "{{ gpu_pools }}"
    wait: false
    report_path: ~/gpu_sharing.json
"""

RETURN = r"""
gpu_sharing:
  description: What was done, or in check mode would be done.
  returned: always
  type: dict
  contains:
    pools:
      description: By pool, the counts of its nodes (C(nodes), C(changed), C(proven)), its C(resource) (what most of it is
        offered as), how many shares are C(wanted) and C(allocatable) in all, and the same for each of its C(resources); with a
        C(sharing.demand) for which there is no room yet, C(missing), the devices of each profile that lack.
      type: dict
      returned: always
      sample: {notebooks: {nodes: 4, changed: 4, proven: 4, resource: nvidia.com/gpu, wanted: 16, allocatable: 16}}
    changed_nodes:
      description: Names of up to 100 nodes that were changed.
      type: list
      elements: str
      returned: always
    changed_count:
      description: How many nodes were changed.
      type: int
      returned: always
    released_nodes:
      description: Those of them that no pool claims any more and that gave back their pool's labels and taints, each with the name of that pool.
      type: dict
      returned: always
      sample: {a100-1: train}
    change_counts:
      description: How many nodes are changed in which way (V(labels), V(plugin), V(mig-geometry), V(mig-mode)).
      type: dict
      returned: always
      sample: {mig-mode: 4, plugin: 2}
    steps:
      description:
        - What is done to each of up to 100 nodes. Its C(pool), the kind of C(change), the pods that it C(evicts), and whether
          the node C(reboot)s (V(no) or V(may)); of a released node also the pool that it C(leaves).
        - Where there are such pods, C(blocked_by) are those for which the node cannot be changed, since no drain evicts them, C(stops) those of
          DaemonSets that are stopped by the label C(nvidia.com/gpu.deploy.client), and C(possible_holders) privileged pods of the cluster itself,
          which may hold a GPU and are left alone.
      type: dict
      returned: always
      sample: {a100-1: {pool: train, change: mig-mode, evicts: [research/job-1], reboot: "no"}}
    failed:
      description: The message for each node that could not be changed.
      type: dict
      returned: always
    rolled_back:
      description: Nodes that are back on the profile with which they were last seen to work.
      type: list
      elements: str
      returned: always
    left_cordoned:
      description: Nodes that are left cordoned and tainted with the reason.
      type: list
      elements: str
      returned: always
    gone:
      description: Nodes that disappeared from the cluster in the middle of their change.
      type: list
      elements: str
      returned: always
    not_begun:
      description: Nodes that are left for another run, by C(rollout.limit) or after a failure (C(rollout.pause_on_failure)).
      type: list
      elements: str
      returned: always
    repaired:
      description:
        - By node, what was stuck and is mended. Where only the labels of gpu-feature-discovery have not reached a node for 90 s, its pod is
          started again; no preview tells that.
      type: dict
      returned: always
    not_as_declared:
      description: What is not as declared, a line a node.
      type: list
      elements: str
      returned: always
    not_ready:
      description: Nodes of the pools that are not ready.
      type: list
      elements: str
      returned: always
    unusual_nodes:
      description:
        - GPU nodes that gpu-feature-discovery will not label, or has not labelled because a pod of NVIDIA's fails there, each with its
          C(name) and the C(reason). Those of no pool are not waited for; one that is pinned to a pool, or of its node group, fails the run
          once all other nodes are done.
      type: list
      elements: dict
      returned: always
      sample:
        - name: virt-1
          reason: label nvidia.com/gpu.workload.config=vm-passthrough gives its GPUs to virtual machines
    held_back:
      description: By pool, the taints that were held back (C(key=value:Effect)).
      type: dict
      returned: always
      sample: {train: ["restricted-access=yes:NoSchedule"]}
    config_entries:
      description: Entries of the two ConfigMaps that were C(added) and C(collected).
      type: dict
      returned: always
    refreshed_pods:
      description: How many pods of NVIDIA's agents were made to renew their copy of the ConfigMap.
      type: int
      returned: always
    overlaps:
      description: Nodes that several pools match, with those pools.
      type: dict
      returned: always
    empty_pools:
      description: Pools without a node.
      type: list
      elements: str
      returned: always
    undeclared_pins:
      description: Nodes whose label C(accel.gpu/pool) names no declared pool, by that name.
      type: dict
      returned: always
    mismatched:
      description: Nodes pinned to a pool whose match does not fit them, by pool.
      type: dict
      returned: always
    after_discovery:
      description: What depends on hardware that is not discovered yet (C(nodes), C(nodes_count), C(pools)).
      type: dict
      returned: when there is such
    unchecked:
      description: Why the server did not check the changes in check mode.
      type: str
      returned: in check mode, when the user has no right to a dry run
    report_path:
      description: The file with the whole result.
      type: str
      returned: when O(report_path) is given
"""

import typing as t

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.gpu_operator.detect import adapt_plan_to_cluster
from ..module_utils.kube.module import GpuModule
from ..module_utils.sharing import scope
from ..module_utils.sharing.operation import SharingOperation, scope_of


def work(module: GpuModule) -> dict[str, t.Any]:
    """Adapt the plan to the installed operator, then preview or run."""
    parsed = scope_of(module)
    module.plan = adapt_plan_to_cluster(module.client, module.plan)
    return SharingOperation(module, parsed).execute()


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "state": {"type": "str", "choices": list(scope.STATES), "default": scope.PRESENT},
        "pool_names": {"type": "list", "elements": "str"},
        "label_selectors": {"type": "list", "elements": "str", "default": []},
        "allow_release": {"type": "list", "elements": "str", "default": []},
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 600},
        "report_path": {"type": "path"},
        "expected_policy": {"type": "dict", "default": {}},
    }
    module = GpuModule(spec, documents=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
