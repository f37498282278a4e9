#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node groups of a VKS cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_nodegroup_info
short_description: List the node groups of a VNG Cloud VKS cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the node groups of a cluster, in the words of M(accel.gpu.vks_nodegroup).
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
  name:
    description: Name of the one group that is asked for; all if not given.
    type: str
  nodes:
    description: Whether the nodes of each group are read, too. It costs a request a group.
    type: bool
    default: false
seealso:
  - module: accel.gpu.vks_nodegroup
"""

EXAMPLES = r"""
- name: What groups are there, and which nodes do they have?
  accel.gpu.vks_nodegroup_info:
    cluster: prod
    nodes: true
  register: found
"""

RETURN = r"""
nodegroups:
  description: The groups by name. Beside these, the fields are those of the options of M(accel.gpu.vks_nodegroup), with ids for names.
  returned: always
  type: dict
  contains:
    id:
      description: VNG Cloud's id.
      type: str
      returned: always
    status:
      description: C(ACTIVE) and others.
      type: str
      returned: always
    nodes:
      description: Its nodes, with C(name), C(status), C(ready), C(address) and C(external_address).
      type: list
      elements: dict
      returned: with O(nodes)
  sample:
    train: {id: ng-0b5c, name: train, status: ACTIVE, num_nodes: 2, min_size: 1, max_size: 4, flavor: flav-52a1, labels: {accel.gpu/pool: train}}
"""

import functools
import typing as t

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.common.parallel import run_bounded
from ..module_utils.nodegroups.spec import NodeGroupState
from ..module_utils.providers.vks.module import VksModule
from ..module_utils.providers.vks.provider import VksProvider


def work(module: VksModule) -> dict[str, t.Any]:
    """Read and tell."""
    cluster = module.cluster(module.params["cluster"])
    cloud = VksProvider(module.transport, module.vserver, cluster, patience=0.0)
    wanted = module.params["name"]
    lives = cloud.survey(lambda name: not wanted or name == wanted)
    told = {live.name: {"id": live.id, "status": live.status, **live.told(cloud.words)} for live in lives}
    if module.params["nodes"]:
        for name, nodes in _nodes(cloud, lives).items():
            told[name]["nodes"] = nodes
    return {"changed": False, "nodegroups": told}


def _nodes(cloud: VksProvider, lives: t.Sequence[NodeGroupState]) -> dict[str, list[dict[str, t.Any]]]:
    found = {}
    for outcome in run_bounded([(live.name, functools.partial(cloud.nodes, live)) for live in lives]):
        if outcome.error is not None:
            raise outcome.error
        found[outcome.name] = [
            {
                "name": row.get("name"),
                "status": row.get("status"),
                "ready": row.get("ready"),
                "address": row.get("fixedIp"),
                "external_address": row.get("floatingIp"),
            }
            for row in outcome.value or []
        ]
    return found


def main() -> None:
    """Run as a module."""
    spec: ArgumentSpec = {
        "cluster": {"type": "str", "required": True},
        "name": {"type": "str"},
        "nodes": {"type": "bool", "default": False},
    }
    VksModule(spec).run(work)


if __name__ == "__main__":
    main()
