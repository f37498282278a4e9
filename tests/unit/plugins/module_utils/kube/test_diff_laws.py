# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The laws of the comparison for any objects and any history of two owners."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import difference
from tests.helpers.apply_model import Object, apply, content

US, THEM = "accel.gpu", "another-tool"

_keys = st.sampled_from(["a", "b", "c"])
_scalars = st.one_of(st.booleans(), st.integers(1, 3), st.sampled_from(["x", "y", "on"]))
_maps = st.fixed_dictionaries(
    {},
    optional={"deep": st.dictionaries(_keys, _scalars, min_size=1), "l": st.lists(_scalars, max_size=2), "s": _scalars},
).filter(bool)


@st.composite
def objects(draw: st.DrawFn) -> Object:
    """A custom resource: every scalar and every list is compared as a whole."""
    # Fields keep their type, as under a schema: m is a map, l an atom, s a scalar.
    spec = draw(st.fixed_dictionaries({}, optional={"m": _maps, "l": st.lists(_scalars, max_size=2), "s": _scalars}))
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec}


_histories = st.lists(st.tuples(st.sampled_from([US, THEM]), objects()), max_size=4)


def lived(history: list[tuple[str, Object]]) -> Object | None:
    """The object after all these applies."""
    live: Object | None = None
    for manager, expected in history:
        live = apply(live, expected, manager)
    return live


@given(_histories, objects())
def test_applying_twice_changes_nothing(history: list[tuple[str, Object]], expected: Object) -> None:
    live = apply(lived(history), expected, US)
    assert not difference(live, expected, US).changed


@given(_histories, objects())
def test_unchanged_means_that_an_apply_would_do_nothing(history: list[tuple[str, Object]], expected: Object) -> None:
    live = lived(history)
    if live is not None and not difference(live, expected, US).changed:
        assert content(apply(live, expected, US)) == content(live)


@given(_histories, objects())
def test_after_is_what_an_apply_gives(history: list[tuple[str, Object]], expected: Object) -> None:
    live = lived(history)
    assert content(difference(live, expected, US).after) == content(apply(live, expected, US))


@given(_histories, objects(), objects())
def test_foreign_fields_survive(history: list[tuple[str, Object]], theirs: Object, managed: Object) -> None:
    live = apply(lived(history), theirs, THEM)
    managed = {**managed, "spec": {key: value for key, value in managed["spec"].items() if key not in theirs["spec"]}}
    after = difference(live, managed, US).after
    for key, value in theirs["spec"].items():
        assert after["spec"][key] == live["spec"][key] or after["spec"][key] == value


@given(_histories, objects())
def test_fields_with_no_other_owner_are_removed(history: list[tuple[str, Object]], managed: Object) -> None:
    live = apply(lived([step for step in history if step[0] == US]), managed, US)
    nothing = {key: value for key, value in managed.items() if key != "spec"}
    plan = difference(live, nothing, US)
    assert plan.changed
    assert "spec" not in plan.after
