#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the images that a cluster needs for its GPU pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_set
short_description: List the images that a mirror registry needs for GPU pools
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - For the declared releases and pools, lists the images of the GPU operator, its operands, the driver for each operating system, NFD, and the validation. The
    module renders the charts in the same way as for an installation, so the list contains exactly the images that the cluster pulls.
  - With OLM, the images are those of the installed ClusterServiceVersion, or of the newest ClusterServiceVersion in a channel of the catalog.
  - With O(dest), the module also writes the list to files that serve as input for C(skopeo copy) and C(oc-mirror), and as the mirror configuration of
    OpenShift.
  - With O(verify=true), the module verifies that the mirror contains each image with the expected digest.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.registry.with_cluster
  - accel.gpu.registry
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  mirror:
    description:
      - Mirror registry for the images, optionally with a path, such as V(registry.example.com/mirror). By default, C(gpu_cluster.operator.registry).
      - An image has the same path in the mirror as in the public registry.
      - To list the images for a mirror that the cluster does not use yet, set a registry other than C(gpu_cluster.operator.registry).
    type: str
  upstreams:
    description:
      - Registries that replace the public registries as sources for copies, such as the pull-through caches of your organization. Each key is the host of a
        public registry, such as V(nvcr.io). Its value is the registry from which images are copied instead, optionally with a path, such as
        V(artifactory.example.com/nvcr).
    type: dict
    default: {}
  operating_systems:
    description:
      - Operating systems of the GPU nodes. Each consists of ID and VERSION_ID from C(/etc/os-release), such as V(rhel9.6) or V(ubuntu22.04). By default, the
        operating systems of the nodes.
    type: list
    elements: str
    default: []
  kernels:
    description:
      - Kernel versions of the GPU nodes, in the form that C(uname -r) prints, such as V(5.15.0-91-generic). They are part of the tags of precompiled drivers.
        By default, the kernel versions of the nodes.
    type: list
    elements: str
    default: []
  operator_versions:
    description:
      - Additional releases of the GPU operator whose driver tags are needed, such as V(v26.7.0) before an upgrade to that release. The declared release is
        always included.
    type: list
    elements: str
    default: []
  programs:
    description: The programs of M(accel.gpu.gpu_validation) whose images are needed.
    type: list
    elements: str
    choices: [kernel, load, all_reduce, network_all_reduce]
    default: [kernel]
  platforms:
    description:
      - The platforms to copy, such as V(linux/amd64). By default, all platforms, and the attestations in the image's index.
      - Pull-through caches often lack attestations, so copying all platforms from them fails. Then set the platforms of the nodes.
      - An image that is pulled by digest is always copied completely, because the digest is that of the index.
    type: list
    elements: str
    default: []
  dest:
    description:
      - Directory on this machine to which the files C(images.txt), C(imageset-config.yaml) and C(mirror-sets.yaml) are written. The directory is created if
        necessary. It does not contain the images themselves.
      - Each line of C(images.txt) contains a source and a destination for C(skopeo copy). C(imageset-config.yaml) is for C(oc-mirror) v2. C(mirror-sets.yaml)
        contains an ImageDigestMirrorSet and an ImageTagMirrorSet, with an annotation that describes the impact on nodes.
    type: path
  verify:
    description: Whether to verify the mirror. With V(true), the module fails if an image is missing from the mirror or has a different digest.
    type: bool
    default: false
  digests_file:
    description:
      - Path to a file that contains the expected digests. The file must exist. It can be written by the role C(mirror) or by M(accel.gpu.registry_image) with
        O(accel.gpu.registry_image#module:digests_file). Without this option, O(verify=true) reads the digests from the public registries.
    type: path
  binary_path:
    description: Path to C(helm). By default, the first C(helm) on the C(PATH).
    type: path
requirements:
  - helm, unless OLM installs the operators
seealso:
  - module: accel.gpu.registry_image
"""

EXAMPLES = r"""
- name: List the images for a mirror, and write the list for skopeo and oc-mirror
  accel.gpu.image_set:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    mirror: registry.example.com/mirror
    operating_systems: [ubuntu22.04]
    dest: /srv/mirror
  register: needed

- name: Copy the images
  accel.gpu.registry_image:
    images: "{{ needed.image_set.copies }}"

- name: Verify the mirror at a site without internet access
  accel.gpu.image_set:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    verify: true
    digests_file: /srv/mirror/digests.json
"""

RETURN = r"""
image_set:
  description: The listed images and the result of the verification.
  returned: on success, or if the verification of the mirror fails
  type: dict
  contains:
    images:
      description: All images that the cluster pulls.
      type: list
      elements: dict
      contains:
        component: {description: The component that needs the image., type: str, returned: always, sample: devicePlugin}
        source: {description: The image in the public registry., type: str, returned: always, sample: 'nvcr.io/nvidia/k8s-device-plugin:v0.18.1'}
        destination:
          description: The image that the cluster pulls; equal to the source if there is no mirror.
          type: str
          returned: always
          sample: registry.example.com/mirror/nvidia/k8s-device-plugin:v0.18.1
      returned: always
    copies:
      description: The images that must be copied to the mirror, in the format of O(accel.gpu.registry_image#module:images).
      type: list
      elements: dict
      returned: always
      contains:
        source:
          description: The image in the public registry, or in the registry that replaces it in O(upstreams).
          type: str
          returned: always
          sample: nvcr.io/nvidia/k8s-device-plugin:v0.18.1
        destination:
          description: The image in the mirror.
          type: str
          returned: always
          sample: registry.example.com/mirror/nvidia/k8s-device-plugin:v0.18.1
        platforms:
          description: The platforms that are copied; empty for all.
          type: list
          elements: str
          returned: always
          sample: [linux/amd64]
    files: {description: The files that O(dest) contains., type: list, elements: str, returned: always, sample: [/srv/mirror/images.txt]}
    missing: {description: Images that the mirror does not have., type: list, elements: str, returned: with O(verify=true), sample: []}
    altered: {description: Images with an unexpected digest., type: list, elements: str, returned: with O(verify=true), sample: []}
    unrecorded:
      description: Images whose expected digest is unknown. With O(digests_file), these are the images whose digests are not in the file. Without it, these are
        the images that are missing from the registries from which they are copied.
      type: list
      elements: str
      returned: with O(verify=true)
      sample: []
code:
  description:
    - The reason for the failure. V(invalid) - errors in the options or the variables. V(mirror) - the mirror is not complete. V(chart) - a chart cannot be
      used. V(helm_missing) - helm is not installed. V(connection) - no usable credentials. V(wrong_cluster) - the connection points to a different cluster than
      declared. V(unreachable) - the cluster or a registry does not respond. Otherwise, the HTTP status of the error.
  returned: failure
  type: raw
  sample: mirror
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["operating_systems[0]: 'rhel' is not an operating system; specify ID and VERSION_ID from /etc/os-release, such as rhel9.6"]}
"""

import tempfile
import typing as t

from ..module_utils.catalog.openshift import OLM
from ..module_utils.catalog.releases import os_tag
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.files import temporary_folder
from ..module_utils.core.messages import diff_of, quote
from ..module_utils.core.module import ArgumentSpec, merge_specs
from ..module_utils.gpu_operator.detect import openshift_version
from ..module_utils.helm.release import ChartProblem, Helm, HelmMissing, find_helm
from ..module_utils.images.driver_images import NodeSystems
from ..module_utils.images.mirror import (
    FileSet,
    ImageCollector,
    MirroredImage,
    copies,
    mirrored,
    require_complete,
    verify,
)
from ..module_utils.kube.paths import NODES
from ..module_utils.pools.derive import derive
from ..module_utils.pools.module import PlanModule
from ..module_utils.pools.plan import Plan, PoolPlan
from ..module_utils.registry.module import REGISTRY, RegistryAccessMixin
from ..module_utils.registry.reference import InvalidReference, parse_repository
from ..module_utils.schema.cluster import operator_version_problems
from ..module_utils.schema.validation_programs import PROGRAMS

_SPEC: ArgumentSpec = {
    "mirror": {"type": "str"},
    "upstreams": {"type": "dict", "default": {}},
    "operating_systems": {"type": "list", "elements": "str", "default": []},
    "kernels": {"type": "list", "elements": "str", "default": []},
    "operator_versions": {"type": "list", "elements": "str", "default": []},
    "programs": {
        "type": "list",
        "elements": "str",
        "choices": [program.name for program in PROGRAMS],
        "default": ["kernel"],
    },
    "platforms": {"type": "list", "elements": "str", "default": []},
    "dest": {"type": "path"},
    "verify": {"type": "bool", "default": False},
    "digests_file": {"type": "path"},
    "binary_path": {"type": "path"},
}

_UNKNOWN_SYSTEMS = (
    "operating_systems: the operating systems of the nodes are not known, because NFD has not labeled any node. "
    "Set gpu_mirror_operating_systems (option operating_systems of the module), for example to [rhel9.6]"
)
_UNKNOWN_KERNELS = (
    "kernels: the tags of precompiled drivers contain the kernel version, and the kernel versions of the GPU nodes are not known, because NFD has not "
    "labeled any of these nodes. Set gpu_mirror_kernels (option kernels of the module), for example to [5.15.0-91-generic]"
)


class ImageSetModule(RegistryAccessMixin, PlanModule):
    """A module with the options for the cluster, the pools and the registries."""


def work(module: ImageSetModule) -> dict[str, t.Any]:
    """Collect the images, write the files, and verify the mirror."""
    plan = module.plan
    _check_registries(module.params)
    images = _images(module, plan)
    files = FileSet(module.params["dest"], images, plan, _openshift(module, plan))
    changes = files.changes()
    if not module.check_mode:
        files.write(changes)
    result: dict[str, t.Any] = {
        "images": [image.as_dict() for image in images],
        "copies": copies(images, module.params["platforms"]),
        "files": files.paths,
    }
    if module.params["verify"]:
        result.update(verify(module.registry_client, images, module.params["digests_file"], module.params["platforms"]))
        require_complete(result)
    before = {path: texts[0] for path, texts in changes.items() if texts[0] is not None}
    after = {path: texts[1] for path, texts in changes.items()}
    return {"changed": bool(changes), "image_set": result, "diff": diff_of(before, after, "files")}


def _check_registries(params: t.Mapping[str, t.Any]) -> None:
    """Raise InvalidOptions if an option contains something that is not a registry."""
    given = {} if params["mirror"] is None else {"mirror": params["mirror"]}
    given.update({f"upstreams.{host}": text for host, text in params["upstreams"].items()})
    problems = [
        f"upstreams: {quote(host)} is not the host of a registry; write it without a scheme and a path, as in nvcr.io"
        for host in params["upstreams"]
        if "/" in host
    ]
    for path, text in given.items():
        try:
            parse_repository(f"{text}/x")
        except InvalidReference as error:
            problems.append(f"{path}: {quote(text)} {error}")
        else:
            if "://" in text:
                problems.append(f"{path}: {quote(text)} has a scheme; write it without docker://")
    if problems:
        raise InvalidOptions(problems)


def _images(module: ImageSetModule, plan: Plan) -> list[MirroredImage]:
    params = module.params
    if problems := operator_version_problems(params["operator_versions"]):
        raise InvalidOptions(problems)
    node_systems = NodeSystems(params["operating_systems"], plan.pools, lambda: module.client.list(NODES))
    versions = {plan.operator.version, *params["operator_versions"]}

    def suffixes_of(pool: PoolPlan | None, precompiled: bool) -> set[str]:
        systems = node_systems.of_pool(pool) if pool else node_systems.of_all()
        kernels = params["kernels"]
        pairs = {(system, kernel) for system in systems for kernel in kernels} if kernels else set()
        if precompiled and not kernels:
            pairs = node_systems.kernels(pool)
        if not (pairs if precompiled else systems):
            raise InvalidOptions([_UNKNOWN_KERNELS if systems and precompiled else _UNKNOWN_SYSTEMS])
        if precompiled:
            return {f"{kernel}-{os_tag(*system, version)}" for system, kernel in pairs for version in versions}
        return {os_tag(*system, version) for system in systems for version in versions}

    with temporary_folder("helm", beside=module.tmpdir) as folder:

        def helm() -> Helm:
            binary = find_helm(params["binary_path"], module.get_bin_path)
            return Helm(binary, module.run_command, tempfile.mkdtemp(dir=folder))

        collector = ImageCollector(
            helm, module.client if plan.operator.installer == OLM else None, suffixes_of, params["programs"]
        )
        requested = collector.images(plan)
        public = collector.images(_without_mirror(module)) if _mirror_of(module) else requested
    return mirrored(
        requested,
        public,
        params["mirror"],
        params["upstreams"],
        collector.private,
        from_hub=plan.operator.installer != OLM,
    )


def _mirror_of(module: ImageSetModule) -> t.Any:
    return (module.params["gpu_cluster"].get("operator") or {}).get("registry")


def _without_mirror(module: ImageSetModule) -> Plan:
    """Return the plan with public registries instead of the declared mirror."""
    cluster = module.params["gpu_cluster"]
    operator = {key: value for key, value in cluster["operator"].items() if key != "registry"}
    return derive({**cluster, "operator": operator}, module.params["gpu_defaults"] or {}, module.params["gpu_pools"])


def _openshift(module: ImageSetModule, plan: Plan) -> str:
    """Return the version of OpenShift, if a file requires it."""
    return (openshift_version(module.client) or "") if plan.operator.installer == OLM and module.params["dest"] else ""


def main() -> None:
    """Run the module."""
    module = ImageSetModule(merge_specs(REGISTRY, _SPEC))
    try:
        module.run(work)
    except HelmMissing as error:
        module.fail_json(msg=str(error), code="helm_missing")
    except ChartProblem as error:
        module.fail_json(msg=str(error), code="chart")


if __name__ == "__main__":
    main()
