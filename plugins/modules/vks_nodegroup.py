#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node groups of a VKS cluster as they are declared."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_nodegroup
short_description: Create, change and delete node groups of a VNG Cloud VKS cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Brings one node group, or many of one cluster side by side, to what is declared; what is not declared stays as it is.
  - All of it is found possible before anything is sent. Names are looked up in the cluster's VPC and the subnet's zone, one that means
    several things is refused with their ids, and a flavor that is sold out, or a quota that is too small, is told.
  - Done means seen. The module waits until the group shows what was asked for, is ACTIVE, and has as many nodes ready as it wants.
  - A request whose answer was lost is not believed to have failed. Before a group is asked for again, the list is read again by name.
  - Fields that VKS cannot change are refused by name, unless O(recreate) allows another group in this one's place.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.vks_nodegroup
  - accel.gpu.drain
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
notes:
  - VKS chooses which nodes go when a group gets smaller; with O(kubernetes) nothing can be emptied before.
  - Names cost requests for their look-ups in every run; ids cost none.
seealso:
  - module: accel.gpu.vks_nodegroup_info
  - module: accel.gpu.vks_catalog_info
"""

EXAMPLES = r"""
- name: Two L40S machines that the autoscaler may make four of, with the pool's label from registration
  accel.gpu.vks_nodegroup:
    cluster: prod
    name: inference
    flavor: g4-standard-16x64-1L40s
    disk_type: nvme-iops3000
    ssh_key: ops
    subnet: gpu-1b
    num_nodes: 2
    min_size: 1
    max_size: 4
    labels: {accel.gpu/pool: inference}
    taints:
      - {key: nvidia.com/gpu, value: present, effect: NoSchedule}

- name: Exactly three of them, and no autoscaling any more
  accel.gpu.vks_nodegroup:
    cluster: prod
    name: inference
    num_nodes: 3

- name: Another flavor, by another group that takes this one's place
  accel.gpu.vks_nodegroup:
    cluster: prod
    name: inference
    flavor: g4-standard-32x128-2L40s
    recreate: true
    kubernetes: {kubeconfig: ~/.kube/prod}

- name: Many at once
  accel.gpu.vks_nodegroup:
    cluster: prod
    nodegroups: "{{ gpu_plan.nodegroups }}"
"""

RETURN = r"""
nodegroups:
  description: The groups by the names that were asked for, as they are, or in check mode would be.
  returned: always
  type: dict
  sample:
    train: {action: create, id: ng-0b5c, name: train, status: ACTIVE, num_nodes: 2, min_size: 0, max_size: null, flavor: flav-52a1}
nodegroup:
  description: The one group, where O(name) was given.
  returned: with O(name)
  type: dict
  contains:
    action:
      description: V(none), V(create), V(update), V(recreate) or V(delete).
      type: str
      returned: always
    id:
      description: VNG Cloud's id.
      type: str
      returned: when there is a group
    name:
      description: What it is called; another name than the one asked for after a replacement.
      type: str
      returned: when there is a group
    status:
      description: C(ACTIVE) and others.
      type: str
      returned: when there is a group
    num_nodes:
      description: How many nodes it is to have.
      type: int
      returned: when there is a group
    min_size:
      description: The least number of nodes; 0 without autoscaling.
      type: int
      returned: when there is a group
    max_size:
      description: The most nodes; null without autoscaling.
      type: int
      returned: when there is a group
    failure:
      description: Why it could not be brought there.
      type: str
      returned: on failure
"""

import typing as t

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.drain.module import KUBERNETES
from ..module_utils.nodegroups.reconciler import ReconcileOptions, reconcile
from ..module_utils.providers.vks.module import WAIT
from ..module_utils.providers.vks.nodegroup_module import VksNodeGroupModule
from ..module_utils.providers.vks.options import GROUP, GROUPS, groups_of
from ..module_utils.providers.vks.provider import VksProvider

# A request that was accepted and shows no effect after so many looks is taken for lost.
_LOOKS = 4


def work(module: VksNodeGroupModule) -> dict[str, t.Any]:
    """Read, resolve, check, and bring the groups there."""
    params = module.params
    cloud = VksProvider(
        module.transport,
        module.vserver,
        module.cluster(params["cluster"]),
        patience=float(_LOOKS * max(1, params["wait_sleep"])),
    )
    brought = reconcile(
        cloud,
        cloud.wishes(groups_of(params)),
        check_mode=module.check_mode,
        pace=ReconcileOptions(params["wait"], params["wait_timeout"], params["wait_sleep"], params["parallel"]),
        emptier=module.drainer,
        progress=module.progress,
    )
    for text in brought.warnings:
        module.warn(text)
    result = brought.result()
    if params["name"] is not None:
        result["nodegroup"] = result["nodegroups"][params["name"]]
    return result


def main() -> None:
    """Run as a module."""
    spec: ArgumentSpec = {
        **WAIT,
        **KUBERNETES,
        **GROUP,
        "cluster": {"type": "str", "required": True},
        "nodegroups": GROUPS,
        "parallel": {"type": "int", "default": 32},
    }
    module = VksNodeGroupModule(
        spec,
        mutually_exclusive=[("name", "nodegroups")],
        required_one_of=[("name", "nodegroups")],
    )
    module.run(work)


if __name__ == "__main__":
    main()
