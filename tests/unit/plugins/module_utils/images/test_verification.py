# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict about each image of a mirror."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.images.mirror import MirroredImage, verify
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import RegistryClient

HOST = "registry.example.com"
A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
IMAGES = [
    MirroredImage("a", "nvcr.io/a:1", f"{HOST}/a:1"),
    MirroredImage("b", f"nvcr.io/b@{B}", f"{HOST}/b@{B}"),
    MirroredImage("vgpu", f"{HOST}/vgpu:1", f"{HOST}/vgpu:1"),
]


@pytest.mark.parametrize(
    ("recorded", "verdict"),
    [
        ({f"{HOST}/a:1": A, f"{HOST}/b:sha256-{'b' * 64}": B}, {}),
        ({f"{HOST}/a:1": B, f"{HOST}/b:sha256-{'b' * 64}": B}, {"altered": [f"{HOST}/a:1"]}),
        # digests.json is older than the variables, or belongs to another cluster.
        ({f"{HOST}/b:sha256-{'b' * 64}": B}, {"unrecorded": [f"{HOST}/a:1"]}),
        ({f"{HOST}/a:1": A}, {"unrecorded": [f"{HOST}/b@{B}"]}),
        # Without the file, the public registries have the digests.
        (None, {}),
    ],
)
def test_images_are_compared_with_the_recorded_digests(
    tmp_path: Path, recorded: dict[str, str] | None, verdict: dict[str, list[str]]
) -> None:
    path = tmp_path / "digests.json"
    path.write_text(json.dumps(recorded))
    client = cast(RegistryClient, SimpleNamespace(digest=lambda image: image.digest or A))
    actual = verify(client, IMAGES, None if recorded is None else str(path))
    assert {state: names for state, names in actual.items() if names} == verdict


def test_an_image_that_its_registry_no_longer_has_is_not_verified() -> None:
    gone = lambda image: None if str(image).startswith("nvcr.io/a") else image.digest or A  # noqa: E731
    actual = verify(cast(RegistryClient, SimpleNamespace(digest=gone)), IMAGES, None)
    assert actual == {"missing": [], "altered": [], "unrecorded": [f"{HOST}/a:1"]}


@pytest.mark.parametrize("digest", ["", "sha256:", "a" * 64, 5, None])
def test_a_file_with_other_values_than_digests_is_rejected(tmp_path: Path, digest: object) -> None:
    path = tmp_path / "digests.json"
    path.write_text(json.dumps({f"{HOST}/a:1": digest}))
    with pytest.raises(InvalidOptions, match="contains no digests"):
        verify(cast(RegistryClient, None), IMAGES, str(path))
