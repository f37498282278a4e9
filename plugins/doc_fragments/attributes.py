# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes that describe modules in check mode, in diff mode and in a second run."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.attributes."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Predicts what the run would change, and changes nothing.
  diff_mode:
    description: Shows the differences between the states before and after the run.
  idempotent:
    description: A second run with the same options changes nothing and sends no mutating request.
  action_group:
    description: Use C(group/accel.gpu.kube) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.kube
"""

    # In addition to the standard part, for modules that create and change objects.
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

    # In addition to the standard part, for modules that only read.
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

    # In addition to the standard part, for modules that acquire the Lease or report their progress. `make docs` writes their action plugins.
    PROGRESS = r"""
options: {}
attributes:
  progress:
    description: Shows its progress on stderr while it runs.
    support: full
"""
