# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our share of a ClusterPolicy that stays: taken out, held back while drivers run, and nothing else touched."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import recorded_tolerations
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.stages import restore_policy
from tests.helpers.apply_model import apply, content

Object = dict[str, Any]

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TEAM = {"key": "team", "operator": "Equal", "value": "research", "effect": "NoSchedule"}
THEIRS = {"key": "example.org/maintenance", "operator": "Exists"}
NOTE = "accel.gpu/tolerations"
NAMED = {"devicePlugin": {"config": {"name": "accel-gpu-device-plugin", "default": ""}}}


def policy(spec: Object, annotations: Object | None = None) -> Object:
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": "cluster-policy",
            "resourceVersion": "7",
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": spec,
    }


def with_managed_fields(theirs: Object, managed: Object, noted_entries: list[Object] | None = None) -> Object:
    """A foreign policy after the managed part is applied; another writer of the same value remains an owner."""
    live = apply(apply(None, policy(theirs), "helm"), policy(managed, _note(noted_entries)), "accel.gpu")
    mine = [entry for entry in live["metadata"]["managedFields"] if entry["manager"] == "accel.gpu"]
    helm = {"manager": "helm", "operation": "Update", "fieldsV1": {"f:spec": _same(theirs, live["spec"])}}
    live["metadata"]["managedFields"] = [helm, *mine]
    return live


def _note(entries: list[Object] | None) -> Object | None:
    return None if entries is None else {NOTE: json.dumps(entries)}


def _same(written: Object, live: Object) -> Object:
    tree: Object = {}
    for key, value in written.items():
        if isinstance(value, dict) and value:
            tree[f"f:{key}"] = _same(value, live[key])
        elif live.get(key) == value:
            tree[f"f:{key}"] = {}
    return tree


def patched(live: Object, patch: Object | None) -> Object:
    def merged(under: Object, over: Object) -> Object:
        result = dict(under)
        for key, value in over.items():
            if value is None:
                result.pop(key, None)
            elif isinstance(value, dict):
                result[key] = merged(result.get(key) or {}, value)
            else:
                result[key] = value
        return result

    return merged(copy.deepcopy(live), patch or {})


def test_our_fields_go_and_the_users_stay() -> None:
    theirs = {"devicePlugin": {"enabled": True, "args": ["--x"]}, "driver": {"version": "580.95.05"}}
    live = with_managed_fields(theirs, NAMED)
    change = restore_policy(live)
    assert (change.before, change.after) == (
        {"spec": {"devicePlugin": {"config": NAMED["devicePlugin"]["config"]}}},
        {"spec": {"devicePlugin": {}}},
    )
    assert change.reaches_driver is False
    assert patched(live, change.patch)["spec"] == theirs
    assert change.patch is not None
    assert change.patch["metadata"] == {"resourceVersion": "7"}
    assert restore_policy(patched(live, change.patch)).patch is None


def test_a_field_that_another_tool_has_also_written_stays() -> None:
    live = with_managed_fields({"migManager": {"config": {"name": "x"}}}, {"migManager": {"config": {"name": "x"}}})
    assert restore_policy(live).patch is None


TOLERATIONS = [
    # in the policy, recorded as managed -> what is left
    ([GPU, TEAM, THEIRS], [TEAM], [GPU, THEIRS]),
    ([GPU, TEAM], [GPU, TEAM], None),
    ([GPU], [], [GPU]),
    # An equal foreign entry was never recorded.
    ([TEAM], [], [TEAM]),
    # As the server spells it, or as a user writes it.
    ([{"key": "team", "value": "research", "effect": "NoSchedule"}], [TEAM], None),
    # Taken out manually already.
    ([GPU], [GPU, TEAM], None),
]


@pytest.mark.parametrize(("held", "managed", "remaining"), TOLERATIONS)
def test_recorded_tolerations_are_removed(
    held: list[Object], managed: list[Object], remaining: list[Object] | None
) -> None:
    live = with_managed_fields(
        {"daemonsets": {"priorityClassName": "p"}}, {"daemonsets": {"tolerations": held}}, managed
    )
    change = restore_policy(live)
    after = patched(live, change.patch)["spec"]["daemonsets"]
    assert after == {"priorityClassName": "p", **({"tolerations": remaining} if remaining else {})}
    # Without entries, the operator's default applies.
    assert change.reaches_driver is ((remaining or [GPU]) != held)


def test_held_back_while_drivers_run() -> None:
    """The list stays as it is, with its record; all other managed fields are removed."""
    managed = {**NAMED, "daemonsets": {"tolerations": [GPU, TEAM]}}
    live = with_managed_fields({"daemonsets": {"priorityClassName": "p"}}, managed, [TEAM])
    change = restore_policy(live, hold_driver=True)
    after = patched(live, change.patch)
    assert after["spec"] == {"daemonsets": {"priorityClassName": "p", "tolerations": [GPU, TEAM]}}
    assert recorded_tolerations(after) == [TEAM]
    assert change.reaches_driver
    assert patched(live, restore_policy(live).patch)["spec"]["daemonsets"]["tolerations"] == [GPU]


def test_a_list_that_equals_the_operators_default_is_removed_while_drivers_run() -> None:
    live = with_managed_fields(
        {"daemonsets": {"priorityClassName": "p"}}, {"daemonsets": {"tolerations": [GPU]}}, [GPU]
    )
    for hold_driver in (False, True):
        change = restore_policy(live, hold_driver=hold_driver)
        assert not change.reaches_driver
        assert patched(live, change.patch)["spec"] == {"daemonsets": {"priorityClassName": "p"}}


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "{}"])
def test_a_note_that_cannot_be_read_notes_nothing(text: str) -> None:
    assert recorded_tolerations(policy({}, {NOTE: text})) == []


leaf = st.sampled_from(["1", "2", True])
specs = st.dictionaries(
    st.sampled_from(["devicePlugin", "driver", "migManager"]),
    st.dictionaries(st.sampled_from(["name", "version", "enabled"]), leaf, min_size=1, max_size=3),
    max_size=3,
)


@given(specs, specs, st.lists(st.sampled_from([GPU, TEAM, THEIRS]), unique_by=id, max_size=3))
def test_a_policy_is_as_before_after_the_managed_fields_are_removed(
    theirs: Object, managed: Object, tolerations: list[Object]
) -> None:
    """Provided that no foreign value was overwritten."""
    for part, fields in managed.items():
        fields.update({key: theirs[part][key] for key in fields if key in theirs.get(part, {})})
    entries = [entry for entry in tolerations if entry is not THEIRS]
    before = {**theirs, "daemonsets": {"tolerations": [THEIRS]}}
    live = with_managed_fields(before, {**managed, "daemonsets": {"tolerations": [THEIRS, *entries]}}, entries)
    after = patched(live, restore_policy(live).patch)
    assert content(after)["spec"] == content(policy(before))["spec"]
    assert restore_policy(after).patch is None


FORMER = "accel.gpu/former"
STRATEGY, MIG_CONFIG = {"strategy": "single"}, {"config": {"name": "theirs"}}


def test_replaced_values_are_restored() -> None:
    live = with_managed_fields(
        {"driver": {"enabled": True}}, {"migManager": {"config": {"name": "accel-gpu-mig-parted"}}}
    )
    live["metadata"]["annotations"] = {FORMER: json.dumps({"mig": STRATEGY, "migManager": MIG_CONFIG})}
    actual = patched(live, restore_policy(live).patch)
    assert actual["spec"] == {"driver": {"enabled": True}, "mig": STRATEGY, "migManager": MIG_CONFIG}
    assert restore_policy({**actual, "metadata": {**actual["metadata"], "managedFields": []}}).patch is None


def test_later_foreign_values_stay() -> None:
    live = policy({"mig": {"strategy": "mixed"}}, {FORMER: json.dumps({"mig": STRATEGY})})
    assert restore_policy(live).patch is None


@pytest.mark.parametrize("note", ["", "[", "[]", '"x"', "null"])
def test_an_unreadable_note_of_former_values_is_none(note: str) -> None:
    assert restore_policy(policy({"mig": {}}, {FORMER: note})).patch is None
