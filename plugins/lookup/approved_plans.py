# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: approved_plans
short_description: Read the plans that precede a run in a workflow of AWX
version_added: 0.1.0
description:
  - In a workflow of AWX, the job of the playbook C(accel.gpu.plan) leaves its summaries in a variable C(gpu_plan_of_job_ID), which AWX passes as an extra
    variable to the next jobs. The playbook C(accel.gpu.site) reads these variables with this lookup.
  - Variables of the inventory are ignored, because whoever edits the inventory could otherwise approve a change.
options: {}
seealso:
  - plugin: accel.gpu.approval_problems
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Show the jobs whose plans precede this run
  ansible.builtin.debug:
    msg: "{{ lookup('accel.gpu.approved_plans').keys() | list }}"
"""

RETURN = r"""
_raw:
  description: One dictionary with the variables C(gpu_plan_of_job_ID) by name. Each contains the summaries of one job by the name of the cluster.
  type: list
  elements: dict
  contains:
    gpu_plan_of_job_ID: {description: 'The result of P(accel.gpu.report_summary#filter) for each cluster of the job.', type: raw, sample: {}}
"""

import re
import typing as t

from ansible.plugins.lookup import LookupBase
from ansible.utils.vars import load_extra_vars

_NAME = re.compile(r"gpu_plan_of_job_[0-9]+")


class LookupModule(LookupBase):
    """The lookup accel.gpu.approved_plans."""

    def run(
        self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **dummy: t.Any
    ) -> list[dict[str, t.Any]]:
        """Return the plans among the extra variables."""
        extra = load_extra_vars(self._loader)
        return [{name: value for name, value in extra.items() if _NAME.fullmatch(name)}]
