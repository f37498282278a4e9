# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tags that the operator's releases append to driver images, and the folders that the images are built from.

The expected tags are those of getGPUNodeOSInfo in gpu-operator controllers/state_manager.go of each release.
"""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import (
    OPERATOR_RELEASES,
    PUBLIC_REGISTRIES,
    BuildTarget,
    build_target,
    known_release_of,
    os_tag,
)

BEFORE = ("v23.9.2", "v24.9.2", "v25.3.4", "v25.10.1")
BETWEEN = ("v26.3.0", "v26.3.3")
SINCE = ("v26.7.0", "v26.10.1", "v27.1.0", "main")


@pytest.mark.parametrize(
    ("system", "before", "between", "since"),
    [
        (("rhcos", "4.18"), "rhcos4.18", "rhcos4.18", "rhcos4.18"),
        (("rhel", "9.6"), "rhel9.6", "rhel9.6", "rhel9"),
        (("rhel", "9.8"), "rhel9.8", "rhel9.8", "rhel9"),
        (("rhel", "8.10"), "rhel8.10", "rhel8.10", "rhel8"),
        (("rhel", "10.1"), "rhel10.1", "rhel10", "rhel10"),
        (("rocky", "9.4"), "rocky9.4", "rocky9", "rocky9"),
        (("ol", "9.5"), "ol9.5", "ol9.5", "ol9"),
        (("ubuntu", "22.04"), "ubuntu22.04", "ubuntu22.04", "ubuntu22.04"),
        (("ubuntu", "24.04"), "ubuntu24.04", "ubuntu24.04", "ubuntu24.04"),
        (("sles", "15.5"), "sles15.5", "sles15.5", "sles15.5"),
    ],
)
def test_tags(system: tuple[str, str], before: str, between: str, since: str) -> None:
    for releases, expected in ((BEFORE, before), (BETWEEN, between), (SINCE, since)):
        assert {os_tag(*system, release) for release in releases} == {expected}


def test_every_release_of_the_catalog_appends_one_of_the_forms() -> None:
    majors = {item.version for item in OPERATOR_RELEASES if os_tag("rhel", "9.6", item.version) == "rhel9"}
    assert majors == {item.version for item in OPERATOR_RELEASES if (known_release_of(item.version) or ()) >= (26, 7)}
    assert majors


@pytest.mark.parametrize(
    ("tag", "folder"),
    [
        ("rhcos4.12", "rhel8"),
        ("rhcos4.13", "rhel9"),
        ("rhcos4.18", "rhel9"),
        ("rhel9.6", "rhel9"),
        ("rhel9", "rhel9"),
        ("rhel10", "rhel10"),
        ("rhel8.10", "rhel8"),
        ("rocky9.4", "rhel9"),
        ("rocky9", "rhel9"),
        ("ol8.9", "rhel8"),
        ("ubuntu22.04", "ubuntu22.04"),
        ("ubuntu26.04", "ubuntu26.04"),
        ("sles15.5", None),
        ("debian12", None),
        ("sl-micro6.0", None),
        ("rhel", None),
        ("9.6", None),
        ("", None),
    ],
)
def test_build_folders(tag: str, folder: str | None) -> None:
    assert build_target(tag) == (BuildTarget(folder) if folder else None)


def test_all_hosts_of_docker_hub_are_public() -> None:
    assert {"docker.io", "index.docker.io", "registry-1.docker.io", "quay.io", "ghcr.io"} <= PUBLIC_REGISTRIES
