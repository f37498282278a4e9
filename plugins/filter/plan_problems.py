# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_problems
short_description: List all errors in gpu_cluster, gpu_defaults and gpu_pools
version_added: 0.1.0
description:
  - Checks C(gpu_cluster), C(gpu_defaults) and C(gpu_pools) and returns one line for each error. Each line begins with the path of the invalid value, and
    contains the rule and the remedy.
  - If the list is empty, P(accel.gpu.plan#filter) accepts the variables. The filter does not contact a cluster.
positional: _input
extends_documentation_fragment:
  - accel.gpu.variables.filter_input
seealso:
  - plugin: accel.gpu.plan
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Reject pools that cannot work, before anything is changed
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems }}"
  vars:
    problems: "{{ {'gpu_cluster': gpu_cluster, 'gpu_pools': gpu_pools} | accel.gpu.plan_problems }}"

# gpu_pools[2].sharing.replicas: 1 is not allowed: sharing needs at least 2 (NVIDIA device plugin); for whole GPUs,
# remove it and set mode: none
"""

RETURN = r"""
_value:
  description: One line for each error, in the order of the variables.
  type: list
  elements: str
  sample: ["gpu_pools[0].sharing.mode: \"timeslicing\" is not a valid value; did you mean time-slicing? known: none, time-slicing, mps, mig"]
"""

import typing as t

from ..module_utils.schema.variables import InvalidVariables, split_variables, validate


def plan_problems(variables: t.Any) -> list[str]:
    """Return all errors in the variables."""
    try:
        return validate(*split_variables(variables))
    except InvalidVariables as error:
        return error.problems


class FilterModule:
    """The filter accel.gpu.plan_problems."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"plan_problems": plan_problems}
