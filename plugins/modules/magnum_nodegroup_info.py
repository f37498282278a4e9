#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the node groups of a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_nodegroup_info
short_description: List the node groups of an OpenStack Magnum cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the node groups of a cluster. The fields correspond to the options of M(accel.gpu.magnum_nodegroup). The module reads each group individually,
    because the bounds and labels in Magnum's list are wrong.
extends_documentation_fragment:
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or ID of the cluster.
    type: str
    required: true
  names:
    description: Names of the groups to return. By default, all groups are returned. Groups that do not exist are omitted.
    type: list
    elements: str
seealso:
  - module: accel.gpu.magnum_nodegroup
"""

EXAMPLES = r"""
- name: List all node groups of a cluster
  accel.gpu.magnum_nodegroup_info:
    cloud: mycloud
    cluster: prod
"""

RETURN = r"""
nodegroups:
  description: The groups, with their names as keys. The fields correspond to the options of M(accel.gpu.magnum_nodegroup).
  returned: always
  type: dict
  contains:
    NAME:
      description: 'The entry for one node group. The key is the name of the node group.'
      type: dict
      returned: always
      contains:
        id: {description: ID of the group., type: str, returned: always, sample: 0d358554-95b3-463f-86fc-21344a3cf48b}
        name: {description: Name of the group., type: str, returned: always, sample: gpu-t4}
        status: {description: Status of the group., type: str, returned: always, sample: CREATE_COMPLETE}
        status_reason: {description: Magnum's reason for the status., type: str, returned: always, sample: ''}
        node_addresses: {description: Addresses of the nodes., type: list, elements: str, returned: always, sample: [10.1.22.10, 10.1.22.11]}
        is_default: {description: Whether Magnum created the group with the cluster., type: bool, returned: always, sample: false}
        node_count: {description: Number of nodes., type: int, returned: always, sample: 2}
        min_node_count: {description: Minimum number of nodes for the autoscaler., type: int, returned: always, sample: 0}
        max_node_count: {description: Maximum number of nodes for the autoscaler; null if there is no maximum., type: int, returned: always, sample: null}
        flavor: {description: 'Name or ID of the flavor, as Magnum stores it.', type: str, returned: always, sample: g2.5xlarge}
        image: {description: 'Name or ID of the image, as Magnum stores it.', type: str, returned: always, sample: ubuntu-k8s}
        role: {description: Role of the group., type: str, returned: always, sample: worker}
        docker_volume_size: {description: Size of the container volume in GiB; null if there is none., type: int, returned: always, sample: null}
        labels: {description: Labels that Magnum uses to configure the group., type: dict, returned: always, sample: {kube_tag: v1.30.2}}
        node_labels: {description: Labels with which nodes register., type: dict, returned: always, sample: {accel.gpu/pool: train}}
        node_taints:
          description: Taints with which nodes register.
          type: list
          elements: dict
          returned: always
          contains:
            key: {description: Key of the taint., type: str, returned: always, sample: nvidia.com/gpu}
            value: {description: Value of the taint., type: str, returned: if the taint has a value, sample: present}
            effect: {description: Effect of the taint., type: str, returned: always, sample: NoSchedule}
cluster_id:
  description: ID of the cluster.
  returned: always
  type: str
  sample: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51
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

from ..module_utils.clouds.magnum_clusters import MagnumModule
from ..module_utils.clouds.magnum_groups import MagnumProvider
from ..module_utils.core.module import ArgumentSpec

_SPEC: ArgumentSpec = {
    "cluster": {"type": "str", "required": True},
    "names": {"type": "list", "elements": "str"},
}


def work(module: MagnumModule) -> dict[str, t.Any]:
    """List the groups, and read the details of each group."""
    names = module.params["names"]
    cluster = module.magnum.cluster(module.params["cluster"])
    provider = MagnumProvider(module.magnum, module.nova, module.glance, cluster, ())
    groups = {
        state.name: {
            **state.to_result(),
            "id": state.id,
            "status": state.status,
            "status_reason": state.reason,
            "node_addresses": list(state.addresses),
            "is_default": state.name in provider.defaults,
        }
        for state in provider.read(lambda name: names is None or name in names)
    }
    return {"changed": False, "cluster_id": cluster["uuid"], "nodegroups": groups}


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
