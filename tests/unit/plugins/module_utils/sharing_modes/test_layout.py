# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG layouts: their notations, and the meaning of their profile names."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import Part


@pytest.mark.parametrize(
    ("written", "layout"),
    [
        ({"1g.5gb": 7}, (Part((), {"1g.5gb": 7}),)),
        (["1g.5gb", "3g.20gb", "1g.5gb"], (Part((), {"1g.5gb": 2, "3g.20gb": 1}),)),
        ({0: {"7g.40gb": 1}, 1: ["7g.40gb"], 2: {}}, (Part((0, 1), {"7g.40gb": 1}), Part((2,), {}))),
        ({"0": {"7g.40gb": 1}}, (Part((0,), {"7g.40gb": 1}),)),
        ([{"7g.40gb": 1}, None, ["7g.40gb"]], (Part((0, 2), {"7g.40gb": 1}), Part((1,), {}))),
    ],
)
def test_forms_of_a_layout(written: t.Any, layout: mig.Layout) -> None:
    assert mig.parse_layout(written) == layout


def test_each_gpu_has_its_part() -> None:
    layout = mig.parse_layout({0: ["7g.40gb"], 1: {}})
    assert [dict(mig.on_gpu(layout, index)) for index in range(3)] == [{"7g.40gb": 1}, {}, {}]
    assert mig.uniform(layout) is None
    assert mig.uniform(mig.parse_layout(["1g.5gb"] * 7)) == "1g.5gb"
    assert mig.uniform(mig.parse_layout(["1g.5gb", "2g.10gb"])) is None


MAX_Q = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"
SERVER = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


# A label has at most 63 characters.
@pytest.mark.parametrize(
    ("layout", "product", "suffix", "strategy"),
    [
        (["1g.5gb"] * 7, "", "", "single"),
        (["1g.5gb"] * 7, "NVIDIA-A100-SXM4-40GB", "-SHARED", "single"),
        (["1g.5gb", "2g.10gb"], "NVIDIA-A100-SXM4-40GB", "", "mixed"),
        (["1g.24gb"] * 4, MAX_Q, "", "mixed"),
        (["1g.24gb"] * 4, SERVER, "-SHARED", "single"),
        (["1g.24gb+gfx"] * 4, SERVER, "-SHARED", "mixed"),
    ],
)
def test_the_strategy_that_a_layout_needs(layout: list[str], product: str, suffix: str, strategy: str) -> None:
    assert mig.strategy_for(mig.parse_layout(layout), product, suffix) == strategy
