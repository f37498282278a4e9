#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the flavors, disks, keys and networks of a VNG Cloud account for node groups."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_catalog_info
short_description: List the flavors, GPUs, disks, keys and networks that node groups can use in a VNG Cloud account
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the GPU flavors in each zone of one region or, with O(gpu_only=false), all flavors. The module also returns the volume types, SSH keys, security
    groups, subnets, Kubernetes versions and quotas of the account in this region.
  - The module can determine the GPUs of a flavor only from the flavor's name. It returns them as GPU models from this collection's catalog. A name such as
    C(H100) may match several models.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or ID of the cluster whose VPC contains the subnets. Without this option, no subnets are returned.
    type: str
  zones:
    description: Names or IDs of the zones to read. By default, all zones are read.
    type: list
    elements: str
  gpu_only:
    description: Whether to omit flavors without a GPU.
    type: bool
    default: true
seealso:
  - module: accel.gpu.vks_nodegroup
"""

EXAMPLES = r"""
- name: Read the catalog
  accel.gpu.vks_catalog_info:
    cluster: prod
  register: result

- name: Show the available flavors
  ansible.builtin.debug:
    msg: "{{ result.catalog.flavors | selectattr('available') | map(attribute='name') }}"
"""

RETURN = r"""
catalog:
  description: The flavors and other resources from which node groups can be created.
  returned: always
  type: dict
  contains:
    region:
      description: Name of the region.
      type: str
      returned: always
      sample: HCM-3
    project:
      description: ID of the project.
      type: str
      returned: always
      sample: pro-0c1d2e3f
    zones:
      description: The zones.
      type: list
      elements: dict
      returned: always
      contains:
        id: {description: ID of the zone., type: str, returned: always, sample: HCM03-1B}
        name: {description: Name of the zone., type: str, returned: always, sample: HCM03-1B}
        usable: {description: Whether the zone can be used now., type: bool, returned: always, sample: true}
    flavors:
      description:
        - The flavors. C(gpus) is the number of GPUs. C(models) lists all models that match the name of the flavor. C(model) is the matching model if there
          is exactly one, otherwise null. C(remaining) is the number of machines that are still available, or null if this number is unknown.
      type: list
      elements: dict
      returned: always
      contains:
        id: {description: ID of the flavor., type: str, returned: always, sample: flav-52a1}
        name: {description: Name of the flavor., type: str, returned: always, sample: g4-standard-16x64-1L40s}
        cpus: {description: Number of CPUs., type: int, returned: always, sample: 16}
        memory_gib: {description: Memory in GiB., type: int, returned: always, sample: 64}
        gpus: {description: Number of GPUs., type: int, returned: always, sample: 1}
        model: {description: The only possible model; null if no model or several models are possible., type: str, returned: always, sample: L40S}
        models: {description: All possible models., type: list, elements: str, returned: always, sample: [L40S]}
        zone: {description: ID of the zone., type: str, returned: always, sample: HCM03-1B}
        remaining: {description: Number of machines that are still available; null if unknown., type: int, returned: always, sample: 4}
        available: {description: Whether another machine with this flavor can be created., type: bool, returned: always, sample: true}
    volume_types:
      description: The volume types. C(kind) is V(SSD) or V(NVME).
      type: list
      elements: dict
      returned: always
      contains:
        id: {description: ID of the volume type., type: str, returned: always, sample: vtype-61c3}
        name: {description: Name of the volume type., type: str, returned: always, sample: nvme-iops3000}
        usable: {description: Whether the volume type can be used now., type: bool, returned: always, sample: true}
        kind: {description: V(SSD) or V(NVME)., type: str, returned: always, sample: NVME}
        iops: {description: IOPS of a volume., type: int, returned: always, sample: 3000}
        min_gib: {description: Smallest size in GiB., type: int, returned: always, sample: 20}
        max_gib: {description: Largest size in GiB., type: int, returned: always, sample: 5000}
        zone: {description: ID of the zone., type: str, returned: always, sample: HCM03-1B}
    ssh_keys:
      description: The SSH keys.
      type: list
      elements: dict
      returned: always
      contains:
        id: {description: ID of the key., type: str, returned: always, sample: ssh-7d0e}
        name: {description: Name of the key., type: str, returned: always, sample: ops}
        usable: {description: Whether the key can be used now., type: bool, returned: always, sample: true}
        system: {description: Whether the service itself created the key., type: bool, returned: always, sample: false}
    security_groups:
      description: The security groups. C(system) is true for security groups that the service itself created.
      type: list
      elements: dict
      returned: always
      contains:
        id: {description: ID of the security group., type: str, returned: always, sample: secg-90ab}
        name: {description: Name of the security group., type: str, returned: always, sample: default}
        usable: {description: Whether the security group can be used now., type: bool, returned: always, sample: true}
        system: {description: Whether the service itself created the security group., type: bool, returned: always, sample: true}
    subnets:
      description: The subnets of the cluster's VPC.
      type: list
      elements: dict
      returned: with O(cluster)
      contains:
        id: {description: ID of the subnet., type: str, returned: always, sample: sub-11aa}
        name: {description: Name of the subnet., type: str, returned: always, sample: gpu-1b}
        usable: {description: Whether the subnet can be used now., type: bool, returned: always, sample: true}
        cidr: {description: The address range., type: str, returned: always, sample: 10.2.1.0/24}
        zone: {description: ID of the zone., type: str, returned: always, sample: HCM03-1B}
        zone_name: {description: Name of the zone., type: str, returned: always, sample: HCM03-1B}
        secondary_cidrs: {description: Address ranges of the secondary subnets., type: list, elements: str, returned: always, sample: []}
    versions:
      description: The Kubernetes versions that are available for clusters.
      type: list
      elements: str
      returned: always
      sample: [v1.35.6]
    quota:
      description: Limits on the number of clusters, node groups per cluster, and nodes per group. C(clusters) is the current number of clusters.
      type: dict
      returned: always
      contains:
        max_node_groups: {description: Maximum number of node groups in a cluster., type: int, returned: always, sample: 20}
        max_nodes: {description: Maximum number of nodes in a group., type: int, returned: always, sample: 10}
        max_clusters: {description: Maximum number of clusters., type: int, returned: always, sample: 20}
        clusters: {description: Number of clusters., type: int, returned: always, sample: 1}
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

from ..module_utils.clouds.vks_client import VKS_API, rows_of
from ..module_utils.clouds.vks_clusters import CatalogItem, VksModule, available, detailed
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.module import ArgumentSpec


def work(module: VksModule) -> dict[str, t.Any]:
    """Read all resources once."""
    vserver, gpu_only = module.vserver, module.params["gpu_only"]
    zones = _zones(vserver.zones(), module.params["zones"])
    flavors = [flavor for zone in zones for flavor in vserver.flavors(zone.id)]
    catalog: dict[str, t.Any] = {
        "region": module.params["region"],
        "project": vserver.project,
        "zones": [zone.to_result() for zone in zones],
        "flavors": [flavor.to_result() for flavor in flavors if flavor.gpus or not gpu_only],
        "volume_types": [
            {**item.to_result(), "zone": zone.id} for zone in zones for item in vserver.volume_types(zone.id)
        ],
        "ssh_keys": [item.to_result() for item in vserver.ssh_keys()],
        "security_groups": [item.to_result() for item in vserver.security_groups()],
        "versions": _versions(module),
        "quota": _quota(module),
    }
    if module.params["cluster"]:
        cluster = detailed(module.transport, module.cluster(module.params["cluster"]))
        catalog["subnets"] = [item.to_result() for item in vserver.subnets(cluster.vpc)]
    return {"changed": False, "catalog": catalog}


def _zones(zones: list[CatalogItem], requested: list[str] | None) -> list[CatalogItem]:
    if requested is None:
        return zones
    names = [zone.name for zone in zones]
    unknown = [name for name in requested if not any(name in (zone.id, zone.name) for zone in zones)]
    if unknown:
        raise InvalidOptions(
            [f"zones: there is no zone {name!r} in this region. {available(name, names)}" for name in unknown]
        )
    return [zone for zone in zones if zone.id in requested or zone.name in requested]


def _versions(module: VksModule) -> list[str]:
    rows = rows_of(module.transport.get(VKS_API, "/v1/cluster-versions"))
    return [str(row.get("version")) for row in rows if row.get("enable") is not False]


def _quota(module: VksModule) -> dict[str, t.Any]:
    row = module.transport.get(VKS_API, "/v1/quota") or {}
    return {
        "max_node_groups": row.get("maxNodeGroupsPerCluster"),
        "max_nodes": row.get("maxNodesPerNodeGroup"),
        "max_clusters": row.get("maxClusters"),
        "clusters": row.get("numClusters"),
    }


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "cluster": {"type": "str"},
        "zones": {"type": "list", "elements": "str"},
        "gpu_only": {"type": "bool", "default": True},
    }
    VksModule(spec).run(work)


if __name__ == "__main__":
    main()
