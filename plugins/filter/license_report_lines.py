# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: license_report_lines
short_description: Render the licensing of several clusters as lines of text
version_added: 0.1.0
description:
  - Renders the results of M(accel.gpu.license_info) as one table with a line for each cluster. The problems of each cluster are listed below the table.
  - If a result does not contain RV(accel.gpu.license_info#module:license_info), for example because the cluster is unreachable, its error message is shown.
  - If a result also contains RV(accel.gpu.license_server_info#module:license_servers), the table shows the number of licenses in the pools and the number of
    leases.
positional: _input
options:
  _input:
    description: A map from cluster names to the results of the module.
    type: dict
    required: true
  width:
    description: Maximum number of columns.
    type: int
    default: 100
seealso:
  - module: accel.gpu.license_info
  - module: accel.gpu.print_lines
  - plugin: accel.gpu.license_report_problems
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Show the licenses of two clusters
  accel.gpu.print_lines:
    lines: "{{ {'prod': licenses_of_prod, 'test': licenses_of_test} | accel.gpu.license_report_lines }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
  sample:
    - "CLUSTER  NODES  LICENSED  UNLICENSED  UNKNOWN  OUTDATED  TOKEN EXPIRES  DAYS LEFT  LICENSE SERVER"
    - "prod        20        20           0        0         0  2027-03-01           364  dls.example.com"
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.licensing.cluster import report_lines


def license_report_lines(reports: t.Any, width: int = 100) -> list[str]:
    """Return the lines of the table and of the problems."""
    if not isinstance(reports, t.Mapping) or not all(isinstance(item, t.Mapping) for item in reports.values()):
        raise AnsibleFilterError(
            "accel.gpu.license_report_lines needs a map of results of accel.gpu.license_info by cluster"
        )
    return report_lines(reports, int(width))


class FilterModule:
    """The filter accel.gpu.license_report_lines."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"license_report_lines": license_report_lines}
