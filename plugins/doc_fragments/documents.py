# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents that say what a cluster's pools are to be, beside C(cluster) of the fragment accel.gpu.kube."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.documents."""

    DOCUMENTATION = r"""
options:
  gpu_defaults:
    description:
      - What every pool has unless it says otherwise (C(gpu_defaults)); maps are merged, lists replaced.
    type: dict
  gpu_pools:
    description:
      - The pools (C(gpu_pools)). Needs O(gpu_cluster). An empty list says that there are no pools; that is not the same as leaving the option out.
      - All mistakes of the documents are reported together, each with its path.
    type: list
    elements: dict
"""
    # For the filters, which take the three documents as their input.
    FILTER_INPUT = r"""
options:
  _input:
    description:
      - The three documents. What they may hold is described by the role P(accel.gpu.pools#role).
    type: dict
    required: true
    suboptions:
      gpu_cluster:
        description: What all pools of one cluster share, as in C(gpu_cluster).
        type: dict
        required: true
      gpu_defaults:
        description: What is merged into every pool, as in C(gpu_defaults). Lists are replaced, maps merged.
        type: dict
        default: {}
      gpu_pools:
        description:
          - The pools, as in C(gpu_pools). Required, and null is refused. An empty list says that there are no pools.
        type: list
        elements: dict
        required: true
"""
