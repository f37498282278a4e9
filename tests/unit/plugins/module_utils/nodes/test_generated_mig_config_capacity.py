# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU data that nodes publish takes precedence over the catalog."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig, models
from ansible_collections.accel.gpu.plugins.module_utils.nodes.mig import generated_profiles, geometry_of, mig_capacity
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from tests.helpers.fleet import node as fleet_node
from tests.helpers.mig import generated_entries

CUT = [model for model in models.MODELS if model.mig_capable]


def of_model(key: str, name: str = "n1") -> Node:
    model = models.find(key) or next(model for model in models.MODELS if model.key == key)
    return fleet_node(name, model.product, labels={"nvidia.com/gpu.memory": str(model.memory_mib)})


def entries(counts: t.Mapping[str, int]) -> dict[str, t.Any]:
    """The entries of the MIG manager for these profiles."""
    return {
        f"all-{name.replace('+', '.')}": [{"devices": "all", "mig-enabled": True, "mig-devices": {name: most}}]
        for name, most in counts.items()
    }


@pytest.mark.parametrize("model", CUT, ids=lambda model: model.key)
def test_what_agrees_with_the_catalog_is_the_catalogs(model: models.Model) -> None:
    actual = mig_capacity([of_model(model.key)], {"n1": generated_entries(model.key)})
    assert actual.geometries == {"n1": mig.geometry(model.key)}
    assert not actual.warnings


@pytest.mark.parametrize("model", CUT, ids=lambda model: model.key)
def test_a_model_that_the_catalog_lacks_has_the_placements_of_its_table(model: models.Model) -> None:
    known = mig.geometry(model.key)
    assert known
    actual = geometry_of({profile.name: profile.max_count for profile in known.profiles}, None)
    assert actual
    scale = known.slices // actual.slices or 1
    assert [
        (profile.name, profile.size * scale, tuple(start * scale for start in profile.starts))
        for profile in actual.profiles
    ] == [(profile.name, profile.size, profile.starts) for profile in known.profiles]


def test_other_names_of_the_same_profiles_count_and_the_difference_is_said() -> None:
    """A GB200 of 189 GB (catalog: the note to GB200)."""
    theirs = {"1g.24gb": 7, "1g.24gb+me": 1, "1g.47gb": 4, "2g.47gb": 3, "3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1}
    actual = mig_capacity(
        [of_model("GB200", "n1"), of_model("GB200", "n2")], {"n1": entries(theirs), "n2": entries(theirs)}
    )
    geometry = actual.geometries["n1"]
    assert [(profile.name, profile.starts) for profile in geometry.profiles if profile.name.startswith("3g")] == [
        ("3g.95gb", (0, 4))
    ]
    assert {profile.name: profile.max_count for profile in geometry.profiles} == theirs
    assert actual.warnings == (
        "n1, n2: the GPUs publish 1g.24gb (at most 7), 1g.24gb+me (at most 1), 3g.95gb (at most 2), 4g.95gb (at most 1), "
        "7g.189gb (at most 1) and do not publish 1g.23gb, 1g.23gb+me, 3g.93gb, 4g.93gb, 7g.186gb, which differs from the catalog's profiles of GB200; "
        "the published profiles are used.",
    )


def test_a_profile_that_the_driver_does_not_offer_is_not_there() -> None:
    known = mig.geometry("A100-SXM4-40GB")
    assert known
    old = {profile.name: profile.max_count for profile in known.profiles if profile.name != "1g.10gb"}
    actual = mig_capacity([of_model("A100-SXM4-40GB")], {"n1": entries(old)})
    assert actual.geometries["n1"].profile("1g.10gb") is None
    assert actual.warnings == (
        "n1: the GPUs do not publish 1g.10gb, which differs from the catalog's profiles of A100-SXM4-40GB; the published profiles are used.",
    )


def test_nodes_that_publish_nothing_are_as_the_catalog_knows_them() -> None:
    nodes = [of_model("A30"), fleet_node("n2", "Tesla-T4"), fleet_node("n3", "NVIDIA-Unheard-Of")]
    assert mig_capacity(nodes, {}).geometries == {"n1": mig.geometry("A30")}


def test_only_entries_of_single_profiles_on_all_gpus_are_read() -> None:
    actual = generated_profiles(
        {
            **generated_entries("A30"),
            "all-mine": [{"devices": [0], "mig-enabled": True, "mig-devices": {"4g.24gb": 1}}],
            "other": [{"devices": "all", "mig-enabled": True, "mig-devices": {"9g.9gb": 1}}],
        }
    )
    geometry = mig.geometry("A30")
    assert geometry
    assert actual == {profile.name: profile.max_count for profile in geometry.profiles}
