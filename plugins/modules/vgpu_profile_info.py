#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the vGPU profiles that the hosts of vSphere clusters offer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vgpu_profile_info
short_description: List the vGPU profiles, GPUs and vGPU managers of the hosts of vSphere clusters
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the vGPU profiles of each cluster in vCenter, with the hosts that offer them and those that can place another vGPU of the profile at present. A host
    whose GPU already runs a profile may not be able to place others on it.
  - The maximum number of vGPUs on a GPU is computed from the sizes or, for MIG-backed profiles, from the number of slices, because vCenter's API does not
    contain it.
extends_documentation_fragment:
  - accel.gpu.vsphere
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  datacenter:
    description: Name or inventory path of a data center. By default, all data centers are read.
    type: str
  cluster:
    description: Name or inventory path of a compute cluster. By default, all clusters with hosts that have GPUs are returned.
    type: str
  manager_versions:
    description: Whether to read the version of the vGPU manager, which needs one request for each host.
    type: bool
    default: true
seealso:
  - module: accel.gpu.vgpu_host_info
  - module: accel.gpu.host_graphics
  - module: accel.gpu.vgpu_template
"""

EXAMPLES = r"""
- name: Read the profiles
  accel.gpu.vgpu_profile_info:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
  register: result

- name: Show what can be placed now
  ansible.builtin.debug:
    msg: "{{ result.clusters[0].profiles | selectattr('placeable_hosts') | map(attribute='name') }}"
"""

RETURN = r"""
clusters:
  description: The clusters, sorted by path.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name of the cluster., type: str, returned: always, sample: gpu-hosts}
    path: {description: Inventory path of the cluster., type: str, returned: always, sample: /DC1/host/gpu-hosts}
    profiles:
      description: The vGPU profiles of the hosts.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name of the profile., type: str, returned: always, sample: grid_a100-10c}
        frame_buffer_gib: {description: Frame buffer in GiB; null if it is unknown., type: float, returned: always, sample: 10.0}
        class: {description: V(compute) or V(quadro); null if it is unknown., type: str, returned: always, sample: compute}
        sharing: {description: V(time-sliced) or V(mig); null if it is unknown., type: str, returned: always, sample: time-sliced}
        gpu_memory_gib: {description: Memory of the physical GPU in GiB; null if no host reports it., type: int, returned: always, sample: 40}
        max_per_gpu: {description: Computed maximum number of vGPUs of this profile on one GPU., type: int, returned: always, sample: 4}
        max_per_gpu_is_computed: {description: Always true. vCenter's API has no such field., type: bool, returned: always, sample: true}
        hosts: {description: Hosts that offer the profile., type: list, elements: str, returned: always, sample: [esx-a1.example.com]}
        placeable_hosts:
          description: Usable hosts that can place another vGPU of the profile at present.
          type: list
          elements: str
          returned: always
          sample: [esx-a1.example.com]
    hosts:
      description: The hosts of the cluster.
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
          returned: with O(manager_versions=true)
          sample: 550.163.02
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

from ..module_utils.core.module import ArgumentSpec
from ..module_utils.vsphere.client import Item
from ..module_utils.vsphere.hosts import host_graphics
from ..module_utils.vsphere.inventory import Inventory
from ..module_utils.vsphere.module import VSphereModule


def work(module: VSphereModule) -> dict[str, t.Any]:
    """Read the clusters, and the packages of their hosts."""
    params = module.params
    inventory = Inventory.read(module.center)
    datacenter = inventory.find("Datacenter", params["datacenter"], "datacenter") if params["datacenter"] else None
    if params["cluster"]:
        clusters = [inventory.find("ComputeResource", params["cluster"], "cluster", datacenter)]
    else:
        clusters = [
            item
            for item in inventory.of_kind("ComputeResource")
            if datacenter is None or inventory.datacenter_of(item) is datacenter
        ]
    results = [_cluster(module, inventory, cluster) for cluster in clusters]
    with_gpus = [each for each in results if params["cluster"] or any(host["gpus"] for host in each["hosts"])]
    return {"changed": False, "clusters": with_gpus}


def _cluster(module: VSphereModule, inventory: Inventory, cluster: Item) -> dict[str, t.Any]:
    hosts = inventory.hosts_of(cluster)
    versions = inventory.manager_versions(hosts) if module.params["manager_versions"] else None
    return {
        "name": cluster.name,
        "path": inventory.path(cluster),
        "profiles": [profile.to_result() for profile in inventory.profiles(cluster)],
        "hosts": [
            {
                **host_graphics(host.item, inventory.path(host.item)).to_result(),
                **({} if versions is None else {"vgpu_manager": versions[host.name]}),
            }
            for host in hosts
        ],
    }


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "datacenter": {"type": "str"},
        "cluster": {"type": "str"},
        "manager_versions": {"type": "bool", "default": True},
    }
    VSphereModule(spec).run(work)


if __name__ == "__main__":
    main()
