#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the MachineSets of an OpenShift cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: machineset_info
short_description: List the MachineSets of an OpenShift cluster and their Machines
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the MachineSets of a namespace, and the Machines that each MachineSet has created. The fields correspond to the options of M(accel.gpu.machineset).
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.vsphere.vcenter
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  namespace:
    description: Namespace of the MachineSets.
    type: str
    default: openshift-machine-api
  names:
    description: Names of the MachineSets to return. By default, all MachineSets are returned. MachineSets that do not exist are omitted.
    type: list
    elements: str
seealso:
  - module: accel.gpu.machineset
"""

EXAMPLES = r"""
- name: List the MachineSets and their Machines, including failed ones
  accel.gpu.machineset_info:
    gpu_cluster: "{{ gpu_cluster }}"
  register: result

- name: Show problems with Machines
  ansible.builtin.debug:
    msg: "{{ result.nodegroups.values() | map(attribute='problems') | flatten }}"
"""

RETURN = r"""
nodegroups:
  description:
    - The MachineSets, with their names as keys. The fields correspond to the options of M(accel.gpu.machineset).
    - C(group) is the declared name of the node group, or null if this collection does not manage the MachineSet. C(pool) is the value of the label
      C(accel.gpu/pool) with which the nodes register.
    - C(machines) lists the Machines of the MachineSet with their phases and nodes. C(problems) describes the Machines that are not running, and the remedies.
      C(autoscaler) is the MachineAutoscaler that scales the MachineSet.
  returned: always
  type: dict
  contains:
    NAME:
      description: 'The entry for one MachineSet. The key is the name of the MachineSet.'
      type: dict
      returned: always
      contains:
        id: {description: Name of the MachineSet., type: str, returned: always, sample: train}
        name: {description: Name of the MachineSet., type: str, returned: always, sample: train}
        status: {description: Status of the MachineSet., type: str, returned: always, sample: FAILED}
        group: {description: Declared name of the node group; null if this collection does not manage the MachineSet.,
          type: str, returned: always, sample: train}
        pool: {description: Pool in the label with which the nodes register; null if there is none., type: str, returned: always, sample: train}
        platform: {description: Platform of the C(providerSpec); null if it is unknown., type: str, returned: always, sample: AWS}
        zone: {description: Zone of the machines; null if it is unknown., type: str, returned: always, sample: us-east-2a}
        autoscaler: {description: Name of the MachineAutoscaler; null if there is none., type: str, returned: always, sample: null}
        machines:
          description: The Machines of the MachineSet.
          type: list
          elements: dict
          returned: always
          contains:
            name: {description: Name of the Machine., type: str, returned: always, sample: train-x7k2p}
            phase: {description: Phase of the Machine., type: str, returned: always, sample: Running}
            node: {description: Node of the Machine; null if the Machine has no node yet., type: str, returned: always, sample: null}
        problems: {description: 'Problems of the Machines, one sentence each.', type: list, elements: str, returned: always,
          sample: ['Machine train-x7k2p has failed (InsufficientResources: quota exceeded).']}
        node_count: {description: Number of nodes., type: int, returned: always, sample: 2}
        min_node_count: {description: Minimum number of nodes for the autoscaler., type: int, returned: always, sample: 0}
        max_node_count: {description: Maximum number of nodes for the autoscaler; null if there is no maximum., type: int, returned: always, sample: null}
        flavor: {description: Machine type., type: str, returned: always, sample: g4dn.xlarge}
        template: {description: Template of the virtual machines; null on platforms without templates., type: str, returned: always, sample: null}
        accelerators: {description: Accelerators that are attached to the machines; null if there are none., type: dict,
          returned: always, sample: null}
        provider_spec: {description: 'The declared fields of the C(providerSpec), by path.', type: dict, returned: always, sample: {}}
        managed: {description: Whether this collection manages the MachineSet., type: bool, returned: always, sample: true}
        annotations: {description: 'The annotations that describe a node to the autoscaler, or that record the labels, taints and annotations that this
          collection has set.', type: dict, returned: always, sample: {machine.openshift.io/GPU: '4'}}
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
        outdated: {description: Machines whose settings differ from those of new Machines., type: list, elements: str,
          returned: if there are any, sample: [train-x7k2p]}
code:
  description:
    - The reason for the failure.
    - V(invalid) - the cluster has no Machine API. V(wrong_cluster) - the connection points to a different cluster than O(gpu_cluster) declares.
      V(connection) - no usable connection settings. V(unreachable) - the API server does not respond. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["The cluster has no MachineSet API (machine.openshift.io/v1beta1), and this run does not create it."]}
"""

import functools
import typing as t

from ..module_utils.catalog.openshift import NAMESPACE_OPTION
from ..module_utils.clouds.machineset_groups import MachineApi, ask_vcenter, machinesets_info
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.kube.module import GpuModule
from ..module_utils.vsphere.connection import VCENTER

_SPEC: ArgumentSpec = {**NAMESPACE_OPTION, **VCENTER, "names": {"type": "list", "elements": "str"}}


def work(module: GpuModule) -> dict[str, t.Any]:
    """List the MachineSets with their Machines."""
    names = module.params["names"]
    machinesets = machinesets_info(
        MachineApi(module.client, module.params["namespace"]), functools.partial(ask_vcenter, module)
    )
    return {
        "changed": False,
        "nodegroups": {name: group for name, group in machinesets.items() if names is None or name in names},
    }


def main() -> None:
    """Run the module."""
    GpuModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
