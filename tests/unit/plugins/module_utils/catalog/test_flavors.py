# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that the name of a flavor states."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import vks_flavor_gpus


@pytest.mark.parametrize(
    ("flavor", "count", "first", "has_mig"),
    [
        ("g1-standard-4x16-1rtx2080ti", 1, "RTX-2080-Ti", False),
        ("g1-standard-32x128-8rtx2080ti", 8, "RTX-2080-Ti", False),
        ("g2-standard-16x64-1rtx4090", 1, "RTX-4090", False),
        ("g3-standard-16x128-1A40", 1, "A40", False),
        ("g4-standard-32x256-4L40s", 4, "L40S", False),
        ("g5-standard-48x360x900NVMe-2H100", 2, "H100-PCIe", True),
        ("g5-standard-104x800x2TBNVMe-4H100", 4, "H100-PCIe", True),
    ],
)
def test_card_of_a_flavor(flavor: str, count: int, first: str, has_mig: bool) -> None:
    card = vks_flavor_gpus(flavor)
    assert card is not None
    assert (card.count, card.keys[0], card.has_mig) == (count, first, has_mig)


def test_a_card_that_the_catalog_lacks_is_not_judged() -> None:
    card = vks_flavor_gpus("g9-standard-8x64-2X9000")
    assert card is not None
    assert (card.count, card.keys, card.has_mig) == (2, (), None)


@pytest.mark.parametrize("flavor", ["s-general-4x8", "s1-standard-4x16", "flav-3929c073-9da9-486f", "g4.p2.40g", ""])
def test_other_names_say_nothing(flavor: str) -> None:
    assert vks_flavor_gpus(flavor) is None
