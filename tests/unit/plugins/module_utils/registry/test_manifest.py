# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests, platforms and parts of manifests and indexes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.registry.reference import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    InvalidManifest,
    Manifest,
    image_platform,
    is_among,
    without_other_platforms,
)

A, B, C, D = (f"sha256:{letter * 64}" for letter in "abcd")


def platform(name: str) -> dict[str, str]:
    """A platform as in an index."""
    return dict(zip(("os", "architecture", "variant"), name.split("/"), strict=False))


def index(*entries: tuple[str, str], media_type: str = OCI_INDEX) -> Manifest:
    """An index with these platforms and digests."""
    manifests = [
        {"mediaType": OCI_MANIFEST, "digest": digest, "size": 1, "platform": platform(name)} for name, digest in entries
    ]
    document = {"schemaVersion": 2, "mediaType": media_type, "manifests": manifests, "annotations": {"kept": "ü"}}
    return Manifest(json.dumps(document).encode(), media_type)


BOTH = index(("linux/amd64", A), ("linux/arm64/v8", B), ("unknown/unknown", C))


def test_the_digest_depends_on_each_byte() -> None:
    data = b'{"schemaVersion": 2}'
    assert Manifest(data, "").digest != Manifest(data + b"\n", "").digest
    # echo -n '{}' | sha256sum
    assert Manifest(b"{}", "").digest == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [(OCI_INDEX, True), (DOCKER_LIST, True), (OCI_MANIFEST, False), (DOCKER_MANIFEST, False)],
)
def test_indexes(media_type: str, expected: bool) -> None:
    assert Manifest(b"{}", media_type).is_index == expected


def test_children_are_platforms_without_attestations() -> None:
    assert BOTH.children == {"linux/amd64": A, "linux/arm64/v8": B}
    assert Manifest(b"{}", OCI_MANIFEST).children == {}
    assert (BOTH.config_digest, BOTH.size) == ("", 0)


def test_parts_of_an_image() -> None:
    document = {"config": {"digest": D, "size": 3}, "layers": [{"size": 4}, {"size": 5}, {}]}
    image = Manifest(json.dumps(document).encode(), OCI_MANIFEST)
    assert (image.config_digest, image.size) == (D, 12)


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"\xff", b'"text"'])
def test_other_content_is_not_a_manifest(data: bytes) -> None:
    with pytest.raises(InvalidManifest, match="not a JSON object"):
        _ = Manifest(data, OCI_MANIFEST).document


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ({"os": "linux", "architecture": "amd64"}, "linux/amd64"),
        ({"os": "linux", "architecture": "arm64", "variant": "v8"}, "linux/arm64/v8"),
        ({}, ""),
    ],
)
def test_platforms(actual: Any, expected: str) -> None:
    assert image_platform(actual) == expected


@pytest.mark.parametrize(
    ("name", "chosen", "expected"),
    [
        ("linux/amd64", ["linux/amd64"], True),
        ("linux/arm64/v8", ["linux/arm64"], True),
        ("linux/arm64", ["linux/arm64/v8"], False),
        ("linux/amd64p32", ["linux/amd64"], False),
        ("linux/s390x", ["linux/amd64", "linux/s390x"], True),
        ("linux/amd64", [], False),
    ],
)
def test_a_platform_includes_its_variants(name: str, chosen: list[str], expected: bool) -> None:
    assert is_among(name, chosen) == expected


def test_an_index_of_some_platforms_is_the_same_in_each_run() -> None:
    three = index(("linux/amd64", A), ("linux/arm64", B), ("linux/s390x", C))
    chosen = without_other_platforms(three, ["linux/s390x", "linux/amd64"])
    assert chosen.children == {"linux/amd64": A, "linux/s390x": C}
    assert chosen.media_type == OCI_INDEX
    assert chosen.digest == without_other_platforms(three, ["linux/amd64", "linux/s390x"]).digest
    assert chosen.document["annotations"] == {"kept": "ü"}


@pytest.mark.parametrize(
    "document",
    [
        {"manifests": [None]},
        {"manifests": "text"},
        {"manifests": [{"platform": platform("linux/amd64")}]},
        {"manifests": [{"platform": platform("linux/amd64"), "digest": "../../other?x"}]},
        {"config": {"digest": "../../other"}},
        {"layers": 5},
        {"layers": [None]},
        {"config": ["x"]},
        {"config": {"size": "x"}},
    ],
)
def test_malicious_manifests(document: Any) -> None:
    actual = Manifest(json.dumps(document).encode(), OCI_INDEX)
    with pytest.raises(InvalidManifest):
        _ = actual.children, actual.config_digest, actual.size


@pytest.mark.parametrize("data", [b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", b"null", b"\xff"])
def test_bytes_that_are_no_manifest(data: bytes) -> None:
    with pytest.raises(InvalidManifest):
        _ = Manifest(data, OCI_INDEX).document


def test_a_platform_of_another_type_is_none() -> None:
    assert Manifest(json.dumps({"manifests": [{"platform": "linux/amd64"}]}).encode(), OCI_INDEX).children == {}
