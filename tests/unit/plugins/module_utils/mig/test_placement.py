# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fits on a GPU, and where its devices are placed."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.mig import placement
from ansible_collections.accel.gpu.plugins.module_utils.mig.fit_error import fit_error
from tests.helpers.mig import geometry_of

A100, A30 = geometry_of("A100-SXM4-40GB"), geometry_of("A30")


# NVIDIA's MIG user guide, and the pairs that its placements exclude although the slices would add up.
@pytest.mark.parametrize(
    ("of", "counts", "fits"),
    [
        (A100, {"1g.5gb": 7}, True),
        (A100, {"4g.20gb": 1, "3g.20gb": 1}, True),
        (A100, {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}, True),
        (A100, {"3g.20gb": 1, "2g.10gb": 2}, True),
        (A100, {"3g.20gb": 2, "1g.5gb": 1}, False),
        (A100, {"2g.10gb": 3, "1g.5gb": 1}, True),
        (A100, {"2g.10gb": 3, "1g.5gb": 2}, False),
        (A100, {"1g.10gb": 4}, True),
        (A100, {"1g.10gb": 5}, False),
        (A100, {"1g.5gb+me": 2}, False),
        (A100, {"7g.40gb": 1, "1g.5gb": 1}, False),
        (A30, {"1g.6gb": 2, "2g.12gb": 1}, True),
        (A30, {"1g.6gb+me": 1, "2g.12gb+me": 1}, False),
        (A30, {"3g.24gb": 1}, False),
    ],
)
def test_fits(of: Geometry, counts: dict[str, int], fits: bool) -> None:
    assert placement.fits(of, counts) is fits
    assert (fit_error(of, counts) is None) is fits


@pytest.mark.parametrize(
    ("counts", "placed"),
    [
        ({"1g.5gb": 1, "4g.20gb": 1, "2g.10gb": 1}, [("4g.20gb", 0, 4), ("2g.10gb", 4, 2), ("1g.5gb", 6, 1)]),
        ({"3g.20gb": 1, "1g.10gb": 2}, [("3g.20gb", 0, 4), ("1g.10gb", 4, 2), ("1g.10gb", 6, 2)]),
        # To the left a 3g would take a place from the 2g, which cannot begin at slice 6.
        ({"3g.20gb": 1, "2g.10gb": 2}, [("3g.20gb", 4, 4), ("2g.10gb", 0, 2), ("2g.10gb", 2, 2)]),
        ({"1g.5gb": 1, "1g.5gb+me": 1}, [("1g.5gb", 0, 1), ("1g.5gb+me", 1, 1)]),
        ({"1g.5gb": 0}, []),
    ],
)
def test_the_largest_device_is_made_first(counts: dict[str, int], placed: list[tuple[str, int, int]]) -> None:
    assert list(placement.place(A100, counts) or ()) == placed
