# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options for the client configuration token."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.license_token."""

    DOCUMENTATION = r"""
options:
  token:
    description:
      - The client configuration token of the NVIDIA License System, that is, the content of the C(.tok) file. Results, diffs, messages and logs never contain
        the token or any part of it.
      - By default, the token is read from the environment variable E(NLS_CLIENT_TOKEN).
    type: str
  token_path:
    description:
      - Path to a file that contains the token. Use this option as an alternative to O(token). M(accel.gpu.license) resolves a relative path against the
        directory in which C(ansible-playbook) was started.
    type: path
"""
