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
