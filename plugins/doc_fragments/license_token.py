# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options with a client configuration token."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.license_token."""

    DOCUMENTATION = r"""
options:
  token:
    description:
      - The client configuration token of the NVIDIA License System, the content of its C(.tok) file. Neither the token nor a part of it is in results, diffs,
        messages and logs.
      - By default, the environment variable E(NLS_CLIENT_TOKEN).
    type: str
  token_path:
    description:
      - Path of a file with the token, instead of O(token). M(accel.gpu.license) resolves a relative path in the folder where C(ansible-playbook) was started.
    type: path
"""
