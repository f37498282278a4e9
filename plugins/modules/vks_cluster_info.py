#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the VKS clusters of a VNG Cloud account."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_cluster_info
short_description: List the VKS clusters of a VNG Cloud account
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns all clusters of an account in one region, or only those that O(name) selects.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  name:
    description: Name or ID of a cluster. If several clusters have this name, all of them are returned. If there is no such cluster, the list is empty.
    type: str
seealso:
  - module: accel.gpu.vks_nodegroup_info
  - module: accel.gpu.vks_kubeconfig
"""

EXAMPLES = r"""
- name: List all clusters of the account in Hanoi
  accel.gpu.vks_cluster_info:
    region: HAN
"""

RETURN = r"""
clusters:
  description:
    - The clusters, sorted by name and ID. C(network) is V(TIGERA), V(CILIUM_OVERLAY) or V(CILIUM_NATIVE_ROUTING). C(private) is true if the API server has only
      a private address. C(server) is the URL of the API server, or null if VKS does not return the URL.
  returned: always
  type: list
  elements: dict
  contains:
    id: {description: ID of the cluster., type: str, returned: always, sample: k8s-2f9b3c4d-0f8e-4a27-9d0c-5a2b6e1f7c80}
    name: {description: Name of the cluster., type: str, returned: always, sample: prod}
    status: {description: Status of the cluster., type: str, returned: always, sample: ACTIVE}
    version: {description: Version of Kubernetes., type: str, returned: always, sample: v1.35.6}
    vpc: {description: ID of the VPC., type: str, returned: always, sample: net-4b5c}
    subnets: {description: IDs of the cluster's subnets., type: list, elements: str, returned: always, sample: [sub-11aa]}
    network: {description: The network plugin., type: str, returned: always, sample: CILIUM_OVERLAY}
    node_count: {description: Number of nodes; null if VKS does not return it., type: int, returned: always, sample: 3}
    private: {description: Whether the API server has only a private address; null if VKS does not return this information., type: bool,
      returned: always, sample: false}
    server: {description: URL of the API server; null if VKS does not return it., type: str, returned: always, sample: 'https://10.2.0.10:6443'}
    created_at: {description: 'Time at which the cluster was created, as VKS returns it.', type: str, returned: always, sample: '2026-08-01T09:00:00Z'}
code:
  description:
    - The reason for the failure.
    - V(invalid) - errors in the options. V(connection) - no usable credentials, or the cloud's library is missing. V(unreachable) - the cloud does not
      respond. Otherwise, the HTTP status of the cloud's error.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Refused, method: GET, path: /v1/clusters}
"""

import typing as t

from ..module_utils.clouds.vks_clusters import VksModule, detailed_clusters


def work(module: VksModule) -> dict[str, t.Any]:
    """List the clusters, and read the details of each cluster, because the list from VKS omits these details."""
    name = module.params["name"]
    clusters = detailed_clusters(module.transport, lambda cluster: name in (None, cluster.name, cluster.id))
    return {"changed": False, "clusters": [cluster.to_result() for cluster in clusters]}


def main() -> None:
    """Run the module."""
    VksModule({"name": {"type": "str"}}).run(work)


if __name__ == "__main__":
    main()
