# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which fields of a ClusterPolicy count as set manually, as a table of what may explain a value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import (
    KnownSources,
    ManualField,
    manual_fields,
    manual_fields_message,
)

Object = dict[str, Any]


def mig(name: str | None = None) -> Object:
    return {"migManager": {"config": {"default": "all-disabled", **({"name": name} if name is not None else {})}}}


# The chart v25.10.1 renders the key with an empty value, and that of v26.3.0 only if a value is set.
OLD, NEW = {"migManager": {"config": {"default": "all-disabled", "name": None}}}, mig()
STANDARD, OWN = "default-mig-parted-config", "accel-gpu-mig-parted"


def definition(default: str | None) -> Object:
    name = {"type": "string", **({"default": default} if default else {})}
    below: Object = {"properties": {"name": name}}
    for key in ("config", "migManager", "spec"):
        below = {"properties": {key: below}}
    return {"spec": {"versions": [{"schema": {"openAPIV3Schema": below}}]}}


def policy(name: str, *managers: str) -> Object:
    fields: Object = {"f:spec": {"f:migManager": {"f:config": {"f:name": {}}}}}
    records = [{"manager": manager, "operation": "Update", "fieldsV1": fields} for manager in managers]
    return {"metadata": {"managedFields": records}, "spec": mig(name)}


def fields(live: Object, *definitions: Object, desired: Object | None = None) -> list[ManualField]:
    sources = KnownSources((OLD, NEW), desired or {}, definitions)
    return manual_fields(live, sources)


WRITERS: list[tuple[str, Object, tuple[Object, ...], tuple[str, ...] | None]] = [
    ("the default, persisted when Helm created the policy", policy(STANDARD, "helm"), (), None),
    ("the same by Flux", policy(STANDARD, "helm-controller"), (), None),
    ("the same by Terraform", policy(STANDARD, "terraform-provider-helm_v3.0"), (), None),
    ("the default of the live CRD", policy(STANDARD), (definition(STANDARD),), None),
    ("the default, even if an edit wrote it", policy(STANDARD, "kubectl-edit"), (definition(STANDARD),), None),
    ("the collection's own value", policy(OWN, "accel.gpu"), (definition(None),), None),
    ("the operator's", policy("x", "gpu-operator"), (), None),
    ("an edit", policy("mine", "kubectl-edit"), (definition(STANDARD),), ("kubectl-edit",)),
    (
        "an edit to the default of an older CRD",
        policy(STANDARD, "kubectl-edit"),
        (definition(None),),
        ("kubectl-edit",),
    ),
    ("an edit that Helm agrees with", policy("mine", "helm", "argocd-controller"), (), ("argocd-controller",)),
    ("no records at all", policy("mine"), (), ()),
    ("no records, and the default", policy(STANDARD), (definition(STANDARD),), None),
]


@pytest.mark.parametrize(
    ("live", "definitions", "managers"), [case[1:] for case in WRITERS], ids=[case[0] for case in WRITERS]
)
def test_who_set_the_field(live: Object, definitions: tuple[Object, ...], managers: tuple[str, ...] | None) -> None:
    actual = fields(live, *definitions)
    assert [(field.path, field.writers) for field in actual] == (
        [] if managers is None else [(("migManager", "config", "name"), managers)]
    )


def test_a_field_without_a_writer_in_the_records_is_not_manual() -> None:
    live = policy(STANDARD)
    live["metadata"]["managedFields"] = [{"manager": "helm", "fieldsV1": {"f:spec": {"f:driver": {}}}}]
    assert fields(live) == []


@pytest.mark.parametrize(
    ("desired", "count"),
    [
        ({}, 1),
        ({"migManager": {"config": {"name": "mine"}}}, 0),
        ({"migManager": {"config": {"name": ""}}}, 0),
        ({"migManager": {"config": None}}, 0),
        ({"migManager": {"config": {"default": ""}}}, 1),
        ({"driver": {}}, 1),
    ],
)
def test_a_value_that_the_user_sets_there_is_meant_so(desired: Object, count: int) -> None:
    assert len(fields(policy("mine", "kubectl-edit"), desired=desired)) == count


def test_below_a_map_that_the_new_chart_lacks_each_field_counts() -> None:
    old = {"operator": {"initContainer": {"image": "cuda", "version": "13"}}}
    spec = {"operator": {"initContainer": {"image": "cuda", "version": "mine", "imagePullPolicy": "IfNotPresent"}}}
    crd = {
        "spec": {
            "versions": [
                {
                    "schema": {
                        "openAPIV3Schema": {
                            "properties": {
                                "spec": {
                                    "properties": {
                                        "operator": {
                                            "properties": {
                                                "initContainer": {"default": {"imagePullPolicy": "IfNotPresent"}}
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            ]
        }
    }
    sources = KnownSources((old, {}), {}, (crd,))
    actual = manual_fields({"metadata": {}, "spec": spec}, sources)
    assert [(field.path, field.value, field.replacement) for field in actual] == [
        (("operator", "initContainer", "version"), "mine", None)
    ]


def test_the_message_names_field_writer_and_value() -> None:
    text = manual_fields_message(fields(policy("mine", "kubectl-edit", "argocd-controller")), "cluster-policy")
    assert (
        "ClusterPolicy cluster-policy: spec.migManager.config.name (set by kubectl-edit, argocd-controller; Helm would remove it)."
        in text
    )
    assert (
        "set these values of the Helm release (release_values; gpu_cluster.operator.values): migManager.config.name: mine."
        in text
    )
    assert text.endswith("Nothing has been upgraded.")


VALUES = [
    (("driver", "version"), "580.1", "driver.version: 580.1"),
    (("gds", "enabled"), True, "gds.enabled: true"),
    (("driver", "upgradePolicy", "maxParallelUpgrades"), 4, "driver.upgradePolicy.maxParallelUpgrades: 4"),
    (("driver", "env"), [{"name": "TOKEN", "value": "secret"}], "driver.env (as in the ClusterPolicy)"),
    (("driver", "licenseToken"), "secret", "driver.licenseToken (as in the ClusterPolicy)"),
]


@pytest.mark.parametrize(("path", "value", "text"), VALUES)
def test_values_that_may_be_confidential_are_not_shown(path: tuple[str, ...], value: Any, text: str) -> None:
    field = ManualField(path, value, "new")
    assert field.as_value == text
    assert "secret" not in f"{field} {field!r}"


TREES = st.recursive(
    st.integers(1, 3), lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3), max_leaves=8
)
MAPS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(MAPS, MAPS, MAPS)
def test_only_leaves_that_the_patch_changes_are_manual(before: Object, after: Object, live: Object) -> None:
    actual = manual_fields({"metadata": {}, "spec": live}, KnownSources((before, after)))
    for field in actual:
        assert not isinstance(field.value, dict)
    # A policy as either chart renders it has no edits.
    for spec in (before, after):
        assert manual_fields({"metadata": {}, "spec": spec}, KnownSources((before, after))) == []
    assert manual_fields({"metadata": {}, "spec": live}, KnownSources()) == []
