# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explains why a MIG layout does not fit on a GPU, and finds the nearest layouts that fit (pure)."""

from __future__ import annotations

from ..catalog.mig import Geometry, Profile
from .layout import Counts, format_layout
from .placement import Placement, fits, in_order, mask, media_conflict, nearest, place


def fit_error(geometry: Geometry, counts: Counts) -> str | None:
    """The reason why these profiles do not fit and the three nearest layouts that do, as the continuation of `an A100 `; None if they fit.

    The reason lists as few devices as possible: without the last of them, the others would fit.
    """
    reason = _unknown(geometry, counts) or _too_many(geometry, counts) or _media(geometry, counts)
    if reason is None and fits(geometry, counts):
        return None
    alternatives = "; ".join(format_layout(layout) for layout in nearest(geometry, counts))
    return f"{reason or _overlap(geometry, counts)}; the nearest layouts that fit: {alternatives}"


def _unknown(geometry: Geometry, counts: Counts) -> str | None:
    for name in counts:
        if geometry.profile(name) is None:
            return f"has no profile {name}; it has {', '.join(profile.name for profile in geometry.profiles)}"
    return None


def _too_many(geometry: Geometry, counts: Counts) -> str | None:
    for profile in geometry.profiles:
        if counts.get(profile.name, 0) > profile.max_count:
            return f"has room for {profile.max_count} x {profile.name}, not for {counts[profile.name]}"
    return None


def _media(geometry: Geometry, counts: Counts) -> str | None:
    pair = media_conflict(profile for profile in in_order(geometry) if counts.get(profile.name))
    if pair is None:
        return None
    for greedy, other in (pair, pair[::-1]):
        if greedy.media == "all":
            return (
                f"has no media engines left for {other.name} next to {greedy.name}, which uses all of them: it can only "
                "be combined with profiles with -me"
            )
    return f"has the media extensions (+me) for one device, not for {pair[0].name} and {pair[1].name}"


def _overlap(geometry: Geometry, counts: Counts) -> str:
    """The devices that need the same memory slices, with their placements."""
    core = _minimal_conflict(geometry, counts)
    last = next(profile for profile in reversed(in_order(geometry)) if core.get(profile.name))
    rest = {**core, last.name: core[last.name] - 1}
    possible = 0
    for start in last.starts:
        possible |= mask(start, last.size)
    blocking = [placed for placed in place(geometry, rest) or () if placed.mask & possible]
    leave = "leave" if len(blocking) > 1 else "leaves"
    return (
        f"has no room for {format_layout(counts)} together: {_list([_placement(placed) for placed in blocking])} (memory slices) {leave} no "
        f"place for {last.name}, which needs {_places(last)}"
    )


def _minimal_conflict(geometry: Geometry, counts: Counts) -> dict[str, int]:
    """A minimal set of large devices that do not fit together; without any one of them, the rest fits."""
    core = {name: count for name, count in counts.items() if count}
    for profile in reversed(in_order(geometry)):
        while core.get(profile.name) and not fits(geometry, fewer := {**core, profile.name: core[profile.name] - 1}):
            core = fewer
    return {name: count for name, count in core.items() if count}


def _placement(placed: Placement) -> str:
    return f"{placed.profile} on {_span(placed.start, placed.size)}"


def _places(profile: Profile) -> str:
    if profile.size == 1:
        return f"one of {profile.starts[0]} to {profile.starts[-1]}"
    return " or ".join(_span(start, profile.size) for start in profile.starts)


def _span(start: int, size: int) -> str:
    return f"{start}" if size == 1 else f"{start}-{start + size - 1}"


def _list(items: list[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
