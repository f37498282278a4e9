#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters of a VNG Cloud account."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_cluster_info
short_description: List the VKS clusters of a VNG Cloud account
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the clusters of an account in one region.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or id of the one cluster that is asked for; all if not given.
    type: str
"""

EXAMPLES = r"""
- name: All clusters of the account in Hanoi
  accel.gpu.vks_cluster_info:
    region: HAN
  register: found
"""

RETURN = r"""
clusters:
  description: The clusters, by name and id.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: VNG Cloud's id.
      type: str
      returned: always
    name:
      description: Its name, which several clusters may have.
      type: str
      returned: always
    status:
      description: C(ACTIVE) and others.
      type: str
      returned: always
    version:
      description: The Kubernetes version of its control plane.
      type: str
      returned: always
    vpc:
      description: Id of its VPC.
      type: str
      returned: always
    subnets:
      description: Ids of its subnets.
      type: list
      elements: str
      returned: always
    network:
      description: V(TIGERA), V(CILIUM_OVERLAY) or V(CILIUM_NATIVE_ROUTING); older clusters have other names.
      type: str
      returned: always
    node_count:
      description: Nodes of all its groups.
      type: int
      returned: always
    private:
      description: Whether its API server has a private address only.
      type: bool
      returned: always
    endpoint:
      description: Address of its API server, where the service tells it.
      type: str
      returned: always
    created_at:
      description: When it was made.
      type: str
      returned: always
"""

import typing as t

from ..module_utils.providers.vks.clusters import all_clusters, detailed
from ..module_utils.providers.vks.module import VksModule


def work(module: VksModule) -> dict[str, t.Any]:
    """Read and tell."""
    wanted = module.params["cluster"]
    found = [detailed(module.transport, module.cluster(wanted))] if wanted else all_clusters(module.transport)
    return {"changed": False, "clusters": [cluster.told() for cluster in found]}


def main() -> None:
    """Run as a module."""
    VksModule({"cluster": {"type": "str"}}).run(work)


if __name__ == "__main__":
    main()
