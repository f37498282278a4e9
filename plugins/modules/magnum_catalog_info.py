#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the flavors, images and templates of an OpenStack cloud for node groups."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_catalog_info
short_description: List the flavors, GPUs, images and templates that node groups can use in an OpenStack cloud
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the flavors, the images, the key pairs, the cluster templates, and the project's quota. For each flavor, the module also returns the GPUs that the
    flavor's extra specs name.
  - Cloud operators use different names for GPUs in extra specs. The module recognizes PCI aliases, resource classes and traits that contain a GPU model from
    this collection's catalog or a common term for a GPU. Declare other names in O(gpu_aliases). If the user is not allowed to read extra specs, the GPUs are
    unknown.
extends_documentation_fragment:
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  gpu_aliases:
    description: A map from the cloud operator's names for GPUs to GPU models in this collection's catalog. A name can be a PCI alias, a custom resource class
      or a trait.
    type: dict
    default: {}
seealso:
  - module: accel.gpu.magnum_nodegroup
"""

EXAMPLES = r"""
- name: Read the catalog
  accel.gpu.magnum_catalog_info:
    cloud: mycloud
    gpu_aliases: {bigcard: A100-SXM4-80GB}
  register: result

- name: Show the GPUs of each flavor
  ansible.builtin.debug:
    msg: "{{ result.catalog.flavors | selectattr('gpus') | items2dict(key_name='name', value_name='gpus') }}"
"""

RETURN = r"""
catalog:
  description: The flavors and other resources from which node groups can be created.
  returned: always
  type: dict
  contains:
    flavors:
      description:
        - The flavors. C(gpus) is null if no extra spec names GPUs. Otherwise, it has the following keys. C(count) is the number of GPUs, or null if an extra
          spec only hints at GPUs. C(kind) is V(gpu), V(vgpu) or V(hint). C(model) is the only possible model, or null if several models are possible. C(models)
          lists all possible models. C(source) is the extra spec that names the GPUs.
      returned: always
      type: list
      elements: dict
      contains:
        name: {description: Name of the flavor., type: str, returned: always, sample: g2.5xlarge}
        id: {description: ID of the flavor., type: str, returned: always, sample: 18e297bf-9774-460d-a567-e8a1a2519931}
        vcpus: {description: Number of virtual CPUs., type: int, returned: always, sample: 28}
        ram: {description: Memory in MiB., type: int, returned: always, sample: 172032}
        disk: {description: Size of the root disk in GiB., type: int, returned: always, sample: 160}
        gpus:
          description: The GPUs of one machine; null if no extra spec names GPUs.
          type: dict
          returned: always
          contains:
            count: {description: Number of GPUs; null if an extra spec only hints at GPUs., type: int, returned: always, sample: 1}
            kind: {description: 'V(gpu) for physical GPUs, V(vgpu) for virtual GPUs, or V(hint) if an extra spec only hints at GPUs.', type: str,
              returned: always, sample: gpu}
            model: {description: The only possible model; null if several models are possible., type: str, returned: always, sample: T4}
            models: {description: All possible models., type: list, elements: str, returned: always, sample: [T4]}
            source: {description: The extra spec that names the GPUs., type: str, returned: always, sample: 'pci_passthrough:alias=t4:1'}
    extra_specs_readable:
      description: Whether this user is allowed to read extra specs.
      returned: always
      type: bool
      sample: true
    images:
      description: The images, with the properties that Magnum's drivers use.
      returned: always
      type: list
      elements: dict
      contains:
        name: {description: Name of the image., type: str, returned: always, sample: ubuntu-k8s}
        id: {description: ID of the image., type: str, returned: always, sample: ee836c4f-2484-4b8c-a1dd-f58821762798}
        status: {description: Status of the image., type: str, returned: always, sample: active}
        os_distro: {description: 'Property C(os_distro), by which Magnum selects its driver.', type: str, returned: always, sample: ubuntu}
        os_version: {description: Property C(os_version)., type: str, returned: always, sample: '22.04'}
        kube_version: {description: Property C(kube_version)., type: str, returned: always, sample: v1.30.2}
        min_disk: {description: Minimum size of the root disk in GiB., type: int, returned: always, sample: 10}
        min_ram: {description: Minimum memory in MiB., type: int, returned: always, sample: 1024}
    keypairs:
      description: Names of the user's key pairs.
      returned: always
      type: list
      elements: str
      sample: [ops]
    cluster_templates:
      description: The cluster templates.
      returned: always
      type: list
      elements: dict
      contains:
        name: {description: Name of the template., type: str, returned: always, sample: k8s-1.30}
        id: {description: ID of the template., type: str, returned: always, sample: 6be8aa70-e10d-42f6-a36f-7e8f2cb59fca}
        driver: {description: Magnum's driver; null if Magnum's API does not return it., type: str, returned: always, sample: k8s_capi_helm_v1}
        cluster_distro: {description: Operating system of the nodes., type: str, returned: always, sample: ubuntu}
        coe: {description: The container orchestration engine., type: str, returned: always, sample: kubernetes}
        network_driver: {description: The network plugin., type: str, returned: always, sample: calico}
        flavor: {description: Flavor of the nodes., type: str, returned: always, sample: m2.medium}
        master_flavor: {description: Flavor of the control plane nodes., type: str, returned: always, sample: m2.medium}
        image: {description: Image of the nodes., type: str, returned: always, sample: ubuntu-k8s}
        labels: {description: Labels that Magnum uses to configure clusters of the template., type: dict, returned: always, sample: {kube_tag: v1.30.2}}
    quota:
      description: Limit and usage of each resource. The limit V(-1) indicates that there is no limit. The map is empty if the cloud does not return quotas.
      returned: always
      type: dict
      contains:
        NAME:
          description: 'The entry for one resource. The key is V(clusters), V(instances), V(cores) or V(ram).'
          type: dict
          returned: always
          contains:
            limit: {description: The limit; V(-1) if there is no limit., type: int, returned: always, sample: 20}
            used: {description: The amount in use., type: int, returned: always, sample: 1}
    microversion:
      description: For Magnum's API, the microversion in use and the newest microversion that the cloud supports.
      returned: always
      type: dict
      contains:
        used: {description: The microversion in use., type: str, returned: always, sample: '1.14'}
        newest: {description: The newest supported microversion; null if the cloud does not return it., type: str, returned: always, sample: '1.14'}
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

from ..module_utils.clouds.magnum_clusters import MagnumModule, gpus_of, magnum_label
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.values import Object

_SPEC: ArgumentSpec = {"gpu_aliases": {"type": "dict", "default": {}}}
_LIMITS = {
    "instances": ("maxTotalInstances", "totalInstancesUsed"),
    "cores": ("maxTotalCores", "totalCoresUsed"),
    "ram": ("maxTotalRAMSize", "totalRAMUsed"),
}
_FLAVOR_FIELDS = ("name", "id", "vcpus", "ram", "disk")
_IMAGE_FIELDS = ("name", "id", "status", "os_distro", "os_version", "kube_version", "min_disk", "min_ram")
_TEMPLATE_FIELDS = {
    "name": "name",
    "id": "uuid",
    "driver": "driver",
    "cluster_distro": "cluster_distro",
    "coe": "coe",
    "network_driver": "network_driver",
    "flavor": "flavor_id",
    "master_flavor": "master_flavor_id",
    "image": "image_id",
}


def work(module: MagnumModule) -> Object:
    """Read all resources once."""
    magnum, nova = module.magnum, module.nova
    aliases = module.params["gpu_aliases"]
    templates = _by_name(magnum.templates())
    used, newest = magnum.version, magnum.offered
    catalog = {
        "flavors": [_flavor(flavor, aliases) for flavor in _by_name(nova.flavors)],
        "extra_specs_readable": any("extra_specs" in flavor for flavor in nova.flavors),
        "images": [{key: image.get(key) for key in _IMAGE_FIELDS} for image in _by_name(module.glance.images)],
        "keypairs": nova.keypairs,
        "cluster_templates": [_template(template) for template in templates],
        "quota": _quota(module),
        "microversion": {"used": _dotted(used), "newest": _dotted(newest) if newest else None},
    }
    return {"changed": False, "catalog": catalog}


def _by_name(items: t.Iterable[Object]) -> list[Object]:
    return sorted(items, key=lambda item: str(item["name"]))


def _flavor(flavor: Object, aliases: t.Mapping[str, str]) -> Object:
    gpus = gpus_of(flavor.get("extra_specs"), aliases)
    return {**{key: flavor.get(key) for key in _FLAVOR_FIELDS}, "gpus": gpus.to_result() if gpus else None}


def _template(template: Object) -> Object:
    labels = {key: magnum_label(value) for key, value in (template.get("labels") or {}).items()}
    return {**{key: template.get(field) for key, field in _TEMPLATE_FIELDS.items()}, "labels": labels}


def _quota(module: MagnumModule) -> Object:
    quota: Object = {}
    clusters = module.magnum.quota()
    if clusters is not None:
        quota["clusters"] = {"limit": clusters, "used": len(module.magnum.clusters())}
    limits = module.nova.limits
    for name, (limit, used) in _LIMITS.items():
        if limit in limits:
            quota[name] = {"limit": limits[limit], "used": limits.get(used, 0)}
    return quota


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
