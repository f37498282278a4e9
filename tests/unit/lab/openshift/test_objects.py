# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a new OpenShift cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.api import Object
from lab.layout import Lab
from lab.openshift import objects, releases
from lab.systems import SYSTEMS


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    actual = Lab.named("one", tmp_path)
    actual.record(port_base=20000)
    return actual


def of_kind(lab: Lab, minor: str, platform: str, kind: str) -> dict[str, Object]:
    actual = objects.objects(lab, releases.find(minor), platform)
    return {body["metadata"]["name"]: body for dummy, body in actual if body["kind"] == kind}


@pytest.mark.parametrize("minor", releases.RELEASES)
@pytest.mark.parametrize("platform", objects.PLATFORMS)
def test_each_path_is_that_of_its_object(lab: Lab, minor: str, platform: str) -> None:
    actual = list(objects.objects(lab, releases.find(minor), platform))
    assert len({path for path, dummy in actual}) == len(actual)
    for path, body in actual:
        assert path.endswith(f"s/{body['metadata']['name']}")
        assert body["apiVersion"] in path or body["apiVersion"] == "v1"


@pytest.mark.parametrize("minor", releases.RELEASES)
def test_the_cluster_version_is_completed_and_the_driver_toolkit_fits_the_nodes(lab: Lab, minor: str) -> None:
    release = releases.find(minor)
    status = of_kind(lab, minor, "AWS", "ClusterVersion")["version"]["status"]
    assert (status["history"][0]["state"], status["history"][0]["version"]) == ("Completed", release.version)
    assert status["availableUpdates"] == []
    tags = of_kind(lab, minor, "AWS", "ImageStream")["driver-toolkit"]["spec"]["tags"]
    assert SYSTEMS[release.system].ostree in [tag["name"] for tag in tags]


@pytest.mark.parametrize("platform", objects.PLATFORMS)
def test_the_infrastructure_has_the_platform(lab: Lab, platform: str) -> None:
    body = of_kind(lab, "4.18", platform, "Infrastructure")["cluster"]
    assert body["spec"]["platformSpec"]["type"] == body["status"]["platformStatus"]["type"] == platform
    assert body["status"]["infrastructureName"] == objects.INFRASTRUCTURE
    assert ("failureDomains" in body["spec"]["platformSpec"].get("vsphere", {})) is (platform == "VSphere")
