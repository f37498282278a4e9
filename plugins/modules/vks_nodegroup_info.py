#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the node groups of a VKS cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_nodegroup_info
short_description: List the node groups of a VNG Cloud VKS cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the node groups of a cluster. The fields correspond to the options of M(accel.gpu.vks_nodegroup).
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or ID of the cluster.
    type: str
    required: true
  names:
    description: Names of the groups to return. By default, all groups are returned. Groups that do not exist are omitted.
    type: list
    elements: str
  include_nodes:
    description: Whether to also return the nodes of each group. This requires one additional request for each group.
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
    - The groups, with their names as keys. The fields correspond to the options of M(accel.gpu.vks_nodegroup), but contain IDs instead of names. C(nodes) is
      returned only with O(include_nodes=true).
  returned: always
  type: dict
  contains:
    NAME:
      description: 'The entry for one node group. The key is the name of the node group.'
      type: dict
      returned: always
      contains:
        id: {description: ID of the group., type: str, returned: always, sample: ng-0b5c}
        name: {description: Name of the group., type: str, returned: always, sample: train}
        status: {description: Status of the group., type: str, returned: always, sample: ACTIVE}
        nodes:
          description: The nodes of the group.
          type: list
          elements: dict
          returned: with O(include_nodes=true)

          contains:
            name: {description: Name of the node., type: str, returned: always, sample: vks-prod-train-7c2}
            status: {description: Status of the node's machine., type: str, returned: always, sample: ACTIVE}
            ready: {description: Whether the node is ready., type: bool, returned: always, sample: true}
            address: {description: Private address of the node., type: str, returned: always, sample: 10.2.1.7}
            external_address: {description: Public address of the node; null if there is none., type: str, returned: always, sample: null}
        node_count: {description: Number of nodes., type: int, returned: always, sample: 2}
        min_node_count: {description: Minimum number of nodes for the autoscaler., type: int, returned: always, sample: 0}
        max_node_count: {description: Maximum number of nodes for the autoscaler; null if there is no maximum., type: int, returned: always, sample: null}
        flavor: {description: ID of the flavor., type: str, returned: always, sample: flav-52a1}
        os: {description: Operating system of the nodes., type: str, returned: always, sample: ubuntu}
        disk_size: {description: Size of the root volume in GiB., type: int, returned: always, sample: 100}
        disk_type: {description: ID of the volume type., type: str, returned: always, sample: vtype-61c3}
        ssh_key: {description: ID of the SSH key., type: str, returned: always, sample: ssh-7d0e}
        subnet: {description: ID of the subnet., type: str, returned: always, sample: sub-11aa}
        secondary_subnets: {description: The secondary subnets., type: list, elements: str, returned: always, sample: []}
        security_groups: {description: IDs of the security groups., type: list, elements: str, returned: always, sample: [secg-90ab]}
        private_nodes: {description: Whether the nodes have no public addresses., type: bool, returned: always, sample: false}
        encrypted_volume: {description: Whether the root volume is encrypted., type: bool, returned: always, sample: false}
        tags: {description: Tags of the machines., type: dict, returned: always, sample: {}}
        upgrade_strategy: {description: 'How VKS replaces nodes during an upgrade, in the format of O(accel.gpu.vks_nodegroup#module:upgrade_strategy).',
          type: dict, returned: always, sample: {max_surge: 1, max_unavailable: 0}}
        kubernetes_version: {description: Version of Kubernetes; null if VKS does not return it., type: str, returned: always, sample: v1.35.6}
        node_labels: {description: Labels with which nodes register., type: dict, returned: always, sample: {accel.gpu/pool: train}}
        node_taints:
          description: Taints with which nodes register.
          type: list
          elements: dict
          returned: always
          contains:
            key: {description: Key of the taint., type: str, returned: always, sample: nvidia.com/gpu}
            value: {description: Value of the taint., type: str, returned: if the taint has a value, sample: present}
            effect: {description: Effect of the taint., type: str, returned: always, sample: NoSchedule}
cluster_id:
  description: ID of the cluster.
  returned: always
  type: str
  sample: k8s-2f9b3c4d-0f8e-4a27-9d0c-5a2b6e1f7c80
code:
  description:
    - The reason for the failure.
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
  sample: {reason: Refused, method: GET, path: /v1/clusters}
"""

import functools
import typing as t

from ..module_utils.clouds.vks_clusters import VksModule
from ..module_utils.clouds.vks_groups import VksProvider
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.waits import call_all

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
    """List the groups, and read the details of each group."""
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
