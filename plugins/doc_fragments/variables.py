# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the variables gpu_cluster, gpu_defaults and gpu_pools as options of modules and filters."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.variables."""

    # The filters use this part, because they take the three variables as one map.
    FILTER_INPUT = r"""
options:
  _input:
    description:
      - The three variables. The role P(accel.gpu.pools#role) describes their keys.
    type: dict
    required: true
    suboptions:
      gpu_cluster:
        description: The settings that all pools of one cluster share, as in C(gpu_cluster).
        type: dict
        required: true
      gpu_defaults:
        description: Defaults for all pools, as in C(gpu_defaults).
        type: dict
        default: {}
      gpu_pools:
        description:
          - The pools, as in C(gpu_pools). Null is not allowed. An empty list means that there are no pools.
        type: list
        elements: dict
        required: true
"""

    # The option gpu_cluster is in the fragment accel.gpu.kube.
    DOCUMENTATION = r"""
options:
  gpu_defaults:
    description:
      - Defaults for all pools. They are merged into each pool. Maps are merged at every depth, and lists are replaced.
      - All keys of C(gpu_pools) are allowed, except C(name), C(nodes.name), C(sharing.layout) and C(sharing.demand).
    type: dict
  gpu_pools:
    description:
      - The pools of this cluster. The role P(accel.gpu.pools#role) describes their keys.
      - Required, except for M(accel.gpu.gpu_info), which returns only the actual state if the pools are missing.
      - Null is not allowed. An explicit empty list means that there are no pools.
      - All errors in C(gpu_cluster), C(gpu_defaults) and C(gpu_pools) are reported together, each with its path.
    type: list
    elements: dict
"""
