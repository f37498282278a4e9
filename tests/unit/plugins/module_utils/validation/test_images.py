# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of an image by the driver's CUDA version and the GPU's compute capability."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog import releases
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import choose_image
from tests.helpers.fleet import node

IMAGES = {"11.2": "a", "11.7": "b", "12.5": "c", "13.0": "d"}
versions = st.tuples(st.integers(9, 14), st.integers(0, 12))


def labels(driver: str, compute: str = "8.0") -> dict[str, str | None]:
    major, dummy, minor = compute.partition(".")
    return {
        "nvidia.com/cuda.runtime-version.full": driver or None,
        "nvidia.com/gpu.compute.major": major or None,
        "nvidia.com/gpu.compute.minor": minor or None,
    }


@pytest.mark.parametrize(
    ("driver", "compute", "image"),
    [
        ("13.0", "8.0", "d"),
        ("13.2", "9.0", "d"),
        ("12.8", "8.0", "c"),
        ("12.5", "8.0", "c"),
        ("12.4", "8.0", "b"),
        ("11.4", "8.0", "a"),
        # CUDA 13 has no code for Volta.
        ("13.0", "7.0", "c"),
        ("13.0", "", "d"),
        # Nothing fits, or nothing is known: the image that needs least.
        ("10.2", "7.5", "a"),
        ("", "", "a"),
        ("unknown", "x", "a"),
    ],
)
def test_choice(driver: str, compute: str, image: str) -> None:
    assert choose_image(IMAGES, node(labels=labels(driver, compute))) == image


def test_older_labels_have_the_version_in_parts() -> None:
    parts: dict[str, str | None] = {"nvidia.com/cuda.runtime.major": "12", "nvidia.com/cuda.runtime.minor": "8"}
    assert choose_image(IMAGES, node(labels=parts)) == "c"


def test_one_image_is_used_on_every_node() -> None:
    assert choose_image({releases.ANY_CUDA_VERSION: "mine"}, node(labels=labels("11.4"))) == "mine"


@given(driver=versions, offered=st.sets(versions, min_size=1))
def test_an_image_never_needs_a_newer_driver_if_another_fits(
    driver: tuple[int, int], offered: set[tuple[int, int]]
) -> None:
    images = {f"{major}.{minor}": f"{major}.{minor}" for major, minor in offered}
    chosen = releases.parse_cuda_version(choose_image(images, node(labels=labels(f"{driver[0]}.{driver[1]}", "9.0"))))
    fitting = [version for version in offered if version <= driver]
    assert chosen == (max(fitting) if fitting else min(offered))
