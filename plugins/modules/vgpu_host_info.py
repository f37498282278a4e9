#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether ESXi hosts are prepared for the vGPUs of pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vgpu_host_info
short_description: Check whether ESXi hosts are prepared for the vGPUs of pools
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns a checklist for the hosts of the vSphere clusters of some pools, or of all clusters. For each host, it contains the vGPU manager and whether it
    supports the guest drivers of the pools, and the configured and active graphics type. For each pool, it contains the hosts that offer the profile, and
    those on which a vGPU can be placed at present.
  - Each line has the evidence and, if something is missing, the remedy and the command for it. Some of the commands must be run on the host by the
    administrator, because vCenter's API cannot do it.
extends_documentation_fragment:
  - accel.gpu.vsphere
  - accel.gpu.drain.info
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  pools:
    description: The pools. A pool whose nodes are in several failure domains has one entry for each. Without pools, the hosts of all clusters with NVIDIA GPUs
      are checked.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the pool or the node group, for the checklist.
        type: str
        required: true
      profile:
        description: The vGPU profile, in any case.
        type: str
        required: true
      driver_version:
        description: Version of the guest driver. Without it, the driver is not compared with the vGPU manager.
        type: str
      failure_domain:
        description: Name or zone of a failure domain in the Infrastructure object of the cluster in O(kubernetes), from which O(pools[].datacenter) and
          O(pools[].cluster) are read unless they are set. The default is the only one.
        type: str
      datacenter:
        description: Name or inventory path of the data center.
        type: str
      cluster:
        description: Name or inventory path of the compute cluster.
        type: str
seealso:
  - module: accel.gpu.host_graphics
  - module: accel.gpu.vgpu_profile_info
"""

EXAMPLES = r"""
- name: Check the hosts of a pool
  accel.gpu.vgpu_host_info:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
    pools: [{name: vdi, profile: grid_a100-10c, driver_version: 580.95.05, cluster: gpu-hosts}]
  register: result

- name: Check the hosts of all clusters
  accel.gpu.vgpu_host_info:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
  register: result

- name: Show the checklist
  accel.gpu.print_lines:
    lines: "{{ result.lines }}"
"""

RETURN = r"""
ready:
  description: Whether no pool has a problem. Hosts that no pool depends on do not count. Without O(pools), whether no host has a problem.
  returned: success
  type: bool
  sample: true
clusters:
  description: The clusters of the pools, or all clusters with NVIDIA GPUs, sorted by path.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name of the cluster., type: str, returned: always, sample: gpu-hosts}
    path: {description: Inventory path of the cluster., type: str, returned: always, sample: /DC1/host/gpu-hosts}
    checks:
      description: The lines of the checklist.
      type: list
      elements: dict
      returned: always
      contains:
        subject: {description: Name of the host or of the pool., type: str, returned: always, sample: esx-a1.example.com}
        check: {description: 'V(connection), V(manager), V(driver), V(graphics), V(bios) or V(profile).', type: str, returned: always, sample: graphics}
        status: {description: 'V(ok), V(warning) or V(problem).', type: str, returned: always, sample: problem}
        evidence: {description: What vCenter shows., type: str, returned: always, sample: default graphics type shared}
        remedy: {description: What to do; empty if nothing., type: str, returned: always, sample: Connect the host in vCenter.}
        command: {description: The command for it; empty if there is none., type: str, returned: always, sample: ''}
    hosts:
      description: The hosts with NVIDIA GPUs, or without any if the cluster has none.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name of the host., type: str, returned: always, sample: esx-a1.example.com}
        path: {description: Inventory path of the host., type: str, returned: always, sample: /DC1/host/gpu-hosts/esx-a1.example.com}
        connected: {description: Whether it is connected and powered on., type: bool, returned: always, sample: true}
        maintenance_mode: {description: Whether it is in maintenance mode., type: bool, returned: always, sample: false}
        graphics_type: {description: Default graphics type., type: str, returned: always, sample: sharedDirect}
        assignment_policy: {description: Assignment policy., type: str, returned: always, sample: performance}
        gpus:
          description: The NVIDIA GPUs.
          type: list
          elements: dict
          returned: always
          contains:
            pci_id: {description: PCI id of the GPU., type: str, returned: always, sample: '0000:3b:00.0'}
            name: {description: Name of the GPU., type: str, returned: always, sample: NVIDIA A100-PCIE-40GB}
            memory_gib: {description: Memory in GiB., type: int, returned: always, sample: 40}
            graphics_type: &states
              description: The configured and the active value; the mode is empty if the API has none. V(basic) - no driver runs the GPU. V(direct) - it is
                passed through as a whole.
              type: dict
              returned: always
              contains:
                configured: {description: What is configured., type: str, returned: always, sample: sharedDirect}
                active: {description: What the GPU runs with., type: str, returned: always, sample: shared}
            vgpu_mode: *states
        vgpu_manager:
          description: Version of the vGPU manager; empty if it is not installed and null if unknown, for example if the user may not read the packages of the
            host.
          type: str
          returned: always
          sample: 580.95.02
        restart_owed:
          description: What must restart before the configuration is active, V(none), V(xorg) or V(host).
          type: str
          returned: always
          sample: none
        profiles: {description: The vGPU profiles that the host offers., type: list, elements: str, returned: always, sample: [grid_a100-10c]}
        placeable_profiles:
          description: Those of which another vGPU can be placed at present.
          type: list
          elements: str
          returned: always
          sample: [grid_a100-10c]
lines:
  description: The checklist as text.
  returned: success
  type: list
  elements: str
  sample: ["Cluster /DC1/host/gpu-hosts", "  ok       esx-a1.example.com  manager    vGPU manager 580.95.02 (vGPU 19)"]
vcenter:
  description: The vCenter, which may be that of the cluster in O(kubernetes).
  returned: success
  type: dict
  contains:
    hostname: {description: Host name or address., type: str, returned: always, sample: vcenter.example.com}
    port: {description: Port., type: int, returned: always, sample: 443}
code:
  description:
    - The reason for the failure.
    - V(invalid) - errors in the options. V(connection) - no usable credentials, or pyvmomi is missing. V(unreachable) - vCenter does not respond. Otherwise,
      the HTTP status that corresponds to the fault of vCenter.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Refused, method: GET, path: 'https://vcenter.example.com:443/sdk/vimServiceVersions.xml'}
"""

import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.images.driver_build import check_compatibility
from ..module_utils.kube.connection_options import CONNECTION
from ..module_utils.vsphere.client import Item
from ..module_utils.vsphere.host_checks import (
    PROBLEM,
    HostEvidence,
    PoolNeeds,
    checklist_lines,
    host_checks,
    pool_checks,
)
from ..module_utils.vsphere.hosts import GraphicsRequest, host_graphics, owed_restart
from ..module_utils.vsphere.inventory import Inventory, read_gpus
from ..module_utils.vsphere.module import VSphereModule


def work(module: VSphereModule) -> dict[str, t.Any]:
    """Read the hosts of the pools' clusters, and compare them with what the pools need."""
    inventory = Inventory.read(module.center)
    results, lines, ready = [], list[str](), True
    for cluster, pools in _pools(module, inventory):
        hosts = _evidence(inventory, cluster)
        checks = [check for host in hosts for check in host_checks(host, pools, _compatibility)]
        of_pools = [check for pool in pools for check in pool_checks(pool, hosts, _compatibility)]
        ready = ready and not any(check.status == PROBLEM for check in (of_pools if pools else checks))
        checks += of_pools
        path = inventory.path(cluster)
        lines += checklist_lines(f"Cluster {path}", checks)
        results.append(
            {
                "name": cluster.name,
                "path": path,
                "checks": [check.to_result() for check in checks],
                "hosts": [_host(host) for host in hosts],
            }
        )
    options = module.center.options
    address = {"hostname": options.hostname, "port": options.port}
    return {"changed": False, "ready": ready, "clusters": results, "lines": lines, "vcenter": address}


def _pools(module: VSphereModule, inventory: Inventory) -> list[tuple[Item, list[PoolNeeds]]]:
    """The clusters of the pools, or all with NVIDIA GPUs, sorted by path, with the pools of each. Raises InvalidOptions with all problems."""
    if not module.params["pools"]:
        clusters = inventory.of_kind("ComputeResource")
        return [(item, []) for item in clusters if any(read_gpus(host.item) for host in inventory.hosts_of(item))]
    problems, pools = list[str](), dict[t.Any, list[PoolNeeds]]()
    for entry in module.params["pools"]:
        try:
            cluster = _cluster(module, inventory, entry)
        except InvalidOptions as error:
            problems += [f"Pool {entry['name']}: {problem}" for problem in error.problems]
            continue
        needs = PoolNeeds(entry["name"], entry["profile"], entry["driver_version"] or None)
        pools.setdefault(cluster.ref, []).append(needs)
    if problems:
        raise InvalidOptions(problems)
    return sorted(
        ((inventory.items[ref], needs) for ref, needs in pools.items()), key=lambda pair: inventory.path(pair[0])
    )


def _cluster(module: VSphereModule, inventory: Inventory, entry: t.Mapping[str, t.Any]) -> Item:
    datacenter, name = entry["datacenter"], entry["cluster"]
    if not name:
        if module.openshift is None:
            raise InvalidOptions(
                ["cluster: is not set; set it, or set kubernetes, so that the failure domain is read from the cluster"]
            )
        domain = module.failure_domain(module.openshift, entry["failure_domain"])
        datacenter, name = datacenter or domain.datacenter, domain.cluster
    place = inventory.find("Datacenter", datacenter, "datacenter") if datacenter else None
    return inventory.find("ComputeResource", name, "cluster", place)


def _evidence(inventory: Inventory, cluster: Item) -> list[HostEvidence]:
    """What is known about the hosts with NVIDIA GPUs, or about all hosts if none has any."""
    hosts = [(host_graphics(host.item, inventory.path(host.item)), host) for host in inventory.hosts_of(cluster)]
    hosts = [each for each in hosts if each[0].gpus] or hosts
    versions = inventory.manager_versions(host for dummy, host in hosts)
    return [HostEvidence(graphics, host, versions[host.name]) for graphics, host in hosts]


def _host(host: HostEvidence) -> dict[str, t.Any]:
    return {
        **host.graphics.to_result(),
        "vgpu_manager": host.manager,
        "restart_owed": owed_restart(host.graphics, GraphicsRequest()),
        "profiles": list(host.offers.known),
        "placeable_profiles": list(host.offers.placeable),
    }


def _compatibility(guest: str, manager: str) -> tuple[str, str]:
    verdict = check_compatibility(guest, manager)
    return verdict.problem, verdict.warning


def main() -> None:
    """Run the module."""
    pool: ArgumentSpec = {
        "name": {"type": "str", "required": True},
        "profile": {"type": "str", "required": True},
        "driver_version": {"type": "str"},
        "failure_domain": {"type": "str"},
        "datacenter": {"type": "str"},
        "cluster": {"type": "str"},
    }
    spec: ArgumentSpec = {
        "kubernetes": {"type": "dict", "options": CONNECTION},
        "pools": {"type": "list", "elements": "dict", "options": pool, "default": []},
    }
    VSphereModule(spec).run(work)


if __name__ == "__main__":
    main()
