# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to become of each declared group, by what there is (pure)."""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass

from .names import is_of, replacement
from .spec import FieldNames, NodeGroupSpec, NodeGroupState

NOTHING, CREATE, UPDATE, RECREATE, DELETE = "none", "create", "update", "recreate", "delete"

Edits = t.Mapping[str, tuple[t.Any, t.Any]]


@dataclass(frozen=True)
class GroupChange:
    """What one wish comes to.

    name: what the group is called that is, or becomes, what is wished. live: that group; None where it has yet to be made.
    leftovers: the other groups of this wish, which go. spare: such that stay, since nobody has asked for a replacement.
    going: such that the cloud is deleting already, for whose end there is only to wait. edits: what differs, by field, as
    (before, after).
    """

    wish: NodeGroupSpec
    action: str
    name: str
    live: NodeGroupState | None = None
    leftovers: tuple[NodeGroupState, ...] = ()
    spare: tuple[NodeGroupState, ...] = ()
    going: tuple[NodeGroupState, ...] = ()
    edits: Edits = dataclasses.field(default_factory=dict)

    @property
    def shrinks(self) -> bool:
        """Whether nodes go: some of the group's, or all of them."""
        count = self.wish.count_of(self.live.count) if self.live else None
        return bool(self.leftovers) or (count is not None and self.live is not None and count < self.live.count)

    def before(self, words: FieldNames) -> dict[str, t.Any]:
        """What there is, for the diff; empty where there is no group yet."""
        shown = self.live or next(iter(self.leftovers), None)
        return shown.told(words) if shown else {}

    def after(self, words: FieldNames) -> dict[str, t.Any]:
        """What there will be, as far as it is declared or there already; empty where there will be no group."""
        if self.action == DELETE:
            return {}
        now = (self.live or next(iter(self.leftovers), None)) if self.action != CREATE else None
        told = now.told(words) if now else dict(_declared(self.wish, words))
        return {**told, **{field: after for field, (dummy, after) in self.edits.items()}, "name": self.name}


def field_edits(wish: NodeGroupSpec, live: NodeGroupState, words: FieldNames) -> Edits:
    """What of a wish a group is not, by field."""
    count = wish.count_of(live.count)
    found: dict[str, tuple[t.Any, t.Any]] = {}
    for word, want, have in (
        (words.count, count, live.count),
        (words.low, wish.low, live.low),
        (words.high, wish.high, live.high),
    ):
        if want is not None and want != have:
            found[word] = (have, want)
    if wish.unranged and (live.low, live.high) != (0, None):
        found.update({words.low: (live.low, 0), words.high: (live.high, None)})
    for field, want in wish.fields.items():
        have = live.fields.get(field)
        wanted = merge_field(have or {}, want) if isinstance(want, t.Mapping) else want
        if wanted != (have or {} if isinstance(want, t.Mapping) else have):
            found[field] = (have, wanted)
    return found


def merge_field(have: t.Mapping[str, t.Any], want: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The map with these entries laid on it; one of None is taken out."""
    return {key: value for key, value in {**have, **want}.items() if value is not None}


def plan_changes(
    wishes: t.Sequence[NodeGroupSpec],
    lives: t.Sequence[NodeGroupState],
    words: FieldNames,
    unchangeable: t.Collection[str],
    longest: int,
) -> tuple[list[GroupChange], list[str]]:
    """A change for each wish, in their order, and what cannot be."""
    planned: list[GroupChange] = []
    problems: list[str] = []
    others = {wish.name for wish in wishes}
    for wish in wishes:
        its = [
            live
            for live in lives
            if live.name == wish.name or (live.name not in others and is_of(live.name, wish.name, longest))
        ]
        staying = [live for live in its if not live.going]
        going = tuple(live for live in its if live.going)
        planned.append(dataclasses.replace(_change(wish, staying, words, unchangeable, longest), going=going))
        if planned[-1].action == RECREATE and not wish.recreate:
            problems.append(_refusal(planned[-1], unchangeable))
    return planned, problems


def _change(
    wish: NodeGroupSpec,
    its: t.Sequence[NodeGroupState],
    words: FieldNames,
    unchangeable: t.Collection[str],
    longest: int,
) -> GroupChange:
    if not wish.present:
        return GroupChange(wish, DELETE if its else NOTHING, wish.name, leftovers=tuple(its))
    if not its:
        return GroupChange(wish, CREATE, wish.name, edits=_declared_edits(wish, words))
    # The one of the very name first, and of the others always the same one.
    ordered = sorted(its, key=lambda live: (live.name != wish.name, live.name))
    differing = [(live, field_edits(wish, live, words)) for live in ordered]
    fitting = [(live, found) for live, found in differing if not found.keys() & set(unchangeable)]
    if not fitting:
        old, found = differing[0]
        fixed = {field: wish.fields[field] for field in unchangeable if field in wish.fields}
        name = replacement(wish.name, fixed, longest)
        return GroupChange(
            wish, RECREATE, name, leftovers=(old, *(live for live in ordered if live is not old)), edits=found
        )
    live, found = fitting[0]
    # Two groups of one wish are what a killed replacement leaves; whoever does not ask for one again is only told.
    rest = tuple(other for other in ordered if other is not live)
    if rest and wish.recreate:
        return GroupChange(wish, RECREATE, live.name, live, leftovers=rest, edits=found)
    action = UPDATE if found or live.failed else NOTHING
    return GroupChange(wish, action, live.name, live, spare=rest, edits=found)


def out_of_range(change: GroupChange, words: FieldNames) -> t.Iterator[str]:
    """What is wrong with the number of nodes and its range, declared or as the group has them."""
    wish, live = change.wish, change.live
    ranged = None if wish.unranged else live
    low = wish.low if wish.low is not None else (ranged.low if ranged else 0)
    high = wish.high if wish.high is not None else (ranged.high if ranged else None)
    name = f"Node group {wish.name}"
    if high is not None and low > high:
        yield f"{name}: {words.low} is {low} and {words.high} {high}; the least is at most as much as the most."
        return
    count = wish.count_of(live.count if live else None)
    if count is None or wish.autoscaled or (change.action == NOTHING):
        return
    if count < low:
        yield f"{name}: {words.count} is {count}, and {words.low} {low}; declare a {words.low} of at most {count}, or more nodes."
    elif high is not None and count > high:
        yield f"{name}: {words.count} is {count}, and {words.high} {high}; declare a {words.high} of {count} or more, or fewer nodes."


def _refusal(change: GroupChange, unchangeable: t.Collection[str]) -> str:
    old = change.leftovers[0]
    fields = sorted(change.edits.keys() & set(unchangeable))
    said = " and ".join(f"{field} is {change.edits[field][0]!r}, not {change.edits[field][1]!r}" for field in fields)
    return (
        f"Node group {old.name}: {said}, and the cloud changes that on no group that exists. Declare what it is, or set "
        "recreate: true, which makes another group, moves the pods to it and deletes this one."
    )


def _declared(wish: NodeGroupSpec, words: FieldNames) -> dict[str, t.Any]:
    numbers = {words.count: wish.count_of(None), words.low: wish.low, words.high: wish.high}
    fields = {
        key: merge_field({}, value) if isinstance(value, t.Mapping) else value for key, value in wish.fields.items()
    }
    return {**{word: value for word, value in numbers.items() if value is not None}, **dict(sorted(fields.items()))}


def _declared_edits(wish: NodeGroupSpec, words: FieldNames) -> Edits:
    return {field: (None, value) for field, value in _declared(wish, words).items()}
