# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options for waiting until a change has taken effect."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.wait."""

    DOCUMENTATION = r"""
options:
  wait:
    description:
      - Whether to wait until the cluster has the desired state.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait. After this time, the module fails. The result then contains the state that was reached and the conditions that are not met.
    type: int
    default: 600
  wait_sleep:
    description:
      - Seconds between two checks.
    type: int
    default: 2
"""
