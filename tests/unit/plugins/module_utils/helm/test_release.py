# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm's records of a release and the next step that follows from them."""

from __future__ import annotations

import base64
import datetime
import gzip
import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.release import (
    Chart,
    ReleaseContent,
    Revision,
    decode_content,
    differing_values,
    merge_values,
    next_step,
    select_initial_values,
    sort_revisions,
    supersede_patch,
)

Object = dict[str, Any]

CHART = Chart("gpu-operator", "v25.10.1", "v25.10.1")
NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def secret(number: int, state: str, created: str = "2026-01-01T11:59:00Z") -> Object:
    return {
        "metadata": {
            "name": f"sh.helm.release.v1.x.v{number}",
            "uid": str(number),
            "resourceVersion": "5",
            "creationTimestamp": created,
            "labels": {"version": str(number), "status": state, "name": "x", "owner": "helm"},
        }
    }


def packed(document: Any) -> Object:
    text = gzip.compress(json.dumps(document).encode())
    return {**secret(1, "deployed"), "data": {"release": base64.b64encode(base64.b64encode(text)).decode()}}


RELEASE: Object = {
    "info": {"status": "deployed", "description": "Install complete"},
    "chart": {"metadata": {"name": "gpu-operator", "version": "v25.10.1", "appVersion": "v25.10.1"}},
    "config": {"password": "secret"},
    "manifest": "kind: Deployment",
}


def revision(state: str = "deployed", number: int = 1, age: float = 60) -> Revision:
    return Revision("s", "u", "5", number, state, NOW - datetime.timedelta(seconds=age))


def test_revisions_are_sorted_by_number_newest_first() -> None:
    actual = sort_revisions([secret(2, "superseded"), secret(10, "deployed"), secret(9, "failed")])
    assert [(item.number, item.status) for item in actual] == [(10, "deployed"), (9, "failed"), (2, "superseded")]


def test_content_is_decoded_and_its_repr_has_no_values() -> None:
    held = decode_content(packed(RELEASE))
    assert held is not None
    assert (held.chart, held.config, held.manifest) == (CHART, {"password": "secret"}, "kind: Deployment")
    assert "secret" not in repr(held)


def test_the_crds_of_the_installed_chart_are_in_its_record() -> None:
    crd = "kind: CustomResourceDefinition\nmetadata: {name: a, creationTimestamp: null}\n"
    files = [{"name": name, "data": base64.b64encode(crd.encode()).decode()} for name in ("crds/a.yaml", "README.md")]
    held = decode_content(packed({**RELEASE, "chart": {**RELEASE["chart"], "files": files}}))
    assert held is not None
    assert held.definitions() == [{"kind": "CustomResourceDefinition", "metadata": {"name": "a"}}]
    without = decode_content(packed(RELEASE))
    assert without is not None
    assert without.definitions() == []


@pytest.mark.parametrize("data", [{}, {"release": ""}, {"release": "bm90IGd6aXA="}, {"release": None}])
def test_a_record_of_another_format_is_none(data: Object) -> None:
    assert decode_content({**secret(1, "deployed"), "data": data}) is None
    assert supersede_patch({**secret(1, "deployed"), "data": data}) is None


def test_superseded_changes_the_status_in_both_places_and_nothing_else() -> None:
    patch = supersede_patch(packed(RELEASE))
    assert patch is not None
    assert patch["metadata"] == {"labels": {"status": "superseded"}, "resourceVersion": "5"}
    text = gzip.decompress(base64.b64decode(base64.b64decode(patch["data"]["release"])))
    assert json.loads(text) == {**RELEASE, "info": {"status": "superseded", "description": "Install complete"}}


HELD = ReleaseContent(CHART, {"a": {"b": 1}}, "")
STEPS = [
    (None, None, {"a": {"b": 1}}, "install", "does not exist"),
    (revision("uninstalled"), HELD, {"a": {"b": 1}}, "install", "does not exist"),
    (revision(), HELD, {"a": {"b": 1}}, "none", ""),
    (revision(), HELD, {"a": {"b": 2}}, "upgrade", "values differ: a.b"),
    (
        revision(),
        ReleaseContent(Chart("gpu-operator", "v25.3.2", ""), {"a": {"b": 1}}, ""),
        {"a": {"b": 1}},
        "upgrade",
        "v25.3.2 becomes",
    ),
    (
        revision(),
        ReleaseContent(Chart("gpu-operator", "v25.10.1", "old"), {"a": {"b": 1}}, ""),
        {"a": {"b": 1}},
        "upgrade",
        "chart",
    ),
    (revision("failed", 3), HELD, {"a": {"b": 1}}, "upgrade", "revision 3 is failed"),
    (revision("superseded"), HELD, {"a": {"b": 1}}, "upgrade", "superseded"),
    (revision(), None, {}, "upgrade", "cannot be read"),
]


@pytest.mark.parametrize(("latest", "held", "expected", "action", "reason"), STEPS)
def test_next_step(
    latest: Revision | None, held: ReleaseContent | None, expected: Object, action: str, reason: str
) -> None:
    step = next_step(latest, held, CHART, expected)
    assert step.action == action
    assert reason in "; ".join(step.reasons)


@pytest.mark.parametrize(
    ("held", "expected", "paths"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": {"b": 1, "c": [1]}}, {"a": {"b": 1, "c": [2]}}, ["a.c"]),
        ({"a": None}, {}, ["a"]),
        ({"token": "old"}, {"token": "new"}, ["token"]),
        ({"a": {}}, {"a": "x"}, ["a"]),
        ({"a": {}}, {}, ["a"]),
        ({}, {"a": {"b": 1, "c": {"d": 2, "e": {}}}}, ["a.b", "a.c.d", "a.c.e"]),
        ({"a": {"b": 1}}, {}, ["a.b"]),
    ],
)
def test_differing_values_are_paths(held: Object, expected: Object, paths: list[str]) -> None:
    assert differing_values(held, expected) == paths


TOLERATIONS = {"daemonsets": {"tolerations": [{"key": "team"}]}}


@pytest.mark.parametrize(
    ("held", "given"),
    [
        (None, TOLERATIONS),
        ({}, {}),
        ({"daemonsets": {"labels": {}}}, {}),
        ({"daemonsets": {"tolerations": []}}, {"daemonsets": {"tolerations": []}}),
        (
            {"daemonsets": {"tolerations": [{"key": "old"}], "labels": {}}},
            {"daemonsets": {"tolerations": [{"key": "old"}]}},
        ),
    ],
)
def test_initial_values_are_kept_as_the_release_has_them(held: Object | None, given: Object) -> None:
    assert select_initial_values(TOLERATIONS, held) == given


def test_values_merge_as_helm_merges_them() -> None:
    assert merge_values({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}, "d": 1}
