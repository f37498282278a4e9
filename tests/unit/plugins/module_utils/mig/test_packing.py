# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A demand over GPUs: who is touched, what is kept, what is missing."""

from __future__ import annotations

from collections import Counter

from ansible_collections.accel.gpu.plugins.module_utils.mig.packing import Gpu, pack
from tests.helpers.mig import geometry_of

A100 = geometry_of("A100-SXM4-40GB")


def gpu(index: int, now: dict[str, int] | None = None, used: bool = False) -> Gpu:
    return Gpu("a", index, now, used, A100)


def test_whole_gpus_are_cut_and_no_more_than_needed() -> None:
    packed = pack([gpu(index) for index in range(4)], {"1g.5gb": 5, "3g.20gb": 2})
    assert packed.missing == {}
    assert len(packed.touched) == 2
    offered = sum((Counter(counts) for counts in packed.layouts.values()), Counter())
    assert offered == {"1g.5gb": 5, "3g.20gb": 2}


def test_a_demand_that_is_met_touches_nothing() -> None:
    gpus = [gpu(0, {"1g.5gb": 7}), gpu(1, {"3g.20gb": 2}, used=True), gpu(2)]
    packed = pack(gpus, {"1g.5gb": 6, "3g.20gb": 2})
    assert packed.touched == ()
    assert packed.layouts == {("a", 0): {"1g.5gb": 7}, ("a", 1): {"3g.20gb": 2}}


def test_unused_gpus_are_touched_first() -> None:
    gpus = [gpu(0, {"1g.5gb": 7}, used=True), gpu(1, {"3g.20gb": 2})]
    packed = pack(gpus, {"7g.40gb": 1})
    assert packed.touched == (("a", 1),)
    assert packed.layouts == {("a", 0): {"1g.5gb": 7}, ("a", 1): {"7g.40gb": 1}}


def test_what_finds_no_room_is_missing() -> None:
    packed = pack([gpu(0)], {"7g.40gb": 2, "9g.99gb": 1})
    assert packed.missing == {"7g.40gb": 1, "9g.99gb": 1}
