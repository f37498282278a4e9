#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies images between registries, archives and layouts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_image
short_description: Copy images between registries, sending only what differs
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Compares the digest of each source with the digests of its destination. Images that differ are copied with skopeo. For an image that does not differ, the
    module sends one request to the source and, for each tag, one request to the destination. All images are compared in parallel. Images with different
    destination repositories are also copied in parallel.
  - Digests are preserved. An index is copied with all of its platforms, unless O(images[].platforms) selects some of them.
  - If the destination repository already has the image under one of the tags, the module sends one request for each of the other tags.
  - The module does not send layers that the destination already has, for example after an interrupted run.
  - All references are checked, and all images are compared, before the first image is copied. If sources are missing, the module reports all of them and copies
    nothing.
extends_documentation_fragment:
  - accel.gpu.registry
  - accel.gpu.registry.image_tools
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  images:
    description: The images.
    type: list
    elements: dict
    required: true
    suboptions:
      source:
        description:
          - Image in a registry, with a tag or digest, such as V(nvcr.io/nvidia/gpu-operator:v25.10.1).
          - For an archive or a layout on this machine, use V(oci-archive:/path), V(docker-archive:/path), V(oci:/path:tag) or V(dir:/path). V(docker-archive)
            can only be a source, because this format does not preserve digests.
        type: str
        required: true
      destination:
        description:
          - Image in a registry, with a tag. Alternatively, an archive or a layout, in the same form as in O(images[].source). If the tag already refers to an
            image with a different digest, that image is replaced.
        type: str
        required: true
      tags:
        description: Additional tags for the same image in the repository of O(images[].destination).
        type: list
        elements: str
        default: []
      platforms:
        description:
          - Platforms to copy, such as V(linux/amd64). By default, all platforms are copied. If you specify a single platform, it is copied as an image without
            an index.
        type: list
        elements: str
        default: []
      pull_through:
        description:
          - Whether O(images[].destination) is a pull-through cache, such as a remote repository of Artifactory. The module does not send images to a cache.
            Instead, it fails unless the cache returns the image in O(images[].source).
        type: bool
        default: false
  digests_file:
    description:
      - Path to a file to which the digest of each destination is written as JSON, so that M(accel.gpu.image_set) can verify a mirror without access to the
        public registries.
    type: path
requirements:
  - skopeo, if an image differs or is not in a registry
seealso:
  - module: accel.gpu.registry_image_info
"""

EXAMPLES = r"""
- name: Copy the operator's image to a private registry, with an additional tag
  accel.gpu.registry_image:
    images:
      - source: nvcr.io/nvidia/gpu-operator:v25.10.1
        destination: registry.example.com/nvidia/gpu-operator:v25.10.1
        tags: [stable]
        platforms: [linux/amd64]
    registries:
      - registry: registry.example.com
        username: gpu
        password: "{{ registry_password }}"
        ca_cert: /etc/pki/registry-ca.crt

- name: Set the connection options once for all modules of the action group
  module_defaults:
    group/accel.gpu.registry:
      registries: "{{ gpu_registries }}"
  block:
    - name: Save the image to an archive for a site without network access
      accel.gpu.registry_image:
        images:
          - source: registry.example.com/nvidia/gpu-operator:v25.10.1
            destination: oci-archive:/media/usb/gpu-operator.tar
"""

RETURN = r"""
images:
  description: The images, in the order of O(images). If some images could not be copied, only the images that were copied are returned.
  returned: always
  type: list
  elements: dict
  contains:
    source: {description: The source., type: str, returned: always, sample: 'nvcr.io/nvidia/gpu-operator:v25.10.1'}
    destination: {description: The destination., type: str, returned: always, sample: 'registry.example.com/nvidia/gpu-operator:v25.10.1'}
    tags: {description: The additional tags., type: list, elements: str, returned: always, sample: [stable]}
    digest:
      description: The digest of the image at the destination after the run.
      type: str
      returned: always
      sample: sha256:5e9d51ee2b5cd3c0dbcd4d0cbe1b0a4f4e3a9b56a1d8d4f9c3f5f2f8b4c1a7d2
    action:
      description: V(created) if no tag existed, V(updated) if a tag was missing or had a different digest, or V(unchanged) otherwise.
      type: str
      returned: always
      sample: unchanged
code:
  description:
    - The reason for the failure. V(invalid) - errors in the options, or an image that does not exist. V(connection) - no usable credentials, or a tool is
      missing. V(unreachable) - a registry does not respond. V(tool) - skopeo failed. V(partial) - several images failed. Otherwise, the HTTP status of the
      registry's error.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ['images[0].source: "gpu-operator" does not specify a registry; put its host first']}
"""

import json
import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.files import make_folder, text_of_file, write_private_file
from ..module_utils.core.messages import diff_of
from ..module_utils.core.module import ArgumentSpec, merge_specs
from ..module_utils.registry.images import CopyState, ImageCopier, parse_specs
from ..module_utils.registry.module import IMAGE_TOOLS, RegistryModule

_SPEC: ArgumentSpec = {
    "images": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "source": {"type": "str", "required": True},
            "destination": {"type": "str", "required": True},
            "tags": {"type": "list", "elements": "str", "default": []},
            "platforms": {"type": "list", "elements": "str", "default": []},
            "pull_through": {"type": "bool", "default": False},
        },
    },
    "digests_file": {"type": "path"},
}


def work(module: RegistryModule) -> dict[str, t.Any]:
    """Compare all images, and copy those that differ."""
    specs, problems = parse_specs(module.params["images"])
    if problems:
        raise InvalidOptions(problems)
    copier = ImageCopier(module.registry_client, module.image_tools, module.progress.report)
    states = copier.compare(specs)
    digests = {str(target): state.desired for state in states for target in state.spec.targets}
    text = f"{json.dumps(digests, indent=2, sort_keys=True)}\n"
    path = module.params["digests_file"]
    records = bool(path) and text_of_file(path) != text
    copier.require(states)
    if not module.check_mode:
        copier.copy(states)
        if records:
            make_folder(path)
            write_private_file(path, text, keep_mode=True)
    result = _result(states)
    return {**result, "changed": result["changed"] or records}


def _result(states: t.Sequence[CopyState]) -> dict[str, t.Any]:
    changed = [state for state in states if state.different]
    before = {name: digest for state in changed for name, digest in state.actual.items() if digest}
    after = {name: state.desired for state in changed for name in state.actual}
    return {
        "changed": bool(changed),
        "images": [state.result() for state in states],
        "diff": diff_of(before, after, "images"),
    }


def main() -> None:
    """Run the module."""
    RegistryModule(merge_specs(IMAGE_TOOLS, _SPEC)).run(work)


if __name__ == "__main__":
    main()
