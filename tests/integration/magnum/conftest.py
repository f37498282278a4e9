# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's OpenStack with each release of Magnum, and a project for each test.

ACCEL_GPU_TEST_MAGNUM names a running lab (`lab/lab --name NAME up --part openstack`), for the development of tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.helpers.magnum import CLUSTER, Magnum
from tests.labs import Lab, shared_lab

_GIVEN = "ACCEL_GPU_TEST_MAGNUM"


@pytest.fixture(
    scope="package", params=["23"] if os.environ.get(_GIVEN) else ["23", pytest.param("20", marks=pytest.mark.soak)]
)
def cloud(request: pytest.FixtureRequest) -> Iterator[tuple[Lab, str]]:
    """A lab with that release of Magnum, and a cluster without Kubernetes for tests that need no nodes."""
    release = str(request.param)
    builds = [[], ["openstack"], *([["openstack-20"]] if release == "20" else [])]
    options = ["--magnum", release]
    with shared_lab(request, _GIVEN, "cloud", "openstack", builds=builds, options=options) as lab:
        yield _with_cluster(lab, release)


def _with_cluster(lab: Lab, release: str) -> tuple[Lab, str]:
    created = Magnum(lab, release).run("cluster", name=CLUSTER, cluster_template="k8s", node_count=1)
    assert not created.get("failed"), created["msg"]
    return lab, release


@pytest.fixture
def magnum(cloud: tuple[Lab, str]) -> Iterator[Magnum]:
    lab, release = cloud
    project = Magnum(lab, release)
    yield project
    project.close()
