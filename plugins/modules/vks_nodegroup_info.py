#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups of a VKS cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_nodegroup_info
short_description: List the node groups of a VNG Cloud VKS cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the node groups of a cluster, with the options of M(accel.gpu.vks_nodegroup).
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
  names:
    description: Names of the groups. By default, all groups. Names that do not exist are left out.
    type: list
    elements: str
  include_nodes:
    description: Whether the nodes of each group are also read. This takes one additional request for each group.
    type: bool
    default: false
seealso:
  - module: accel.gpu.vks_nodegroup
"""

EXAMPLES = r"""
- name: List the groups and their nodes
  accel.gpu.vks_nodegroup_info:
    cluster: prod
    include_nodes: true
  register: result
"""

RETURN = r"""
nodegroups:
  description:
    - The groups by name, with the options of M(accel.gpu.vks_nodegroup), and ids in place of names. C(nodes) is returned with
      O(include_nodes).
  returned: always
  type: dict
  sample:
    train:
      id: ng-0b5c
      name: train
      status: ACTIVE
      node_count: 2
      min_node_count: 1
      max_node_count: 4
      flavor: flav-52a1
      node_labels: {accel.gpu/pool: train}
      node_taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
      nodes: [{name: vks-prod-train-7c2, status: ACTIVE, ready: true, address: 10.2.1.7, external_address: null}]
cluster_id:
  description: Id of the cluster.
  returned: always
  type: str
  sample: k8s-2f9b3c4d-0f8e-4a27-9d0c-5a2b6e1f7c80
code:
  description:
    - Reason of the failure.
    - V(invalid) - errors in the options. V(connection) - no usable credentials, or the cloud's library is missing. V(unreachable) - the cloud does not
      respond. Otherwise, the HTTP status of the cloud's error.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import functools
import typing as t

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.common.parallel import call_all
from ..module_utils.providers.vks.module import VksModule
from ..module_utils.providers.vks.provider import VksProvider

_SPEC: ArgumentSpec = {
    "cluster": {"type": "str", "required": True},
    "names": {"type": "list", "elements": "str"},
    "include_nodes": {"type": "bool", "default": False},
}
_NODE_FIELDS = {
    "name": "name",
    "status": "status",
    "ready": "ready",
    "address": "fixedIp",
    "external_address": "floatingIp",
}


def work(module: VksModule) -> dict[str, t.Any]:
    """List the groups, and read the details of each."""
    names = module.params["names"]
    cluster = module.cluster(module.params["cluster"])
    provider = VksProvider(module.transport, module.vserver, cluster, patience=0.0)
    states = provider.read(lambda name: names is None or name in names)
    groups = {state.name: {"id": state.id, "status": state.status, **state.to_result()} for state in states}
    if module.params["include_nodes"]:
        nodes = call_all([(state.name, functools.partial(provider.nodes, state)) for state in states])
        for state, rows in zip(states, nodes, strict=True):
            groups[state.name]["nodes"] = [{key: row.get(field) for key, field in _NODE_FIELDS.items()} for row in rows]
    return {"changed": False, "cluster_id": cluster.id, "nodegroups": groups}


def main() -> None:
    """Run the module."""
    VksModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
