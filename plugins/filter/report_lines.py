# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report_lines
short_description: Render a report or plan of a GPU cluster as lines of text
version_added: 0.1.0
description:
  - Renders the result of M(accel.gpu.gpu_info) as a table of the pools that is at most O(width) columns wide, and as lines that describe the state or the
    changes of each pool.
  - The filter reads only its input.
positional: _input
options:
  _input:
    description: The dictionary RV(accel.gpu.gpu_info#module:gpu_info).
    type: dict
    required: true
  kind:
    description:
      - V(report) shows the actual state and drift. V(plan) shows the changes that a run would make.
    type: str
    choices: [report, plan]
    default: report
  width:
    description: Maximum number of columns.
    type: int
    default: 100
  nodegroups:
    description:
      - The result of the module that manages the cloud's node groups, such as M(accel.gpu.magnum_nodegroup), in check mode. The plan then includes the changes
        to node groups. If the module failed, the plan shows the cloud as unreachable.
    type: dict
    default: {}
  applied:
    description:
      - Whether the autoscaler has been configured. Set V(false) if M(accel.gpu.autoscaling) ran in check mode. The report then also describes how pools scale
        from zero after the real run.
    type: bool
    default: true
  licenses:
    description: The dictionary RV(accel.gpu.license_info#module:license_info), if the run has read the licenses of the vGPU nodes. The report then includes its
      summary.
    type: dict
    default: {}
seealso:
  - module: accel.gpu.gpu_info
  - module: accel.gpu.print_lines
  - plugin: accel.gpu.report_page
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Read the state of the cluster
  accel.gpu.gpu_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
  register: cluster_state

- name: Show what a run would change
  accel.gpu.print_lines:
    lines: "{{ cluster_state.gpu_info | accel.gpu.report_lines(kind='plan') }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
  sample: ["Report of cluster lab", ""]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.report.facts import KINDS
from ..module_utils.report.text import lines


def report_lines(
    info: t.Any,
    kind: str = "report",
    width: int = 100,
    nodegroups: t.Any = None,
    applied: bool = True,
    licenses: t.Any = None,
) -> list[str]:
    """Return the lines of a plan or a report."""
    if not isinstance(info, t.Mapping) or "pools" not in info:
        raise AnsibleFilterError("accel.gpu.report_lines needs the value gpu_info of the result of accel.gpu.gpu_info")
    if kind not in KINDS:
        raise AnsibleFilterError(f"accel.gpu.report_lines: kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    return lines(
        {**info, "nodegroups": nodegroups or {}, "licenses": licenses or {}}, kind, int(width), applied=applied
    )


class FilterModule:
    """The filter accel.gpu.report_lines."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"report_lines": report_lines}
