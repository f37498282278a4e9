# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: approval_problems
short_description: List why an approved plan does not cover a run on a GPU cluster
version_added: 0.1.0
description:
  - In a workflow of AWX, the job of the playbook C(accel.gpu.plan) leaves its summaries in a variable C(gpu_plan_of_job_ID). The playbook
    C(accel.gpu.site) uses this filter to refuse clusters that were not in the plan, that the plan did not reach, or on which it would now do more than
    the plan has shown.
positional: _input
options:
  _input:
    description: The variables C(gpu_plan_of_job_ID) by name. Each contains the summaries of one job by the name of the cluster.
    type: dict
    required: true
  cluster:
    description: The name of the cluster, C(gpu_cluster.name).
    type: str
    required: true
  summary:
    description:
      - The summary of a plan at this time, from P(accel.gpu.report_summary#filter). Without it, the filter only checks whether the plans contain the cluster.
    type: dict
seealso:
  - plugin: accel.gpu.approved_plans
    plugin_type: lookup
  - plugin: accel.gpu.report_summary
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Refuse a cluster whose plan nobody has seen
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems | join(' ') }}"
  vars:
    problems: "{{ lookup('accel.gpu.approved_plans') | accel.gpu.approval_problems(cluster=gpu_cluster.name) }}"
"""

RETURN = r"""
_value:
  description: One sentence for each problem; empty if the approval covers the run.
  type: list
  elements: str
  sample: []
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.report.summary import approval_problems as problems_of


def approval_problems(plans: t.Any, cluster: str, summary: t.Any = None) -> list[str]:
    """Return why approved plans do not cover a run on this cluster."""
    if not isinstance(plans, t.Mapping):
        raise AnsibleFilterError("accel.gpu.approval_problems needs a dictionary of the variables gpu_plan_of_job_ID")
    if summary is not None and (not isinstance(summary, t.Mapping) or "declaration" not in summary):
        raise AnsibleFilterError(
            "accel.gpu.approval_problems: summary must be the result of accel.gpu.report_summary(kind='plan')"
        )
    return problems_of(plans, cluster, summary)


class FilterModule:
    """The filter accel.gpu.approval_problems."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"approval_problems": approval_problems}
