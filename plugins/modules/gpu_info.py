#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a cluster from one list of its nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Tell which GPUs a cluster has, how they are shared, and whether the pools are as declared
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns for each GPU node its model, driver, sharing mode, replicas, and what it can allocate, from one paged list.
  - With O(gpu_pools), tells for each pool what it declares, what is seen, what M(accel.gpu.gpu_sharing) would change, and
    whether the pool has been proven by workloads since it last changed. Two small objects are read for that.
  - With O(include_workloads), tells who holds what, from one paged list of the pods that have not ended.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  limit:
    description: How many nodes to return one by one. Totals count all.
    type: int
    default: 100
  include_workloads:
    description: Whether to tell which pods hold the GPUs of each node.
    type: bool
    default: false
  include_impact:
    description: Whether to tell what the changes would cost, which needs O(gpu_pools). Reads the ClusterPolicy, and where something would
        change all pods that have not ended.
    type: bool
    default: false
  allow_release:
    description: As the option of M(accel.gpu.gpu_sharing), so that RV(gpu_info.release) tells whether a run would be refused.
    type: list
    elements: str
    default: []
  allow_unreachable:
    description: Whether a cluster that cannot be reached is no failure. RV(gpu_info.reachable) is then V(false), and the pools
        are told as far as they follow from the documents.
    type: bool
    default: false
seealso:
  - module: accel.gpu.gpu_sharing
  - plugin: accel.gpu.report_lines
    plugin_type: filter
  - plugin: accel.gpu.report_page
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Compare the cluster with its pools, and see who holds the GPUs
  accel.gpu.gpu_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    include_workloads: true
    limit: 5000
  register: fleet

- name: Keep all of it as JSON
  ansible.builtin.copy:
    content: "{{ fleet.gpu_info | to_nice_json }}"
    dest: ~/gpus.json
    mode: "0644"
"""

RETURN = r"""
gpu_info:
  description: The fleet.
  returned: always
  type: dict
  contains:
    cluster:
      description: Name of the cluster, from O(gpu_cluster) or the kubeconfig.
      type: str
      returned: always
    reachable: {description: Whether the cluster answered., type: bool, returned: always}
    reason: {description: Why it did not., type: str, returned: when it did not}
    identity: {description: "Which cluster it is: C(uid), C(recorded_name), C(name_to_record), C(server), C(origin).", type: dict, returned: reachable}
    totals:
      description: C(nodes), C(gpu_nodes), C(gpus) and C(allocatable) by resource.
      type: dict
      returned: when the cluster is reachable
    models:
      description: By model, C(nodes), C(gpus) and C(drivers).
      type: dict
      returned: when the cluster is reachable
    nodes:
      description: Up to O(limit) GPU nodes. C(mig) is null where the GPU has no MIG, else the C(config) that the node is to have, the
        MIG manager's C(state) of it, and the MIG C(devices) by profile. C(driver_upgrade) is how far the driver's upgrade is, or
        null. With O(gpu_pools), C(differs) is a list of short sentences, each what is not as the node's pool declares.
      type: list
      elements: dict
      returned: when the cluster is reachable
      sample:
        - name: t4-1
          pool: notebooks
          model: Tesla-T4
          gpus: 1
          memory_mib: 15360
          driver: 580.95.05
          driver_upgrade: upgrade-done
          mode: time-slicing
          replicas: 4
          config: time-slicing-4-1c2f0a9b
          allocatable: {nvidia.com/gpu: 4}
          capacity: {nvidia.com/gpu: 4}
          mig: null
          differs: ["label nvidia.com/gpu.replicas is 1, 4 is expected"]
          ready: true
          schedulable: true
    driver_upgrade:
      description: Nodes that a driver upgrade has not done yet, counted by C(states), and up to 100 that C(failed) or are C(skipped).
      type: dict
      returned: when the cluster is reachable
    nodes_not_shown: {description: How many GPU nodes are beyond O(limit)., type: int, returned: when the cluster is reachable}
    pools:
      description: What each pool declares, and of which node group its nodes are made (C(group), or null); with a cluster also what is seen
        (C(nodes), C(models), C(gpus), C(wanted) and C(allocatable), in all and for each of its C(resources)), into what its GPUs are cut and where
        the devices lie on the memory slices (C(cuts), whose C(gpus) are null as long as no node is known), what differs (C(differs),
        C(differing_nodes), C(as_declared)), what would change (C(changes)) and what workloads proved (C(proof)). With O(include_impact), C(impact) are how many
        C(drivers) would be rolled, how many C(pods) lose a GPU by that or cannot stay with the new sharing, how many of NVIDIA's C(agent_pods) start
        anew, on how many nodes GPUs are cut anew (C(cut_nodes)), and on how many of these they must be reset, or the node rebooted (C(resets)).
      type: dict
      returned: when O(gpu_pools) are given
    impact:
      description: The same for all nodes together, those of no pool too; C(reasons), why drivers are rolled, and C(max_parallel) how many
        at a time (V(0), only when somebody deletes their pods); C(release), the operator's version now and then, or null; C(held_back),
        whether drivers, and nothing else, wait for O(accel.gpu.cluster_policy#module:allow_driver_rollout).
      type: dict
      returned: when O(include_impact) are asked for and the cluster is reachable
    warnings:
      description: What is odd though no mistake, a sentence each. Nodes that are of several pools or have left theirs, empty
        pools, unknown models and releases, combinations known to break.
      type: list
      elements: str
      returned: when O(gpu_pools) are given
    drift:
      description: What is not as declared, up to 100 entries of C(pool) and C(what).
      type: list
      elements: dict
      returned: when O(gpu_pools) are given and the cluster is reachable
    installed:
      description: C(nfd) and C(operator), each as in RV(accel.gpu.operator_info#module:operator_info).
      type: dict
      returned: when O(gpu_pools) are given and the cluster is reachable
    steps:
      description: What would be done to each of up to 100 nodes, as in RV(accel.gpu.gpu_sharing#module:gpu_sharing).
      type: dict
      returned: when O(include_impact) are asked for and the cluster is reachable
    unusual_nodes:
      description: GPU nodes that are not waited for, as in RV(accel.gpu.gpu_sharing#module:gpu_sharing).
      type: list
      elements: dict
      returned: when O(gpu_pools) are given and the cluster is reachable
    undiscovered:
      description: GPU nodes that gpu-feature-discovery has not labelled yet, up to 100; with O(gpu_pools), without those among C(unusual_nodes).
      type: list
      elements: str
      returned: when the cluster is reachable
    overlaps:
      description: Nodes that several pools match, with those pools.
      type: dict
      returned: when O(gpu_pools) are given and the cluster is reachable
    released:
      description: Nodes that belong to no pool any more and still carry what a pool put there.
      type: list
      elements: str
      returned: when O(gpu_pools) are given and the cluster is reachable
    release:
      description: Of these, how many each of the C(pools) loses, the pool of up to 100 C(nodes), the C(pods) that are evicted for it (with O(include_impact)),
        how many nodes of each pool would be C(unshared) although no variable sets C(sharing.mode), and the C(refusal), why a run would do
        nothing as long as O(allow_release) does not allow it or C(sharing.mode) is not set, or an empty text.
      type: dict
      returned: when O(gpu_pools) are given and the cluster is reachable
    unclaimed:
      description: GPU nodes that no pool wants, up to 100.
      type: list
      elements: str
      returned: when O(gpu_pools) are given and the cluster is reachable
"""

import functools
import typing as t

from ..module_utils.catalog.names import LIVE_PODS
from ..module_utils.cluster_state import report_data, warnings
from ..module_utils.cluster_state.gpu_requests import gpu_requests
from ..module_utils.cluster_state.impact import total
from ..module_utils.cluster_state.node import Node, parse
from ..module_utils.common.errors import ConnectionProblem
from ..module_utils.gpu_operator.detect import Detection, detect
from ..module_utils.gpu_operator.restart_preview import preview_restarts
from ..module_utils.kube.cluster_identity import identity_report
from ..module_utils.kube.errors import ApiError
from ..module_utils.kube.module import GpuModule
from ..module_utils.kube.paths import NODES, PODS, object_path
from ..module_utils.pools.warnings import warnings as doubts
from ..module_utils.sharing.overview import Overview, add_membership, add_unusual, impact_preview, overview
from ..module_utils.validation import evidence

if t.TYPE_CHECKING:
    from ..module_utils.kube.client import Client


def work(module: GpuModule) -> dict[str, t.Any]:
    """One list, or what follows without a cluster."""
    told: dict[str, t.Any] = {"cluster": (module.params["gpu_cluster"] or {}).get("name")}
    if module.params["gpu_pools"] is not None:
        # Bad documents are told before the cluster is asked.
        told["pools"] = {pool.name: report_data.declared(pool) for pool in module.plan.pools}
        told["warnings"] = doubts(module.plan)
    nodes: list[Node] = []
    try:
        nodes = [parse(raw) for raw in module.client.list(NODES)]
    except (ApiError, ConnectionProblem) as error:
        reason = module.explain_error(error) if isinstance(error, ApiError) else str(error)
        away = isinstance(error, ConnectionProblem) or error.unreachable
        if not (away and module.params["allow_unreachable"]):
            raise
        told.update(reachable=False, reason=reason)
        return _limited(module, told, [])
    told["cluster"] = told["cluster"] or module.client.connection.cluster_name or module.client.server
    told.update(reachable=True, identity=identity_report(module.client, module.identity), **report_data.observed(nodes))
    told["undiscovered"] = [node.name for node in nodes if node.has_gpu and not node.discovered][: warnings.NAMES_LIMIT]
    pods = functools.cache(lambda: list(module.client.list(PODS, field_selector=LIVE_PODS)))
    held = gpu_requests(pods()) if module.params["include_workloads"] else None
    if module.params["gpu_pools"] is None:
        return _limited(module, told, report_data.rows(nodes, (), None, (), held))
    there = detect(module.client, module.plan)
    looks = module.params["include_workloads"] or module.params["include_impact"]
    found = overview(module.client, there.plan, nodes, pods if looks else None)
    plan, membership, changes = found.plan, found.membership, found.changes
    _tell(module.client, there, found, nodes, told)
    allowed = frozenset(module.params["allow_release"])
    told["release"] = changes.releases.as_dict(allowed, warnings.NAMES_LIMIT)
    if module.params["include_impact"]:
        rolls = preview_restarts(module.client, plan, there.policy)
        asked = pods() if changes.edits or rolls.restart.any else []
        counts, steps = impact_preview(module.client, found, nodes, rolls.restart, asked)
        for name, of_pool in told["pools"].items():
            of_pool["impact"] = counts[name]
        told["impact"] = rolls.as_dict(total(counts.values()))
        told["steps"] = {change.node: change.as_dict() for change in steps.node_changes[: warnings.NAMES_LIMIT]}
        told["release"] = steps.releases.as_dict(allowed, warnings.NAMES_LIMIT)
    return _limited(module, told, report_data.rows(nodes, plan.pools, membership, changes.edits, held))


def _tell(client: Client, there: Detection, found: Overview, nodes: list[Node], told: dict[str, t.Any]) -> None:
    """Add what the pools declare against what is seen."""
    plan, membership = found.plan, found.membership
    told["installed"] = {name: of.as_dict() for name, of in there.findings.items()}
    told["pools"] = report_data.pools(found.allocation, nodes, membership, found.changes.edits, found.geometries)
    kept = client.get(object_path("v1", "ConfigMap", plan.validation.configmap, plan.validation.namespace))
    for name, proof in evidence.validated_pools(plan, nodes, membership, kept).items():
        told["pools"][name]["proof"] = proof
    told["drift"] = report_data.drift(told["pools"])
    told["warnings"] = [*doubts(plan, warnings.traits(nodes)), *found.warnings]
    add_membership(found, nodes, told)
    add_unusual(client, found, nodes, told)


def _limited(module: GpuModule, told: dict[str, t.Any], rows: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    limit = module.params["limit"]
    if told["reachable"]:
        told.update(nodes=rows[:limit], nodes_not_shown=max(0, len(rows) - limit))
    return {"changed": False, "gpu_info": told}


def main() -> None:
    """Run the module."""
    spec: dict[str, dict[str, t.Any]] = {
        "limit": {"type": "int", "default": 100},
        "include_workloads": {"type": "bool", "default": False},
        "include_impact": {"type": "bool", "default": False},
        "allow_release": {"type": "list", "elements": "str", "default": []},
        "allow_unreachable": {"type": "bool", "default": False},
    }
    module = GpuModule(spec, variables=True)
    module.run(work)


if __name__ == "__main__":
    main()
