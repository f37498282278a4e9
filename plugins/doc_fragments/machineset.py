# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options of a node group in OpenShift's Machine API. Each entry of `nodegroups` has the same options."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.machineset."""

    DOCUMENTATION = r"""
options:
  namespace:
    description: Namespace of the MachineSets.
    type: str
    default: openshift-machine-api
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
          - Number of nodes. By default, a group is created with one node.
          - If O(min_node_count) and O(max_node_count) are set, this option is used only when the group is created. While a MachineAutoscaler refers to the
            MachineSet, the number of nodes is not changed either.
        type: int
        aliases: [replicas]
      min_node_count: &min_node_count
        description:
          - Minimum number of nodes for the autoscaler. Requires O(max_node_count). M(accel.gpu.autoscaling) creates the MachineAutoscaler.
        type: int
      max_node_count: &max_node_count
        description:
          - Maximum number of nodes for the autoscaler. Requires O(min_node_count).
        type: int
      like: &like
        description:
          - Name of the MachineSet from which a new group is copied. This option is used only when the group is created.
          - By default, the module copies a worker MachineSet that this collection does not manage. If O(zone) is set, only MachineSets in this zone are
            considered. If there are several such MachineSets, the module prefers those without taints, uses the first one by name, and shows a warning that
            names the others. If the MachineSets are for different platforms, O(like) is required.
        type: str
      zone: &zone
        description:
          - Zone of a new group. If O(like) is in a different zone, a MachineSet in this zone is copied instead, because subnets and images differ between
            zones. The module copies the MachineSet whose name differs from O(like) only in the zone. If there is no such MachineSet and the zone has exactly
            one MachineSet, the module copies that one.
          - On vSphere, this is the name or the zone of a failure domain in the Infrastructure object.
        type: str
      flavor: &flavor
        description:
          - Machine type of the nodes on AWS (C(instanceType)), Azure (C(vmSize)) and Google Cloud (C(machineType)).
        type: str
      template: &template
        description:
          - Virtual machine to clone on vSphere. Its GPU or vGPU profile determines the GPUs of the nodes.
        type: str
      accelerators: &accelerators
        description:
          - GPUs to attach to the machines on Google Cloud, for machine types without built-in GPUs.
        type: dict
        suboptions:
          type:
            description: Type of GPU, such as C(nvidia-tesla-t4).
            type: str
          count:
            description: Number of GPUs on each machine.
            type: int
      provider_spec: &provider_spec
        description:
          - Additional fields of the machines' C(providerSpec.value), such as C(numCPUs) and C(memoryMiB) on vSphere, or C(blockDevices) on AWS. Undeclared
            fields keep the values that they have in the MachineSet. A null value removes the field. Lists are replaced as a whole.
          - On Google Cloud, C(onHostMaintenance) is set to V(Terminate) unless it is declared, because machines with GPUs cannot be migrated.
        type: dict
      capacity: &capacity
        description:
          - Resources and labels that a future node of the group will have. The autoscaler needs these values because it cannot determine them while the group
            has no nodes. The module writes the annotations that all OpenShift releases read, with the values for the cluster's release.
          - The module does not write the annotations that the platform's own controller derives from the machine type.
        type: dict
        suboptions:
          resources:
            description: The amount of each extended resource of a node, such as V(4) for C(nvidia.com/gpu). By default, the amounts are unknown.
            type: dict
          labels:
            description: Labels that NFD and gpu-feature-discovery will set on a node. The autoscaler uses them to evaluate node selectors.
            type: dict
      node_labels: &node_labels
        description:
          - Labels of the nodes. Labels that other tools or users have set on the MachineSet are left unchanged. A null value removes the label. Labels that
            this module has set are removed when they are no longer declared.
          - The module also adds the zone's labels, because the autoscaler would not know them otherwise.
        type: dict
      node_taints: &node_taints
        description:
          - Taints of the nodes. Taints that other tools or users have set are left unchanged. Taints that this module has set are removed when they are no
            longer declared. An existing taint with the same key and effect gets the new value.
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
      adopt: &adopt
        description:
          - Whether to take over an existing MachineSet that has this name but was not created by this module. With V(false), the module fails if such a
            MachineSet exists.
        type: bool
  wait:
    description:
      - Whether to wait until all Machines of a changed group are running and all Machines that the change removes have been deleted.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for one group. After this time, the module fails. The error message lists the Machines that are stuck, how long they have been stuck,
        and why. Draining the group's nodes has a separate timeout.
    type: int
    default: 3600
  wait_sleep:
    description: Maximum number of seconds between two checks.
    type: int
    default: 5
  parallel:
    description: Maximum number of groups that are changed at the same time.
    type: int
    default: 32
  force:
    description:
      - Whether to change declared fields that another field manager (such as C(oc edit) or a GitOps tool) has set. A warning names the manager and the
        fields. With V(false), the module fails instead.
    type: bool
    default: true
  declared_names:
    description:
      - The groups with O(state=present) belong to pools. This list contains the names of all node groups that these pools declare, including groups that this
        call does not change. If this option is set, every managed MachineSet whose label C(accel.gpu/pool) contains the name of one of these pools must
        belong to a group in the list. Otherwise, the module fails before any change. This happens, for example, if a pool no longer declares the zone of a
        MachineSet.
    type: list
    elements: str
  name:
    description:
      - Name of the group and of its MachineSet. The name consists of at most 57 characters from C(a-z), C(0-9) and C(-).
      - Either this option or O(nodegroups) is required.
    type: str
  state:
    description:
      - Whether the group must exist. V(absent) drains the group's nodes and deletes the group's MachineSet.
      - If O(nodegroups) is set, this option and O(recreate) are the defaults for the groups that do not set them.
    type: str
    choices: [present, absent]
    default: present
  recreate:
    description:
      - Whether to replace the group if the settings of some of its Machines differ from the declaration. The replacement is necessary because a MachineSet
        applies changes only to new Machines. The new group, whose name ends with four hexadecimal digits, is created first. Then the old nodes are drained
        and the old group is deleted. RV(nodegroups) lists each group that is deleted. A group without a valid mark of the collection is deleted only with
        O(confirm).
    type: bool
    default: false
  node_count: *node_count
  min_node_count: *min_node_count
  max_node_count: *max_node_count
  like: *like
  zone: *zone
  flavor: *flavor
  template: *template
  accelerators: *accelerators
  provider_spec: *provider_spec
  capacity: *capacity
  node_labels: *node_labels
  node_taints: *node_taints
  adopt: *adopt
"""
