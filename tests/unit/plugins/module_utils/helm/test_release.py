# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What helm has to do, and who is dead: tables over helm's records."""

from __future__ import annotations

import base64
import datetime
import gzip
import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.chart import Chart
from ansible_collections.accel.gpu.plugins.module_utils.helm.release import (
    PendingWatch,
    ReleaseContent,
    Revision,
    abandoned,
    content,
    differing,
    merged,
    next_step,
    revisions,
    seeded,
    superseded,
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


RELEASE = {
    "info": {"status": "deployed", "description": "Install complete"},
    "chart": {"metadata": {"name": "gpu-operator", "version": "v25.10.1", "appVersion": "v25.10.1"}},
    "config": {"password": "secret"},
    "manifest": "kind: Deployment",
}


def revision(state: str = "deployed", number: int = 1, age: float = 60) -> Revision:
    return Revision("s", "u", "5", number, state, NOW - datetime.timedelta(seconds=age))


def test_revisions_come_newest_first_by_number() -> None:
    found = revisions([secret(2, "superseded"), secret(10, "deployed"), secret(9, "failed")])
    assert [(item.number, item.status) for item in found] == [(10, "deployed"), (9, "failed"), (2, "superseded")]


def test_a_record_is_read_and_its_values_are_not_shown() -> None:
    held = content(packed(RELEASE))
    assert held is not None
    assert (held.chart, held.config, held.manifest) == (CHART, {"password": "secret"}, "kind: Deployment")
    assert "secret" not in repr(held)


@pytest.mark.parametrize("data", [{}, {"release": ""}, {"release": "bm90IGd6aXA="}, {"release": None}])
def test_a_record_of_another_format_is_none(data: Object) -> None:
    assert content({**secret(1, "deployed"), "data": data}) is None
    assert superseded({**secret(1, "deployed"), "data": data}) is None


def test_superseded_changes_the_status_in_both_places_and_nothing_else() -> None:
    patch = superseded(packed(RELEASE))
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


@pytest.mark.parametrize(("latest", "held", "wanted", "action", "reason"), STEPS)
def test_next_step(
    latest: Revision | None, held: ReleaseContent | None, wanted: Object, action: str, reason: str
) -> None:
    step = next_step(latest, held, CHART, wanted)
    assert step.action == action
    assert reason in "; ".join(step.reasons)


@pytest.mark.parametrize(
    ("held", "wanted", "paths"),
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
def test_values_differ_by_their_paths_alone(held: Object, wanted: Object, paths: list[str]) -> None:
    assert differing(held, wanted) == paths


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
def test_initial_values_are_for_a_first_installation(held: Object | None, given: Object) -> None:
    assert seeded(TOLERATIONS, held) == given


def test_values_merge_as_helm_merges_them() -> None:
    assert merged({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}, "d": 1}


def note(machine: str, number: int) -> Object:
    annotations = {"accel.gpu/machine": machine, "accel.gpu/revision": str(number)}
    return {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": "run-1"}}


VERDICTS = [
    # helm here, note, age -> dead, why
    (True, note("here", 2), 9999.0, False, "a helm process on this machine"),
    (False, note("here", 2), 1.0, True, "run run-1"),
    (False, note("here", 1), 1.0, False, "another machine"),
    (False, note("there", 2), 1.0, False, "another machine"),
    (False, None, 599.0, False, "another machine"),
    (False, None, 601.0, True, "nothing has finished it"),
    (False, note("there", 2), 601.0, True, "nothing has finished it"),
    # Where processes cannot be seen, only age tells.
    (None, note("here", 2), 1.0, False, "another machine"),
    (None, note("here", 2), 601.0, True, "nothing has finished it"),
]


@pytest.mark.parametrize(("helm_here", "left", "age", "dead", "why"), VERDICTS)
def test_who_is_dead(helm_here: bool | None, left: Object | None, age: float, dead: bool, why: str) -> None:
    watch = PendingWatch(here="here", helm_here=helm_here, note=left, now=NOW, timeout=600)
    verdict, reason = abandoned(revision("pending-upgrade", 2, age), watch)
    assert verdict is dead
    assert why in reason
