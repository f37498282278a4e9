# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node group of VKS is to be: the options of one, which are those of each of many."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.vks_nodegroup."""

    DOCUMENTATION = r"""
options:
  nodegroups:
    description: Many groups, each with the options of one. Exclusive of O(name).
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the group, of 5 to 15 characters C(a-z), C(0-9) and C(-). It is the key; it cannot be changed.
        type: str
        required: true
      state: &state
        description: Whether the group is to be there. One that is to go is emptied first where O(kubernetes) is given.
        type: str
        choices: [present, absent]
        default: present
      num_nodes: &num_nodes
        description:
          - How many nodes the group is to have. Without O(min_size) and O(max_size) it has exactly so many, and autoscaling is taken
            away from it.
          - With them it is the number of nodes of a new group only; from then on the autoscaler decides.
        type: int
      min_size: &min_size
        description: The least number of nodes that the autoscaler may leave. Needs O(max_size).
        type: int
      max_size: &max_size
        description: The most nodes that the autoscaler may make. Needs O(min_size).
        type: int
      flavor: &flavor
        description: Name or id of the flavor, as M(accel.gpu.vks_catalog_info) lists them. A new group needs it; it cannot be changed.
        type: str
      os: &os
        description: Operating system, V(ubuntu), V(linux) or V(rocky); V(ubuntu) for a new group. It cannot be changed.
        type: str
      disk_size: &disk_size
        description: GiB of each node's disk, 20 to 5000; 100 for a new group. It cannot be changed.
        type: int
      disk_type: &disk_type
        description:
          - The volume type of it, by name, id, or kind (C(SSD), C(NVME)) where there is one of the kind. A new group needs it; it
            cannot be changed.
        type: str
      ssh_key: &ssh_key
        description: Name or id of the SSH key. A new group needs it; it cannot be changed.
        type: str
      subnet: &subnet
        description: Name or id of a subnet of the cluster's VPC; the cluster's own for a new group. It cannot be changed.
        type: str
      secondary_subnets: &secondary_subnets
        description: CIDRs of secondary subnets, for clusters of network CILIUM_NATIVE_ROUTING. They cannot be changed.
        type: list
        elements: str
      security_groups: &security_groups
        description: Names or ids of all security groups that the nodes are in. Those that the service adds by itself stay.
        type: list
        elements: str
      private_nodes: &private_nodes
        description: Whether nodes have no public address. They need a NAT then, to fetch images. It cannot be changed.
        type: bool
      encrypted_volume: &encrypted_volume
        description: Whether disks are encrypted. It cannot be changed.
        type: bool
      labels: &labels
        description:
          - Labels of the nodes. Others that the group has stay; one whose value is null is taken off.
          - Nodes that the autoscaler makes are born with them.
        type: dict
      taints: &taints
        description: Taints of the nodes. Others that the group has stay; one of the same key and effect gets the value.
        type: list
        elements: dict
        suboptions:
          key:
            description: Its key.
            type: str
            required: true
          value:
            description: Its value.
            type: str
          effect:
            description: Its effect.
            type: str
            choices: [NoSchedule, PreferNoSchedule, NoExecute]
            required: true
          state:
            description: V(absent) takes it off.
            type: str
            choices: [present, absent]
            default: present
      tags: &tags
        description: Tags of the machines, as labels. Those of the service itself cannot be set.
        type: dict
      upgrade_strategy: &upgrade_strategy
        description: How nodes are replaced in an upgrade; one of surge 1 and unavailable 0 for a new group.
        type: dict
        suboptions:
          max_surge:
            description: Nodes that may be made beside the others, 1 to 100.
            type: int
          max_unavailable:
            description: Nodes that may be missing, 0 to 100.
            type: int
      kubernetes_version: &kubernetes_version
        description: The version that the nodes are to have, which can only be that of the control plane. All nodes are replaced.
        type: str
      recreate: &recreate
        description:
          - Whether a field that cannot be changed may be changed by another group. It is made first, with a name that ends in four more
            digits, then pods move there, then this one is deleted. Needs O(kubernetes).
        type: bool
        default: false
  wait:
    description:
      - Whether to wait until it is so. Without it a change that takes several requests is begun with the first one.
    type: bool
    default: true
  wait_timeout:
    description: Seconds for one group; emptying its nodes has a limit of its own. VKS itself gives up after three hours.
    type: int
    default: 3600
  wait_sleep:
    description: The longest time, in seconds, between two looks.
    type: int
    default: 15
  parallel:
    description: How many groups are worked on at the same time.
    type: int
    default: 32
  name:
    description: Name of the one group. Exclusive of O(nodegroups).
    type: str
  state: *state
  num_nodes: *num_nodes
  min_size: *min_size
  max_size: *max_size
  flavor: *flavor
  os: *os
  disk_size: *disk_size
  disk_type: *disk_type
  ssh_key: *ssh_key
  subnet: *subnet
  secondary_subnets: *secondary_subnets
  security_groups: *security_groups
  private_nodes: *private_nodes
  encrypted_volume: *encrypted_volume
  labels: *labels
  taints: *taints
  tags: *tags
  upgrade_strategy: *upgrade_strategy
  kubernetes_version: *kubernetes_version
  recreate: *recreate
"""
