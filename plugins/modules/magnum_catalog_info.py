#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an OpenStack cloud offers for node groups."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_catalog_info
short_description: Tell what an OpenStack cloud offers for node groups, which flavors have GPUs among it
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the flavors with the GPUs that their extra specs tell of, images, key pairs, cluster templates, and what the project may
    still have.
  - Whether a flavor has GPUs is the operator's to say, in words of their own. PCI aliases, resource classes and traits are
    understood where a model of the catalog, or a common word for a graphics card, is in them. O(gpu_aliases) teaches others.
    Where extra specs may not be read, nothing is told of GPUs.
extends_documentation_fragment:
  # Whichever comes first wins.
  - accel.gpu.magnum.reading
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  gpu_aliases:
    description: What the operator's names for cards (PCI aliases, custom resource classes and traits) mean, as GPU models of the catalog.
    type: dict
    default: {}
seealso:
  - module: accel.gpu.magnum_nodegroup
"""

EXAMPLES = r"""
- name: Which flavors have GPUs
  accel.gpu.magnum_catalog_info:
    cloud: mycloud
    gpu_aliases: {bigcard: A100-SXM4-80GB}
  register: offer

- ansible.builtin.debug:
    msg: "{{ offer.flavors | selectattr('gpus') | items2dict(key_name='name', value_name='gpus') }}"
"""

RETURN = r"""
flavors:
  description:
    - The flavors. C(gpus) is null where nothing tells of any; in it C(count) (null where only a hint tells of GPUs), C(kind) (V(gpu),
      V(vgpu) or V(hint)), the C(model) if it is clear, else the C(models) that are meant, and what has C(told_by).
  returned: always
  type: list
  elements: dict
  sample:
    - name: g2.5xlarge
      id: 18e297bf-9774-460d-a567-e8a1a2519931
      vcpus: 28
      ram: 172032
      disk: 160
      gpus: {count: 1, kind: gpu, model: T4, models: [T4], told_by: "pci_passthrough:alias=t4:1"}
extra_specs_readable:
  description: Whether this user may read what tells of GPUs.
  returned: always
  type: bool
images:
  description: The images, with what Magnum's drivers go by.
  returned: always
  type: list
  elements: dict
  sample: [{name: ubuntu-k8s, id: ee836c4f-2484-4b8c-a1dd-f58821762798, status: active, os_distro: ubuntu, kube_version: v1.30.2}]
keypairs:
  description: Names of the user's key pairs.
  returned: always
  type: list
  elements: str
cluster_templates:
  description: The cluster templates.
  returned: always
  type: list
  elements: dict
  sample:
    - name: k8s-1.30
      id: 6be8aa70-e10d-42f6-a36f-7e8f2cb59fca
      driver: k8s_capi_helm_v1
      cluster_distro: ubuntu
      flavor: m2.medium
      master_flavor: m2.medium
      image: ubuntu-k8s
      labels: {kube_tag: v1.30.2}
quota:
  description: By resource, the most that the project may have (V(-1) for no limit), and what is used of it. Empty where it is not told.
  returned: always
  type: dict
  sample: {clusters: {limit: 20, used: 1}, instances: {limit: 10, used: 0}, cores: {limit: 20, used: 0}, ram: {limit: 51200, used: 0}}
microversion:
  description: The microversion of Magnum's API that is spoken, and the newest one that the cloud has.
  returned: always
  type: dict
  sample: {spoken: "1.14", newest: "1.14"}
"""

import typing as t

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.providers.magnum.decode import label_value
from ..module_utils.providers.magnum.flavors import gpus_of
from ..module_utils.providers.magnum.module import MagnumModule

_SPEC: ArgumentSpec = {"gpu_aliases": {"type": "dict", "default": {}}}
_LIMITS = {
    "instances": ("maxTotalInstances", "totalInstancesUsed"),
    "cores": ("maxTotalCores", "totalCoresUsed"),
    "ram": ("maxTotalRAMSize", "totalRAMUsed"),
}

Object = dict[str, t.Any]


def work(module: MagnumModule) -> Object:
    """Read everything once."""
    magnum, flavors = module.magnum, sorted(module.nova.flavors, key=lambda flavor: str(flavor["name"]))
    templates = sorted(magnum.templates(), key=lambda template: str(template["name"]))
    spoken, newest = magnum.version, magnum.offered
    return {
        "changed": False,
        "flavors": [_flavor(flavor, module.params["gpu_aliases"]) for flavor in flavors],
        "extra_specs_readable": any("extra_specs" in flavor for flavor in flavors),
        "images": [_image(image) for image in sorted(module.glance.images, key=lambda image: str(image["name"]))],
        "keypairs": module.nova.keypairs,
        "cluster_templates": [_template(template) for template in templates],
        "quota": _quota(module),
        "microversion": {"spoken": _dotted(spoken), "newest": _dotted(newest) if newest else None},
    }


def _flavor(flavor: Object, aliases: t.Mapping[str, str]) -> Object:
    gpus = gpus_of(flavor.get("extra_specs"), aliases)
    shown = {key: flavor.get(key) for key in ("name", "id", "vcpus", "ram", "disk")}
    return {**shown, "gpus": gpus.told() if gpus else None}


def _image(image: Object) -> Object:
    return {
        key: image.get(key)
        for key in ("name", "id", "status", "os_distro", "os_version", "kube_version", "min_disk", "min_ram")
    }


def _template(template: Object) -> Object:
    return {
        "name": template["name"],
        "id": template["uuid"],
        **{key: template.get(key) for key in ("driver", "cluster_distro", "coe", "network_driver")},
        "flavor": template.get("flavor_id"),
        "master_flavor": template.get("master_flavor_id"),
        "image": template.get("image_id"),
        "labels": {key: label_value(value) for key, value in (template.get("labels") or {}).items()},
    }


def _quota(module: MagnumModule) -> Object:
    found: Object = {}
    most = module.magnum.quota()
    if most is not None:
        found["clusters"] = {"limit": most, "used": len(module.magnum.clusters())}
    limits = module.nova.limits
    for name, (limit, used) in _LIMITS.items():
        if limit in limits:
            found[name] = {"limit": limits[limit], "used": limits.get(used, 0)}
    return found


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
