#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a VKS cluster has a kubeconfig, and until when."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_kubeconfig_info
short_description: Tell whether a VNG Cloud VKS cluster has a kubeconfig, and when it ends
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the state of the kubeconfig that VKS has of a cluster. What is in it is not returned.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
seealso:
  - module: accel.gpu.vks_kubeconfig
"""

EXAMPLES = r"""
- name: How long is the kubeconfig good for?
  accel.gpu.vks_kubeconfig_info:
    cluster: prod
  register: found
"""

RETURN = r"""
kubeconfig:
  description: The state of the kubeconfig.
  returned: always
  type: dict
  contains:
    cluster:
      description: The cluster's C(id) and C(name).
      type: dict
      returned: always
    status:
      description: V(NONE), V(CREATING), V(ACTIVE) or V(ERROR).
      type: str
      returned: always
    expires_at:
      description: When it ends, as the service says it; null where it does not.
      type: str
      returned: always
    renewal_warning:
      description: Whether the service warns that it ends soon.
      type: bool
      returned: always
"""

import typing as t

from ..module_utils.providers.vks import kubeconfig
from ..module_utils.providers.vks.module import VksModule


def work(module: VksModule) -> dict[str, t.Any]:
    """Read and tell."""
    cluster = module.cluster(module.params["cluster"])
    found = kubeconfig.read(module.transport, cluster)
    return {
        "changed": False,
        "kubeconfig": {"cluster": {"id": cluster.id, "name": cluster.name}, **found.told()},
    }


def main() -> None:
    """Run as a module."""
    VksModule({"cluster": {"type": "str", "required": True}}).run(work)


if __name__ == "__main__":
    main()
