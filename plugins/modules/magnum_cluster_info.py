#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Magnum clusters of a project."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_cluster_info
short_description: List the OpenStack Magnum clusters of a project
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the clusters of a project, or one of them. An administrator of the cloud sees the clusters of all projects.
extends_documentation_fragment:
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  name:
    description: Name or id of one cluster. If several clusters have this name, all of them are listed. If there is none, the list is empty.
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
  description: The clusters, sorted by name and id.
  returned: always
  type: list
  elements: dict
  sample:
    - name: prod
      id: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51
      status: CREATE_COMPLETE
      status_reason: null
      health_status: HEALTHY
      server: https://10.1.10.10:6443
      version: v1.30.2
      node_count: 3
      cluster_template: 6be8aa70-e10d-42f6-a36f-7e8f2cb59fca
      labels: {kube_tag: v1.30.2}
code:
  description:
    - Reason of the failure.
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
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import functools
import typing as t

from ..module_utils.common.parallel import call_all
from ..module_utils.providers.magnum import clusters
from ..module_utils.providers.magnum.client import PARALLEL
from ..module_utils.providers.magnum.module import MagnumModule


def work(module: MagnumModule) -> dict[str, t.Any]:
    """List the clusters, and read the details of each cluster, because the list leaves them out."""
    name = module.params["name"]
    ids = [found["uuid"] for found in module.magnum.clusters() if name in (None, found["name"], found["uuid"])]
    calls = [(cluster_id, functools.partial(module.magnum.find_cluster, cluster_id)) for cluster_id in ids]
    found = [clusters.cluster_result(cluster) for cluster in call_all(calls, PARALLEL) if cluster is not None]
    return {"changed": False, "clusters": sorted(found, key=lambda each: (str(each["name"]), str(each["id"])))}


def main() -> None:
    """Run the module."""
    MagnumModule({"name": {"type": "str"}}).run(work)


if __name__ == "__main__":
    main()
