# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a module waits until what it changed can be seen."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.wait."""

    DOCUMENTATION = r"""
options:
  wait:
    description:
      - Whether to wait until the cluster is as it should be.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait. When they are over the module fails, with what was reached and what is missing.
    type: int
    default: 600
  wait_sleep:
    description:
      - Seconds between two looks.
    type: int
    default: 2
"""
