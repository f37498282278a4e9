# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with OpenShift, and namespaces for tests of OLM; the catalogs of the lab are shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.kube import Kube
from tests.helpers.olm import OlmNamespace
from tests.helpers.openshift import OpenShift
from tests.labs import OPENSHIFT, Lab, shared_lab


@pytest.fixture(scope="package")
def openshift_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The running lab with OpenShift, shared by the tests of this folder and then stopped. ACCEL_GPU_TEST_OPENSHIFT names a running one.

    tests/helpers/openshift.py loads its clusters.
    """
    builds, options = [("kube", *OPENSHIFT)], ["--openshift"]
    with shared_lab(request, "ACCEL_GPU_TEST_OPENSHIFT", "openshift", builds=builds, options=options) as lab:
        yield lab


@pytest.fixture(scope="module")
def openshift(openshift_lab: Lab) -> OpenShift:
    """A cluster without operators."""
    return OpenShift(openshift_lab).empty()


@pytest.fixture
def openshift_kube(openshift: OpenShift, tmp_path: Path) -> Iterator[Kube]:
    """An administrator's access to it; all objects of the test are deleted afterwards."""
    kube = Kube(openshift.lab.kubeconfig, tmp_path)
    yield kube
    kube.close()


@pytest.fixture
def olm(openshift: OpenShift, openshift_kube: Kube) -> OlmNamespace:
    """A new namespace for an operator."""
    return OlmNamespace(openshift_kube, openshift, openshift_kube.namespace())
