# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options for the Lease, which ensures that only one run at a time changes a cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.lease."""

    DOCUMENTATION = r"""
options:
  lease_wait_timeout:
    description:
      - Seconds to wait if another run is changing the cluster. With V(0), the module fails immediately. The default is C(gpu_cluster.lease.wait_timeout), or
        V(300) if that key is not set.
      - The Lease is acquired only if the module changes something, and never in check mode.
    type: int
  lease_namespace:
    description:
      - Namespace of the Lease C(accel-gpu). All runs that change the cluster must use the same namespace.
    type: str
    default: kube-system
"""
