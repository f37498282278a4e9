# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report_page
short_description: Render an HTML report of a GPU cluster
version_added: 0.1.0
description:
  - Renders the result of M(accel.gpu.gpu_info) as one HTML page. It shows the pools and their state, and draws every node with its GPUs, shares or MIG
    devices, the free units, and the pods that request the remaining units.
  - The page is one self-contained file. Its Content-Security-Policy forbids external resources. It works without JavaScript, except for the search. It follows
    the browser's dark or light mode.
  - Call M(accel.gpu.gpu_info) with O(accel.gpu.gpu_info#module:include_workloads=true) and a O(accel.gpu.gpu_info#module:limit) above the number of nodes.
    The page lists the data that is missing.
  - The filter reads only its input. The same input always results in the same page.
positional: _input
options:
  _input:
    description: The dictionary RV(accel.gpu.gpu_info#module:gpu_info), or the content of the JSON file of the role P(accel.gpu.report#role).
    type: dict
    required: true
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
    include_workloads: true
    limit: 10000
  register: cluster_state

- name: Write the page
  ansible.builtin.copy:
    content: "{{ cluster_state.gpu_info | accel.gpu.report_page }}"
    dest: /var/www/html/gpus.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The page.
  type: str
  sample: "<!doctype html>"
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..plugin_utils.report_page.render import render


def report_page(info: t.Any) -> str:
    """Return the page as HTML."""
    if not isinstance(info, t.Mapping) or "pools" not in info:
        raise AnsibleFilterError("accel.gpu.report_page needs the value gpu_info of the result of accel.gpu.gpu_info")
    return render(info)


class FilterModule:
    """The filter accel.gpu.report_page."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"report_page": report_page}
