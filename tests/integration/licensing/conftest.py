# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with 20 vGPU nodes; ACCEL_GPU_TEST_LICENSING names a running one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.licensing import FLEET, Licensing
from tests.labs import Lab, shared_lab


@pytest.fixture(scope="package")
def vgpu_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The running lab, shared by the tests of licensing and then stopped."""
    options = ["--fleet", str(FLEET)]
    with shared_lab(
        request, "ACCEL_GPU_TEST_LICENSING", "licensing", "nls", "metrics", builds=[()], options=options
    ) as lab:
        yield lab


@pytest.fixture
def licensing(vgpu_lab: Lab, tmp_path: Path) -> Licensing:
    """A cluster with the GPU operator on which every node has a license by the playbook site."""
    actual = Licensing(vgpu_lab, tmp_path)
    vgpu_lab.become("licensed", actual.install, FLEET)
    return actual
