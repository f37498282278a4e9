# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: absolute_path
short_description: Make a path on this machine absolute
version_added: 0.1.0
description:
  - Returns the absolute path of a file that a user specifies on the command line or in the inventory. A relative path starts from the directory in which
    Ansible was started, and C(~) is the home directory.
  - Tasks with the connection C(local) run in the directory of the playbook, so a module would resolve a relative path from that directory.
  - For an empty path or null, returns an empty string, so that you can append C(default(omit, true)).
positional: _input
options:
  _input:
    description: The path.
    type: path
    required: true
seealso:
  - module: accel.gpu.gpu_pools_export
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Write the pools of the cluster to a file in the current directory
  accel.gpu.gpu_pools_export:
    gpu_cluster: "{{ gpu_cluster }}"
    path: "{{ 'pools.yml' | accel.gpu.absolute_path }}"
"""

RETURN = r"""
_value:
  description: The absolute path, or an empty string.
  type: str
  sample: /home/ops/pools.yml
"""

import os
import typing as t

from ansible.errors import AnsibleFilterError


def absolute_path(path: t.Any) -> str:
    """Return the absolute path. Symbolic links in the given path are not resolved, so that modules can reject them."""
    if path is None or path == "":
        return ""
    if not isinstance(path, str):
        raise AnsibleFilterError(f"accel.gpu.absolute_path: {path!r} is not a path; specify it as a string")
    return os.path.join(os.path.realpath("."), os.path.expanduser(path))


class FilterModule:
    """The filter accel.gpu.absolute_path."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"absolute_path": absolute_path}
