# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sentence about a layout that does not fit: the slices that are needed twice, the rule, the nearest layouts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import fit_error, fits, format_layout, nearest
from tests.helpers.mig import geometry_of
from tests.unit.plugins.module_utils.sharing_modes.test_placement import geometries_and_counts

A100, A30, RTX = geometry_of("A100-SXM4-40GB"), geometry_of("A30"), geometry_of("RTX-PRO-6000-Server")


@pytest.mark.parametrize(
    ("geometry", "counts", "reason"),
    [
        (
            A100,
            {"3g.20gb": 2, "1g.5gb": 1},
            "has no room for 1 x 1g.5gb + 2 x 3g.20gb together: 3g.20gb on 0-3 and 3g.20gb on 4-7 (memory slices) leave no place for "
            "1g.5gb, which needs one of 0 to 6; the nearest layouts that fit: 2 x 3g.20gb; 1 x 1g.5gb + 1 x 2g.10gb + 1 x 3g.20gb; "
            "1 x 1g.10gb + 1 x 1g.5gb + 1 x 3g.20gb",
        ),
        (
            A100,
            {"4g.20gb": 1, "3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1},
            "has no room for 1 x 1g.5gb + 1 x 2g.10gb + 1 x 3g.20gb + 1 x 4g.20gb together: 4g.20gb on 0-3 and 3g.20gb on 4-7 (memory "
            "slices) leave no place for 2g.10gb, which needs 0-1 or 2-3 or 4-5; ",
        ),
        (
            A100,
            {"7g.40gb": 1, "1g.10gb": 1},
            "has no room for 1 x 1g.10gb + 1 x 7g.40gb together: 7g.40gb on 0-7 (memory slices) leaves no place for 1g.10gb, which "
            "needs 0-1 or 2-3 or 4-5 or 6-7; ",
        ),
        (A100, {"3g.20gb": 3}, "has room for 2 x 3g.20gb, not for 3; the nearest layouts that fit: 2 x 3g.20gb; "),
        (
            A100,
            {"3g.40gb": 2},
            "has no profile 3g.40gb; it has 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb; the nearest layouts that "
            "fit: 2 x 3g.20gb; ",
        ),
        (
            A30,
            {"1g.6gb+me": 1, "2g.12gb+me": 1},
            "has the media extensions (+me) for one device, not for 2g.12gb+me and 1g.6gb+me; the nearest layouts that fit: ",
        ),
        (
            RTX,
            {"1g.24gb+me.all": 1, "2g.48gb": 1},
            "has no media engines left for 2g.48gb next to 1g.24gb+me.all, which uses all of them: it can only be combined with profiles with "
            "-me; ",
        ),
        (
            RTX,
            {"1g.24gb+me.all": 1, "2g.48gb+me.all": 1},
            "has no media engines left for 1g.24gb+me.all next to 2g.48gb+me.all, which uses all of them",
        ),
    ],
)
def test_reasons(geometry: Geometry, counts: dict[str, int], reason: str) -> None:
    assert str(fit_error(geometry, counts)).startswith(reason)


@given(geometries_and_counts())
def test_there_is_a_reason_exactly_where_it_does_not_fit(geometry_and_counts: tuple[Geometry, dict[str, int]]) -> None:
    geometry, counts = geometry_and_counts
    message = fit_error(geometry, counts)
    assert (message is None) is fits(geometry, counts)
    if message is not None:
        assert message.endswith("; ".join(format_layout(layout) for layout in nearest(geometry, counts)))


@given(geometries_and_counts())
def test_those_that_are_named_do_not_fit_together(geometry_and_counts: tuple[Geometry, dict[str, int]]) -> None:
    geometry, counts = geometry_and_counts
    message = fit_error(geometry, counts) or ""
    if "together: " not in message:
        return
    reason = message.partition("together: ")[2].partition("; the nearest")[0]
    placed = re.findall(r"(\S+) on (\d+)(?:-(\d+))?", reason.partition(" (memory")[0])
    last = reason.partition("place for ")[2].partition(",")[0]
    taken = {at for dummy, first, end in placed for at in range(int(first), int(end or first) + 1)}
    profile = geometry.profile(last)
    assert profile
    # Each place of the last is needed by another, and each of the others needs one of its places.
    places = [set(range(start, start + profile.size)) for start in profile.starts]
    assert all(place & taken for place in places)
    assert all(set(range(int(first), int(end or first) + 1)) & set().union(*places) for dummy, first, end in placed)
    assert {name for name, dummy, dummy_too in placed} | {last} <= {name for name, count in counts.items() if count}
