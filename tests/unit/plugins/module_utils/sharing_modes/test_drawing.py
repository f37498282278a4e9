# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bars of memory slices."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig, models
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import Placement, draw_gpu, maximal, place


def test_devices_lie_on_their_slices_and_free_ones_are_lines() -> None:
    devices = [Placement("3g.40gb", 4, 4), Placement("2g.20gb", 0, 2), Placement("1g.10gb", 3, 1)]
    assert draw_gpu([(8, devices)], 80) == ["|2g.20gb        |-------|1g.10gb|3g.40gb                        |"]


def test_all_bars_have_one_scale() -> None:
    whole, thirds = [Placement("7g.80gb", 0, 8)], [Placement("1g.10gb", at, 1) for at in range(7)]
    assert {len(one) for one in draw_gpu([(8, whole), (8, thirds), (8, [])], 80)} == {65}


def test_names_are_shorter_where_the_bar_would_be_too_wide() -> None:
    devices = [Placement("1g.12gb+me", 0, 1), Placement("1g.12gb", 1, 1)]
    assert draw_gpu([(8, devices)], 80)[0].startswith("|1g.12+me|1g.12   |")
    assert draw_gpu([(8, devices)], 100)[0].startswith("|1g.12gb+me|1g.12gb   |")
    assert draw_gpu([(8, devices)], 60)[0].startswith("|1g+me|1g   |")


@pytest.mark.parametrize("model", [item for item in models.MODELS if item.mig_capable], ids=lambda item: item.key)
def test_every_layout_of_every_model_fits_a_terminal(model: models.Model) -> None:
    geometry = mig.geometry(model.key)
    assert geometry
    bars = draw_gpu([(geometry.slices, place(geometry, layout) or ()) for layout in maximal(geometry)], 100)
    assert {len(one) for one in bars} == {len(bars[0])}
    assert len(bars[0]) <= 100
