#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds or copies the vGPU driver images that the pools declare."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_image
short_description: Build vGPU driver images and push them with every tag that the GPU operator requests
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Provides, for each pool with C(driver.type=vgpu), the driver image that C(driver.repository), C(driver.image) and C(driver.version) declare.
  - To form the tag of an image, the GPU operator appends the operating system of the node to the driver version. The format depends on the operator release
    (C(rhel9.6) before v26.7, C(rhel9) in v26.7 and later). The module tags the image for the operating systems of all the pool's nodes, in the formats of
    both the declared and the installed operator release. The image is therefore still available after an operator upgrade.
  - The image is built with buildah from NVIDIA's build context (gpu-driver-container) and the installer of the guest driver, or it is copied from O(source).
  - The labels of a built image contain its version and the digest of all its inputs. The image is rebuilt only if an input has changed. Each additional tag
    requires only one request.
  - Installers of other drivers, such as the vGPU manager for KVM, are rejected. If O(manager_version) is set, a guest driver that the hypervisor's vGPU
    manager does not support is also rejected.
  - Images of the vGPU driver must not be published, so public registries are rejected.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.registry.with_cluster
  - accel.gpu.registry
  - accel.gpu.registry.image_tools
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  installers:
    description:
      - Path to a directory with installers of the guest driver, such as C(NVIDIA-Linux-x86_64-580.95.05-grid.run), or to a single installer. For each pool,
        the module uses the installer for the declared driver version.
      - Required unless O(source) is set.
    type: path
  build_context:
    description:
      - Path to a checkout of C(https://github.com/NVIDIA/gpu-driver-container). The checkout is not changed.
      - Required unless O(source) is set.
    type: path
  source:
    description:
      - A repository that already contains the images, such as V(nvcr.io/nvidia/vgpu/vgpu-guest-driver-5). Specify it without a tag.
      - The images are copied instead of built.
    type: str
  operating_systems:
    description:
      - Operating systems for which images are needed, each as ID and VERSION_ID from C(/etc/os-release), such as V(rhcos4.18), V(rhel9.6) or V(ubuntu22.04).
      - By default, the operating systems of the pool's nodes are used, according to NFD's labels. If the pool has no nodes yet, the operating systems of all
        nodes are used.
    type: list
    elements: str
    default: []
  operator_versions:
    description:
      - Releases of the GPU operator that will request the images, such as V(v25.10.1).
      - By default, C(gpu_cluster.operator.version) and the installed release are used. If O(operating_systems) is set, the module does not read the cluster,
        so the installed release is not included.
    type: list
    elements: str
    default: []
  manager_version:
    description: Version of the vGPU manager on the hypervisors, such as V(550.163.02). If this option is not set, the compatibility is not checked.
    type: str
  catalog_file:
    description:
      - Path to NVIDIA's C(vgpuDriverCatalog.yaml). The file is copied into the image and overrides the collection's own table of releases.
    type: path
  version_check:
    description: Whether the driver container checks at startup that the vGPU manager supports the driver version. Requires O(catalog_file).
    type: bool
    default: false
  build_args:
    description:
      - Build arguments of the Dockerfile. They override the arguments that the module sets and the arguments in C(versions.mk) of O(build_context).
      - Everyone who can pull the image can read the arguments. During the build, all users of the build machine can also read them. An argument is rejected
        if its name indicates a secret, such as a password or a token.
    type: dict
    default: {}
  isolation:
    description: Isolation mode that buildah uses for the build commands. V(oci) requires a container runtime, and V(rootless) requires user namespaces.
    type: str
    choices: [chroot, oci, rootless]
    default: chroot
  storage_root:
    description: Directory for buildah's storage. By default, the user's storage is used.
    type: path
  storage_driver:
    description: Storage driver that buildah uses, such as V(overlay) or V(vfs). By default, the driver of the user's storage is used.
    type: str
  allow_public_registry:
    description:
      - Whether images may be pushed to a public registry, such as C(quay.io). NVIDIA's license allows this only if other users cannot read the repository.
    type: bool
    default: false
  force:
    description:
      - Whether images that this collection did not build are replaced if they have the same tags. With O(source), any existing image with a different digest
        is kept unless this option is set, because a copied image contains no information about who built it.
    type: bool
    default: false
requirements:
  - buildah, if an image is built
  - skopeo, if an image is copied
seealso:
  - module: accel.gpu.registry_image
  - module: accel.gpu.image_set
"""

EXAMPLES = r"""
- name: Build the driver images of the pools
  accel.gpu.driver_image:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_defaults: "{{ gpu_defaults }}"
    gpu_pools: "{{ gpu_pools }}"
    installers: /srv/nvidia/guest-drivers
    build_context: /srv/nvidia/gpu-driver-container
    manager_version: 580.95.02
    registries:
      - {registry: registry.example.com, username: gpu, password: "{{ registry_password }}"}

- name: Copy the images from NVIDIA's registry, using the API key in the environment variable NGC_API_KEY
  accel.gpu.driver_image:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    source: nvcr.io/nvidia/vgpu/vgpu-guest-driver-5
"""

RETURN = r"""
driver_images:
  description: The images after the run or, in check mode, after the predicted changes.
  returned: success
  type: list
  elements: dict
  contains:
    image: {description: Registry and repository., type: str, returned: always, sample: registry.example.com/nvidia/driver}
    version: {description: Version of the driver., type: str, returned: always, sample: 580.95.05}
    pools: {description: The pools that use the image., type: list, elements: str, returned: always, sample: [vdi]}
    tags: {description: Tags of the image., type: list, elements: str, returned: always, sample: [580.95.05-rhel9, 580.95.05-rhel9.6]}
    digests:
      description: The digest of each tag. In check mode, the digest is empty for an image that would be built.
      type: dict
      returned: always
      sample: {580.95.05-rhel9: 'sha256:5e9d51ee2b5cd3c0dbcd4d0cbe1b0a4f4e3a9b56a1d8d4f9c3f5f2f8b4c1a7d2'}
    action:
      description: V(built), V(copied), V(tagged) if only tags were missing, or V(unchanged).
      type: str
      returned: always
      sample: unchanged
code:
  description:
    - The reason for the failure. V(invalid) - errors in the options or the variables. V(connection) - no usable credentials, or a tool is missing.
      V(wrong_cluster) - the connection points to a different cluster. V(tool) - buildah or skopeo failed. V(unreachable) - the cluster or a registry does not
      respond. For all other errors, the code is the HTTP status.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["installers: NVIDIA-Linux-x86_64-580.95.02-vgpu-kvm.run is the vGPU manager for KVM hosts."]}
"""

import typing as t

from ..module_utils.core import yaml_text
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import diff_of, join_words, quote
from ..module_utils.core.module import ArgumentSpec, merge_specs
from ..module_utils.gpu_operator.detect import find_operator
from ..module_utils.images.driver_build import (
    BuildOptions,
    BuildSpec,
    ImageBuilder,
    build_arg_problems,
    catalog_problem,
    check_compatibility,
    downloads,
    unreachable,
)
from ..module_utils.images.driver_images import (
    BuiltImages,
    CopiedImages,
    DriverImage,
    NodeSystems,
    desired_images,
    require_no_replacement,
)
from ..module_utils.kube.paths import NODES
from ..module_utils.pools.module import PlanModule
from ..module_utils.registry.images import ImageCopier
from ..module_utils.registry.module import IMAGE_TOOLS, REGISTRY, RegistryAccessMixin
from ..module_utils.registry.reference import InvalidReference, parse_repository
from ..module_utils.schema.cluster import operator_version_problems

_SPEC: ArgumentSpec = {
    "installers": {"type": "path"},
    "build_context": {"type": "path"},
    "source": {"type": "str"},
    "operating_systems": {"type": "list", "elements": "str", "default": []},
    "operator_versions": {"type": "list", "elements": "str", "default": []},
    "manager_version": {"type": "str"},
    "catalog_file": {"type": "path"},
    "version_check": {"type": "bool", "default": False},
    "build_args": {"type": "dict", "default": {}},
    "isolation": {"type": "str", "choices": ["chroot", "oci", "rootless"], "default": "chroot"},
    "storage_root": {"type": "path"},
    "storage_driver": {"type": "str"},
    "allow_public_registry": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
}


class DriverImageModule(RegistryAccessMixin, PlanModule):
    """Combines the options for the cluster, the pools and the registries in one module."""


def work(module: DriverImageModule) -> dict[str, t.Any]:
    """Find the images that the pools need, and build or copy those that the registry does not have."""
    images = _images(module)
    _check_compatibility(module, images)
    return _copied(module, images) if module.params["source"] else _built(module, images)


def _images(module: DriverImageModule) -> list[DriverImage]:
    params, plan = module.params, module.plan
    if problems := operator_version_problems(params["operator_versions"]):
        raise InvalidOptions(problems)
    systems = NodeSystems(params["operating_systems"], plan.pools, lambda: module.client.list(NODES))
    versions = params["operator_versions"] or _operator_versions(module)
    images, problems, unknown = desired_images(
        plan, systems.of_pool, versions, allow_public_registry=params["allow_public_registry"]
    )
    if unknown and module.check_mode:
        module.warn(
            f"The driver images of {join_words(unknown)} are not predicted: their tags contain the operating system of the nodes, which is known when NFD "
            "has labeled them"
        )
    else:
        problems += [
            f"Pool {name}: the operating system of its nodes is not known yet, because NFD has not labeled any of them. Set "
            "gpu_driver_image_operating_systems (option operating_systems of the module), such as [rhel9.6]"
            for name in unknown
        ]
    if images and not versions:
        problems.append(
            "operator_versions: is missing; the variables declare no release of the GPU operator, so the tags of the images are not known"
        )
    if problems:
        raise InvalidOptions(problems)
    return images


def _operator_versions(module: DriverImageModule) -> set[str]:
    """Return the declared and the installed release. The cluster is not read if operating systems are set."""
    versions = {module.plan.operator.version}
    if not module.params["operating_systems"]:
        installation = find_operator(module.client, module.plan).installation
        versions |= {installation.version} if installation and installation.version else set()
    return {version for version in versions if version}


def _check_compatibility(module: DriverImageModule, images: t.Sequence[DriverImage]) -> None:
    manager, path = module.params["manager_version"], module.params["catalog_file"]
    if not manager:
        return
    catalog = None
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                catalog = yaml_text.parse_yaml(file.read())
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or "it is not YAML"
            raise InvalidOptions([f"catalog_file: {path} cannot be read: {reason}"]) from None
        if problem := catalog_problem(catalog):
            raise InvalidOptions(
                [
                    f"catalog_file: {path} is not a catalog of vGPU drivers: {problem}. Download vgpuDriverCatalog.yaml again"
                ]
            )
    verdicts = [check_compatibility(image.version, manager, catalog) for image in images]
    problems = [f"manager_version: {verdict.problem}" for verdict in verdicts if verdict.problem]
    if problems:
        raise InvalidOptions(list(dict.fromkeys(problems)))
    for text in dict.fromkeys(verdict.warning for verdict in verdicts if verdict.warning):
        module.warn(text)


def _built(module: DriverImageModule, images: t.Sequence[DriverImage]) -> dict[str, t.Any]:
    params = module.params
    missing = [name for name in ("installers", "build_context") if not params[name]]
    if images and missing:
        raise InvalidOptions([f"{name}: is missing; set it, or set source to copy the images" for name in missing])
    if problems := build_arg_problems(params["build_args"]):
        raise InvalidOptions(problems)
    options = BuildOptions(
        context=params["build_context"] or "",
        installers=params["installers"] or "",
        catalog_file=params["catalog_file"],
        build_args={name: str(value) for name, value in params["build_args"].items()},
        version_check=params["version_check"],
        isolation=params["isolation"],
        storage_root=params["storage_root"],
        storage_driver=params["storage_driver"],
    )
    built = BuiltImages(
        module.registry_client,
        ImageBuilder(module.image_tools, module.tmpdir),
        options,
        replace_foreign=params["force"],
    )
    states = built.compare(images)
    actions = [state.action for state in states]
    before = {
        str(state.image.repository.with_tag(tag)): digest
        for state in states
        for tag, digest in state.actual.items()
        if digest
    }
    if "built" in actions:
        module.image_tools.require("buildah")
        _warn_of_downloads(module, [state.spec for state in states if state.action == "built"])
    if not module.check_mode:
        built.apply(states, module.progress.report)
    results = []
    for image in images:
        own = [(state, action) for state, action in zip(states, actions, strict=True) if state.image is image]
        digests = {tag: state.built for state, dummy in own for tag in state.actual}
        action = next((name for name in ("built", "tagged") if any(name == one for dummy, one in own)), "unchanged")
        results.append(_entry(image, digests, action))
    return _result(results, before, changed=any(action != "unchanged" for action in actions))


def _warn_of_downloads(module: DriverImageModule, specs: t.Iterable[BuildSpec]) -> None:
    """Warn, before a build of many minutes, of hosts that its steps need and that this machine does not reach."""
    hosts = {host: address for spec in specs for host, address in downloads(spec).items()}
    if missing := unreachable(hosts):
        module.warn(
            f"The build downloads from {join_words(sorted(hosts))}, and this machine does not reach {join_words(missing)}. If a step of the build needs one "
            "of them, the build fails. At a site without internet access, provide mirrors for these hosts and change the addresses in build_context, or "
            "build the image elsewhere and set source to copy it."
        )


def _copied(module: DriverImageModule, images: t.Sequence[DriverImage]) -> dict[str, t.Any]:
    try:
        source = parse_repository(module.params["source"])
    except InvalidReference as error:
        raise InvalidOptions([f"source: {quote(module.params['source'])} {error}"]) from None
    copier = ImageCopier(module.registry_client, module.image_tools)
    states = copier.compare(CopiedImages(module.registry_client, copier, source).specs(images))
    if not module.params["force"]:
        require_no_replacement(states)
    copier.require(states)
    if not module.check_mode:
        copier.copy(states)
    before = {name: digest for state in states for name, digest in state.actual.items() if digest}
    results = []
    for image in images:
        names = {str(image.repository.with_tag(tag)): tag for tag in image.tags}
        own = [state for state in states if state.spec.name in names]
        digests = {names[state.spec.name]: state.desired for state in own}
        results.append(_entry(image, digests, "copied" if any(state.different for state in own) else "unchanged"))
    return _result(results, before, changed=any(state.different for state in states))


def _entry(image: DriverImage, digests: t.Mapping[str, str], action: str) -> dict[str, t.Any]:
    return {
        "image": image.repository.name,
        "version": image.version,
        "pools": list(image.pools),
        "tags": list(image.tags),
        "digests": dict(digests),
        "action": action,
    }


def _result(images: list[dict[str, t.Any]], before: dict[str, t.Any], *, changed: bool) -> dict[str, t.Any]:
    after = {
        f"{entry['image']}:{tag}": digest or "(built by this run)"
        for entry in images
        for tag, digest in entry["digests"].items()
    }
    return {"changed": changed, "driver_images": images, "diff": diff_of(before, after, "driver images")}


def main() -> None:
    """Run the module."""
    DriverImageModule(merge_specs(REGISTRY, IMAGE_TOOLS, _SPEC)).run(work)


if __name__ == "__main__":
    main()
