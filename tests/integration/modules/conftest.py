# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster of the module tests: the lab, or the cluster of ACCEL_GPU_TEST_KUBECONFIG."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.kube import Kube
from tests.labs import Lab

_GIVEN = os.environ.get("ACCEL_GPU_TEST_KUBECONFIG")

if _GIVEN:

    @pytest.fixture(scope="session")
    def kubeconfig() -> Path:
        """The developer's own cluster."""
        return Path(str(_GIVEN))

else:

    @pytest.fixture(scope="session")
    def kubeconfig(lab: Lab) -> Path:
        """The lab's."""
        return lab.kubeconfig


@pytest.fixture
def kube(kubeconfig: Path, tmp_path: Path) -> Iterator[Kube]:
    """The cluster, with names unique to the test; all objects of the test are deleted afterwards."""
    kube = Kube(kubeconfig, tmp_path)
    yield kube
    kube.close()
