# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the option that confirms a deletion."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.confirm."""

    DOCUMENTATION = r"""
options:
  confirm:
    description:
      - Names of clusters for which you confirm that the module deletes something. Without the name of this cluster, the module lists what it would delete, and
        fails with the code V(not_confirmed) before it changes anything. The roles pass the variable C(gpu_confirm).
      - The name is C(gpu_cluster.name). If it is not set, modules of a cloud require the value of the option that selects the cluster, and other modules
        require the name of the cluster in the kubeconfig.
      - Check mode requires no confirmation, but shows a warning. A run that deletes nothing requires no confirmation either.
    type: list
    elements: str
    default: []
"""
