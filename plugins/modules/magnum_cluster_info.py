#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the Magnum clusters of a project."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_cluster_info
short_description: List the OpenStack Magnum clusters of a project
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns all clusters of a project, or only those that O(name) selects. For an administrator of the cloud, the module returns the clusters of all projects.
extends_documentation_fragment:
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  name:
    description: Name or ID of a cluster. If several clusters have this name, all of them are returned. If there is no such cluster, the list is empty.
    type: str
seealso:
  - module: accel.gpu.magnum_cluster
"""

EXAMPLES = r"""
- name: List all clusters
  accel.gpu.magnum_cluster_info:
    cloud: mycloud
"""

RETURN = r"""
clusters:
  description: The clusters, sorted by name and ID.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the cluster., type: str, returned: always, sample: prod}
    id: {description: ID of the cluster., type: str, returned: always, sample: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51}
    status: {description: Status of the cluster., type: str, returned: always, sample: CREATE_COMPLETE}
    status_reason: {description: Magnum's reason for the status., type: str, returned: always, sample: null}
    health_status: {description: 'Health of the cluster, as Magnum returns it.', type: str, returned: always, sample: HEALTHY}
    server: {description: URL of the API server., type: str, returned: always, sample: 'https://10.1.10.10:6443'}
    version: {description: Version of Kubernetes., type: str, returned: always, sample: v1.30.2}
    project_id: {description: ID of the project., type: str, returned: always, sample: 7c2b1f0e8d9a4e5bb6a1c3d2e4f50617}
    node_addresses: {description: Addresses of the nodes., type: list, elements: str, returned: always, sample: [10.1.22.10]}
    master_addresses: {description: Addresses of the control plane nodes., type: list, elements: str, returned: always, sample: [10.1.22.4]}
    cluster_template: {description: ID of the cluster template., type: str, returned: always, sample: 6be8aa70-e10d-42f6-a36f-7e8f2cb59fca}
    keypair: {description: Name of the key pair., type: str, returned: always, sample: ops}
    flavor: {description: Flavor of the nodes., type: str, returned: always, sample: m2.medium}
    master_flavor: {description: Flavor of the control plane nodes., type: str, returned: always, sample: m2.medium}
    node_count: {description: Number of nodes., type: int, returned: always, sample: 3}
    master_count: {description: Number of control plane nodes., type: int, returned: always, sample: 1}
    docker_volume_size: {description: Size of the container volume in GiB; null if there is none., type: int, returned: always, sample: null}
    fixed_network: {description: The private network., type: str, returned: always, sample: null}
    fixed_subnet: {description: The private subnet., type: str, returned: always, sample: null}
    floating_ip_enabled: {description: Whether the nodes have floating IP addresses., type: bool, returned: always, sample: false}
    master_lb_enabled: {description: Whether the control plane has a load balancer., type: bool, returned: always, sample: true}
    labels: {description: Labels that Magnum uses to configure the cluster., type: dict, returned: always, sample: {kube_tag: v1.30.2}}
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

import functools
import typing as t

from ..module_utils.clouds.magnum_client import PARALLEL
from ..module_utils.clouds.magnum_clusters import MagnumModule, cluster_result
from ..module_utils.core.waits import call_all


def work(module: MagnumModule) -> dict[str, t.Any]:
    """List the clusters, and read the details of each cluster, because Magnum's list omits these details."""
    name = module.params["name"]
    ids = [row["uuid"] for row in module.magnum.clusters() if name in (None, row["name"], row["uuid"])]
    calls = [(cluster_id, functools.partial(module.magnum.find_cluster, cluster_id)) for cluster_id in ids]
    row = [cluster_result(cluster) for cluster in call_all(calls, PARALLEL) if cluster is not None]
    return {"changed": False, "clusters": sorted(row, key=lambda each: (str(each["name"]), str(each["id"])))}


def main() -> None:
    """Run the module."""
    MagnumModule({"name": {"type": "str"}}).run(work)


if __name__ == "__main__":
    main()
