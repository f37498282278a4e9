# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declared fields, and those that another field manager has set."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling_objects import leaves, set_fields

OWN, THEIRS = "accel.gpu", "argocd-controller"


def live(manager: str | None, **spec: t.Any) -> dict[str, t.Any]:
    """An object whose fields one manager has written; None: without records."""
    entry: dict[str, t.Any] = {
        "manager": manager,
        "operation": "Update",
        "fieldsV1": {"f:spec": {f"f:{key}": {} for key in spec}},
    }
    return {"metadata": {"name": "default", "managedFields": [entry] if manager else []}, "spec": spec}


@pytest.mark.parametrize(
    ("manager", "value", "declared", "changed", "foreign"),
    [
        (OWN, "10m", "20m", True, ""),
        (THEIRS, "10m", "20m", False, THEIRS),
        (None, "10m", "20m", False, "an unknown manager"),
        (THEIRS, "20m", "1200s", False, ""),
        (THEIRS, 4, 4, False, ""),
        (THEIRS, False, 0, False, THEIRS),
        (THEIRS, ["Random"], ["Priority"], False, THEIRS),
    ],
)
def test_a_field_of_another_manager_stays(
    manager: str | None, value: t.Any, declared: t.Any, changed: bool, foreign: str
) -> None:
    item = live(manager, field=value)
    before = copy.deepcopy(item)
    actual = set_fields(item, {("spec", "field"): declared}, change_foreign=False)
    assert actual.desired["spec"]["field"] == (declared if changed else value)
    assert [field.managers for field in actual.foreign] == ([foreign] if foreign else [])
    forced = set_fields(item, {("spec", "field"): declared}, change_foreign=True)
    assert forced.foreign == actual.foreign, "named as well"
    assert forced.desired["spec"]["field"] == (declared if changed or foreign else value)
    assert item == before


def test_a_missing_field_is_set() -> None:
    actual = set_fields(live(THEIRS, other=1), {("spec", "map", "field"): True}, change_foreign=False)
    assert (actual.desired["spec"], actual.foreign) == ({"other": 1, "map": {"field": True}}, ())


def test_leaves_are_the_values_below_maps() -> None:
    assert leaves({"a": {"b": 1, "c": {}}, "d": [{"e": 2}]}) == {("a", "b"): 1, ("a", "c"): {}, ("d",): [{"e": 2}]}


def test_a_message_names_field_values_and_manager() -> None:
    (field,) = set_fields(live(THEIRS, enabled=False), {("spec", "enabled"): True}, change_foreign=False).foreign
    assert str(field) == "spec.enabled is false (set by argocd-controller), but true is declared"
