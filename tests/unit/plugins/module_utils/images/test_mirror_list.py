# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The place of images in a mirror: nothing is replaced by another image, and images by digest get a tag."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.images.mirror import (
    copies,
    copy_list,
    image_set_configuration,
    mirrored,
)

MIRROR = "registry.example.com/mirror"
DIGEST = f"sha256:{'0' * 64}"
DRIVER = f"{MIRROR}/nvidia/driver:580.95.05-rhel9.6"
PUBLIC_DRIVER = "nvcr.io/nvidia/driver:580.95.05-rhel9.6"


@pytest.mark.parametrize("order", [["driver/vdi", "driver/a"], ["driver/a", "driver/vdi"]])
def test_a_copy_does_not_replace_a_vgpu_driver(order: list[str]) -> None:
    public = {"driver/a": PUBLIC_DRIVER, "driver/vdi": DRIVER}
    with pytest.raises(InvalidOptions, match="require different images with this name"):
        mirrored(dict.fromkeys(order, DRIVER), public, None, private={"driver/vdi"})


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("nvcr.io/nvidia/x", "nvcr.io/nvidia/x:latest"),
        ("registry.example.org:5000/x", "registry.example.org:5000/x:latest"),
        ("busybox", "docker.io/library/busybox:latest"),
        ("curlimages/curl:8.1", "docker.io/curlimages/curl:8.1"),
        (f"nvidia/x@{DIGEST}", f"docker.io/nvidia/x@{DIGEST}"),
    ],
)
def test_short_names_are_completed_as_nodes_complete_them(name: str, source: str) -> None:
    (actual,) = mirrored({"operator/a": name}, {"operator/a": name}, MIRROR)
    assert (actual.source, actual.destination) == (source, f"{MIRROR}/{source.partition('/')[2]}")


def test_nodes_of_openshift_search_several_registries_for_a_short_name() -> None:
    names = {"operator/a": "ubi9/ubi:1", "operator/b": "nvcr.io/nvidia/x"}
    with pytest.raises(InvalidOptions) as caught:
        mirrored(names, names, MIRROR, from_hub=False)
    (problem,) = caught.value.problems
    assert problem.startswith('operator/a: the image "ubi9/ubi:1" does not specify a registry')


def test_all_invalid_names_are_reported_with_their_components() -> None:
    names = {"operator/a": "nvcr.io/NVIDIA/x:1", "operator/b": "nvcr.io/nvidia/ok:1", "nfd/c": "nvcr.io/x:no tag"}
    with pytest.raises(InvalidOptions) as caught:
        mirrored(names, names, MIRROR)
    first, second = caught.value.problems
    assert first.startswith('operator/a: the image "nvcr.io/NVIDIA/x:1" has an invalid repository')
    assert second.startswith('nfd/c: the image "nvcr.io/x:no tag" has an invalid tag')


def test_images_by_digest_keep_all_platforms() -> None:
    names = {"a": "nvcr.io/nvidia/a:1", "b": f"nvcr.io/nvidia/b@{DIGEST}"}
    images = mirrored(names, names, MIRROR)
    assert [copy["platforms"] for copy in copies(images, ["linux/amd64"])] == [["linux/amd64"], []]


def test_two_public_images_with_one_name() -> None:
    public = {"a": "nvcr.io/nvidia/x:1", "b": "docker.io/nvidia/x:1"}
    with pytest.raises(InvalidOptions, match="a and b require different images"):
        mirrored(public, public, MIRROR)


@pytest.mark.parametrize("order", [["operator", "validator"], ["validator", "operator"]])
def test_an_image_that_the_values_name_in_the_mirror_is_copied(order: list[str]) -> None:
    name = f"{MIRROR}/nvidia/gpu-operator:v25.10.1"
    public = {"operator": "nvcr.io/nvidia/gpu-operator:v25.10.1", "validator": name}
    (actual,) = mirrored(dict.fromkeys(order, name), public, MIRROR)
    assert (actual.source, actual.destination) == ("nvcr.io/nvidia/gpu-operator:v25.10.1", name)


def test_a_mirror_that_the_cluster_does_not_use_yet() -> None:
    requested = {"operator": "old.example.com/m/nvidia/gpu-operator:v1", "driver/vdi": "private.example.com/driver:1"}
    public = {"operator": "nvcr.io/nvidia/gpu-operator:v1", "driver/vdi": "private.example.com/driver:1"}
    actual, private = mirrored(requested, public, MIRROR, {"nvcr.io": "old.example.com/m"}, private={"driver/vdi"})
    assert (actual.source, actual.destination) == (public["operator"], f"{MIRROR}/nvidia/gpu-operator:v1")
    assert actual.copy_source == requested["operator"]
    assert private.destination == public["driver/vdi"]


def test_private_images_stay() -> None:
    images = {"driver/vdi": "private.example.com/nvidia/driver:1", "mine": f"{MIRROR}/nvidia/x:1"}
    assert [one.copied for one in mirrored(images, images, MIRROR, private={"driver/vdi"})] == [False, False]


def test_images_by_digest_get_a_tag() -> None:
    images = {"operator": f"nvcr.io/nvidia/gpu-operator@{DIGEST}"}
    (actual,) = mirrored(images, images, MIRROR)
    assert actual.destination == f"{MIRROR}/nvidia/gpu-operator@{DIGEST}"
    assert actual.stored_as == f"{MIRROR}/nvidia/gpu-operator:sha256-{'0' * 64}"
    assert copy_list([actual]) == f"docker://nvcr.io/nvidia/gpu-operator@{DIGEST} docker://{actual.stored_as}\n"


def test_the_channel_is_the_default_of_the_mirrored_package() -> None:
    olm: dict[str, Any] = {
        "package": "gpu-operator-certified",
        "channel": "v25.10",
        "catalog_image": None,
        "source": [],
    }
    release = cast("Any", SimpleNamespace(olm=olm, version="v25.10.1"))
    (catalog,) = image_set_configuration([], [release], "4.18.5")["mirror"]["operators"]
    assert catalog["catalog"] == "registry.redhat.io/redhat/certified-operator-index:v4.18"
    assert catalog["packages"] == [
        {
            "name": "gpu-operator-certified",
            "defaultChannel": "v25.10",
            "channels": [{"name": "v25.10", "minVersion": "25.10.1", "maxVersion": "25.10.1"}],
        }
    ]
