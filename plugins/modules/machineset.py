#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manages MachineSets, the node groups of an OpenShift cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: machineset
short_description: Create, scale, relabel, replace and delete MachineSets of GPU nodes on OpenShift
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reconciles one or more MachineSets with their declarations. The MachineSets are processed in parallel. A new MachineSet is a copy of an existing one
    with the declared changes. The module does not change undeclared fields or MachineSets that it has not created or adopted.
  - A managed MachineSet has the label C(accel.gpu/nodegroup) with the declared name, and the annotation C(accel.gpu/nodegroup-mark) with a checksum of its
    UID. A copy has another UID, so it is never changed or deleted. The annotation C(accel.gpu/registration) records the labels, taints and annotations that
    this module has set, so that only these entries are removed later.
  - The labels and taints of a pool are set in the MachineSet's template, so that nodes register with them. The annotations that the autoscaler needs to scale
    the MachineSet from zero nodes are written for all releases of OpenShift.
  - Before the first change, the module validates all declarations, and the API server validates all changes in a dry run. In check mode, the module stops after
    this validation.
  - A change to the machine settings applies only to new Machines. If existing Machines have different settings, the module shows a warning. With
    O(replace_outdated), it replaces these Machines, some at a time; with O(recreate), it replaces the node group, which needs room for all Machines twice.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.machineset
  - accel.gpu.vsphere.vcenter
  - accel.gpu.drain.option
  - accel.gpu.lease
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  replace_outdated:
    description:
      - Whether Machines whose settings differ from those of new Machines are replaced in their MachineSet, after all other changes, instead of a replacement
        of the node group (O(recreate)). Requires O(confirm), because the pods on their nodes are evicted.
      - The Machines of a pool are replaced in batches. A batch is drained, and the MachineSet is scaled down by its Machines and, once they are gone, up
        again. Then the module waits until the new Machines are running, and their nodes are ready and offer GPUs if those of the batch did. If a new
        Machine does not start, no further node is drained.
      - Machines without a node come first. A Machine that has the present settings is never replaced, so a run after a killed one continues.
    type: bool
    default: false
  surge:
    description:
      - With O(replace_outdated), whether each batch begins with the new Machines, and the old ones are drained once the new nodes are ready. This needs free
        GPUs, licenses and quota for a batch. If an additional Machine does not start, it is removed, and the module fails without a drain.
      - Not possible for Machines whose number an autoscaler chooses.
    type: bool
    default: false
  rollouts:
    description:
      - The pace of O(replace_outdated) by the name of the pool, which is the label C(accel.gpu/pool) in O(node_labels). The keys are those of a pool's
        C(rollout), of which C(max_unavailable), C(order) and C(limit) are used. By default, one Machine of a pool is replaced at a time.
    type: dict
    default: {}
notes:
  - Nodes are drained before their Machines are removed by a scale-down, a replacement or a deletion. Machines without a node are removed first.
  - If the Machine API does not create a Machine, or its node does not join, the error message contains the reason that the Machine reports and the remedy.
seealso:
  - module: accel.gpu.machineset_info
  - module: accel.gpu.nodegroup_nodes
"""

EXAMPLES = r"""
- name: Create two nodes with one T4 each on AWS, from a copy of the worker MachineSet of a zone
  accel.gpu.machineset:
    name: inference
    like: prod-7x2kd-worker-us-east-2a
    flavor: g4dn.xlarge
    node_count: 2
    node_labels: {accel.gpu/pool: inference}
    node_taints:
      - {key: nvidia.com/gpu, value: present, effect: NoSchedule}

- name: Create vGPU nodes on vSphere that the autoscaler can scale from zero
  accel.gpu.machineset:
    name: desktops
    template: rhcos-a100-10c
    provider_spec: {numCPUs: 16, memoryMiB: 131072}
    min_node_count: 0
    max_node_count: 4
    node_labels: {cluster-api/accelerator: A100-10C}
    capacity: {resources: {nvidia.com/gpu: 1}}

- name: Reconcile all MachineSets of the pools in one call
  accel.gpu.machineset:
    gpu_cluster: "{{ gpu_cluster }}"
    nodegroups: "{{ plan.nodegroups }}"
    declared_names: "{{ plan.nodegroups | map(attribute='name') }}"
  vars:
    plan: "{{ {'gpu_cluster': gpu_cluster, 'gpu_pools': gpu_pools} | accel.gpu.plan }}"
"""

RETURN = r"""
nodegroups:
  description:
    - The declared node groups. Each key is a declared name, and its value is the current state or, in check mode, the predicted state of the group. C(action)
      is V(none), V(create), V(update), V(recreate) or V(delete). After a replacement, C(name) has a suffix. C(like) is the MachineSet from which a new group is
      copied.
    - C(annotations) describe the group's future nodes to the autoscaler. C(outdated) lists the Machines whose settings differ from those of new Machines.
      C(failure) is the reason why a group failed.
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
        id: {description: ID of the group., type: str, returned: if the group exists, sample: train}
        name: {description: Name of the group. It has a suffix after a replacement., type: str, returned: always, sample: train}
        status: {description: Status of the group., type: str, returned: if the group exists, sample: READY}
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
        deletes: {description: 'The groups that are deleted with their nodes: the group itself, or the groups that it replaces.', type: list,
          elements: str, returned: if any group is deleted, sample: [train (2 nodes)]}
        adopted_nodes: {description: 'Nodes that did not register with the label of the pool, because their Machines are older than the declaration.',
          type: list, elements: str, returned: if there are any, sample: [prod-7x2kd-gpu-a-x7k2p]}
        failure: {description: The reason why the group failed., type: str, returned: if the group failed, sample: The quota is exceeded.}
rollouts:
  description: The Machines that were replaced or, in check mode, would be replaced, by pool.
  returned: with O(replace_outdated)
  type: dict
  contains:
    POOL:
      description: 'The entry for one pool. The key is the name of the pool.'
      type: dict
      returned: if any of its Machines is outdated
      contains:
        batches:
          description: The batches in their order, each a list of Machines with the keys C(name) and C(node).
          type: list
          elements: list
          returned: always
          sample: [[{name: vdi-a-x7k2p, node: vdi-a-x7k2p}]]
        remaining: {description: 'Machines that are still outdated, because of C(limit) or a failure.', type: list, elements: str, returned: always, sample: []}
nodegroup:
  description: The group that O(name) selects, with the same keys as an entry of RV(nodegroups).
  returned: with O(name)
  type: dict
  contains: *group
code:
  description:
    - The reason for the failure.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options, or the cluster has no Machine API. V(partial) - some node groups could not be changed. V(timeout) - see
      O(wait_timeout).
    - V(wrong_cluster) - the connection points to a different cluster than O(gpu_cluster) declares. V(connection) - no usable connection settings.
      V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the
      HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: timeout
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["Node group train: like: MachineSet prod-worker-a does not exist."]}
"""

import contextlib
import functools
import typing as t

from ..module_utils.catalog.openshift import NAMESPACE_OPTION
from ..module_utils.clouds.machine_rollout import MachineRollout, rollout_settings, with_rollouts
from ..module_utils.clouds.machineset_groups import MachineApi, MachineSetProvider, ask_vcenter
from ..module_utils.clouds.machinesets import FIELDS
from ..module_utils.core.errors import InvalidOptions, PartialFailure
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.kube.module import GpuModule
from ..module_utils.licensing.container import LicenseReturn
from ..module_utils.nodegroups.module import DRAIN, NodeDrainingModule, reconcile_nodegroups, reconcile_options
from ..module_utils.vsphere.connection import VCENTER

if t.TYPE_CHECKING:
    from ..module_utils.clouds.machine_rollout import PoolRollout
    from ..module_utils.kube.client import Client
    from ..module_utils.nodegroups.spec import NodeGroupSpec
    from ..module_utils.nodes.drain import NodeRemoval

_SPEC: ArgumentSpec = {
    **NAMESPACE_OPTION,
    **DRAIN,
    **VCENTER,
    **FIELDS.argument_spec,
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 3600},
    "wait_sleep": {"type": "int", "default": 5},
    "force": {"type": "bool", "default": True},
    "declared_names": {"type": "list", "elements": "str"},
    "replace_outdated": {"type": "bool", "default": False},
    "surge": {"type": "bool", "default": False},
    "rollouts": {"type": "dict", "default": {}},
}


class MachineSetModule(GpuModule, NodeDrainingModule):
    """A Kubernetes module that drains nodes."""

    def node_removal(self, client: Client) -> NodeRemoval:
        """Return the work that is required before nodes are removed: vGPU nodes return their licenses."""
        return LicenseReturn(client, self.warn)


def work(module: MachineSetModule) -> dict[str, t.Any]:
    """Choose the MachineSets to copy, and reconcile the groups."""
    params = module.params
    replaces = params["replace_outdated"]
    settings = rollout_settings(params["rollouts"])
    if replaces and not params["wait"]:
        raise InvalidOptions(["wait: replace_outdated waits for each new machine; set wait: true"])
    api = MachineApi(module.client, params["namespace"])
    provider = MachineSetProvider(
        api,
        change_foreign=params["force"],
        start_failures=functools.partial(ask_vcenter, module),
        report=module.progress.report,
        waits=params["wait"],
    )
    specs = provider.specs_of(FIELDS.declared_groups(params), params["declared_names"], replaces_outdated=replaces)
    try:
        if not replaces or module.drainer is None:
            return reconcile_nodegroups(module, provider, specs)
        options = reconcile_options(params)
        rollout = MachineRollout(api, provider, module.drainer, options, module.progress, params["surge"])
        return replace_machines(module, rollout, rollout.plan(settings), provider, specs)
    finally:
        for text in provider.warnings:
            module.warn(text)


def replace_machines(
    module: MachineSetModule,
    rollout: MachineRollout,
    planned: t.Sequence[PoolRollout],
    provider: MachineSetProvider,
    specs: t.Sequence[NodeGroupSpec],
) -> dict[str, t.Any]:
    """Reconcile the groups, and then replace the outdated Machines in them."""
    machines = [machine for each in planned for machine in each.machines]
    if machines:
        name = module.name_to_confirm()
        module.require_confirmation(
            f"This replaces {len(machines)} machine(s){f' of cluster {name}' if name else ''}, and evicts the pods on their nodes: "
            f"{', '.join(map(str, machines))}."
        )
    replaces = bool(machines) and not module.check_mode
    with rollout.drainer.lease.held() if replaces else contextlib.nullcontext():
        result = with_rollouts(reconcile_nodegroups(module, provider, specs), planned)
        if replaces:
            try:
                rollout.run(planned)
            except PartialFailure as error:
                error.partial = {**result, **error.partial}
                raise
    return result


def main() -> None:
    """Run the module."""
    MachineSetModule(_SPEC, lease=True, **FIELDS.constraints).run(work)


if __name__ == "__main__":
    main()
