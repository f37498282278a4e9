#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings nodes to the sharing, labels and taints that their pools declare."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_profile
short_description: Bring GPU nodes to the sharing that their pools declare, and prove it
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Finds out which node belongs to which pool, and gives each its pool's labels, taints, device plugin configuration
    and MIG configuration, in one patch a node.
  - The entries of the device plugin's ConfigMap (the one that the ClusterPolicy names) and of the MIG manager's are added before any
    node names them, and those that no node names any more are collected at the end. Entries of others stay.
  - NVIDIA's MIG manager neither cordons nor drains, and fails while pods use a GPU that it is to cut; empty the nodes first.
  - The agents' copies of the ConfigMap lag by a minute or more; the agents' pods on the nodes that change are touched
    first, so that the kubelet renews the copies before a label names what is new in them.
  - Done means seen. The module waits until every node of every pool offers exactly the shares that the pool declares,
    no longer offers the resource of another mode, and carries the labels of gpu-feature-discovery that go with it.
  - A taint that the ClusterPolicy does not tolerate is held back and told in a warning, because NVIDIA's pods could not
    come back on its nodes. Where such a taint is already, it stays.
  - Where nothing differs, a list of the nodes, one of the ClusterPolicies and a look at each ConfigMap prove it. Nothing is sent.
  - Labels and taints that were on a node before stay. What the module puts is noted in annotations of the node, and is
    taken back when the pool no longer declares it or the node leaves the pool. No other node is touched.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.documents
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  wait:
    description:
      - Whether to wait until the nodes are seen to be as declared.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds after which the wait ends with a failure that says which nodes are not as declared, what is seen
        instead, since when, and what to do.
    type: int
    default: 600
  expected_policy:
    description:
      - What the ClusterPolicy will be by the time of the real run, as RV(accel.gpu.cluster_policy#module:cluster_policy) tells its
        C(tolerations) and C(configmaps); only used in check mode.
    type: dict
    default: {}
  report_path:
    description:
      - File for the whole result as JSON. What the module returns names up to 100 nodes.
    type: path
notes:
  - A node that several pools match is left as it is and told in a warning. Its label C(accel.gpu/pool) decides.
  - A node that is not ready gets its labels, and is neither waited for nor counted as proven.
seealso:
  - module: accel.gpu.cluster_policy
  - module: accel.gpu.gpu_info
  - module: accel.gpu.gpu_validation
"""

EXAMPLES = r"""
- name: Share the T4 nodes by four, leave the A100 nodes whole
  accel.gpu.node_profile:
    cluster: {name: prod, kubeconfig: ~/.kube/prod}
    pools:
      - name: notebooks
        match: {model: Tesla-T4}
        sharing: {mode: time-slicing, replicas: 4}
      - name: train
        match: {model: A100-SXM4-80GB}
        taints: [{key: restricted-access, value: "yes", effect: NoSchedule}]

- name: Do what the inventory says, without waiting, and keep the full list of nodes
  accel.gpu.node_profile:
    cluster: "{{ gpu_cluster }}"
    defaults: "{{ gpu_defaults | default({}) }}"
    pools: "{{ gpu_pools }}"
    wait: false
    report_path: /var/tmp/node_profile.json
"""

RETURN = r"""
node_profile:
  description: What was done, or in check mode would be done.
  returned: always
  type: dict
  contains:
    pools:
      description: By pool, the counts of its nodes (C(nodes), C(changed), C(proven)), its C(resource) (what most of it is
        offered as), how many shares are C(wanted) and C(allocatable) in all, and the same for each of its C(resources).
      type: dict
      returned: always
      sample: {notebooks: {nodes: 4, changed: 4, proven: 4, resource: nvidia.com/gpu, wanted: 16, allocatable: 16}}
    changed_nodes:
      description: Names of up to 100 nodes that were changed.
      type: list
      elements: str
      returned: always
    changed_count:
      description: How many nodes were changed.
      type: int
      returned: always
    released_nodes:
      description: Those of them that belong to no pool any more and gave back its labels and taints.
      type: list
      elements: str
      returned: always
    failed:
      description: The message for each node that could not be changed.
      type: dict
      returned: always
    not_as_declared:
      description: What is not as declared, a line a node.
      type: list
      elements: str
      returned: always
    not_ready:
      description: Nodes of the pools that are not ready.
      type: list
      elements: str
      returned: always
    held_back:
      description: By pool, the taints that were held back (C(key=value:Effect)).
      type: dict
      returned: always
      sample: {train: ["restricted-access=yes:NoSchedule"]}
    config_entries:
      description: Entries of the two ConfigMaps that were C(added) and C(collected).
      type: dict
      returned: always
    refreshed_pods:
      description: How many pods of NVIDIA's agents were made to renew their copy of the ConfigMap.
      type: int
      returned: always
    overlaps:
      description: Nodes that several pools match, with those pools.
      type: dict
      returned: always
    empty_pools:
      description: Pools without a node.
      type: list
      elements: str
      returned: always
    undeclared_pins:
      description: Nodes whose label C(accel.gpu/pool) names no declared pool, by that name.
      type: dict
      returned: always
    mismatched:
      description: Nodes pinned to a pool whose match does not fit them, by pool.
      type: dict
      returned: always
    after_discovery:
      description: What depends on hardware that is not discovered yet (C(nodes), C(nodes_count), C(pools)).
      type: dict
      returned: when there is such
    unchecked:
      description: Why the server did not check the changes in check mode.
      type: str
      returned: in check mode, when the user has no right to a dry run
    report_path:
      description: The file with the whole result.
      type: str
      returned: when O(report_path) is given
"""

import contextlib
import json
import time
import typing as t

from ..module_utils.kube.module import ArgumentSpec, GpuModule, diff_of
from ..module_utils.kube.wait import TimeoutStory
from ..module_utils.operator.survey import follow_cluster
from ..module_utils.sharing.result import after_discovery, result, warnings
from ..module_utils.sharing.rollout import Expected, Fleet, Rollout
from ..module_utils.sharing.story import story

if t.TYPE_CHECKING:
    from ..module_utils.fleet.proof import Finding


def work(module: GpuModule) -> dict[str, t.Any]:
    """Preview in check mode, else apply and prove."""
    module.plan = follow_cluster(module.client, module.plan)
    policy = module.params["expected_policy"] if module.check_mode else {}
    expected = Expected(tuple(policy.get("tolerations") or ()), tuple(policy.get("configmaps") or ()))
    rollout = Rollout(module.client, module.plan, module.run_id, module.progress, expected)
    fleet = rollout.read()
    before, after = fleet.profile.diff()
    if module.check_mode:
        return _preview(module, rollout, fleet)
    findings: dict[str, Finding] = {}
    try:
        fleet, findings = _converge(module, rollout, fleet)
    except Exception as error:
        fleet, findings = rollout.latest or (fleet, rollout.findings(fleet))
        error.partial = {  # type: ignore[attr-defined]
            "node_profile": _result(module, rollout, fleet, findings),
            "changed": rollout.done.any,
            **getattr(error, "partial", {}),
        }
        raise
    for text in warnings(module.plan, fleet):
        module.warn(text)
    return {
        "changed": rollout.done.any,
        "node_profile": _result(module, rollout, fleet, findings),
        "diff": diff_of(before, after, "node_profile"),
    }


def _preview(module: GpuModule, rollout: Rollout, fleet: Fleet) -> dict[str, t.Any]:
    told = result(module.plan, fleet, rollout.findings(fleet), None)
    later = after_discovery(module.plan, fleet)
    if later:
        told["after_discovery"] = later
    unchecked = rollout.preview(fleet)
    if unchecked:
        told["unchecked"] = unchecked
    for text in warnings(module.plan, fleet):
        module.warn(text)
    before, after = fleet.profile.diff()
    if later:
        after["after_discovery"] = later
    return {
        "changed": fleet.profile.changed or bool(later),
        "node_profile": told,
        "diff": diff_of(before, after, "node_profile"),
    }


def _converge(module: GpuModule, rollout: Rollout, fleet: Fleet) -> tuple[Fleet, dict[str, Finding]]:
    """Apply and follow until nothing differs, nodes that are discovered on the way included."""
    deadline = time.monotonic() + module.params["wait_timeout"]
    with contextlib.ExitStack() as stack:
        lease = None
        while True:
            if fleet.profile.changed:
                if lease is None:
                    lease = stack.enter_context(module.lease())
                    # Another run may have changed the cluster while this one waited for its lease.
                    fleet = rollout.read()
                    deadline = time.monotonic() + module.params["wait_timeout"]
                rollout.apply(fleet, lease)
            applied = fleet
            findings = rollout.findings(fleet)
            undiscovered: list[str] = []
            if module.params["wait"]:
                fleet, findings, undiscovered = rollout.seen(fleet, deadline)
            if rollout.done.failed or findings or undiscovered:
                _give_up(module, rollout, findings, undiscovered)
            if not fleet.profile.changed or fleet.profile is applied.profile:
                break
        if lease is not None:
            rollout.collect(applied, lease)
    return fleet, findings


def _give_up(module: GpuModule, rollout: Rollout, findings: dict[str, Finding], undiscovered: list[str]) -> None:
    if rollout.done.failed:
        failed = "; ".join(f"{name}: {why}" for name, why in sorted(rollout.done.failed.items())[:5])
        raise TimeoutStory(f"{len(rollout.done.failed)} node(s) could not be changed: {failed}")
    if not module.params["wait"]:
        return
    told = story(module.client, module.plan, findings, undiscovered, rollout.since)
    raise TimeoutStory(
        f"{len(findings) + len(undiscovered)} node(s) are not as their pools declare "
        f"(wait_timeout {module.params['wait_timeout']} s):\n{told}"
    )


def _result(module: GpuModule, rollout: Rollout, fleet: Fleet, findings: dict[str, Finding]) -> dict[str, t.Any]:
    told = result(module.plan, fleet, findings, rollout.done)
    path = module.params["report_path"]
    if path:
        with open(path, "w", encoding="utf-8") as handle:
            json.dump(result(module.plan, fleet, findings, rollout.done, limit=None), handle, indent=1)
        told["report_path"] = path
    return told


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 600},
        "report_path": {"type": "path"},
        "expected_policy": {"type": "dict", "default": {}},
    }
    module = GpuModule(spec, documents=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
