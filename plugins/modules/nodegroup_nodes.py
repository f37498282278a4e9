#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for the nodes that node groups make, and gives them what their pools declare."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegroup_nodes
short_description: Wait for the nodes that the pools' node groups make, and give them their pools' labels and taints
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - A cloud calls a node group complete when its machines are. This module waits until their nodes are in the cluster and ready.
  - A node that comes without its pool's labels and taints, since its cloud did not pass them on, gets them as soon as it is there, in
    one patch, and what is put there is noted in annotations of the node. Of a node that offers GPUs already only the membership is
    put right (label C(accel.gpu/pool)). How its GPUs are shared is changed by M(accel.gpu.gpu_sharing), which empties it for that.
  - A node is of a group by the label with which its cloud names the group (C(gpu_cluster.cloud.magnum.nodegroup_label)), else by the
    label C(accel.gpu/pool).
  - Pools without C(nodes) are left alone. Where nothing differs, one list of the nodes proves it, and nothing is sent.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  pool_names:
    description:
      - Names of the pools whose nodes are waited for. Without it all that have a node group.
    type: list
    elements: str
    default: []
  nodegroups:
    description:
      - What M(accel.gpu.magnum_nodegroup) or M(accel.gpu.vks_nodegroup) returned as C(nodegroups), which tells how many nodes there are to be.
      - Without it as many as the pools declare, and with C(autoscale) its C(min) at least.
    type: dict
    default: {}
  wait_timeout:
    description:
      - Seconds until all nodes have to be ready. Then the module fails, and says of which group how many are not, since when, and which
        node is not ready for what reason.
    type: int
    default: 900
  wait_sleep:
    description:
      - The longest time, in seconds, between two looks.
    type: int
    default: 5
notes:
  - In check mode nothing is waited for. Nodes that have yet to come are told in RV(nodegroup_nodes.arriving), and count as a change.
seealso:
  - module: accel.gpu.magnum_nodegroup
  - module: accel.gpu.vks_nodegroup
  - module: accel.gpu.gpu_sharing
"""

EXAMPLES = r"""
- name: Wait for the nodes of all pools that have a node group
  accel.gpu.nodegroup_nodes:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"

- name: Wait for those of one pool, as many as its group has by now
  accel.gpu.nodegroup_nodes:
    gpu_cluster: {name: prod, cloud: {magnum: {cloud: mycloud}}}
    gpu_pools:
      - name: train
        nodes: {flavor: g4.p4.40g}
        autoscale: {min: 1, max: 6}
    nodegroups: "{{ made.nodegroups }}"
    wait_timeout: 1800
"""

RETURN = r"""
nodegroup_nodes:
  description: What was seen and done, or in check mode would be done.
  returned: always
  type: dict
  contains:
    pools:
      description: By pool, its C(group), how many nodes are C(wanted), how many C(nodes) are in the cluster, and how many are C(ready).
      type: dict
      returned: always
      sample: {train: {group: train, wanted: 2, nodes: 2, ready: 2}}
    changed_nodes:
      description: Names of up to 100 nodes that got what they lacked.
      type: list
      elements: str
      returned: always
    changed_count:
      description: How many nodes did.
      type: int
      returned: always
    arriving:
      description: By pool, how many nodes are not in the cluster yet.
      type: dict
      returned: always
    not_ready:
      description: Up to 100 nodes that are not ready, and why.
      type: dict
      returned: always
    unchecked:
      description: Why the server did not check the changes in check mode.
      type: str
      returned: in check mode, when the user has no right to a dry run
"""

import typing as t

from ..module_utils.common.errors import InvalidOptions
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.kube.module import GpuModule
from ..module_utils.nodegroup_nodes.reconciler import ArrivalReconciler


def work(module: GpuModule) -> dict[str, t.Any]:
    """Look once, or until all nodes are there."""
    only = module.params["pool_names"]
    pools = {pool.name: pool for pool in module.plan.pools}
    problems = [
        f"only: pool {name} {'has no nodes of its own making (nodes)' if name in pools else 'is not declared'}; name one that has."
        for name in only
        if name not in pools or pools[name].nodegroup is None
    ]
    if problems:
        raise InvalidOptions(problems)
    cloud = module.plan.cluster.cloud
    reception = ArrivalReconciler(
        module.client, module.plan, module.params["nodegroups"], only, check=module.check_mode, lease=module.lease
    )
    if cloud is not None and any(pool.nodegroup for pool in module.plan.pools):
        if module.params["wait"] and not module.check_mode:
            look_at = f"accel.gpu.{cloud.provider}_nodegroup_info, cluster {cloud.cluster}"
            reception.wait(module.params["wait_timeout"], module.params["wait_sleep"], module.progress, look_at)
        else:
            reception.look()
    return reception.received.result(module.check_mode)


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "pool_names": {"type": "list", "elements": "str", "default": []},
        "nodegroups": {"type": "dict", "default": {}},
        "wait_timeout": {"type": "int", "default": 900},
        "wait_sleep": {"type": "int", "default": 5},
    }
    module = GpuModule(spec, variables=True, wait=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
