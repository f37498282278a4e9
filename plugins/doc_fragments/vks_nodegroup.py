# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options of a VKS node group. Each entry of `nodegroups` has the same options."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.vks_nodegroup."""

    DOCUMENTATION = r"""
options:
  nodegroups:
    description:
      - Several node groups, each of which has the same options as a single group. The groups are validated together and changed in parallel.
    type: list
    elements: dict
    suboptions:
      name:
        description: See O(name).
        type: str
        required: true
      state:
        description: See O(state).
        type: str
        choices: [present, absent]
      recreate:
        description: See O(recreate).
        type: bool
      node_count: &node_count
        description:
          - Number of nodes. Without O(min_node_count) and O(max_node_count), autoscaling is disabled. By default, a group is created with
            one node.
          - If these bounds are set, O(node_count) is used only when the group is created. Afterwards, the autoscaler chooses the number of nodes.
        type: int
        aliases: [num_nodes]
      min_node_count: &min_node_count
        description:
          - Minimum number of nodes for the autoscaler. Requires O(max_node_count).
        type: int
        aliases: [min_size]
      max_node_count: &max_node_count
        description:
          - Maximum number of nodes for the autoscaler. Requires O(min_node_count).
        type: int
        aliases: [max_size]
      flavor: &flavor
        description:
          - Name or ID of a flavor from M(accel.gpu.vks_catalog_info). Required for a new group. This setting is immutable.
        type: str
      os: &os
        description:
          - Operating system of the nodes, which is V(ubuntu), V(linux) or V(rocky). By default, V(ubuntu). This setting is immutable.
        type: str
      disk_size: &disk_size
        description:
          - Size in GiB of each node's disk, from 20 to 5000. By default, V(100). This setting is immutable.
        type: int
      disk_type: &disk_type
        description:
          - Volume type of the disk, specified by name or ID. A kind (C(SSD) or C(NVME)) can be specified instead if there is only one volume type of that
            kind. Required for a new group. This setting is immutable.
        type: str
      ssh_key: &ssh_key
        description:
          - Name or ID of the SSH key. Required for a new group. This setting is immutable.
        type: str
      subnet: &subnet
        description:
          - Name or ID of a subnet of the cluster's VPC. By default, the cluster's subnet is used if the cluster has only one. This setting is immutable.
        type: str
      secondary_subnets: &secondary_subnets
        description:
          - CIDRs of secondary subnets, for clusters whose network type is C(CILIUM_NATIVE_ROUTING). This setting is immutable.
        type: list
        elements: str
      security_groups: &security_groups
        description:
          - Names or IDs of all security groups of the nodes. Security groups that the service adds are left unchanged.
        type: list
        elements: str
      private_nodes: &private_nodes
        description:
          - Whether the nodes have no public address. Such nodes need a NAT gateway to pull images. This setting is immutable.
        type: bool
      encrypted_volume: &encrypted_volume
        description:
          - Whether the disks are encrypted. This setting is immutable.
        type: bool
      node_labels: &node_labels
        description:
          - Labels of the nodes. Other labels of the group are left unchanged. A null value removes the label.
          - All new nodes register with these labels, including nodes that the autoscaler adds.
        type: dict
        aliases: [labels]
      node_taints: &node_taints
        description: Taints of the nodes. Other taints of the group are left unchanged. An existing taint with the same key and effect gets the new value.
        type: list
        elements: dict
        aliases: [taints]
        suboptions:
          key:
            description: Key of the taint.
            type: str
            required: true
          value:
            description: Value of the taint.
            type: str
          effect:
            description: Effect of the taint.
            type: str
            choices: [NoSchedule, PreferNoSchedule, NoExecute]
            required: true
          state:
            description: V(absent) removes the taint with this key and effect.
            type: str
            choices: [present, absent]
            default: present
      tags: &tags
        description: Tags of the machines. Other tags are left unchanged. A null value removes the tag. The service's own tags cannot be set.
        type: dict
      upgrade_strategy: &upgrade_strategy
        description: How nodes are replaced during an upgrade. By default, one additional node is created and no node is unavailable.
        type: dict
        suboptions:
          max_surge:
            description: Number of additional nodes, from 1 to 100.
            type: int
          max_unavailable:
            description: Number of nodes that may be unavailable, from 0 to 100.
            type: int
      kubernetes_version: &kubernetes_version
        description: Kubernetes version of the nodes, which must match the version of the cluster. A change of the version replaces all nodes.
        type: str
  wait:
    description:
      - Whether to wait until the change is complete. With V(false), if the change requires several requests, only the first one is sent.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for one group. Draining the group's nodes has a separate timeout. VKS itself gives up after three hours.
    type: int
    default: 3600
    aliases: [timeout]
  wait_sleep:
    description: Maximum number of seconds between two checks.
    type: int
    default: 15
  parallel:
    description: Maximum number of groups that are changed at the same time.
    type: int
    default: 32
  name:
    description:
      - Name of the group, which cannot be changed. The name consists of 5 to 15 characters from C(a-z), C(0-9) and C(-).
      - Either this option or O(nodegroups) is required.
    type: str
  state:
    description:
      - Whether the group must exist. V(absent) deletes the group. If O(kubernetes) is set, the group's nodes are drained first.
      - If O(nodegroups) is set, this option and O(recreate) are the defaults for the groups that do not set them.
    type: str
    choices: [present, absent]
    default: present
  recreate:
    description:
      - Whether the group may be replaced to change an immutable setting. The new group, whose name ends with four hexadecimal digits, is created first.
        Then the old nodes are drained and the old group is deleted. Requires O(kubernetes).
      - The label C(accel.gpu/nodegroup-mark) marks each group that the module creates. Of the groups with other names than the declared one, only groups
        with a valid mark are changed or deleted. The replacement of a group that has the declared name but no valid mark requires O(confirm), because it
        deletes a group that the collection may not have created.
    type: bool
    default: false
  node_count: *node_count
  min_node_count: *min_node_count
  max_node_count: *max_node_count
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
  node_labels: *node_labels
  node_taints: *node_taints
  tags: *tags
  upgrade_strategy: *upgrade_strategy
  kubernetes_version: *kubernetes_version
"""
