# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG properties of the lab's machines."""

from __future__ import annotations

import json

import pytest

from lab import fleet, mig
from plugins.module_utils.catalog import mig as catalog
from plugins.module_utils.catalog import models

CAPABLE = [model for model in models.MODELS if model.mig_capable]


def _found(name: str) -> models.Model:
    model = models.find(name)
    assert model is not None
    return model


@pytest.mark.parametrize("model", CAPABLE, ids=lambda model: model.key)
def test_memory_and_multiprocessors_increase_with_the_profile(model: models.Model) -> None:
    described = mig.describe(model, "580.95.05")
    geometry = catalog.geometry(model.key)
    assert described is not None
    assert geometry is not None
    assert described["slices"] == geometry.slices
    assert [p["name"] for p in described["profiles"]] == [p.name for p in geometry.profiles if p.driver <= 580]
    for one in described["profiles"]:
        assert 0 < one["memory_mib"] <= model.memory_mib
        assert one["sms"] > 0
        assert one["decoder"] >= 0
        assert all(start + one["size"] <= geometry.slices for start in one["starts"])
        for other in described["profiles"]:
            if one["size"] < other["size"]:
                assert one["memory_mib"] < other["memory_mib"]
            if one["compute"] < other["compute"]:
                assert one["sms"] < other["sms"]


@pytest.mark.parametrize(
    ("model", "profile", "engines"),
    # `nvidia-smi mig -lgip` of an H100 80GB HBM3 and an H200, driver 580.159.04: CE, DEC, JPEG, OFA.
    [
        ("H100-80GB-HBM3", "1g.10gb", (1, 1, 1, 0)),
        ("H100-80GB-HBM3", "1g.10gb+me", (1, 1, 1, 1)),
        ("H100-80GB-HBM3", "3g.40gb", (3, 3, 3, 0)),
        ("H200", "2g.35gb", (2, 2, 2, 0)),
        ("H200", "7g.141gb", (8, 7, 7, 1)),
        # MIG user guide.
        ("A100-SXM4-40GB", "1g.5gb", (1, 0, 0, 0)),
        ("A100-SXM4-40GB", "1g.5gb+me", (1, 1, 1, 1)),
        ("A100-SXM4-40GB", "7g.40gb", (7, 5, 1, 1)),
    ],
)
def test_known_engines(model: str, profile: str, engines: tuple[int, int, int, int]) -> None:
    described = mig.describe(_found(model), "580.159.04")
    assert described is not None
    [one] = [p for p in described["profiles"] if p["name"] == profile]
    assert (one["copy"], one["decoder"], one["jpeg"], one["ofa"]) == engines


@pytest.mark.parametrize(
    ("model", "profile", "sizes"),
    [
        ("H200", "1g.18gb", (16384, 16, 1)),
        ("H200", "1g.35gb", (33280, 26, 1)),
        ("H200", "3g.71gb", (71424, 60, 3)),
        ("H200", "7g.141gb", (143360, 132, 7)),
        ("H100-80GB-HBM3", "1g.10gb", (9984, 16, 1)),
        ("H100-80GB-HBM3", "1g.20gb", (20096, 26, 1)),
        ("H100-80GB-HBM3", "7g.80gb", (81152, 132, 7)),
        ("A100-SXM4-80GB", "1g.10gb", (9728, 14, 0)),
        ("A100-SXM4-80GB", "1g.10gb+me", (9728, 14, 1)),
        ("A100-SXM4-80GB", "1g.20gb", (19968, 14, 1)),
        ("A100-SXM4-40GB", "3g.20gb", (20096, 42, 2)),
        ("A100-SXM4-40GB", "7g.40gb", (40448, 98, 5)),
    ],
)
def test_known_sizes(model: str, profile: str, sizes: tuple[int, int, int]) -> None:
    described = mig.describe(_found(model), "580.95.05")
    assert described is not None
    [one] = [p for p in described["profiles"] if p["name"] == profile]
    assert (one["memory_mib"], one["sms"], one["decoder"]) == sizes


@pytest.mark.parametrize(
    ("group", "capable", "first"),
    [
        (fleet.Group("g", 1, model="A100-SXM4-80GB", gpus=8), True, "1g.10gb"),
        (fleet.Group("g", 1, model="A100-SXM4-80GB", gpus=8, vgpu={"host_driver": "580.95.02"}), False, None),
        (fleet.Group("g", 1, model="T4", gpus=1), False, None),
    ],
)
def test_node_has_its_geometry(group: fleet.Group, capable: bool, first: str | None) -> None:
    [node] = fleet.Fleet((group,)).nodes(1)
    hardware = json.loads(node["metadata"]["annotations"][fleet.HARDWARE_ANNOTATION])
    assert hardware["mig_capable"] is capable
    assert (hardware["mig"] and hardware["mig"]["profiles"][0]["name"]) == first


def test_profiles_depend_on_the_driver() -> None:
    model = models.find("A100-SXM4-80GB")
    assert model is not None
    described = mig.describe(model, "470.256.02")
    assert described is not None
    names = [profile["name"] for profile in described["profiles"]]
    assert "1g.10gb+me" in names
    assert "1g.20gb" not in names
