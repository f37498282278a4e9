# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a GPU has no room for a MIG layout, and which layouts like it there is room for (pure)."""

from __future__ import annotations

from ..catalog.mig import Geometry, Profile
from .enumerate import nearest
from .layout import Counts, format_layout
from .placement import Placement, clash, fits, in_order, mask, place


def fit_error(geometry: Geometry, counts: Counts) -> str | None:
    """Why these profiles do not fit, and the three nearest layouts that do, as what follows `an A100 `; None when they fit.

    The reason is about as few of the devices as will do: those named fit without the last of them.
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
    pair = clash(profile for profile in in_order(geometry) if counts.get(profile.name))
    if pair is None:
        return None
    for greedy, other in (pair, pair[::-1]):
        if greedy.media == "all":
            return (
                f"has no media engines left for {other.name} beside {greedy.name}, which takes them all: beside it stand "
                "only profiles with -me"
            )
    return f"has the media extensions (+me) for one device, not for {pair[0].name} and {pair[1].name}"


def _overlap(geometry: Geometry, counts: Counts) -> str:
    """Which devices need the same memory slices: all but one of as few as do not fit together, and where they lie."""
    core = _core(geometry, counts)
    last = next(profile for profile in reversed(in_order(geometry)) if core.get(profile.name))
    rest = {**core, last.name: core[last.name] - 1}
    possible = 0
    for start in last.starts:
        possible |= mask(start, last.size)
    in_the_way = [placed for placed in place(geometry, rest) or () if placed.mask & possible]
    leave = "leave" if len(in_the_way) > 1 else "leaves"
    return (
        f"has no room for {format_layout(counts)} together: {_and([_lying(placed) for placed in in_the_way])} (memory slices) {leave} no "
        f"place for {last.name}, which needs {_places(last)}"
    )


def _core(geometry: Geometry, counts: Counts) -> dict[str, int]:
    """As few of the devices as do not fit together, the largest of them: without any of these the rest fits."""
    core = {name: count for name, count in counts.items() if count}
    for profile in reversed(in_order(geometry)):
        while core.get(profile.name) and not fits(geometry, fewer := {**core, profile.name: core[profile.name] - 1}):
            core = fewer
    return {name: count for name, count in core.items() if count}


def _lying(placed: Placement) -> str:
    return f"{placed.profile} on {_span(placed.start, placed.size)}"


def _places(profile: Profile) -> str:
    if profile.size == 1:
        return f"one of {profile.starts[0]} to {profile.starts[-1]}"
    return " or ".join(_span(start, profile.size) for start in profile.starts)


def _span(start: int, size: int) -> str:
    return f"{start}" if size == 1 else f"{start}-{start + size - 1}"


def _and(items: list[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
