# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""registry_image and registry_image_info against real registries: copies, tags, platforms, archives, requests."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import registry_image_info
from lab.layout import Lab as LabLayout
from lab.registry import layout
from tests.helpers.modules import run_module
from tests.helpers.registries import Registries
from tests.helpers.registry_images import MEDIA_TYPES, PushedImage, push_image
from tests.programs import run

pytestmark = [pytest.mark.lab, pytest.mark.usual(3), pytest.mark.timeout(300)]


def pushed(registries: Registries, name: str = "source", **options: Any) -> tuple[str, PushedImage]:
    """An image in the plain registry, and its reference."""
    repository = f"{registries.unique}/{name}"
    image = push_image(registries.client(), repository, "1", **options)
    return f"{registries.plain}/{repository}:1", image


def info(registries: Registries, *images: str, **options: Any) -> list[dict[str, Any]]:
    result = run_module(
        registry_image_info.main,
        {"images": list(images), "registries": registries.options(), **options},
        env={"HOME": str(registries.folder)},
    )
    assert not result.get("failed"), result
    actual: list[dict[str, Any]] = result["images"]
    return actual


@pytest.mark.parametrize("kind", MEDIA_TYPES)
def test_an_index_is_copied_with_its_digests_and_tags(registries: Registries, kind: str) -> None:
    source, image = pushed(registries, kind=kind, labels={"a": "b"})
    target = f"{registries.tls}/{registries.unique}/target"
    result = registries.copied({"source": source, "destination": f"{target}:1", "tags": ["one", "latest"]})
    assert (result["images"][0]["digest"], result["images"][0]["action"]) == (image.digest, "created")
    client = registries.client("LAB_REGISTRY_TLS")
    for tag in ("1", "one", "latest"):
        assert client.digest(f"{registries.unique}/target", tag) == image.digest
    for platform, digest in image.manifests.items():
        assert client.manifest(f"{registries.unique}/target", digest)["layers"][0]["digest"] == image.layers[platform]
    (actual,) = info(registries, f"{target}:latest")
    assert (actual["exists"], actual["digest"], actual["platforms"]) == (
        True,
        image.digest,
        ["linux/amd64", "linux/arm64"],
    )
    assert (actual["labels"], actual["media_type"]) == ({"a": "b"}, MEDIA_TYPES[kind][0])


def test_a_run_without_changes_sends_one_request_to_each_side(registries: Registries) -> None:
    names = [f"many-{number}" for number in range(10)]
    sources = [pushed(registries, name)[0] for name in names]
    images = [
        {"source": source, "destination": f"{registries.tls}/{registries.unique}/{name}:1"}
        for name, source in zip(names, sources, strict=True)
    ]
    registries.copied(*images)
    with registries.requests() as read, registries.requests(layout.TLS) as compared:
        assert not registries.copy(*images)["changed"]
    # One more to each registry, which says whether it asks for a login.
    assert read.count() == {"HEAD": 10, "GET": 1}
    assert compared.count() == {"HEAD": 10, "GET": 1}


def test_a_further_tag_costs_one_request_and_sends_no_layer(registries: Registries) -> None:
    source, image = pushed(registries)
    entry = {"source": source, "destination": f"{registries.plain}/{registries.unique}/target:1"}
    registries.copied(entry)
    with registries.requests() as sent:
        result = registries.copy({**entry, "tags": ["two", "three"]})
    assert (result["changed"], result["images"][0]["action"]) == (True, "updated")
    assert sent.writes == [f"PUT /v2/{registries.unique}/target/manifests/{tag}" for tag in ("two", "three")]
    assert registries.client().digest(f"{registries.unique}/target", "three") == image.digest


def test_chosen_platforms(registries: Registries) -> None:
    source, image = pushed(registries, platforms=("amd64", "arm64", "ppc64le"))
    target = f"{registries.plain}/{registries.unique}"
    one = registries.copied({"source": source, "destination": f"{target}/one:1", "platforms": ["linux/arm64"]})
    assert one["images"][0]["digest"] == image.manifests["arm64"]
    assert registries.inspect(f"{target}/one:1")["Architecture"] == "arm64"
    two = registries.copied(
        {"source": source, "destination": f"{target}/two:1", "tags": ["x"], "platforms": ["linux/amd64", "linux/arm64"]}
    )
    index = registries.client().manifest(f"{registries.unique}/two", "x")
    assert [entry["digest"] for entry in index["manifests"]] == [image.manifests[name] for name in ("amd64", "arm64")]
    assert registries.client().digest(f"{registries.unique}/two", "1") == two["images"][0]["digest"] != image.digest
    assert registries.inspect(f"{target}/two:1")["Architecture"] == "amd64"
    refused = registries.copy({"source": source, "destination": f"{target}/three:1", "platforms": ["linux/s390x"]})
    assert "has no image for linux/s390x; its platforms are linux/amd64, linux/arm64, linux/ppc64le" in refused["msg"]


@pytest.mark.parametrize("transport", ["oci-archive", "oci", "dir"])
def test_archives_and_layouts(registries: Registries, transport: str) -> None:
    platforms = ("amd64",)
    source, image = pushed(registries, platforms=platforms)
    chosen = {"platforms": ["linux/amd64"]}
    path = f"{transport}:{registries.folder}/image"
    out = registries.copy({"source": source, "destination": path, **chosen})
    assert not out.get("failed"), out
    back = registries.copy({"source": path, "destination": f"{registries.plain}/{registries.unique}/back:1"})
    assert not back.get("failed"), back
    assert back["changed"]
    assert registries.client().digest(f"{registries.unique}/back", "1") == image.manifests["amd64"]
    assert not registries.copy({"source": source, "destination": path, **chosen})["changed"]


def test_an_archive_of_docker_is_a_source_only(registries: Registries) -> None:
    source, _image = pushed(registries, platforms=("amd64",), kind="docker")
    path = f"docker-archive:{registries.folder}/image.tar"
    run("skopeo", "copy", "--src-tls-verify=false", f"docker://{source}", path)
    target = f"{registries.plain}/{registries.unique}/back:1"
    registries.copied({"source": path, "destination": target})
    assert registries.inspect(target)["Architecture"] == "amd64"
    refused = registries.copy({"source": source, "destination": path})
    assert "docker-archive cannot keep digests" in refused["msg"]


def test_a_pull_through_cache_is_verified_and_gets_nothing(registries: Registries) -> None:
    source, _image = pushed(registries)
    entry = {"source": source, "destination": source.replace(registries.plain, registries.cache), "pull_through": True}
    with registries.requests(layout.CACHE) as sent:
        assert not registries.copy(entry)["changed"]
    assert sent.writes == []
    other, _other = pushed(registries, "other")
    refused = registries.copy({**entry, "source": other})
    assert refused["failed"]
    assert "the pull-through cache returns sha256:" in refused["msg"]
    sent_to = registries.copy({"source": source, "destination": f"{registries.cache}/{registries.unique}/new:1"})
    assert sent_to["failed"]


def test_images_by_digest_need_no_request_to_the_source(registries: Registries) -> None:
    source, image = pushed(registries)
    pinned = f"{source.rpartition(':')[0]}@{image.digest}"
    entry = {"source": pinned, "destination": f"{registries.tls}/{registries.unique}/pinned:1"}
    registries.copied(entry)
    with registries.requests() as read:
        assert not registries.copy(entry)["changed"]
    assert read.listed == []


def test_nothing_is_copied_if_one_image_does_not_exist(registries: Registries) -> None:
    source, _image = pushed(registries)
    target = f"{registries.plain}/{registries.unique}/target"
    missing = f"{registries.plain}/{registries.unique}/missing:1"
    with registries.requests() as sent:
        refused = registries.copy(
            {"source": source, "destination": f"{target}:1"}, {"source": missing, "destination": f"{target}:2"}
        )
    assert refused["code"] == "invalid"
    assert f"{missing}: this image does not exist" in refused["msg"]
    assert sent.writes == []
    assert [one["exists"] for one in info(registries, source, missing, details=False)] == [True, False]


def test_a_garbage_collection_keeps_the_images(registries: Registries) -> None:
    source, image = pushed(registries)
    target = f"{registries.plain}/{registries.unique}/kept"
    registries.copied({"source": source, "destination": f"{target}:1", "tags": ["2"]})
    config = layout.config(LabLayout.named(registries.lab.name), layout.PLAIN)
    run("registry", "garbage-collect", str(config), env=registries.lab.env)
    for tag in ("1", "2"):
        assert registries.inspect(f"{target}:{tag}")["Digest"] == image.digest
    client = registries.client()
    assert all(client.has_blob(f"{registries.unique}/kept", digest) for digest in image.layers.values())
