# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What check mode, diff mode and a second run mean for a module."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.attributes."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Predicts what the run would change, and changes nothing.
  diff_mode:
    description: Shows what differs, before and after.
  idempotent:
    description: A second run with the same options changes nothing and sends no request that could.
  action_group:
    description: Use C(group/accel.gpu.kube) in C(module_defaults) to say once how the cluster is reached.
    support: full
    membership:
      - accel.gpu.kube
"""

    # With the standard part: what makes and changes objects.
    MUTATING = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

    # With the standard part: what only reads.
    INFO = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: This module changes nothing.
  diff_mode:
    support: N/A
    details: This module changes nothing.
  idempotent:
    support: full
    details: This module changes nothing.
"""
