#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines for people; the action plugin of the same name prints them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: show
short_description: Print lines on the terminal
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Prints lines as they are, without quotes or braces around them, on the standard error output of C(ansible-playbook).
  - Whatever a callback plugin writes on the standard output (JSON, say) stays as it is.
  - Runs on the controller. Nothing is printed under C(no_log).
options:
  lines:
    description:
      - The lines.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - accel.gpu.attributes.info
attributes:
  check_mode:
    description: Prints in check mode too.
  diff_mode:
    description: There is nothing to compare.
  idempotent:
    description: Prints each time.
"""

EXAMPLES = r"""
- name: Show a report
  accel.gpu.print_lines:
    lines: "{{ gpu_info_result | accel.gpu.report_lines(kind='report') }}"
"""

RETURN = r"""
show:
  description: What was printed.
  returned: success
  type: dict
  contains:
    count:
      description: How many lines.
      type: int
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Count the lines; printing them is the action plugin's part."""
    module = AnsibleModule({"lines": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True)
    module.exit_json(changed=False, show={"count": len(module.params["lines"])})


if __name__ == "__main__":
    main()
