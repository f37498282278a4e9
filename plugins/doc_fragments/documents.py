# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents that say what a cluster's pools are to be, beside C(cluster) of the fragment accel.gpu.kube."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.documents."""

    DOCUMENTATION = r"""
options:
  defaults:
    description:
      - What every pool has unless it says otherwise (C(gpu_defaults)); maps are merged, lists replaced.
    type: dict
  pools:
    description:
      - The pools (C(gpu_pools)). Needs O(cluster).
      - All mistakes of the documents are reported together, each with its path.
    type: list
    elements: dict
"""
