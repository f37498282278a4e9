# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with registries for all tests of this folder, which run in one worker. ACCEL_GPU_TEST_REGISTRY names a lab that is already running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.registries import Registries
from tests.labs import Lab, shared_lab


@pytest.fixture(scope="package")
def registry_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    builds = [(), ("registry", "toxiproxy")]
    with shared_lab(request, "ACCEL_GPU_TEST_REGISTRY", "registry", "registry", builds=builds) as lab:
        yield lab


@pytest.fixture
def registries(registry_lab: Lab, tmp_path: Path) -> Registries:
    return Registries(registry_lab, tmp_path)
