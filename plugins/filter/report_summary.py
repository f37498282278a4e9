# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report_summary
short_description: Summarize a report or plan of a GPU cluster for the next job of a workflow
version_added: 0.1.0
description:
  - Returns a few numbers from the result of M(accel.gpu.gpu_info), which the role P(accel.gpu.report#role) adds to the statistics of the run. AWX passes
    them to the next job, and shows them to the person who approves a plan.
  - The summary contains no names of nodes, pods or images. Its size does not depend on the number of nodes.
positional: _input
options:
  _input:
    description: The dictionary RV(accel.gpu.gpu_info#module:gpu_info).
    type: dict
    required: true
  kind:
    description: V(plan) adds the impact of the changes.
    type: str
    choices: [report, plan]
    default: report
  nodegroups:
    description:
      - For a plan, the result of the module that manages the cloud's node groups, such as M(accel.gpu.magnum_nodegroup), in check mode.
    type: dict
    default: {}
  declaration:
    description:
      - For a plan, the variables that describe the cluster and its pools. The summary has a hash of them, by which the playbook C(accel.gpu.site) recognizes
        that they have changed since the approval.
    type: dict
    default: {}
seealso:
  - module: accel.gpu.gpu_info
  - plugin: accel.gpu.report_lines
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Read the state of the cluster
  accel.gpu.gpu_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    include_impact: true
  register: cluster_state

- name: Show the impact of a run
  ansible.builtin.debug:
    msg: "{{ (cluster_state.gpu_info | accel.gpu.report_summary(kind='plan')).text }}"
"""

RETURN = r"""
_value:
  description: The summary.
  type: dict
  contains:
    result: {description: 'V(as_declared), V(drift), or V(unreachable).', type: str, sample: as_declared}
    reachable: {description: Whether the cluster was reached., type: bool, sample: true}
    gpu_nodes: {description: Number of nodes with GPUs., type: int, sample: 4}
    gpus: {description: Number of GPUs., type: int, sample: 16}
    drift: {description: Number of differences from the declaration., type: int, sample: 0}
    drift_pools: {description: The first pools with differences., type: list, elements: str, sample: []}
    warnings: {description: Number of warnings., type: int, sample: 0}
    impact:
      description: For a plan, the numbers of pods, drivers and nodes that the changes affect.
      type: dict
      contains:
        driver_restarts: {description: Number of nodes whose driver restarts., type: int, sample: 2}
        pods: {description: Number of pods that lose their GPU., type: int, sample: 3}
        repartitioned_nodes: {description: Number of nodes that are partitioned anew., type: int, sample: 0}
        created_nodes: {description: Number of nodes to create., type: int, sample: 0}
        removed_nodes: {description: Number of nodes to remove from node groups that remain., type: int, sample: 0}
        deleted_nodegroups: {description: Node groups to delete with their nodes., type: list, elements: str, sample: [old (3 nodes)]}
    changes:
      description: For a plan, what changes in each pool and node group. Pools and node groups without a change are not listed.
      type: dict
      contains:
        NAME:
          description: The numbers that are not 0.
          type: dict
          contains:
            nodes: {description: Number of nodes to change., type: int, sample: 2}
            pods: {description: Number of pods that lose their GPU., type: int, sample: 3}
            driver_restarts: {description: Number of nodes whose driver restarts., type: int, sample: 2}
            repartitioned_nodes: {description: Number of nodes that are partitioned anew., type: int, sample: 1}
            created: {description: Number of nodes to create in a node group., type: int, sample: 1}
            removed: {description: Number of nodes to remove from a node group., type: int, sample: 1}
    unknown: {description: 'For a plan, what could not be read.', type: list, elements: str, sample: []}
    uid: {description: 'For a plan, the UID of the namespace kube-system, by which the cluster is recognized.', type: str, sample: ''}
    declaration: {description: 'For a plan, the hash of O(declaration).', type: str, sample: 5f70bf18a0860070}
    text:
      description: For a plan, the impact as a sentence.
      type: str
      sample: "Pods that lose their GPU: 3; nodes whose driver restarts: 2."
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.report.facts import KINDS
from ..module_utils.report.summary import summary
from ..module_utils.schema.variables import plain


def report_summary(
    info: t.Any, kind: str = "report", nodegroups: t.Any = None, declaration: t.Any = None
) -> dict[str, t.Any]:
    """Return the summary of a plan or a report."""
    if not isinstance(info, t.Mapping) or "reachable" not in info:
        raise AnsibleFilterError(
            "accel.gpu.report_summary needs the value gpu_info of the result of accel.gpu.gpu_info"
        )
    if kind not in KINDS:
        raise AnsibleFilterError(f"accel.gpu.report_summary: kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    return summary(info, kind, nodegroups or {}, plain(declaration) or {})


class FilterModule:
    """The filter accel.gpu.report_summary."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"report_summary": report_summary}
