#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manages the node groups of a VKS cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_nodegroup
short_description: Create, scale, relabel, replace and delete node groups of a VNG Cloud VKS cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reconciles one or more node groups with their declarations. The groups are processed in parallel. Undeclared settings of a group are not changed.
  - Everything is validated before the first change. The module looks up names in the cluster's VPC and the subnet's zone. The module fails if a name is
    ambiguous, a flavor is sold out, or a quota would be exceeded.
  - After a change, the module waits until VKS shows the change, the group is ACTIVE, and it has the declared number of ready nodes.
  - A request whose response was lost may have succeeded, so the module lists the groups before it retries the request.
  - If a setting that differs cannot be changed in place, the module fails unless O(recreate) allows it to replace the group.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.vks_nodegroup
  - accel.gpu.drain
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  cluster:
    description: Name or ID of the cluster.
    type: str
    required: true
notes:
  - VKS chooses which nodes a scale-down removes, so the module cannot drain these nodes first. With O(kubernetes), the module drains the nodes of a group
    before it deletes or replaces the group.
  - Each run sends additional requests to look up names. Specify IDs to avoid these requests.
seealso:
  - module: accel.gpu.vks_nodegroup_info
  - module: accel.gpu.vks_catalog_info
"""

EXAMPLES = r"""
- name: Create a group of two nodes with one L40S each, which the autoscaler can scale to four nodes
  accel.gpu.vks_nodegroup:
    cluster: prod
    name: inference
    flavor: g4-standard-16x64-1L40s
    disk_type: nvme-iops3000
    ssh_key: ops
    subnet: gpu-1b
    node_count: 2
    min_node_count: 1
    max_node_count: 4
    node_labels: {accel.gpu/pool: inference}
    node_taints:
      - {key: nvidia.com/gpu, value: present, effect: NoSchedule}

- name: Set the group to exactly three nodes, without autoscaling
  accel.gpu.vks_nodegroup:
    cluster: prod
    name: inference
    node_count: 3

- name: Move a group to another flavor
  accel.gpu.vks_nodegroup:
    cluster: prod
    name: inference
    flavor: g4-standard-32x128-2L40s
    recreate: true
    kubernetes: {kubeconfig: ~/.kube/prod}

- name: Reconcile all groups of a cluster in one call
  accel.gpu.vks_nodegroup:
    cluster: prod
    nodegroups: "{{ plan.nodegroups }}"
  vars:
    plan: "{{ {'gpu_cluster': gpu_cluster, 'gpu_pools': gpu_pools} | accel.gpu.plan }}"
"""

RETURN = r"""
nodegroups:
  description:
    - The declared node groups. Each key is a declared name, and its value is the current state or, in check mode, the predicted state of the group. IDs are
      returned instead of names. C(action) is V(none), V(create), V(update), V(recreate) or V(delete). After a replacement, C(name) has a suffix. C(failure) is
      the reason why a group failed.
  returned: always
  type: dict
  contains:
    NAME:
      description: 'The entry for one node group. The key is the declared name of the node group.'
      type: dict
      returned: always
      contains: &group
        action: {description: 'The action that was taken or, in check mode, would be taken. V(none), V(create), V(update), V(recreate)
          or V(delete).', type: str, returned: always, sample: none}
        id: {description: ID of the group., type: str, returned: if the group exists, sample: ng-0b5c}
        name: {description: Name of the group. It has a suffix after a replacement., type: str, returned: always, sample: train}
        status: {description: Status of the group., type: str, returned: if the group exists, sample: ACTIVE}
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
        upgrade_strategy: {description: 'How VKS replaces nodes during an upgrade, in the format of O(upgrade_strategy).',
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
        outdated: {description: Machines whose settings differ from those of new machines., type: list, elements: str,
          returned: if there are any, sample: [train-x7k2p]}
        deletes: {description: 'The groups that are deleted with their nodes: the group itself, or the groups that it replaces.', type: list,
          elements: str, returned: if any group is deleted, sample: [train (2 nodes)]}
        failure: {description: The reason why the group failed., type: str, returned: if it failed, sample: The quota is exceeded.}
nodegroup:
  description: The group that O(name) selects, with the same keys as each value of RV(nodegroups).
  returned: with O(name)
  type: dict
  contains: *group
code:
  description:
    - The reason for the failure.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options. V(partial) - some node groups could not be changed. V(timeout) - see O(wait_timeout).
    - V(connection) - no usable credentials, or the cloud's library is missing. V(unreachable) - the cloud does not respond. Otherwise, the HTTP status of
      the cloud's error.
    - With O(kubernetes), additional codes are possible. V(wrong_cluster) - the connection points to a different cluster. V(lease_held) - another run holds the
      Lease. V(lease_lost) - this run lost it. V(unreachable) and an HTTP status can also refer to the cluster's API server.
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

import typing as t

from ..module_utils.clouds.vks_clusters import WAIT, VksModule
from ..module_utils.clouds.vks_groups import FIELDS, VksProvider
from ..module_utils.licensing.container import LicenseReturn
from ..module_utils.nodegroups.module import KUBERNETES, DrainingModule, reconcile_nodegroups

if t.TYPE_CHECKING:
    from ..module_utils.kube.client import Client
    from ..module_utils.nodes.drain import NodeRemoval

# If an accepted request shows no effect after this number of reads, it counts as lost.
_READS = 4


class VksNodeGroupModule(VksModule, DrainingModule):
    """A VKS module that can drain nodes."""

    def node_removal(self, client: Client) -> NodeRemoval:
        """Return the work that is required before nodes are removed: vGPU nodes return their licenses."""
        return LicenseReturn(client, self.warn)


def work(module: VksNodeGroupModule) -> dict[str, t.Any]:
    """Resolve the names, and reconcile the groups."""
    params = module.params
    cluster = module.cluster(params["cluster"])
    patience = float(_READS * max(1, params["wait_sleep"]))
    provider = VksProvider(module.transport, module.vserver, cluster, patience=patience)
    specs = provider.specs_of(FIELDS.declared_groups(params))
    return reconcile_nodegroups(module, provider, specs)


def main() -> None:
    """Run the module."""
    VksNodeGroupModule({**WAIT, **KUBERNETES, **FIELDS.argument_spec}, **FIELDS.constraints).run(work)


if __name__ == "__main__":
    main()
