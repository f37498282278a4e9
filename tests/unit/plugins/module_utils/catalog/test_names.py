# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names agree with the collection's own metadata and with Kubernetes' rules."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog import names, releases
from ansible_collections.accel.gpu.plugins.module_utils.schema import validators


def test_version_is_the_collections(repo: Path) -> None:
    assert yaml.safe_load((repo / "galaxy.yml").read_text())["version"] == names.VERSION


@pytest.mark.parametrize("name", [name for name in vars(names) if name.endswith(("_LABEL", "_ANNOTATION"))])
def test_keys_are_legal(name: str) -> None:
    assert validators.label_key(getattr(names, name)) is None


@pytest.mark.parametrize("version", ["v25.10.1", "25.10.1", "v99.1.0"])
def test_operator_brings_the_cluster_policy(version: str) -> None:
    assert ("nvidia.com/v1", "ClusterPolicy") in releases.operator_kinds(version)


def test_defaults_are_legal() -> None:
    assert validators.chart(releases.NFD_CHART) is validators.chart(releases.OPERATOR_CHART) is None
    assert validators.chart_repo(releases.OPERATOR_CHART_REPO) is None
    assert (
        validators.release_version(releases.NFD_VERSION)
        is validators.release_version(releases.OPERATOR_VERSION)
        is None
    )


@pytest.mark.parametrize(
    ("path", "belongs"),
    [
        (names.template_name("vdi-a", "418.94.202501221327-0", "3fa0c1d2"), True),
        ("/DC1/vm/accel-gpu/vdi-a-418.94.202501221327-0-3fa0c1", True),
        ("/DC1/vm/accel-gpu/vdi-a-418.94.202501221327-0-3fa0c1-2", True),
        ("/DC1/vm/accel-gpu/vdi-418.94.202501221327-0-3fa0c1", False),
        ("/DC1/vm/vdi-a-418/rhcos-3fa0c1", False),
        ("vdi-a-3fa0c1", False),
        ("vdi-a-418.94-backup", False),
        ("", False),
    ],
)
def test_templates_are_recognized_by_their_names(path: str, belongs: bool) -> None:
    assert names.is_template_of("vdi-a", path) is belongs
