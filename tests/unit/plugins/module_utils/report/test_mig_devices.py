# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG devices of each GPU are known only if the pool's layout and the node's labels agree."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.report.facts import compute_slices, gpu_layouts
from ansible_collections.accel.gpu.plugins.module_utils.report.view_model import build_page

Layout = list[dict[str, t.Any]]

BOTH: Layout = [{"devices": [], "profiles": {"3g.20gb": 1, "1g.5gb+me": 1}}]
SMALL: Layout = [{"devices": [], "profiles": {"1g.5gb": 7}}]
BY_INDEX: Layout = [{"devices": [0, 2], "profiles": {"3g.20gb": 2}}, {"devices": [1], "profiles": {"7g.40gb": 1}}]

OF_BOTH = (("3g.20gb", 1), ("1g.5gb.me", 1))
OF_TWO = (("3g.20gb", 2),)

CASES: list[tuple[str, Layout, int, dict[str, int], str | None, list[t.Any]]] = [
    ("one layout for all", BOTH, 2, {"3g.20gb": 2, "1g.5gb.me": 2}, "success", [OF_BOTH, OF_BOTH]),
    ("GFD counts devices", SMALL, 14, {"1g.5gb": 14}, "success", [(("1g.5gb", 7),)] * 2),
    ("by index", BY_INDEX, 4, {"3g.20gb": 4, "7g.40gb": 1}, "success", [OF_TWO, (("7g.40gb", 1),), OF_TWO, ()]),
    ("one is missing", BOTH, 2, {"3g.20gb": 2, "1g.5gb.me": 1}, "success", []),
    ("partitioned differently", BOTH, 2, {"3g.20gb": 4}, "success", []),
    ("pending", BOTH, 2, {"3g.20gb": 2, "1g.5gb.me": 2}, "pending", []),
    ("no state", BOTH, 2, {"3g.20gb": 2, "1g.5gb.me": 2}, None, []),
    ("no devices", BOTH, 2, {}, "success", []),
    ("no layout", [], 2, {"3g.20gb": 2}, "success", []),
    ("an empty layout", [{"devices": [], "profiles": {}}], 2, {"3g.20gb": 2}, "success", []),
]


@pytest.mark.parametrize(
    ("layout", "gpus", "devices", "state", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_gpu_layouts(
    layout: Layout, gpus: int, devices: dict[str, int], state: str | None, expected: list[t.Any]
) -> None:
    row = {"gpus": gpus, "mig": {"config": "x", "state": state, "devices": devices}}
    assert list(gpu_layouts(row, {"layout": layout})) == expected


profiles = st.dictionaries(
    st.sampled_from(["1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb"]), st.integers(1, 3), min_size=1
)


@given(profiles, st.integers(1, 16))
def test_a_layout_and_its_gpus_give_each_gpu_that_layout(of_one: dict[str, int], gpus: int) -> None:
    dotted = {name.replace("+", "."): count for name, count in of_one.items()}
    row = {"gpus": gpus, "mig": {"state": "success", "devices": {name: count * gpus for name, count in dotted.items()}}}
    actual = gpu_layouts(row, {"layout": [{"devices": [], "profiles": of_one}]})
    assert [dict(layout) for layout in actual] == [dotted] * gpus


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("3g.20gb", 3),
        ("nvidia.com/mig-1g.5gb.me.shared", 1),
        ("nvidia.com/gpu", 0),
        ("gpu-2g.x", 0),
        ("0g.5gb", 1),
        ("", 0),
    ],
)
def test_compute_slices(name: str, number: int) -> None:
    assert compute_slices(name) == number


@pytest.mark.parametrize(
    ("layout", "gpus"), [(SMALL, 2), ([], 0)], ids=["the layout gives the number", "unknown without a layout"]
)
def test_gpus_where_gfd_counts_mig_devices(layout: Layout, gpus: int) -> None:
    row = {"name": "n", "pool": "p", "model": "A100", "gpus": 14, "allocatable": {"nvidia.com/gpu": 14}}
    row["mig"] = {"config": "x", "state": "success", "devices": {"1g.5gb": 14}}
    (node,) = build_page({"pools": {"p": {"layout": layout}}, "nodes": [row]}).nodes
    assert node.gpus == gpus
