# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents how modules behave in check mode, in diff mode and when they run a second time."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.attributes."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Predicts the changes that a run would make, without making them.
  diff_mode:
    description: Shows the differences between the state before and the state after the run.
  idempotent:
    description: A second run with the same options changes nothing and sends no mutating request.
  action_group:
    description: Use C(group/accel.gpu.kube) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.kube
"""

    # Modules that create and change objects use this part in addition to the standard part.
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

    # Modules that only read use this part in addition to the standard part.
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

    # Modules that acquire the Lease or report their progress use this part in addition to the standard part. `make docs` generates action plugins
    # for these modules.
    PROGRESS = r"""
options: {}
attributes:
  progress:
    description: Reports the progress on stderr while the module runs.
    support: full
"""
