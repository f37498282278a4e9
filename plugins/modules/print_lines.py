#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts lines; the action plugin of the same name prints them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: print_lines
short_description: Print lines to the terminal
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Prints lines to the standard error stream of C(ansible-playbook), without quotes or braces around them.
  - Writes nothing to standard output, because a callback plugin may write JSON to it.
  - Runs on the controller. Prints nothing if C(no_log) is set.
options:
  lines:
    description:
      - The lines to print.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - accel.gpu.attributes.info
attributes:
  check_mode:
    description: Also prints the lines in check mode.
  diff_mode:
    description: There is nothing to compare.
  idempotent:
    description: Prints the lines in each run.
seealso:
  - plugin: accel.gpu.report_lines
    plugin_type: filter
  - module: ansible.builtin.debug
"""

EXAMPLES = r"""
- name: Read the state of the cluster
  accel.gpu.gpu_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
  register: cluster_state

- name: Show a report
  accel.gpu.print_lines:
    lines: "{{ cluster_state.gpu_info | accel.gpu.report_lines }}"
"""

RETURN = r"""
print_lines:
  description: Information about the printed lines.
  returned: success
  type: dict
  contains:
    count:
      description: Number of printed lines.
      type: int
      returned: always
      sample: 12
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Count the lines. The action plugin prints them."""
    module = AnsibleModule({"lines": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True)
    module.exit_json(changed=False, print_lines={"count": len(module.params["lines"])})


if __name__ == "__main__":
    main()
