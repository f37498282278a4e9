# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether OpenShift replaces the template of a MachineSet of vSphere, and the change that excludes the MachineSets of this collection."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.boot_images import (
    Guard,
    Selection,
    declared_selection,
    effective_selection,
    excludes,
    guard_of,
    guarded_machinesets,
    is_guarded,
    refusal,
    state_text,
    takes,
    upgrade_warning,
    warning,
)

Object = dict[str, t.Any]

GROUP = "accel.gpu/nodegroup"
STREAM = "machineconfiguration.openshift.io/osstream"
CLUSTER = "machine.openshift.io/cluster-api-cluster"
OWN = {"key": GROUP, "operator": "DoesNotExist"}
ALL: Selection = {"mode": "All"}
NONE: Selection = {"mode": "None"}
CONTROL_PLANE = {"resource": "controlplanemachinesets", "apiGroup": "machine.openshift.io", "selection": ALL}


def partial(*expressions: Object, **labels: str) -> Selection:
    """The mode Partial; an empty part of the selector is omitted."""
    selector = {"matchLabels": labels, "matchExpressions": list(expressions)}
    return {
        "mode": "Partial",
        "partial": {"machineResourceSelector": {key: value for key, value in selector.items() if value}},
    }


GUARD = partial(OWN)


def rule(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def entry(selection: Selection) -> Object:
    return {"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": selection}


def spec(*managers: Object) -> Object:
    return {"managedBootImages": {"machineManagers": list(managers)}}


def configuration(body: Object | None = None, status: Object | None = None, generation: int = 2) -> Object:
    """The object; `status` contains the boot images, and `observed` the generation to which it belongs."""
    actual: Object = {
        "metadata": {"name": "cluster", "generation": generation, "resourceVersion": "7"},
        "spec": body or {},
    }
    if status is not None:
        actual["status"] = status
    return actual


def observed(*managers: Object, generation: int = 2) -> Object:
    return {"observedGeneration": generation, "managedBootImagesStatus": {"machineManagers": list(managers)}}


def machineset(name: str = "train", *, labels: Object | None = None, **more: t.Any) -> Object:
    metadata = {"name": name, "labels": {GROUP: name} if labels is None else labels, **more.pop("metadata", {})}
    return {"metadata": metadata, **more}


@pytest.mark.parametrize(
    ("actual", "release", "selection"),
    [
        # The default of each release.
        (None, (4, 19), NONE),
        (None, (4, 20), NONE),
        (None, (4, 21), NONE),
        (None, (4, 22), ALL),
        (None, (5, 0), ALL),
        (configuration(), (4, 21), NONE),
        (configuration(), (5, 0), ALL),
        (configuration(spec(CONTROL_PLANE)), (5, 0), ALL),
        (configuration(spec(CONTROL_PLANE)), (4, 21), NONE),
        # An empty list opts out of everything.
        (configuration(spec()), (5, 0), NONE),
        # The spec counts until the operator has processed it.
        (configuration(spec(entry(NONE))), (5, 0), NONE),
        (configuration(spec(entry(ALL))), (4, 20), ALL),
        (configuration(spec(entry(ALL))), (4, 18), NONE),
        (configuration(spec(CONTROL_PLANE, entry(GUARD))), (5, 0), GUARD),
        (configuration(spec(entry(NONE)), observed(entry(ALL), generation=1)), (5, 0), NONE),
        (configuration(spec(), observed(entry(ALL), generation=1)), (5, 0), NONE),
        # After that, the status counts.
        (configuration({}, observed(entry(ALL))), (4, 21), ALL),
        (configuration({}, observed()), (5, 0), NONE),
        (configuration({}, {"observedGeneration": 2, "managedBootImagesStatus": {}}), (5, 0), NONE),
        (configuration(spec(entry(GUARD)), observed(entry(GUARD))), (5, 0), GUARD),
        # A status without boot images says nothing.
        (configuration({}, {"observedGeneration": 2}), (5, 0), ALL),
        (configuration({}, {"observedGeneration": 2}), (4, 20), NONE),
        (configuration({}, observed(entry(ALL))), (4, 19), NONE),
    ],
)
def test_the_effective_selection(actual: Object | None, release: tuple[int, int], selection: Selection) -> None:
    assert effective_selection(actual, release) == selection


@pytest.mark.parametrize(
    ("selection", "labels", "taken"),
    [
        (ALL, {}, True),
        (NONE, {}, False),
        ({}, {}, False),
        (partial(), {}, True),
        (partial(), {"a": "1"}, True),
        ({"mode": "Partial"}, {}, True),
        (partial(a="1"), {"a": "1", "b": "2"}, True),
        (partial(a="1"), {"a": "2"}, False),
        (partial(a="1"), {}, False),
        (partial(a="1", b="2"), {"a": "1"}, False),
        (partial(rule("a", "In", "1", "2")), {"a": "2"}, True),
        (partial(rule("a", "In", "1", "2")), {"a": "3"}, False),
        (partial(rule("a", "In", "1", "2")), {}, False),
        (partial(rule("a", "NotIn", "1")), {"a": "1"}, False),
        (partial(rule("a", "NotIn", "1")), {"a": "2"}, True),
        (partial(rule("a", "NotIn", "1")), {}, True),
        (partial(rule("a", "Exists")), {"a": ""}, True),
        (partial(rule("a", "Exists")), {}, False),
        (partial(rule("a", "DoesNotExist")), {"a": ""}, False),
        (partial(rule("a", "DoesNotExist")), {}, True),
        (partial(rule("b", "Exists"), a="1"), {"a": "1"}, False),
        (partial(rule("b", "Exists"), a="1"), {"a": "1", "b": ""}, True),
        (partial(rule("a", "Exists"), rule("b", "DoesNotExist")), {"a": "", "b": ""}, False),
        (GUARD, {GROUP: "train"}, False),
        (GUARD, {}, True),
    ],
)
def test_a_selection_is_a_label_selector(selection: Selection, labels: dict[str, str], taken: bool) -> None:
    assert takes(selection, machineset(labels=labels)) == taken


@pytest.mark.parametrize(
    ("skipped", "taken"),
    [
        (machineset(metadata={"ownerReferences": [{"kind": "Any", "name": "any"}]}), False),
        (machineset(metadata={"ownerReferences": []}), True),
        (machineset(labels={STREAM: "rhel-10"}), False),
        (machineset(labels={STREAM: "rhel-9"}), True),
        (machineset(status={"authoritativeAPI": "ClusterAPI"}), False),
        (machineset(status={"authoritativeAPI": "Migrating"}), False),
        (machineset(status={"authoritativeAPI": "MachineAPI"}), True),
    ],
)
def test_machinesets_that_the_operator_skips(skipped: Object, taken: bool) -> None:
    assert takes(ALL, skipped) == taken
    assert not takes(NONE, skipped)


@pytest.mark.parametrize(
    ("body", "release", "guard"),
    [
        # These exclude the MachineSets.
        (spec(entry(NONE)), (5, 0), Guard(NONE)),
        (spec(), (5, 0), Guard(NONE)),
        (spec(entry(GUARD)), (5, 0), Guard(GUARD)),
        (spec(entry(partial(update="yes"))), (5, 0), Guard(partial(update="yes"))),
        (spec(entry(partial(rule("a", "Exists")))), (4, 20), Guard(partial(rule("a", "Exists")))),
        # The default of the release.
        ({}, (4, 22), Guard(GUARD, changed=True)),
        (spec(CONTROL_PLANE), (5, 0), Guard(GUARD, changed=True)),
        ({}, (4, 20), Guard(NONE, by_default=True)),
        (spec(CONTROL_PLANE), (4, 21), Guard(NONE, by_default=True)),
        # Selections of others that include the MachineSets.
        (spec(entry(ALL)), (4, 20), Guard(GUARD, changed=True, narrowed=ALL)),
        (spec(entry(ALL)), (5, 0), Guard(GUARD, changed=True, narrowed=ALL)),
        (spec(entry(partial())), (5, 0), Guard(GUARD, changed=True, narrowed=partial())),
        (
            spec(entry(partial(rule("b", "NotIn", "2"), **{GROUP: "train"}))),
            (5, 0),
            Guard(
                partial(rule("b", "NotIn", "2"), OWN, **{GROUP: "train"}),
                changed=True,
                narrowed=partial(rule("b", "NotIn", "2"), **{GROUP: "train"}),
            ),
        ),
    ],
)
def test_the_guard(body: Object, release: tuple[int, int], guard: Guard) -> None:
    actual = guard_of(configuration(body), release, [machineset()])
    assert actual == guard
    if actual.changed:
        again = guard_of(configuration(spec(*actual.managers(configuration(body)))), release, [machineset()])
        assert again == Guard(actual.selection), "a second run changes nothing"


def test_what_the_operator_reports_counts_in_a_release_without_a_known_default() -> None:
    assert guard_of(configuration({}, observed(entry(ALL))), (4, 21), [machineset()]) == Guard(GUARD, changed=True)


def test_an_upgrade_that_has_started_gets_the_guard_although_the_old_operator_reports_nothing() -> None:
    assert guard_of(configuration({}, observed()), (4, 22), [machineset()]) == Guard(GUARD, changed=True)


def test_entries_for_other_resources_are_kept() -> None:
    guard = Guard(GUARD, changed=True)
    assert guard.managers(configuration(spec(CONTROL_PLANE))) == [CONTROL_PLANE, entry(GUARD)]
    assert guard.managers(configuration(spec(entry(ALL), CONTROL_PLANE))) == [entry(GUARD), CONTROL_PLANE]
    assert guard.managers(None) == [entry(GUARD)]


def test_the_applied_object_contains_only_the_own_entry_and_the_version_that_was_read() -> None:
    guard = Guard(GUARD, changed=True)
    body = guard.body(configuration(spec(CONTROL_PLANE)))
    assert body["spec"] == spec(entry(GUARD))
    assert body["metadata"] == {"name": "cluster", "resourceVersion": "7"}
    assert guard.body(None)["metadata"] == {"name": "cluster"}


SOURCE = machineset("prod-worker-a", labels={CLUSTER: "prod"})


@pytest.mark.parametrize(
    ("names", "live", "expected"),
    [
        (["train"], [], {"train": {GROUP: "train"}}),
        # A new MachineSet gets the label of the cluster.
        (["train"], [SOURCE], {"train": {GROUP: "train", CLUSTER: "prod"}}),
        # Existing MachineSets count with their labels, also those that are not named, and replacements.
        ([], [SOURCE, machineset("other")], {"other": {GROUP: "other"}}),
        (
            ["train"],
            [SOURCE, machineset("train-x7k2p", labels={GROUP: "train", "team": "ml"})],
            {"train-x7k2p": {GROUP: "train", "team": "ml"}},
        ),
        # An adopted MachineSet keeps its labels.
        (["prod-worker-a"], [SOURCE], {"prod-worker-a": {GROUP: "prod-worker-a", CLUSTER: "prod"}}),
        ([], [SOURCE], {"": {GROUP: "", CLUSTER: "prod"}}),
    ],
)
def test_the_machinesets_to_exclude(names: list[str], live: list[Object], expected: dict[str, Object]) -> None:
    actual = guarded_machinesets(names, live)
    assert {each["metadata"]["name"]: each["metadata"]["labels"] for each in actual} == expected


def test_a_selector_for_the_label_of_the_cluster_includes_future_machinesets() -> None:
    guard = guard_of(
        configuration(spec(entry(partial(**{CLUSTER: "prod"})))), (5, 0), guarded_machinesets(["new"], [SOURCE])
    )
    assert guard.narrowed == partial(**{CLUSTER: "prod"})


@pytest.mark.parametrize(
    ("actual", "guarded"),
    [
        (configuration(spec(entry(GUARD)), observed(entry(GUARD))), True),
        (configuration(spec(entry(NONE)), observed(entry(NONE))), True),
        (configuration(spec(), {"observedGeneration": 2, "managedBootImagesStatus": {}}), True),
        (configuration(spec(entry(GUARD)), observed(entry(ALL), generation=1)), False),
        (configuration(spec(entry(GUARD))), False),
        (configuration(spec(entry(ALL)), observed(entry(ALL))), False),
        (configuration(spec(entry(GUARD)), observed(entry(ALL))), False),
        (configuration({}, observed()), False),
        (configuration(spec(entry(partial(a="1"))), observed(entry(partial(a="1")))), False),
        (None, False),
    ],
)
def test_whether_the_operator_has_adopted_the_guard(actual: Object | None, guarded: bool) -> None:
    assert is_guarded(actual) == guarded


def test_whether_a_selection_of_others_excludes_these_machinesets() -> None:
    selection = partial(a="1")
    actual = configuration(spec(entry(selection)), observed(entry(selection)))
    assert is_guarded(actual, [machineset()])
    assert not is_guarded(actual, [machineset(), machineset(labels={GROUP: "x", "a": "1"})])
    assert excludes(ALL, [machineset(labels={GROUP: "x", STREAM: "rhel-10"})])


def test_the_messages_name_the_object_the_field_the_value_the_rule_and_the_remedies() -> None:
    assert "template rhcos-a100" in warning("train", "rhcos-a100")
    assert json.dumps(entry(GUARD)) in warning("train", "rhcos-a100")

    refused = refusal(guard_of(configuration(spec(entry(ALL))), (5, 0), [machineset()]), [machineset()])
    assert refused.startswith("MachineConfiguration cluster: in spec.managedBootImages.machineManagers, ")
    assert 'is {"mode": "All"}, which includes MachineSets of this collection (train)' in refused
    assert "narrow: true" in refused
    assert refused.endswith(json.dumps(entry(GUARD)))

    later = upgrade_warning((4, 21))
    assert "OpenShift 4.21 therefore leaves" in later
    assert "an upgrade to 4.22 or later has started" in later
    assert later.endswith(json.dumps(entry(NONE)))

    waiting = state_text(configuration(spec(entry(GUARD)), observed(entry(ALL), generation=1)))
    assert "status.observedGeneration is 1, metadata.generation is 2" in waiting
    assert 'shows the selection {"mode": "All"}' in waiting
    assert "oc get co machine-config" in waiting
    assert "observedGeneration is not set" in state_text(configuration())
    assert state_text(None) == "MachineConfiguration cluster was deleted."


def test_an_empty_list_is_a_declared_selection() -> None:
    assert declared_selection(configuration(spec())) == NONE
    assert declared_selection(configuration()) is None
