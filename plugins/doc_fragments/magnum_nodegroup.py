# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options of a Magnum node group; each entry of `nodegroups` has the same options."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.magnum_nodegroup."""

    DOCUMENTATION = r"""
options:
  nodegroups:
    description:
      - Several groups, each with the same options as a single group. They are validated together and changed in parallel.
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
      merge_labels:
        description: See O(merge_labels).
        type: bool
      node_count: &node_count
        description:
          - Number of nodes. By default, Magnum creates a group with one node.
          - With O(autoscaling), it is used only when the group is created.
        type: int
      min_node_count: &min_node_count
        description: Minimum number of nodes. By default, Magnum sets 0.
        type: int
      max_node_count: &max_node_count
        description: Maximum number of nodes. By default, there is no limit.
        type: int
      autoscaling: &autoscaling
        description:
          - Whether an autoscaler chooses the number of nodes. V(true) requires both bounds.
          - By default, V(true) if the label C(auto_scaling_enabled) of the group or the cluster is true and the bounds differ.
        type: bool
      flavor: &flavor
        description: Name or ID of the flavor. By default, the flavor of the cluster. M(accel.gpu.magnum_catalog_info) lists flavors with their GPUs.
        type: str
      image: &image
        description:
          - Name or ID of the image. By default, the image of the cluster's template, which some drivers always use.
          - An image whose operating system differs from the cluster's is rejected. For a flavor with GPUs, an image with an operating system for
            which NVIDIA publishes no driver image is also rejected, unless the label C(nvidia_gpu_enabled) shows that the cloud or the image installs a
            driver.
        type: str
      role: &role
        description: Role of the nodes, any word except V(master). By default, V(worker).
        type: str
      labels: &labels
        description:
          - Magnum's labels, such as C(boot_volume_type), which configure drivers (these are not node labels). Values are compared as text. A boolean is
            sent as V(true) or V(false).
          - They are immutable. If a value differs from that of an existing group, it is rejected or, with O(recreate), the group is replaced.
        type: dict
      docker_volume_size: &docker_volume_size
        description: Size in GiB of a volume for containers.
        type: int
      node_labels: &node_labels
        description:
          - Labels of the nodes. Other labels of the group are left unchanged. Null removes a label.
          - Magnum supports node labels in release 23 and later (microversion 1.14). For older releases, they are not sent and a warning is shown. Some
            drivers ignore them. In both cases, set them with M(accel.gpu.node_metadata).
        type: dict
      node_taints: &node_taints
        description:
          - Taints of the nodes. Other taints of the group are left unchanged. They are supported in the same releases as O(node_labels).
        type: list
        elements: dict
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
  state:
    description:
      - Whether the group must exist. V(absent) deletes it. The two groups that Magnum creates together with a cluster cannot be deleted.
      - Together with O(nodegroups), this option, O(recreate) and O(merge_labels) are the defaults for groups that do not set them.
    type: str
    choices: [present, absent]
    default: present
  recreate:
    description:
      - Whether the group may be replaced to change an immutable setting. Requires O(kubernetes).
      - During the replacement, the nodes of both groups exist at the same time, so the quota must allow both.
    type: bool
    default: false
  merge_labels:
    description: Whether O(labels) are merged with the cluster's labels (and take precedence over them) when the group is created, instead of replacing them.
    type: bool
    default: true
  node_count: *node_count
  min_node_count: *min_node_count
  max_node_count: *max_node_count
  autoscaling: *autoscaling
  flavor: *flavor
  image: *image
  role: *role
  labels: *labels
  docker_volume_size: *docker_volume_size
  node_labels: *node_labels
  node_taints: *node_taints
"""
