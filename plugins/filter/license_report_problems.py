# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: license_report_problems
short_description: List the reasons why the licensing of a cluster needs attention
version_added: 0.1.0
description:
  - Lists the C(problems) in RV(accel.gpu.license_info#module:license_info) as sentences. If the cluster could not be read, the filter reports that failure
    instead.
  - If the result also contains C(license_servers) from M(accel.gpu.license_server_info), the filter reports if all licenses are in use, unless every node has a
    license. If the result contains C(license_servers_failure), which is the error message of that module, the filter also reports this message.
positional: _input
options:
  _input:
    description: The result of M(accel.gpu.license_info), even if the module failed.
    type: dict
    required: true
seealso:
  - module: accel.gpu.license_info
  - plugin: accel.gpu.license_report_lines
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Fail if the licensing needs attention
  ansible.builtin.assert:
    that: licenses | accel.gpu.license_report_problems | length == 0
"""

RETURN = r"""
_value:
  description: The problems; empty if there are none.
  type: list
  elements: str
  sample: ["1 of 20 nodes have no verified license."]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.licensing.cluster import report_problems


def license_report_problems(report: t.Any) -> list[str]:
    """Return the problems of one cluster."""
    if not isinstance(report, t.Mapping):
        raise AnsibleFilterError("accel.gpu.license_report_problems needs the result of accel.gpu.license_info")
    return report_problems(report)


class FilterModule:
    """The filter accel.gpu.license_report_problems."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"license_report_problems": license_report_problems}
