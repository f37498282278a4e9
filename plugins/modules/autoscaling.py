#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configures OpenShift's cluster autoscaler for the pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: autoscaling
short_description: Configure OpenShift's cluster autoscaler to scale the MachineSets of the pools
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Creates one MachineAutoscaler for each MachineSet of the pools with C(autoscale). If a pool has several zones, each of its MachineSets gets a share of the
    pool's range.
  - If the cluster has no ClusterAutoscaler, the module creates the ClusterAutoscaler C(default) with delays that are long enough for a driver installation.
    In an existing ClusterAutoscaler, the module sets only the fields that C(gpu_cluster.autoscaler) declares and the entries of C(resourceLimits.gpus) for
    the GPU types of the pools. All other fields and entries are left unchanged.
  - The limit for a GPU type is the number of GPUs that the pools of this type have in total if each pool reaches its maximum number of nodes. If more GPUs
    are already in use, the limit is the number of GPUs in use. The module owns only the entries that it records in the annotation C(accel.gpu/gpu-limits).
  - Adds the MachineSets of pools with C(autoscale.priority) to the ConfigMap C(cluster-autoscaler-priority-expander). Foreign expressions in this ConfigMap
    are kept.
  - MachineAutoscalers that this module manages have the label C(accel.gpu/nodegroup). A managed MachineAutoscaler that no pool declares any longer is
    reported and kept.
  - Waits until the Cluster Autoscaler Operator has written the range of each MachineAutoscaler into the corresponding MachineSet.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  state:
    description:
      - V(present) configures the autoscaler. V(absent) deletes the MachineAutoscalers that this module has created or adopted for the pools. It also deletes
        the pools' limits and priorities. The ClusterAutoscaler and the MachineSets are kept.
    type: str
    choices: [present, absent]
    default: present
  pool_names:
    description: Names of the pools whose MachineAutoscalers are changed. By default, all pools. The limits always take all pools into account.
    type: list
    elements: str
    default: []
  nodegroups:
    description:
      - The return value C(nodegroups) of M(accel.gpu.machineset) from the same run. It is used only in check mode, to preview the MachineSets that the run
        creates or changes.
    type: dict
    default: {}
  force:
    description:
      - Whether to change declared fields, ranges and limits that another field manager has set to a different value. By default, such values are not changed,
        and a warning names the fields and the manager.
    type: bool
    default: false
  adopt:
    description:
      - Whether to manage an existing foreign MachineAutoscaler for a MachineSet of a pool. With V(true), the module sets the range of this MachineAutoscaler
        to that of the pool. By default, a foreign MachineAutoscaler is not changed, and a warning names it.
    type: bool
    default: false
  wait_timeout:
    description: Seconds to wait for the Cluster Autoscaler Operator. After this time, the module fails and lists the MachineSets whose range is missing.
    type: int
    default: 120
notes:
  - Only pools with C(nodes) in a cluster with C(gpu_cluster.cloud.machineset) are scaled by this autoscaler. Without C(gpu_cluster.cloud.machineset), the
    module does nothing.
  - If there are no differences, the module reads up to three objects in addition to the lists of the MachineSets, the MachineAutoscalers and the nodes with
    GPUs.
  - In check mode, the module previews the MachineSets that the same run creates (see O(nodegroups)), and predicts the limits from the pools. If a pool does
    not determine the number of GPUs on each node, the limit is unknown until the MachineSet exists.
seealso:
  - module: accel.gpu.machineset
  - module: accel.gpu.gpu_info
"""

EXAMPLES = r"""
- name: Configure the cluster autoscaler to scale the MachineSets of the pools
  accel.gpu.autoscaling:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_defaults: "{{ gpu_defaults | default({}) }}"
    gpu_pools: "{{ gpu_pools }}"

- name: Stop scaling one pool
  accel.gpu.autoscaling:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    pool_names: [notebooks]
    state: absent
    confirm: [prod]
"""

RETURN = r"""
autoscaling:
  description: The autoscaler's objects after the run or, in check mode, the predicted objects. After a timeout, this value contains the objects that were
    written.
  returned: success
  type: dict
  contains:
    objects:
      description: The action for each object, which is V(unchanged), V(created), V(updated) or V(deleted). Each key consists of the kind, the namespace and
        the name of the object.
      type: dict
      returned: always
      sample: {"ClusterAutoscaler default": updated, "MachineAutoscaler openshift-machine-api/notebooks": created}
    machine_sets:
      description: The pool, the range and the MachineAutoscaler of each MachineSet that is scaled.
      type: dict
      returned: always
      contains:
        NAME:
          description: 'The entry for one MachineSet, with its name as the key.'
          type: dict
          returned: always
          contains:
            pool: {description: Pool of the MachineSet., type: str, returned: always, sample: notebooks}
            min: {description: Minimum number of nodes., type: int, returned: always, sample: 0}
            max: {description: Maximum number of nodes., type: int, returned: always, sample: 6}
            machine_autoscaler: {description: Name of the MachineAutoscaler., type: str, returned: always, sample: notebooks}
    limits:
      description: The desired maximum number of GPUs, by GPU type (label C(cluster-api/accelerator)).
      type: dict
      returned: always
      sample: {Tesla-T4-SHARED: 24}
    undeclared:
      description: MachineAutoscalers that this collection manages and that no pool declares any longer. They are kept.
      type: list
      elements: str
      returned: always
      sample: [openshift-machine-api/former]
    unmanaged:
      description: Foreign MachineAutoscalers for MachineSets of the pools.
      type: list
      elements: str
      returned: always
      sample: [openshift-machine-api/by-hand]
    unchecked:
      description: The reason why the API server did not validate the changes in check mode.
      type: str
      returned: in check mode, if the user is not allowed to send a dry run
      sample: "not checked by the server: this user is not allowed to send a dry run"
code:
  description:
    - The reason for the failure. V(timeout) - the Cluster Autoscaler Operator did not write the ranges within O(wait_timeout).
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options or variables, a missing MachineSet, or a cluster without the Machine API. V(wrong_cluster) - the connection points to
      a different cluster. V(connection) - no usable connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds
      the Lease. V(lease_lost) - this run lost the Lease. For all other errors of the API server, the code is the HTTP status.
  returned: failure
  type: raw
  sample: timeout
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["Pool notebooks: there is no MachineSet notebooks in namespace openshift-machine-api."]}
"""

import typing as t

from ..module_utils.core.messages import abbreviate
from ..module_utils.core.module import CONFIRM
from ..module_utils.core.waits import WaitOptions
from ..module_utils.nodegroups.autoscaling import AutoscalingRun, ScalingOptions
from ..module_utils.pools.module import PlanModule

_SPEC: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "pool_names": {"type": "list", "elements": "str", "default": []},
    "nodegroups": {"type": "dict", "default": {}},
    "force": {"type": "bool", "default": False},
    "adopt": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 120},
    **CONFIRM,
}


def work(module: PlanModule) -> dict[str, t.Any]:
    """Compare the objects with the pools, send the differences, and wait for the operator."""
    params = module.params
    options = ScalingOptions(
        params["state"] == "present", frozenset(params["pool_names"] or ()), params["force"], params["adopt"]
    )
    predicted = params["nodegroups"] if module.check_mode else {}
    run = AutoscalingRun(
        None if module.plan.autoscaler is None else module.client, module.plan, options, predicted or {}
    )
    run.compare()
    deleted = run.deleted()
    if deleted and params["state"] == "absent":
        module.require_confirmation(
            f"This ends the autoscaling of node groups on cluster {module.name_to_confirm()} and deletes {abbreviate(deleted)}."
        )
    for text in run.planned.warnings:
        module.warn(text)
    if run.planned.changed and module.check_mode:
        run.preview()
    elif run.planned.changed:
        with module.lease() as lease:
            run.apply(lease)
    if params["wait"] and not module.check_mode:
        run.await_bounds(WaitOptions(params["wait_timeout"], params["wait_sleep"], module.progress))
    return run.result()


def main() -> None:
    """Run the module."""
    PlanModule(_SPEC, wait=True, lease=True).run(work)


if __name__ == "__main__":
    main()
