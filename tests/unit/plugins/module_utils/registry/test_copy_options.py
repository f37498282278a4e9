# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of `images`, and all mistakes in them at once."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.registry.images import parse_specs

HOST = "registry.example.com"
DIGEST = f"sha256:{'0' * 64}"


def entry(source: str = "quay.io/a:1", destination: str = f"{HOST}/a:1", **more: Any) -> dict[str, Any]:
    """An entry as the module gets it."""
    return {"source": source, "destination": destination, "tags": [], "platforms": [], "pull_through": False, **more}


def test_valid_entries() -> None:
    specs, problems = parse_specs(
        [
            entry(tags=["2", "stable"], platforms=["linux/amd64", "linux/arm64/v8"]),
            entry(f"quay.io/a@{DIGEST}", "oci-archive:/srv/a.tar", platforms=["linux/amd64"]),
            entry("dir:/srv/a", f"{HOST}/b:1", pull_through=True),
        ]
    )
    assert problems == []
    assert [[str(target) for target in spec.targets] for spec in specs] == [
        [f"{HOST}/a:1", f"{HOST}/a:2", f"{HOST}/a:stable"],
        ["oci-archive:/srv/a.tar"],
        [f"{HOST}/b:1"],
    ]
    assert (specs[0].platforms, specs[2].pull_through, specs[0].name) == (
        ("linux/amd64", "linux/arm64/v8"),
        True,
        f"{HOST}/a:1",
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (entry("gpu-operator"), 'images[0].source: "gpu-operator" does not specify a registry; put its host first'),
        (entry(f"{HOST}/a"), f'images[0].source: "{HOST}/a" has neither a tag nor a digest'),
        (entry(destination="oci:a"), 'images[0].destination: "oci:a" has no absolute path; write oci:/path'),
        (
            entry(destination=f"{HOST}/a@{DIGEST}"),
            f"images[0].destination: '{HOST}/a@{DIGEST}' contains a digest, but the image determines the digest",
        ),
        (
            entry(destination="oci:/a:1", tags=["2"]),
            "images[0].tags: has no effect for an archive or a layout; remove it",
        ),
        (entry("dir:/a\0b"), 'images[0].source: "dir:/a\\u0000b" has characters that cannot be printed'),
        (entry(destination="dir:/a", pull_through=True), "images[0].pull_through: is supported only for a registry"),
        (entry(tags=["ok", "a/b"]), "images[0].tags[1]: 'a/b' is not a tag"),
        (entry(platforms=["amd64"]), "images[0].platforms[0]: 'amd64' is not a platform; use os/architecture"),
        (entry(platforms=["linux/amd64", "Linux/amd64"]), "images[0].platforms[1]: 'Linux/amd64' is not a platform"),
        (entry(tags=["1"]), f"images[0]: {HOST}/a:1 is also written by images[0]; remove one of them"),
        (entry(tags=["2", "2"]), f"images[0]: {HOST}/a:2 is also written by images[0]; remove one of them"),
    ],
)
def test_invalid_entries(given: dict[str, Any], problem: str) -> None:
    dummy_specs, problems = parse_specs([given])
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_two_entries_with_one_target() -> None:
    images = [
        entry(tags=["2"]),
        entry("quay.io/b:1", f"{HOST}/b:1"),
        entry("quay.io/c:1", f"{HOST}/b:2", tags=["1"]),
        entry("quay.io/d:1", f"{HOST}/a:2"),
    ]
    specs, problems = parse_specs(images)
    assert problems == [
        f"images[2]: {HOST}/b:1 is also written by images[1]; remove one of them",
        f"images[3]: {HOST}/a:2 is also written by images[0]; remove one of them",
    ]
    assert len(specs) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("oci-archive:/a.tar:x", "oci-archive:/a.tar:y"),
        ("dir:/a", "dir:/b/../a/"),
        ("oci:/a:1", "dir:/a"),
        ("oci-archive:/a", "oci:/a:1"),
    ],
)
def test_two_images_in_one_archive(one: str, other: str) -> None:
    dummy, problems = parse_specs([entry(destination=one), entry(destination=other)])
    assert len(problems) == 1
    assert problems[0].startswith("images[1]: /")
    assert "is also the destination of images[0], but can contain only one image; use a different path" in problems[0]


def test_several_images_in_one_layout() -> None:
    assert parse_specs([entry(destination="oci:/a:1"), entry(destination="oci:/a:2")])[1] == []


def test_all_mistakes_are_reported() -> None:
    dummy_specs, problems = parse_specs([entry("a", "b", tags=["-"], platforms=["x"]), entry(), entry("c")])
    assert [problem.partition(":")[0] for problem in problems] == [
        "images[0].source",
        "images[0].destination",
        "images[0].tags[0]",
        "images[0].platforms[0]",
        "images[2].source",
    ]


def test_a_password_in_a_reference_is_not_quoted() -> None:
    dummy, problems = parse_specs([entry(f"u:planted-Secret-9@{HOST}/a:1")])
    assert problems
    assert "planted" not in problems[0]
