#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MachineSets of an OpenShift cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: machineset_info
short_description: List the MachineSets of an OpenShift cluster and their Machines
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads all MachineSets of a namespace, with the options of M(accel.gpu.machineset), and the Machines that each MachineSet has created.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  namespace:
    description: Namespace of the MachineSets.
    type: str
    default: openshift-machine-api
  names:
    description: Names of the MachineSets. By default, all MachineSets. Names that do not exist are left out.
    type: list
    elements: str
seealso:
  - module: accel.gpu.machineset
"""

EXAMPLES = r"""
- name: List the MachineSets, and read their Machines, with those that have failed
  accel.gpu.machineset_info:
    gpu_cluster: "{{ gpu_cluster }}"
  register: result
"""

RETURN = r"""
nodegroups:
  description:
    - The MachineSets by name, with the options of M(accel.gpu.machineset). C(group) is the declared name of the node group if this collection manages the
      MachineSet, otherwise null. C(pool) is the pool whose label its nodes register with. C(machines) are its Machines with their phase and node.
      C(problems) describe the Machines that are not running, and the remedies. C(autoscaler) is the MachineAutoscaler that scales it.
  returned: always
  type: dict
  sample:
    train:
      id: train
      name: train
      status: FAILED
      group: train
      pool: train
      platform: AWS
      zone: us-east-2a
      autoscaler: null
      node_count: 1
      flavor: g4dn.xlarge
      machines: [{name: train-x7k2p, phase: Failed, node: null}]
      problems: ["Machine train-x7k2p has failed (InsufficientResources: quota exceeded)."]
code:
  description:
    - Reason of the failure.
    - V(invalid) - the cluster has no Machine API. V(wrong_cluster) - the connection leads to a different cluster than O(gpu_cluster) declares.
      V(connection) - no usable connection settings. V(unreachable) - the API server does not respond. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["The cluster has no MachineSets (machine.openshift.io/v1beta1)."]}
"""

import typing as t

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.kube.module import GpuModule
from ..module_utils.providers.machineset.client import MachineApi
from ..module_utils.providers.machineset.fields import NAMESPACE
from ..module_utils.providers.machineset.info import machinesets_info

_SPEC: ArgumentSpec = {**NAMESPACE, "names": {"type": "list", "elements": "str"}}


def work(module: GpuModule) -> dict[str, t.Any]:
    """List the MachineSets with their Machines."""
    names = module.params["names"]
    found = machinesets_info(MachineApi(module.client, module.params["namespace"]))
    return {
        "changed": False,
        "nodegroups": {name: group for name, group in found.items() if names is None or name in names},
    }


def main() -> None:
    """Run the module."""
    GpuModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
