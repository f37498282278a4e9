#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports the templates with vGPUs on vSphere, their drift and their users."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vgpu_template_info
short_description: Report the vSphere templates with vGPUs, their drift, their release and their users
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the templates that M(accel.gpu.vgpu_template) has built, with the settings that somebody has changed since, by field.
  - With O(kubernetes), the module also returns which MachineSets and Machines name each template, and whether its release differs from the boot image of the
    cluster's release.
extends_documentation_fragment:
  - accel.gpu.vsphere
  - accel.gpu.drain.info
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  folder:
    description: Folder of the templates, as a name or an inventory path. Folders with this name in all data centers are read.
    type: str
    default: accel-gpu
  names:
    description: Names of the templates as in M(accel.gpu.vgpu_template). By default, all templates are returned.
    type: list
    elements: str
  namespace:
    description: Namespace of the MachineSets and Machines.
    type: str
    default: openshift-machine-api
  clones:
    description:
      - Whether to find the virtual machines that were cloned from each template, for which all virtual machines are read. With O(kubernetes), the module then
        also warns about templates of the cluster in other folders than O(folder), where no run sees them.
    type: bool
    default: true
seealso:
  - module: accel.gpu.vgpu_template
"""

EXAMPLES = r"""
- name: Read the templates
  accel.gpu.vgpu_template_info:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
    kubernetes: {kubeconfig: ~/.kube/prod}
  register: result

- name: Show what was changed by hand
  ansible.builtin.debug:
    msg: "{{ result.templates | selectattr('drift') | items2dict(key_name='path', value_name='drift') }}"
"""

RETURN = r"""
templates:
  description: The templates, sorted by path.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name in vCenter., type: str, returned: always, sample: vdi-a-418.94.202501221327-0-3fa0c1}
    path: {description: Inventory path., type: str, returned: always, sample: /DC1/vm/accel-gpu/vdi-a-418.94.202501221327-0-3fa0c1}
    instance_uuid: {description: Instance UUID., type: str, returned: always, sample: 5028c1a2-8f0e-4f3b-9a52-0c7d6a1f4b11}
    declared_name: {description: Name in the options of M(accel.gpu.vgpu_template)., type: str, returned: always, sample: vdi-a}
    cluster:
      description: Infrastructure name and UID of the cluster for which it was built; empty if there was none.
      type: str
      returned: always
      sample: prod-7x2kd/0a173c51-38b6-4a3d-8b52-b969ac94216f
    finished: {description: Whether the import was completed., type: bool, returned: always, sample: true}
    release: {description: Release of RHCOS., type: str, returned: always, sample: 418.94.202501221327-0}
    sha256:
      description: SHA-256 of the OVA.
      type: str
      returned: always
      sample: 9b1d3c3b7f0b0c9e6f2a1d4c5e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f
    configuration:
      description: The actual configuration.
      type: dict
      returned: always
      contains:
        profile: {description: The vGPU profile., type: str, returned: always, sample: grid_a100-10c}
        count: {description: Number of vGPUs., type: int, returned: always, sample: 1}
        mmio_gib: {description: Size of the 64-bit MMIO space in GiB., type: int, returned: always, sample: 128}
        firmware: {description: The firmware., type: str, returned: always, sample: efi}
        secure_boot: {description: Whether secure boot is on., type: bool, returned: always, sample: false}
        memory_locked: {description: Whether all memory is reserved., type: bool, returned: always, sample: true}
    drift:
      description: The settings that were changed since the template was built.
      type: dict
      returned: always
      contains:
        FIELD:
          description: A field of RV(templates[].configuration), or C(template), which is false for a virtual machine.
          type: dict
          returned: if it was changed
          contains:
            recorded: {description: The value when the template was built., type: raw, returned: always, sample: true}
            actual: {description: The present value., type: raw, returned: always, sample: false}
    used_by:
      description: MachineSets and Machines that name the template. Like the next two keys, only for templates of this cluster.
      type: list
      elements: str
      returned: with O(kubernetes)
      sample: [MachineSet vdi-a]
    cluster_release: {description: Boot image of the cluster's release., type: str, returned: with O(kubernetes), sample: 418.94.202501221327-0}
    behind: {description: 'Whether RV(templates[].release) differs from it.', type: bool, returned: with O(kubernetes), sample: false}
    clones:
      description: Names of the virtual machines that were cloned from it.
      type: list
      elements: str
      returned: with O(clones=true)
      sample: [prod-7x2kd-vdi-a-4kq8z]
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

from ..module_utils.catalog.openshift import NAMESPACE_OPTION
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.kube.connection_options import CONNECTION
from ..module_utils.vsphere.inventory import Inventory
from ..module_utils.vsphere.module import VSphereModule
from ..module_utils.vsphere.templates import (
    Template,
    clones_of,
    folders_named,
    in_other_folders,
    other_folder_text,
    read_fingerprinted,
    read_templates,
)


def work(module: VSphereModule) -> dict[str, t.Any]:
    """Read the templates and their users."""
    params, openshift = module.params, module.openshift
    inventory = Inventory.read(module.center)
    folders = folders_named(inventory, params["folder"])
    templates = [
        template
        for template in read_templates(module.center, folders)
        if template.is_own and (params["names"] is None or _declared(template) in params["names"])
    ]
    used = openshift.templates_in_use() if openshift else {}
    release = openshift.source().release if openshift else ""
    owner = openshift.owner if openshift else ""
    machines = read_fingerprinted(module.center) if params["clones"] else []
    clones = clones_of(machines)
    for path, other in in_other_folders(machines, inventory, folders):
        if other.cluster == owner != "" and (params["names"] is None or other.name in params["names"]):
            module.warn(f"Template {other.name}: {other_folder_text(path)}")
    results = []
    for template in templates:
        fingerprint = template.fingerprint
        result = {
            **template.to_result(),
            "declared_name": _declared(template),
            "cluster": fingerprint.cluster if fingerprint else "",
            "finished": template.finished,
        }
        if openshift and result["cluster"] == owner:
            result["used_by"] = openshift.users_of(used, template)
            result["cluster_release"] = release
            result["behind"] = result["release"] != release
        if params["clones"]:
            result["clones"] = clones.get(template.instance_uuid, [])
        results.append(result)
    return {"changed": False, "templates": results}


def _declared(template: Template) -> str:
    return template.fingerprint.name if template.fingerprint else ""


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "kubernetes": {"type": "dict", "options": CONNECTION},
        **NAMESPACE_OPTION,
        "folder": {"type": "str", "default": "accel-gpu"},
        "names": {"type": "list", "elements": "str"},
        "clones": {"type": "bool", "default": True},
    }
    VSphereModule(spec).run(work)


if __name__ == "__main__":
    main()
