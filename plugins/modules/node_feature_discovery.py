#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configures the NodeFeatureDiscovery of OpenShift's NFD operator."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_feature_discovery
short_description: Configure the NodeFeatureDiscovery of OpenShift's NFD operator for the pools, and wait until the workers run
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - If the cluster has no NodeFeatureDiscovery, creates one from the example in the operator's ClusterServiceVersion (annotation C(alm-examples)) and the fields
    in C(gpu_cluster.nfd.values). NFD then sets the label by which the GPU operator finds GPU nodes.
  - Adds tolerations for the pools' taints to C(spec.operand.workerTolerations). The annotation C(accel.gpu/tolerations) records the added entries. When no pool
    has a taint any longer, the module removes the corresponding entry, but only if the annotation records it. If the module did not create the object, all
    other fields are left unchanged.
  - If the CustomResourceDefinition of an older operator release has no field for worker tolerations, the module adds no tolerations. The workers of these
    releases tolerate every taint with the effect NoSchedule. A warning names the pools' taints that have other effects.
  - Waits until NFD's master and workers run, and until the master has labeled as many nodes as there are workers.
notes:
  - The module configures only one NodeFeatureDiscovery. If the cluster has several, the module configures the oldest one in NFD's namespace or, if there is
    none, the oldest one in the cluster.
  - "If nothing differs, the module lists each of the following only once: the NodeFeatureDiscoveries, the Deployments and DaemonSets in the namespace of the
    configured object, and the names of the nodes."
  - In check mode, if the cluster does not have the operator yet and O(expected) contains the kind NodeFeatureDiscovery, the C(after) state in the diff contains
    only the fields that the variables determine. The object that the real run creates also contains the fields from the operator's example.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.expected
  - accel.gpu.variables
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
seealso:
  - module: accel.gpu.olm_subscription
  - module: accel.gpu.cluster_policy
"""

EXAMPLES = r"""
- name: Let NFD discover the GPU nodes of all pools
  accel.gpu.node_feature_discovery:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_defaults: "{{ gpu_defaults | default({}) }}"
    gpu_pools: "{{ gpu_pools }}"
"""

RETURN = r"""
node_feature_discovery:
  description: The NodeFeatureDiscovery and the workloads of NFD. After a timeout, only the workloads are returned.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the object.
      type: str
      returned: always
      sample: nfd-instance
    namespace:
      description: Namespace of the object.
      type: str
      returned: always
      sample: openshift-nfd
    created:
      description: Whether the module created the object in this run or, in check mode, would create it.
      type: bool
      returned: always
      sample: false
    tolerations:
      description: The workers' tolerations in the object after the change.
      type: list
      elements: dict
      returned: always
      contains:
        key: {description: Key of the taint., type: str, returned: if set, sample: nvidia.com/gpu}
        operator: {description: V(Exists) or V(Equal)., type: str, returned: if set, sample: Exists}
        value: {description: Value of the taint., type: str, returned: if set, sample: 'yes'}
        effect: {description: Effect of the taint., type: str, returned: if set, sample: NoSchedule}
    workloads:
      description: The numbers of ready and required pods for the master and for the workers; empty if the module did not wait.
      type: dict
      returned: always
      sample: {"DaemonSet nfd-worker": 5/5, "Deployment nfd-master": 1/1}
    unchecked:
      description: The reason why the API server did not validate the changes in check mode.
      type: str
      returned: in check mode, if the user is not allowed to send a dry run
      sample: "not checked by the server: this user is not allowed to send a dry run"
code:
  description:
    - The reason for the failure. V(timeout) - NFD is not ready after O(wait_timeout).
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no
      usable connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost
      the Lease. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: timeout
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import typing as t

from ..module_utils.core.messages import diff_of
from ..module_utils.core.waits import WaitOptions
from ..module_utils.gpu_operator.detect import adapt_plan
from ..module_utils.gpu_operator.node_feature_discovery import API_VERSION, KIND, DiscoveryChange, DiscoveryClient
from ..module_utils.kube.errors import retry_conflicts
from ..module_utils.kube.objects import InvalidObjects
from ..module_utils.pools.module import PlanModule


def work(module: PlanModule) -> dict[str, t.Any]:
    """Compare the object with the pools, send the difference, and wait for the workers."""
    if module.plan.nfd.olm is None:
        module.plan = adapt_plan(module.client, module.plan, None)
    cluster = DiscoveryClient(module.client, module.plan)
    change = _compare(module, cluster)
    unchecked = None
    if change.changed:
        change, unchecked = _send(module, cluster, change)
    for warning in cluster.warnings():
        module.warn(warning)
    workloads: dict[str, str] = {}
    if module.params["wait"] and not module.check_mode:
        waiting = WaitOptions(module.params["wait_timeout"], module.params["wait_sleep"], module.progress)
        workloads = cluster.await_workers(waiting)
    return {
        "changed": change.changed,
        "node_feature_discovery": {
            "name": cluster.name,
            "namespace": cluster.namespace,
            "created": change.is_new,
            "tolerations": cluster.tolerations(change),
            "workloads": workloads,
            **({"unchecked": unchecked} if unchecked else {}),
        },
        "diff": diff_of(change.before, change.after, f"{KIND} {cluster.namespace}/{cluster.name}"),
    }


def _send(module: PlanModule, cluster: DiscoveryClient, change: DiscoveryChange) -> tuple[DiscoveryChange, str | None]:
    """Send the change, and compute it again after a conflict. Return the sent change, and the reason why the server did not validate it."""
    with module.lease() as lease:

        def send(change: DiscoveryChange) -> tuple[DiscoveryChange, str | None]:
            lease.check()
            return change, cluster.send(change, check=module.check_mode) if change.changed else None

        return retry_conflicts(send, change, lambda: _compare(module, cluster)) or (change, None)


def _compare(module: PlanModule, cluster: DiscoveryClient) -> DiscoveryChange:
    change = cluster.compare()
    if not cluster.has_kind and (API_VERSION, KIND) not in module.expected.kinds:
        raise InvalidObjects(
            [
                "The cluster has no kind NodeFeatureDiscovery: install NFD's operator first (role accel.gpu.nfd, or module accel.gpu.olm_subscription)."
            ]
        )
    return change


def main() -> None:
    """Run the module."""
    PlanModule(expected=True, wait=True, lease=True).run(work)


if __name__ == "__main__":
    main()
