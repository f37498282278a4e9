# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks of the collection on objects."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import (
    applied_labels,
    is_marked,
    spec_managers,
    split_keys,
    unmark_patch,
)

Object = dict[str, Any]
SPEC: Object = {"f:spec": {"f:names": {}}}


def written(*entries: tuple[str, Object], **metadata: Any) -> Object:
    """An object with managedFields."""
    fields = [{"manager": name, "operation": "Apply", "fieldsV1": tree} for name, tree in entries]
    return {"metadata": {"name": "x", "resourceVersion": "7", "managedFields": fields, **metadata}}


LABEL: Object = {"f:metadata": {"f:labels": {".": {}, "f:pod-security": {}}}}


def test_unmark_patch_changes_no_field() -> None:
    live = written(("kubectl", {}), ("accel.gpu", LABEL), annotations={"accel.gpu/created": "true", "other": "x"})
    assert is_marked(live)
    patch = unmark_patch(live)
    assert patch is not None
    assert patch["metadata"]["annotations"] == {"accel.gpu/created": None}
    assert [entry["manager"] for entry in patch["metadata"]["managedFields"]] == ["kubectl"]
    assert patch["metadata"]["resourceVersion"] == "7"
    assert set(patch) == {"metadata"}


def test_unmark_patch_without_other_managers() -> None:
    patch = unmark_patch(written(("accel.gpu", LABEL)))
    assert patch == {"metadata": {"resourceVersion": "7", "managedFields": [{}]}}


def test_an_unmarked_object_needs_no_patch() -> None:
    live = written(("kubectl", {}), annotations={"other": "x"})
    assert (is_marked(live), unmark_patch(live)) == (False, None)


def test_applied_labels() -> None:
    assert applied_labels(written(("accel.gpu", LABEL), ("kubectl", {"f:metadata": {"f:labels": {"f:b": {}}}}))) == {
        "pod-security"
    }


@pytest.mark.parametrize(
    ("entries", "own", "foreign"),
    [
        ([("accel.gpu", {"f:data": {"f:a": {}, "f:b": {}}})], ["a", "b"], []),
        ([("accel.gpu", {"f:data": {"f:a": {}}}), ("kubectl", {"f:data": {"f:b": {}}})], ["a"], ["b"]),
        ([("accel.gpu", {"f:data": {"f:a": {}, "f:b": {}}}), ("kubectl", {"f:data": {"f:b": {}}})], ["a"], ["b"]),
        ([("kubectl", {"f:data": {"f:a": {}, "f:b": {}}})], [], ["a", "b"]),
        ([], [], ["a", "b"]),
    ],
)
def test_split_keys(entries: list[tuple[str, Object]], own: list[str], foreign: list[str]) -> None:
    assert split_keys({**written(*entries), "data": {"a": "1", "b": "2"}}) == (own, foreign)


def test_a_manager_of_the_status_does_not_count() -> None:
    live = written(("accel.gpu", SPEC))
    live["metadata"]["managedFields"].append({"manager": "kube-apiserver", "fieldsV1": SPEC, "subresource": "status"})
    assert spec_managers(live) == []
