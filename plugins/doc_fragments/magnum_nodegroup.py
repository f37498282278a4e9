# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options of a Magnum node group. Each entry of `nodegroups` has the same options."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.magnum_nodegroup."""

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
      merge_labels:
        description: See O(merge_labels).
        type: bool
      node_count: &node_count
        description:
          - Number of nodes. By default, Magnum creates a group with one node.
          - With O(autoscaling), this option is used only when the group is created.
        type: int
      min_node_count: &min_node_count
        description: Minimum number of nodes. By default, Magnum uses V(0).
        type: int
      max_node_count: &max_node_count
        description: Maximum number of nodes. By default, there is no limit.
        type: int
      autoscaling: &autoscaling
        description:
          - Whether an autoscaler chooses the number of nodes. V(true) requires O(min_node_count) and O(max_node_count).
          - The default is V(true) if O(min_node_count) and O(max_node_count) differ and the label C(auto_scaling_enabled) of the group or of the cluster is
            true.
        type: bool
      flavor: &flavor
        description: Name or ID of the flavor. By default, the flavor of the cluster. M(accel.gpu.magnum_catalog_info) lists flavors with their GPUs.
        type: str
      image: &image
        description:
          - Name or ID of the image. By default, the image of the cluster's template is used. Some Magnum drivers always use that image.
          - An image is rejected if its operating system differs from the cluster's. For a flavor with GPUs, an image is also rejected if NVIDIA publishes no
            driver image for the image's operating system, unless the label C(nvidia_gpu_enabled) shows that the cloud or the image installs a driver.
        type: str
      role: &role
        description: Role of the nodes. All roles except V(master) are allowed. By default, V(worker).
        type: str
      labels: &labels
        description:
          - Magnum labels, such as C(boot_volume_type), which configure Magnum's drivers. They are not node labels. Values are compared as strings. A boolean
            is sent as V(true) or V(false).
          - The labels are immutable. If a value differs from that of an existing group, the new value is rejected or, with O(recreate), the group is
            replaced.
        type: dict
      docker_volume_size: &docker_volume_size
        description: Size in GiB of the volume for containers.
        type: int
      node_labels: &node_labels
        description:
          - Labels of the nodes. Other labels of the group are left unchanged. A null value removes the label.
          - Magnum supports node labels in release 23 and later (microversion 1.14). With older releases, the labels are not sent, and the module shows a
            warning. Some Magnum drivers ignore the labels. In both cases, use M(accel.gpu.node_metadata) to set them.
        type: dict
      node_taints: &node_taints
        description:
          - Taints of the nodes. Other taints of the group are left unchanged. Magnum supports taints in the same releases as O(node_labels).
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
      - If O(nodegroups) is set, this option, O(recreate) and O(merge_labels) are the defaults for the groups that do not set them.
    type: str
    choices: [present, absent]
    default: present
  recreate:
    description:
      - Whether the group may be replaced to change an immutable setting. Requires O(kubernetes).
      - The label C(accel_gpu_nodegroup_mark) marks each group that the module creates. Of the groups with other names than the declared one, only groups
        with a valid mark are changed or deleted. The replacement of a group that has the declared name but no valid mark requires O(confirm), because it
        deletes a group that the collection may not have created.
      - During the replacement, the nodes of the old and the new group exist at the same time, so the quota must be sufficient for both groups.
    type: bool
    default: false
  merge_labels:
    description: Whether O(labels) are merged with the cluster's labels when the group is created. With V(true), O(labels) take precedence. With V(false),
      O(labels) replace the cluster's labels.
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
