#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads digests, platforms and labels of images in registries."""

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_image_info
short_description: Read digests, platforms and labels of images in registries
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads images in registries without downloading their layers. The module sends one request for each image. With O(details=true), it sends one or two more
    requests for each image.
  - The module reads all images in parallel. An image that does not exist is not an error.
extends_documentation_fragment:
  - accel.gpu.registry
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  images:
    description: Images to read, each with a tag or digest, such as V(registry.example.com/nvidia/driver:580.105.08-rhel9.6).
    type: list
    elements: str
    required: true
  details:
    description: Whether to also read platforms, labels, creation time and size.
    type: bool
    default: true
seealso:
  - module: accel.gpu.registry_image
"""

EXAMPLES = r"""
- name: Find out which driver an image contains
  accel.gpu.registry_image_info:
    images: [registry.example.com/nvidia/driver:580.105.08-rhel9.6]
  register: driver

- name: Fail if the image does not exist
  ansible.builtin.assert:
    that: driver.images[0].exists
"""

RETURN = r"""
images:
  description: The images, in the order of O(images).
  returned: always
  type: list
  elements: dict
  contains:
    image: {description: The image., type: str, returned: always, sample: 'registry.example.com/nvidia/driver:580.105.08-rhel9.6'}
    exists: {description: Whether the registry has the image., type: bool, returned: always, sample: true}
    digest:
      description: Digest of the image; empty if the image does not exist.
      type: str
      returned: always
      sample: sha256:5e9d51ee2b5cd3c0dbcd4d0cbe1b0a4f4e3a9b56a1d8d4f9c3f5f2f8b4c1a7d2
    media_type:
      description: Media type of the image's manifest.
      type: str
      returned: if the image exists and O(details=true)
      sample: application/vnd.oci.image.index.v1+json
    platforms: {description: Platforms of the image., type: list, elements: str, returned: if the image exists and O(details=true), sample: [linux/amd64]}
    labels: {description: Labels of the image for the first platform., type: dict,
      returned: if the image exists and O(details=true), sample: {version: 580.105.08}}
    created: {description: Time at which the image was created., type: str, returned: if the image exists and O(details=true), sample: '2026-11-02T09:14:00Z'}
    size: {description: "Total size, in bytes, of the layers for the first platform.", type: int,
      returned: if the image exists and O(details=true), sample: 512000000}
code:
  description:
    - The reason for the failure. V(invalid) - errors in the options. V(connection) - no usable credentials. V(unreachable) - a registry does not respond.
      Otherwise, the HTTP status of the registry's error.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ['images[0]: "gpu-operator" does not specify a registry; put its host first']}
"""

import functools
import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import quote
from ..module_utils.core.waits import call_all
from ..module_utils.registry.client import RegistryClient
from ..module_utils.registry.module import RegistryModule
from ..module_utils.registry.reference import ImageReference, InvalidReference, image_platform, labels_of, parse_image


def work(module: RegistryModule) -> dict[str, t.Any]:
    """Read all images."""
    images: list[ImageReference] = []
    problems = []
    for index, text in enumerate(module.params["images"]):
        try:
            images.append(parse_image(text))
        except InvalidReference as error:
            problems.append(f"images[{index}]: {quote(text)} {error}")
    if problems:
        raise InvalidOptions(problems)
    read = _read_details if module.params["details"] else _read_digest
    client = module.registry_client
    outcomes = call_all([(str(image), functools.partial(read, client, image)) for image in images])
    return {"changed": False, "images": outcomes}


def _read_digest(client: RegistryClient, image: ImageReference) -> dict[str, t.Any]:
    digest = client.digest(image)
    return {"image": str(image), "exists": digest is not None, "digest": digest or ""}


def _read_details(client: RegistryClient, image: ImageReference) -> dict[str, t.Any]:
    manifest = client.manifest(image)
    if manifest is None:
        return {"image": str(image), "exists": False, "digest": ""}
    platforms, one = manifest.children, manifest
    if manifest.is_index and platforms:
        one = client.manifest(image.with_digest(next(iter(platforms.values())))) or manifest
    config = client.config(image, one)
    return {
        "image": str(image),
        "exists": True,
        "digest": manifest.digest,
        "media_type": manifest.media_type,
        "platforms": list(platforms) or [name for name in [image_platform(config)] if name],
        "labels": labels_of(config),
        "created": config.get("created") or "",
        "size": one.size,
    }


def main() -> None:
    """Run the module."""
    spec: dict[str, dict[str, t.Any]] = {
        "images": {"type": "list", "elements": "str", "required": True},
        "details": {"type": "bool", "default": True},
    }
    RegistryModule(spec).run(work)


if __name__ == "__main__":
    main()
