# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report_page
short_description: A fleet as one HTML page
version_added: 0.1.0
description:
  - Renders what M(accel.gpu.gpu_info) returned as one HTML page, with the pools and their verdicts, every node with its
    GPUs, shares or MIG devices as a drawing, what of these is free, and who holds the rest.
  - The page stands alone. It loads nothing from anywhere, and its Content-Security-Policy forbids it to. It works without
    JavaScript; a few lines of script search the nodes. It follows the reader's choice of dark or light.
  - Call M(accel.gpu.gpu_info) with O(accel.gpu.gpu_info#module:workloads=true) and a
    O(accel.gpu.gpu_info#module:limit) above the number of nodes. The page says what it was not given.
  - Nothing but the input is read. The same input gives the same page.
positional: _input
options:
  _input:
    description: The dictionary RV(accel.gpu.gpu_info#module:gpu_info), or what O(accel.gpu.gpu_info#module:report_path) holds.
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
- name: Look at the fleet
  accel.gpu.gpu_info:
    cluster: "{{ gpu_cluster }}"
    pools: "{{ gpu_pools }}"
    workloads: true
    limit: 10000
  register: fleet

- name: Write the page
  ansible.builtin.copy:
    content: "{{ fleet.gpu_info | accel.gpu.report_page }}"
    dest: /var/www/html/gpus.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.page.document import page


def report_page(info: t.Any) -> str:
    """The page of a fleet."""
    if not isinstance(info, t.Mapping):
        raise AnsibleFilterError("accel.gpu.report_page needs the dictionary that accel.gpu.gpu_info returns")
    return page(info)


class FilterModule:
    """The filter accel.gpu.report_page."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name and function."""
        return {"report_page": report_page}
