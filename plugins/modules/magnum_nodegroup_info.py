#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups of a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_nodegroup_info
short_description: Tell which node groups an OpenStack Magnum cluster has
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the node groups of a cluster, each of them whole, since Magnum's list shows bounds and labels that are not true.
extends_documentation_fragment:
  # Whichever comes first wins.
  - accel.gpu.magnum.reading
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
  names:
    description: Names of the groups. All if not given; one that there is not is left out.
    type: list
    elements: str
seealso:
  - module: accel.gpu.magnum_nodegroup
"""

EXAMPLES = r"""
- name: All node groups of a cluster
  accel.gpu.magnum_nodegroup_info:
    cloud: mycloud
    cluster: prod
"""

RETURN = r"""
nodegroups:
  description: The groups by name, in the words of M(accel.gpu.magnum_nodegroup), with what else is known of them.
  returned: always
  type: dict
  sample:
    gpu-t4:
      name: gpu-t4
      id: 0d358554-95b3-463f-86fc-21344a3cf48b
      status: CREATE_COMPLETE
      status_reason: ""
      flavor: g2.5xlarge
      image: ubuntu-k8s
      role: worker
      node_count: 2
      min_node_count: 0
      max_node_count: null
      docker_volume_size: null
      labels: {kube_tag: v1.30.2}
      node_labels: {}
      node_taints: []
      node_addresses: [10.1.22.10, 10.1.22.11]
      is_default: false
cluster_id:
  description: Id of the cluster.
  returned: always
  type: str
"""

import typing as t

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.providers.magnum.module import MagnumModule
from ..module_utils.providers.magnum.provider import MagnumProvider
from ..module_utils.providers.magnum.specs import WORDS, as_options

_SPEC: ArgumentSpec = {
    "cluster": {"type": "str", "required": True},
    "names": {"type": "list", "elements": "str"},
}


def work(module: MagnumModule) -> dict[str, t.Any]:
    """List, and read each group whole."""
    names = module.params["names"]
    cluster = module.magnum.cluster(module.params["cluster"])
    cloud = MagnumProvider(module.magnum, module.nova, module.glance, cluster, ())
    groups = {
        live.name: {
            **as_options(live.told(WORDS)),
            "id": live.id,
            "status": live.status,
            "status_reason": live.reason,
            "node_addresses": list(live.addresses),
            "is_default": live.name in cloud.defaults,
        }
        for live in cloud.survey(lambda name: names is None or name in names)
    }
    return {"changed": False, "cluster_id": cluster["uuid"], "nodegroups": groups}


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
