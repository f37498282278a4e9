# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""References to images: each valid form is read and written, and each mistake has its message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.registry.reference import (
    FileReference,
    ImageReference,
    InvalidReference,
    parse_image,
    parse_location,
    parse_repository,
    tag_problem,
)

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
HOST = "registry.example.com"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HOST}/driver:1", (HOST, "driver", "1", None)),
        (f"{HOST}:5000/nvidia/driver:580.95.05-rhel9.6", (f"{HOST}:5000", "nvidia/driver", "580.95.05-rhel9.6", None)),
        ("localhost/x:latest", ("localhost", "x", "latest", None)),
        ("localhost:5000/x:latest", ("localhost:5000", "x", "latest", None)),
        ("127.0.0.1:5000/a/b/c:_1", ("127.0.0.1:5000", "a/b/c", "_1", None)),
        (f"{HOST}/a@{DIGEST}", (HOST, "a", None, DIGEST)),
        (f"{HOST}/a:1@{DIGEST}", (HOST, "a", "1", DIGEST)),
        (f"{HOST}/a_b/c__d/e-f/g---h/i.j:1", (HOST, "a_b/c__d/e-f/g---h/i.j", "1", None)),
        ("docker://docker.io/library/busybox:1", ("docker.io", "library/busybox", "1", None)),
        (f"{HOST}/a:{'x' * 128}", (HOST, "a", "x" * 128, None)),
    ],
)
def test_images(text: str, expected: tuple[str, str, str | None, str | None]) -> None:
    actual = parse_image(text)
    assert actual == ImageReference(*expected)
    assert str(actual) == text.removeprefix("docker://")
    assert actual.selector == (expected[3] or expected[2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not specify a registry"),
        ("driver:1", "does not specify a registry"),
        ("nvidia/driver:1", "does not specify a registry"),
        ("-bad.example.com/x:1", "does not specify a registry"),
        ("[::1]:5000/x:1", "does not specify a registry"),
        (f"https://{HOST}/x:1", "is an address"),
        (f"oci://{HOST}/x:1", "is an address"),
        (f"{HOST}/Driver:1", "has an invalid repository"),
        (f"{HOST}/:1", "has an invalid repository"),
        (f"{HOST}/a//b:1", "has an invalid repository"),
        (f"{HOST}/a..b:1", "has an invalid repository"),
        (f"{HOST}/a/:1", "has an invalid repository"),
        (f"{HOST}/a b:1", "has an invalid repository"),
        (f"{HOST}/{'a' * 250}:1", "is longer than 255 characters"),
        (f"{HOST}/a:", "has an invalid tag"),
        (f"{HOST}/a:-1", "has an invalid tag"),
        (f"{HOST}/a:1\n", "has an invalid tag"),
        (f"{HOST}/a:{'x' * 129}", "has an invalid tag"),
        (f"{HOST}/a:1:2", "has an invalid tag"),
        (f"{HOST}/a@", "has an invalid digest"),
        (f"{HOST}/a:1@", "has an invalid digest"),
        (f"{HOST}/a@sha256:12", "has an invalid digest"),
        (f"{HOST}/a@{DIGEST.upper()}", "has an invalid digest"),
        (f"{HOST}/a", "has neither a tag nor a digest"),
    ],
)
def test_invalid_images(text: str, message: str) -> None:
    with pytest.raises(InvalidReference, match=message):
        parse_image(text)


def test_repositories() -> None:
    actual = parse_repository(f"{HOST}/nvidia/driver")
    assert (actual.name, actual.tag, actual.digest, str(actual)) == (f"{HOST}/nvidia/driver", None, None, actual.name)
    for text in (f"{HOST}/a:1", f"{HOST}/a:", f"{HOST}/a@{DIGEST}", f"{HOST}/a@"):
        with pytest.raises(InvalidReference, match="write only registry and repository"):
            parse_repository(text)


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ("oci-archive:/srv/a.tar", "oci-archive", "/srv/a.tar"),
        ("docker-archive:/srv/a.tar:name:1", "docker-archive", "/srv/a.tar"),
        ("oci:/srv/layout:1", "oci", "/srv/layout"),
        ("dir:/srv/a:b", "dir", "/srv/a:b"),
    ],
)
def test_archives_and_layouts(text: str, kind: str, path: str) -> None:
    actual = parse_location(text)
    assert isinstance(actual, FileReference)
    assert (actual.kind, actual.path, actual.transport, str(actual)) == (kind, path, text, text)


@pytest.mark.parametrize("text", ["oci:relative", "oci-archive:", "dir:./a", "docker-archive:~/a.tar"])
def test_archives_need_an_absolute_path(text: str) -> None:
    with pytest.raises(InvalidReference, match="has no absolute path"):
        parse_location(text)


def test_a_location_without_the_name_of_an_archive_is_an_image() -> None:
    assert parse_location(f"{HOST}/oci:1") == ImageReference(HOST, "oci", "1")


def test_other_tags_and_digests_of_the_same_repository() -> None:
    image = parse_image(f"{HOST}/a:1@{DIGEST}")
    assert str(image.with_tag("2")) == f"{HOST}/a:2"
    assert str(image.with_digest(DIGEST)) == f"{HOST}/a@{DIGEST}"
    # skopeo does not accept both.
    assert image.transport == f"docker://{HOST}/a@{DIGEST}"
    assert image.with_tag("2").transport == f"docker://{HOST}/a:2"


@pytest.mark.parametrize(
    ("tag", "valid"), [("1.0-rhel9", True), ("_a", True), ("", False), (".a", False), ("a/b", False)]
)
def test_tags(tag: str, valid: bool) -> None:
    assert (tag_problem(tag) is None) == valid


hosts = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?(\.[a-z0-9]{1,5}){1,2}(:[0-9]{1,5})?", fullmatch=True)
folders = st.lists(
    st.from_regex(r"[a-z0-9]{1,6}((\.|_|__|-{1,3})[a-z0-9]{1,6}){0,2}", fullmatch=True), min_size=1, max_size=4
)
tags = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
digests = st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)


@given(hosts, folders, st.none() | tags, st.none() | digests)
def test_a_written_reference_is_read_as_the_same(
    host: str, parts: list[str], tag: str | None, digest: str | None
) -> None:
    image = ImageReference(host, "/".join(parts), tag, digest)
    assert parse_repository(str(image), selected=True) == image
    if image.selector:
        assert parse_location(str(image)) == image


@given(st.text(max_size=60))
def test_no_text_raises_another_error(text: str) -> None:
    try:
        actual = parse_location(text)
    except InvalidReference:
        return
    assert parse_location(str(actual)) == actual
