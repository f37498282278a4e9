#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a VNG Cloud account has to make node groups of."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_catalog_info
short_description: List what node groups of VNG Cloud's VKS can be made of
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the flavors with GPUs of each zone, and the volume types, SSH keys, security groups, subnets, Kubernetes versions and quotas
    of an account in one region.
  - Which GPUs a flavor has stands in its name alone; it is told as the catalog's models. A name such as C(H100) is on several cards.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or id of the cluster in whose VPC the subnets are listed; without it no subnets are.
    type: str
  zones:
    description: Names or ids of the zones that are looked at; all if not given.
    type: list
    elements: str
  gpu_only:
    description: Whether flavors without a GPU are left out.
    type: bool
    default: true
seealso:
  - module: accel.gpu.vks_nodegroup
"""

EXAMPLES = r"""
- name: Which GPUs can be had, and where?
  accel.gpu.vks_catalog_info:
    cluster: prod
  register: offer

- name: Tell
  ansible.builtin.debug:
    msg: "{{ offer.offer.flavors | selectattr('available') | map(attribute='name') }}"
"""

RETURN = r"""
offer:
  description: What there is.
  returned: always
  type: dict
  contains:
    region:
      description: The region.
      type: str
      returned: always
    project:
      description: Id of the project.
      type: str
      returned: always
    zones:
      description: Zones, with C(id), C(name) and whether each is C(usable).
      type: list
      elements: dict
      returned: always
    flavors:
      description: >-
        Flavors, with C(id), C(name), C(cpus), C(memory_gib), C(gpus) (how many), C(model) (the catalog's key, null where the name may
        mean several), C(models) (all that it may mean), C(zone), C(remaining) and C(available).
      type: list
      elements: dict
      returned: always
    volume_types:
      description: Volume types, with C(id), C(name), C(kind) (SSD or NVME), C(iops), C(min_gib), C(max_gib) and C(zone).
      type: list
      elements: dict
      returned: always
    ssh_keys:
      description: SSH keys, with C(id) and C(name).
      type: list
      elements: dict
      returned: always
    security_groups:
      description: Security groups, with C(id), C(name), whether each is C(usable) and the C(system)'s own.
      type: list
      elements: dict
      returned: always
    subnets:
      description: Subnets of the cluster's VPC, with C(id), C(name), C(cidr), C(zone), C(zone_name) and C(secondary_cidrs).
      type: list
      elements: dict
      returned: with O(cluster)
    versions:
      description: Kubernetes versions that clusters can have.
      type: list
      elements: str
      returned: always
    quota:
      description: C(max_node_groups) of a cluster, C(max_nodes) of a group, C(max_clusters) and how many C(clusters) there are.
      type: dict
      returned: always
"""

import typing as t

from ..module_utils.common.errors import InvalidOptions
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.providers.vks.catalog import Offer, listed
from ..module_utils.providers.vks.clusters import detailed
from ..module_utils.providers.vks.module import VksModule
from ..module_utils.providers.vks.paging import rows_of
from ..module_utils.providers.vks.transport import VKS


def work(module: VksModule) -> dict[str, t.Any]:
    """Read and tell."""
    vserver = module.vserver
    zones = _zones(vserver.zones(), module.params["zones"])
    flavors = [flavor for zone in zones for flavor in vserver.flavors(zone.id)]
    offer: dict[str, t.Any] = {
        "region": module.where.region,
        "project": vserver.project,
        "zones": [zone.told() for zone in zones],
        "flavors": [flavor.told() for flavor in flavors if flavor.gpus or not module.params["gpu_only"]],
        "volume_types": [{**each.told(), "zone": zone.id} for zone in zones for each in vserver.volume_types(zone.id)],
        "ssh_keys": [each.told() for each in vserver.ssh_keys()],
        "security_groups": [each.told() for each in vserver.security_groups()],
        "versions": _versions(module),
        "quota": _quota(module),
    }
    if module.params["cluster"]:
        cluster = detailed(module.transport, module.cluster(module.params["cluster"]))
        offer["subnets"] = [each.told() for each in vserver.subnets(cluster.vpc)]
    return {"changed": False, "offer": offer}


def _zones(there: list[Offer], wanted: list[str] | None) -> list[Offer]:
    if wanted is None:
        return there
    unknown = [name for name in wanted if not any(name in (zone.id, zone.name) for zone in there)]
    if unknown:
        names = [zone.name for zone in there]
        raise InvalidOptions([f"zones: there is no {name!r} in this region. {listed(name, names)}" for name in unknown])
    return [zone for zone in there if zone.id in wanted or zone.name in wanted]


def _versions(module: VksModule) -> list[str]:
    rows = rows_of(module.transport.json(VKS, "GET", "/v1/cluster-versions"))
    return [str(row.get("version")) for row in rows if row.get("enable") is not False]


def _quota(module: VksModule) -> dict[str, t.Any]:
    row = module.transport.json(VKS, "GET", "/v1/quota") or {}
    return {
        "max_node_groups": row.get("maxNodeGroupsPerCluster"),
        "max_nodes": row.get("maxNodesPerNodeGroup"),
        "max_clusters": row.get("maxClusters"),
        "clusters": row.get("numClusters"),
    }


def main() -> None:
    """Run as a module."""
    spec: ArgumentSpec = {
        "cluster": {"type": "str"},
        "zones": {"type": "list", "elements": "str"},
        "gpu_only": {"type": "bool", "default": True},
    }
    VksModule(spec).run(work)


if __name__ == "__main__":
    main()
