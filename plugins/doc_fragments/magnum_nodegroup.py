# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be declared of a node group of Magnum, and of many."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.magnum_nodegroup."""

    DOCUMENTATION = r"""
options:
  state:
    description:
      - V(absent) deletes the group. The two groups that a cluster is made with cannot be deleted.
      - Beside O(nodegroups), it counts for all that do not say otherwise, as O(recreate) and O(merge_labels) do.
    type: str
    choices: [present, absent]
    default: present
  node_count:
    description:
      - How many nodes the group has. Magnum makes one node if it is not told.
      - With O(autoscaling) it is what the group is created with, and is left alone afterwards.
    type: int
  min_node_count:
    description: The least number of nodes. Magnum takes 0 if it is not told.
    type: int
  max_node_count:
    description: The greatest number of nodes. Without it there is no limit.
    type: int
  autoscaling:
    description:
      - Whether an autoscaler decides on the number of nodes. It needs both bounds.
      - If not given, it is so where the label C(auto_scaling_enabled) of the group or of the cluster is true and the bounds differ.
    type: bool
  flavor:
    description: Name or id of the flavor. The cluster's if not given. M(accel.gpu.magnum_catalog_info) tells which have GPUs.
    type: str
  image:
    description:
      - Name or id of the image. That of the cluster's template if not given. Some drivers use the template's in any case.
      - An image of another system than the cluster's is refused, and for a flavor with GPUs one of a system for which NVIDIA
        publishes no driver container, unless the label C(nvidia_gpu_enabled) says that cloud or image bring a driver.
    type: str
  role:
    description: The role of the nodes, any word but V(master). V(worker) if not given.
    type: str
  labels:
    description:
      - Labels of Magnum (not of the nodes), by which drivers are configured. Values are compared as text; a boolean is sent as
        V(true) or V(false).
    type: dict
  merge_labels:
    description: Whether O(labels) are laid on the cluster's when the group is created, else they take their place.
    type: bool
    default: true
  docker_volume_size:
    description: Size in GB of a volume for containers.
    type: int
  node_labels:
    description:
      - Labels of the nodes. Those that are not named stay; one of null is taken out.
      - Magnum has these from release 23 (microversion 1.14) on. An older one is told nothing of them, which a warning says, and
        neither are drivers that do not know them yet; then they are to be put on the nodes by M(accel.gpu.node_metadata).
    type: dict
  node_taints:
    description:
      - Taints of the nodes; else as O(node_labels).
    type: list
    elements: dict
    suboptions: &taint
      key:
        description: The taint's key.
        type: str
        required: true
      value:
        description: The taint's value.
        type: str
      effect:
        description: What it does.
        type: str
        choices: [NoSchedule, PreferNoSchedule, NoExecute]
        required: true
      state:
        description: V(absent) takes the taint of this key and effect out.
        type: str
        choices: [present, absent]
        default: present
  recreate:
    description:
      - Whether a group may be replaced by another one, to change what cannot be changed on it.
      - For the time of the move there are the nodes of both, which the quota must allow.
    type: bool
    default: false
  nodegroups:
    description:
      - Any number of groups, each with the options of one. They are validated together, and brought there side by side.
    type: list
    elements: dict
    suboptions:
      name:
        description: As O(name).
        type: str
        required: true
      state:
        description: As O(state).
        type: str
        choices: [present, absent]
      node_count:
        description: As O(node_count).
        type: int
      min_node_count:
        description: As O(min_node_count).
        type: int
      max_node_count:
        description: As O(max_node_count).
        type: int
      autoscaling:
        description: As O(autoscaling).
        type: bool
      flavor:
        description: As O(flavor).
        type: str
      image:
        description: As O(image).
        type: str
      role:
        description: As O(role).
        type: str
      labels:
        description: As O(labels).
        type: dict
      merge_labels:
        description: As O(merge_labels).
        type: bool
      docker_volume_size:
        description: As O(docker_volume_size).
        type: int
      node_labels:
        description: As O(node_labels).
        type: dict
      node_taints:
        description: As O(node_taints).
        type: list
        elements: dict
        suboptions: *taint
      recreate:
        description: As O(recreate).
        type: bool
"""
