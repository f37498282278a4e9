#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for the nodes of node groups, and sets their pools' labels and taints."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegroup_nodes
short_description: Set the pools' labels and taints on the nodes of node groups, and wait until the nodes are ready
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - A cloud reports a node group as complete as soon as the group's machines run. This module waits until the nodes on these machines have joined the cluster
    and are ready.
  - If the cloud did not pass on the pool's labels and taints, the module sets them on each node in one patch as soon as the node joins. Annotations of the node
    record these labels and taints. On a node that already advertises GPUs, only the label C(accel.gpu/pool) is set, because M(accel.gpu.gpu_sharing) must drain
    such a node before it changes the sharing of the node's GPUs.
  - The label that C(gpu_cluster.cloud.magnum.nodegroup_label) names determines the group of a node. If the node does not have this label, the label
    C(accel.gpu/pool) determines the group. The name of a group that replaces another one is read from O(nodegroups).
  - Pools without C(nodes) are ignored. If nothing differs, the module lists the nodes once and sends no other request.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  pool_names:
    description:
      - Names of the pools for whose nodes the module waits. By default, the module waits for the nodes of all pools with a node group.
    type: list
    elements: str
    default: []
  nodegroups:
    description:
      - The return value C(nodegroups) of the module that manages the cloud's node groups, such as M(accel.gpu.magnum_nodegroup). It contains the number of
        nodes in each group, the name of a group that replaces the declared one, and the nodes that an adopted group already had.
      - By default, the module waits for the number of nodes that the pool declares, or for C(autoscale.min) if the pool is autoscaled.
    type: dict
    default: {}
  wait_timeout:
    description:
      - Seconds to wait until all nodes are ready. After this time, the module fails and reports, for each group, how many nodes are not ready, for how long,
        and why.
    type: int
    default: 900
  wait_sleep:
    description: Maximum number of seconds between two checks.
    type: int
    default: 5
notes:
  - In check mode, the module does not wait. RV(nodegroup_nodes.missing) contains the number of nodes that have not joined yet. These nodes count as a change.
seealso:
  - module: accel.gpu.magnum_nodegroup
  - module: accel.gpu.vks_nodegroup
  - module: accel.gpu.machineset
  - module: accel.gpu.gpu_sharing
"""

EXAMPLES = r"""
- name: Wait for the nodes of all pools with a node group
  accel.gpu.nodegroup_nodes:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"

- name: Create a node group
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    nodegroups:
      - {name: train, flavor: g4.p4.40g, min_node_count: 1, max_node_count: 6, autoscaling: true, node_labels: {accel.gpu/pool: train}}
  register: result

- name: Wait for the current number of nodes in the group
  accel.gpu.nodegroup_nodes:
    gpu_cluster: {name: prod, cloud: {magnum: {cloud: mycloud}}}
    gpu_pools:
      - name: train
        nodes: {flavor: g4.p4.40g}
        autoscale: {min: 1, max: 6}
    nodegroups: "{{ result.nodegroups }}"
    wait_timeout: 1800
"""

RETURN = r"""
nodegroup_nodes:
  description: The nodes of each pool, and the changes to the nodes or, in check mode, the predicted changes.
  returned: always
  type: dict
  contains:
    pools:
      description: The node group and the numbers of nodes for each pool. C(group) is the name of the node group. C(desired) is the desired number of nodes,
        C(nodes) is the number of nodes in the cluster, and C(ready) is the number of ready nodes.
      type: dict
      returned: always
      contains:
        NAME:
          description: 'The entry for one pool. The key is the name of the pool.'
          type: dict
          returned: always
          contains:
            group: {description: Name of the node group., type: str, returned: always, sample: train}
            desired: {description: Desired number of nodes., type: int, returned: always, sample: 2}
            nodes: {description: Number of nodes in the cluster., type: int, returned: always, sample: 2}
            ready: {description: Number of ready nodes., type: int, returned: always, sample: 2}
    changed_nodes:
      description: Names of up to 100 nodes that were changed.
      type: list
      elements: str
      returned: always
      sample: [prod-train-node-0]
    changed_count:
      description: Number of nodes that were changed.
      type: int
      returned: always
      sample: 1
    missing:
      description: For each pool, the number of nodes that have not joined the cluster yet.
      type: dict
      returned: always
      sample: {train: 1}
    not_ready:
      description: Up to 100 nodes that are not ready, each with the reason.
      type: dict
      returned: always
      sample: {prod-train-node-1: "KubeletNotReady: cni plugin not initialized"}
    unchecked:
      description: The reason why the API server did not validate the changes in check mode.
      type: str
      returned: in check mode, if the user is not allowed to send a dry run
      sample: "not checked by the server: this user is not allowed to send a dry run"
code:
  description:
    - The reason for the failure.
    - V(invalid) - errors in the options or variables. V(timeout) - see O(wait_timeout).
    - V(wrong_cluster) - the connection points to a different cluster than O(gpu_cluster) declares. V(connection) - no usable connection settings.
      V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the
      HTTP status of the API server's error.
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

import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.nodegroups.nodes import GroupNodesReconciler
from ..module_utils.pools.module import PlanModule


def work(module: PlanModule) -> dict[str, t.Any]:
    """Reconcile the nodes once, or repeatedly until all nodes are ready."""
    pool_names = module.params["pool_names"]
    pools = {pool.name: pool for pool in module.plan.pools}
    problems = [
        f"pool_names: pool {name} {'has no node group (nodes)' if name in pools else 'is not declared'}; specify a pool with nodes."
        for name in pool_names
        if name not in pools or pools[name].nodegroup is None
    ]
    if problems:
        raise InvalidOptions(problems)
    cloud = module.plan.cluster.cloud
    reconciler = GroupNodesReconciler(
        client=module.client,
        plan=module.plan,
        nodegroups=module.params["nodegroups"],
        pool_names=pool_names,
        check_mode=module.check_mode,
        lease=module.lease,
    )
    if cloud is not None and any(pool.nodegroup for pool in module.plan.pools):
        if module.params["wait"] and not module.check_mode:
            look_at = f"accel.gpu.{cloud.module}_info, cluster {cloud.cluster}"
            reconciler.wait(module.params["wait_timeout"], module.params["wait_sleep"], module.progress, look_at)
        else:
            reconciler.reconcile()
    return reconciler.result.result(module.check_mode)


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "pool_names": {"type": "list", "elements": "str", "default": []},
        "nodegroups": {"type": "dict", "default": {}},
        "wait_timeout": {"type": "int", "default": 900},
        "wait_sleep": {"type": "int", "default": 5},
    }
    PlanModule(spec, wait=True, lease=True).run(work)


if __name__ == "__main__":
    main()
