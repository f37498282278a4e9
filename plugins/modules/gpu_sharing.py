#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configures GPU sharing, labels and taints of a cluster's nodes as the pools declare."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_sharing
short_description: Configure GPU sharing, labels and taints of nodes as their pools declare
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Assigns nodes to pools. One patch gives each node the labels, taints, device plugin configuration and MIG configuration of its pool.
  - Before a node refers to an entry of the device plugin's or the MIG manager's ConfigMap, the module adds the entry. The ClusterPolicy names the device
    plugin's ConfigMap. Entries that no node refers to any longer are removed. Foreign entries are left unchanged.
  - A change that does not affect any pod is applied to all nodes in parallel. If pods must be evicted or GPUs must be partitioned, the nodes of a pool are
    changed in a rolling update, C(rollout.max_unavailable) nodes at a time. Each node is cordoned, drained, changed, verified and uncordoned.
    C(docs/rollout.md) describes each step and lists which pods are evicted.
  - Pods are evicted through the Eviction API, so PodDisruptionBudgets are respected. Pods of DaemonSets and static pods are not evicted. Pods without
    a controller are evicted only with C(rollout.force).
  - If pods must be evicted and the user is not allowed to evict them, the module fails before the first change. Check mode also fails in this case. However,
    check mode does not fail if the user is not allowed to change nodes at all. RV(gpu_sharing.unchecked) then contains the reason why the API server did not
    validate the changes.
  - Releases nodes that no longer belong to a pool. Everything that the former pool set on such a node is removed. The C(rollout) settings that are recorded on
    the node control the removal. MIG devices are removed first, and the node is uncordoned once their removal is verified.
  - If a change to a node fails, the module either rolls the node back to its last working configuration or leaves it cordoned, with a taint that contains the
    reason. C(rollout.on_failure) selects the behavior. Nodes that another tool or user cordoned stay cordoned.
  - Records the progress on each node, so that the next run can continue the work of a killed run.
  - Before the module sets a label that refers to a new entry, it updates an annotation on the NVIDIA pods of the affected nodes. The kubelet then refreshes
    the pods' copies of the ConfigMap promptly instead of after a minute or more.
  - Waits until every node of every pool advertises exactly the resources that the pool declares and until gpu-feature-discovery has set the matching labels. A
    node that still advertises resources of another sharing mode does not match.
  - If a pool that must have nodes has none, and nodes that may belong to it are hidden from discovery, for example by a taint that no pool declares, the
    module fails after all other nodes are done, and names the nodes, the causes and the remedies. With O(wait=false) and in check mode, this is a warning.
  - Holds back taints that the ClusterPolicy does not tolerate and shows a warning, because NVIDIA pods could not restart on nodes with these taints. If a node
    already has such a taint, the taint is kept.
  - If there are no differences, the module sends no write requests and reads the nodes, the ClusterPolicies, the Lease and the ConfigMaps only once.
  - Keeps labels and taints that already existed on a node. The labels and taints that the module sets are recorded in annotations of the node. They are removed
    when the pool no longer declares them or when the node is released. Nodes outside the pools are not changed.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.lease
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  state:
    description:
      - V(present) configures the nodes as the pools declare.
      - V(reset) configures whole GPUs without sharing. The labels and taints of the pools are kept.
      - V(repaired) only repairs nodes that are stuck. A node counts as stuck if its operands were left paused, if a layout is only partly applied, or if its
        MIG manager has failed, is stuck in C(pending), or wrongly reports C(success).
      - V(new_nodes) works like V(present), but only for nodes that are new to their pool, have the startup taint, or were not finished by an earlier run.
    type: str
    choices: [present, reset, repaired, new_nodes]
    default: present
  pool_names:
    description:
      - Names of the pools whose nodes are changed. The default is all pools.
    type: list
    elements: str
  label_selectors:
    description:
      - Only nodes that match all of these label selectors are changed.
    type: list
    elements: str
    default: []
  allow_release:
    description:
      - Names of the pools whose nodes may be released, or V(all). A node is released if it has the labels of a pool but belongs to no pool in O(gpu_pools).
      - This option is required if the run would release nodes of more than one pool, all nodes of a pool in O(gpu_pools), or all nodes that the collection
        manages. Without this option, such a run fails before the first change, including in check mode. Any other release does not require this option and
        causes a warning.
      - Only O(state=present) without O(pool_names) releases nodes.
    type: list
    elements: str
    default: []
  wait:
    description:
      - Whether to wait until nodes that were changed outside a rolling update are verified. Nodes in a rolling update are always verified.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait, after the labels of a node have changed, until the node matches its declaration. After this time, the module fails and reports the
        differences on each node, how long they have existed, and the remedy.
    type: int
    default: 600
  expected_policy:
    description:
      - Used by this collection's role P(accel.gpu.sharing#role). This option is not a stable interface.
      - In check mode, contains the C(tolerations) and C(configmaps) that M(accel.gpu.cluster_policy) has predicted in
        RV(accel.gpu.cluster_policy#module:cluster_policy).
      - Outside check mode, contains C(broken_nodes) of the same return value. If an NVIDIA pod still fails on one of these nodes, the module fails after all
        other nodes are done. The module does not change such a node, unless the failing pod is one that the MIG manager stops, such as the device plugin.
    type: dict
    default: {}
  report_path:
    description:
      - Path to the file to which the complete result is written as JSON. The module itself returns the names of up to 100 nodes.
      - A new file is created with mode 0600, and an existing file keeps its mode. The module fails if the path is a symbolic link.
    type: path
notes:
  - A node that matches several pools is not changed, and a warning names it. Set its label C(accel.gpu/pool) to choose the pool.
  - A node that is not ready gets its labels, but the module neither waits for it nor verifies it.
  - If the module fails after it has started to read the cluster, it still returns RV(gpu_sharing) with the results up to that point.
seealso:
  - module: accel.gpu.cluster_policy
  - module: accel.gpu.gpu_info
  - module: accel.gpu.gpu_validation
"""

EXAMPLES = r"""
- name: Share each T4 between four pods, and do not share the A100 GPUs
  accel.gpu.gpu_sharing:
    gpu_cluster: {name: prod, kubeconfig: ~/.kube/prod}
    gpu_pools:
      - name: notebooks
        match: {model: Tesla-T4}
        sharing: {mode: time-slicing, replicas: 4}
      - name: train
        match: {model: A100-SXM4-80GB}
        sharing: {mode: none}
        taints: [{key: restricted-access, value: "yes", effect: NoSchedule}]

- name: Partition the GPUs of one pool, two nodes at a time, and allow one hour for each drain
  accel.gpu.gpu_sharing:
    gpu_cluster: "{{ gpu_cluster }}"
    pool_names: [train]
    gpu_pools:
      - name: train
        match: {model: A100-SXM4-80GB}
        sharing: {mode: mig, layout: {3g.40gb: 2}}
        rollout: {max_unavailable: 2, drain_timeout: 3600}

- name: Repair nodes whose MIG change is stuck
  accel.gpu.gpu_sharing:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    state: repaired

- name: Apply the inventory's variables without waiting, and keep the full list of nodes
  accel.gpu.gpu_sharing:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_defaults: "{{ gpu_defaults | default({}) }}"
    gpu_pools: "{{ gpu_pools }}"
    wait: false
    report_path: ~/gpu_sharing.json
"""

RETURN = r"""
gpu_sharing:
  description: The result of the run, or, in check mode, the predicted result.
  returned: always
  type: dict
  contains:
    pools:
      description:
        - For each pool, node counts (C(nodes), C(changed), C(verified)), the main C(resource), device counts (C(expected), C(allocatable)), and the same
          device counts for each of the C(resources).
        - C(missing) contains the number of devices, by profile, that C(sharing.demand) requests but that do not fit on the nodes.
      type: dict
      returned: always
      contains:
        NAME:
          description: 'The entry for one pool. The key is the name of the pool.'
          type: dict
          returned: always
          contains:
            nodes: {description: Number of nodes in the pool., type: int, returned: always, sample: 4}
            changed: {description: 'Number of changed nodes, as in C(changed_nodes).', type: int, returned: always, sample: 4}
            verified: {description: Number of ready nodes that match the declaration., type: int, returned: always, sample: 4}
            resource: {description: The most frequent resource of the pool., type: str, returned: always, sample: nvidia.com/gpu}
            expected: {description: The declared number of devices., type: int, returned: always, sample: 8}
            allocatable: {description: The number of devices that the pool's nodes advertise., type: int, returned: always, sample: 8}
            resources:
              description: The numbers of expected and allocatable devices for each resource.
              type: dict
              returned: always
              contains:
                NAME:
                  description: 'The entry for one resource. The key is the name of the resource.'
                  type: dict
                  returned: always
                  contains:
                    expected: {description: The declared number of devices., type: int, returned: always, sample: 8}
                    allocatable: {description: The number of devices that the pool's nodes advertise., type: int, returned: always, sample: 8}
            missing: {description: 'Number of devices, by profile, that C(sharing.demand) requests but that do not fit on the nodes.', type: dict,
              returned: if some do not fit, sample: {3g.40gb: 1}}
    changed_nodes:
      description:
        - Names of up to 100 nodes that were changed. Nodes that were changed outside a rolling update are included as soon as their labels are written.
        - Nodes in RV(gpu_sharing.failed) or RV(gpu_sharing.gone) are never included, even if the run has cordoned or drained them or has written their labels.
      type: list
      elements: str
      returned: always
      sample: [a100-1, a100-2]
    changed_count:
      description: Number of changed nodes.
      type: int
      returned: always
      sample: 4
    released_nodes:
      description: The nodes that were released, each with the name of its former pool.
      type: dict
      returned: always
      sample: {a100-1: train}
    change_counts:
      description: Number of changed nodes for each kind of change (V(labels), V(plugin), V(mig-geometry), V(mig-mode)).
      type: dict
      returned: always
      sample: {mig-mode: 4, plugin: 2}
    steps:
      description:
        - The changes that were started, including those that failed, for up to 100 nodes. Each entry contains the C(pool) of the node, the kind of C(change),
          the pods that the change C(evicts), and whether the node may C(reboot) (V(no) or V(may)). For a released node, C(released_from) contains the name of
          its former pool.
        - C(blocked_by) lists pods that prevent the change and that no drain evicts. C(stops) lists pods of DaemonSets that are stopped through the label
          C(nvidia.com/gpu.deploy.client). C(possible_holders) lists privileged system pods that may hold a GPU and that are not evicted.
      type: dict
      returned: always
      contains:
        NAME:
          description: 'The entry for one node. The key is the name of the node.'
          type: dict
          returned: always
          contains:
            pool: {description: Pool of the node; null if it is released., type: str, returned: always, sample: notebooks}
            change: {description: 'Kind of the change. V(labels), V(plugin), V(mig-geometry) or V(mig-mode).', type: str,
              returned: always, sample: plugin}
            evicts: {description: The pods that the change evicts., type: list, elements: str, returned: always, sample: []}
            reboot: {description: 'Whether the node may reboot: V(no) or V(may).', type: str, returned: always, sample: 'no'}
            released_from: {description: The former pool of a released node., type: str, returned: if the node is released, sample: train}
            blocked_by: {description: Pods that prevent the change and that no drain evicts., type: list, elements: str,
              returned: if there are any, sample: [team/job-1]}
            stops: {description: Pods of DaemonSets that are stopped through the label C(nvidia.com/gpu.deploy.client)., type: list,
              elements: str, returned: if there are any, sample: [monitoring/gpu-agent-x7k2p]}
            possible_holders: {description: 'Pods that may have a device file open, with the reason.', type: list, elements: str,
              returned: if there are any, sample: [team/agent-1 (privileged)]}
    failed:
      description: For each node whose change failed, the error message.
      type: dict
      returned: always
      sample: {a100-2: "a100-2 is not ready, so its pods cannot terminate and NVIDIA's operands do not run"}
    refused_evictions:
      description:
        - Up to 100 pods to evict whose PodDisruptionBudgets do not allow an eviction now. The run would wait up to C(rollout.drain_timeout) for them.
        - The budgets are read only if the changes evict pods.
      type: list
      elements: dict
      returned: in check mode, if there are any
      contains:
        pod: {description: Namespace and name of the pod., type: str, returned: always, sample: ml/web-0}
        node: {description: The node of the pod., type: str, returned: always, sample: t4-1}
        budgets: {description: Namespace and name of each budget that selects the pod., type: list, elements: str, returned: always, sample: [ml/web]}
        reason: {description: The reason why the API server refuses the eviction., type: str, returned: always,
          sample: needs 1 healthy pod and has 1}
    rolled_back:
      description: Nodes that were rolled back to their last working configuration.
      type: list
      elements: str
      returned: always
      sample: [a100-2]
    left_cordoned:
      description: Nodes that were left cordoned. Unless the run was interrupted, they are also tainted with the reason.
      type: list
      elements: str
      returned: always
      sample: []
    gone:
      description: Nodes that disappeared from the cluster during their change.
      type: list
      elements: str
      returned: always
      sample: []
    not_started:
      description:
        - Nodes that are left for a later run because of C(rollout.limit), or because a node failed and C(rollout.pause_on_failure) is set.
        - Nodes that are left cordoned count against C(rollout.max_unavailable). Nodes that are held back for this reason are also included.
      type: list
      elements: str
      returned: always
      sample: [a100-3]
    repaired:
      description:
        - For each node, the problem that was repaired.
        - If the labels of gpu-feature-discovery have been wrong for 90 seconds and nothing else on the node is wrong, the node's pod of gpu-feature-discovery
          is restarted. Check mode does not predict this restart.
      type: dict
      returned: always
      sample: {a100-4: rebooted}
    not_as_declared:
      description: Nodes that do not match their declaration. One line for each node lists the differences.
      type: list
      elements: str
      returned: always
      sample: ["t4-1 (pool notebooks): allocatable nvidia.com/gpu is 1, but 4 is expected"]
    not_ready:
      description: Nodes of the pools that are not ready.
      type: list
      elements: str
      returned: always
      sample: []
    unusual_nodes:
      description:
        - GPU nodes that gpu-feature-discovery will not label, and nodes on which an NVIDIA pod fails, each with C(name) and C(reason).
        - The run does not wait for these nodes. If one of them belongs to a pool, the run fails after all other nodes are done.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name of the node., type: str, returned: always, sample: gpu-7}
        reason: {description: 'The failing pod and the cause, or the label that prevents discovery.', type: str, returned: always,
          sample: 'pod nvidia-driver-daemonset-x7k2p fails: CrashLoopBackOff'}
    held_back:
      description: For each pool, the taints that were held back, in the form C(key=value:Effect).
      type: dict
      returned: always
      sample: {train: ["restricted-access=yes:NoSchedule"]}
    config_entries:
      description: Entries that were C(added) to and C(removed) from the ConfigMaps of the device plugin and the MIG manager.
      type: dict
      returned: always
      contains:
        added: {description: Added entries., type: list, elements: str, returned: always, sample: [time-slicing-4]}
        removed: {description: Removed entries., type: list, elements: str, returned: always, sample: []}
    refreshed_pods:
      description: Number of NVIDIA pods whose copy of the ConfigMap was refreshed.
      type: int
      returned: always
      sample: 8
    overlaps:
      description: Nodes that match several pools, with the names of these pools.
      type: dict
      returned: always
      sample: {}
    empty_pools:
      description: Pools without nodes.
      type: list
      elements: str
      returned: always
      sample: []
    undeclared_pins:
      description: Nodes whose label C(accel.gpu/pool) names an undeclared pool, grouped by that pool.
      type: dict
      returned: always
      sample: {}
    mismatched:
      description: Nodes that are pinned to a pool even though they do not meet its C(match), grouped by pool.
      type: dict
      returned: always
      sample: {}
    after_discovery:
      description: Nodes and pools that depend on hardware that has not been discovered yet (C(nodes), C(nodes_count), C(pools)).
      type: dict
      returned: in check mode, if there are undiscovered nodes
      contains:
        nodes: {description: Up to 100 of these nodes., type: list, elements: str, returned: always, sample: [a100-5]}
        nodes_count: {description: Number of these nodes., type: int, returned: always, sample: 1}
        pools: {description: The pools., type: list, elements: str, returned: always, sample: []}
    unchecked:
      description: The reason why the API server did not validate the changes in check mode.
      type: str
      returned: in check mode, if the user is not allowed to send a dry run
      sample: "not checked by the server: this user is not allowed to send a dry run"
    report_path:
      description: Path to the file that contains the complete result.
      type: str
      returned: if O(report_path) is set and the file was written
      sample: /home/admin/gpu_sharing.json
code:
  description:
    - The reason for the failure.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options or variables. V(release_refused) - see O(allow_release). V(partial) - some nodes failed.
      V(timeout) - see O(wait_timeout).
    - V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable connection settings. V(unreachable) - the API
      server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the HTTP status of the API server's
      error.
  returned: failure
  type: raw
  sample: partial
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import typing as t

from ..module_utils.core.module import CONFIRM, ArgumentSpec
from ..module_utils.gpu_operator.detect import adapt_plan_to_cluster
from ..module_utils.pools.module import PlanModule
from ..module_utils.sharing.change_plan import PRESENT, STATES, scope_of
from ..module_utils.sharing.operation import SharingOperation


def work(module: PlanModule) -> dict[str, t.Any]:
    """Adapt the plan to the installed operator, then preview or apply the changes."""
    scope = scope_of(module)
    module.plan = adapt_plan_to_cluster(module.client, module.plan)
    return SharingOperation(module, scope).execute()


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "state": {"type": "str", "choices": list(STATES), "default": PRESENT},
        "pool_names": {"type": "list", "elements": "str"},
        "label_selectors": {"type": "list", "elements": "str", "default": []},
        "allow_release": {"type": "list", "elements": "str", "default": []},
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 600},
        "report_path": {"type": "path"},
        "expected_policy": {"type": "dict", "default": {}},
        **CONFIRM,
    }
    module = PlanModule(spec, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
