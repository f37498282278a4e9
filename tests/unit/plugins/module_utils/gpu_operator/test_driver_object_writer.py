# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIADriver objects are checked by the server as a whole before the first one is written, and never taken over."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.driver_objects import (
    DriverObjectChange,
    DriverObjects,
    apply_driver_objects,
    refused_objects,
    undeclared_fields,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError

Object = dict[str, Any]


def change(name: str, *, is_new: bool = True, correction: Object | None = None) -> DriverObjectChange:
    body = {"metadata": {"name": name}, "spec": {"version": "1", "upgradePolicy": {}, "default": True}}
    return DriverObjectChange(name, name, body, {}, {}, is_new=is_new, correction=correction or {})


def definition(*fields: str) -> Object:
    schema: Object = {"openAPIV3Schema": {"properties": {"spec": {"properties": {name: {} for name in fields}}}}}
    return {"spec": {"versions": [{"name": "v1alpha1", "schema": schema}]}}


class Server:
    """A server that answers dry runs with these errors, by the object's name, and records all requests."""

    def __init__(self, crd: Object | ApiError | None = None, **errors: ApiError) -> None:
        self.sent: list[tuple[str, str, bool]] = []
        self._crd, self._errors = crd, errors

    def get(self, path: str) -> Object | None:
        assert path.endswith("/customresourcedefinitions/nvidiadrivers.nvidia.com")
        if isinstance(self._crd, ApiError):
            raise self._crd
        return self._crd

    def create(self, path: str, body: Object, *, dry_run: bool, field_validation: str) -> None:
        assert field_validation == "Strict"
        self._record("create", body["metadata"]["name"], dry_run)

    def apply(self, path: str, body: Object, *, dry_run: bool, field_validation: str) -> None:
        assert path.endswith(f"/{body['metadata']['name']}")
        self._record("apply", body["metadata"]["name"], dry_run)

    def patch(self, path: str, body: Object) -> None:
        self._record("patch", path.rpartition("/")[2], False)

    def _record(self, verb: str, name: str, dry_run: bool) -> None:
        self.sent.append((verb, name, dry_run))
        if dry_run and name in self._errors:
            raise self._errors[name]


def refused(server: Server, *changes: DriverObjectChange, check: bool = False) -> list[str]:
    return refused_objects(cast("Client", server), DriverObjects(changes=changes), "v26.7.0", check=check)


@pytest.mark.parametrize(
    ("crd", "expected"),
    [
        (None, []),
        ({"spec": {"versions": [{"name": "v1alpha1"}]}}, []),
        (definition("version", "upgradePolicy", "default"), []),
        (definition("version", "default"), ["spec.upgradePolicy"]),
        (definition("version"), ["spec.default", "spec.upgradePolicy"]),
    ],
)
def test_fields_that_the_crd_does_not_have(crd: Object | None, expected: list[str]) -> None:
    assert undeclared_fields(crd, [change("a").body, change("b").body]) == expected


def test_without_changes_nothing_is_asked() -> None:
    server = Server()
    assert refused(server) == []
    assert server.sent == []


def test_an_old_crd_is_named_without_a_dry_run() -> None:
    server = Server(definition("version", "default"))
    assert refused(server, change("a")) == [
        "The CRD nvidiadrivers.nvidia.com is older than operator v26.7.0: it has no spec.upgradePolicy. Apply the CRDs of its chart, and run "
        "the playbook again."
    ]
    assert server.sent == []


UNDECLARED = ApiError("failed to create typed patch object: .spec.default: field not declared in schema", status=500)
STRICT = ApiError('strict decoding error: unknown field "spec.default"', status=400)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UNDECLARED, "The CRD nvidiadrivers.nvidia.com is older than operator v26.7.0: failed to create typed patch"),
        (STRICT, "The CRD nvidiadrivers.nvidia.com is older than operator v26.7.0: strict decoding error"),
        (ApiError("the server could not find the requested resource", status=404), "The CRD nvidiadrivers.nvidia.com"),
        (ApiError("spec.version: Invalid value", status=422), "The API server rejects NVIDIADriver b: spec.version"),
        # Another user has created it meanwhile; the run meets the conflict, and compares again.
        (ApiError("exists", status=409), None),
        (ApiError('admission webhook "x" does not support dry run', status=400), None),
    ],
)
def test_all_objects_are_checked(error: ApiError, expected: str | None) -> None:
    server = Server(None, b=error)
    problems = refused(server, change("a"), change("b"), change("c", is_new=False, correction={"spec": {}}))
    assert [text[: len(expected or "")] for text in problems] == ([expected] if expected else [])
    assert server.sent == [("create", "a", True), ("create", "b", True), ("apply", "c", True)]


def test_a_user_without_the_right_to_write() -> None:
    denied = ApiError('User "u" cannot patch resource "nvidiadrivers"', status=403)
    server = Server(denied, a=denied)
    assert refused(server, change("a"), check=True) == []
    with pytest.raises(ApiError):
        refused(server, change("a"))


def test_other_errors_are_raised() -> None:
    with pytest.raises(ApiError):
        refused(Server(None, a=ApiError("etcdserver: leader changed", status=500)), change("a"), check=True)


def test_objects_are_created_or_corrected_and_applied() -> None:
    server, checks = Server(), []
    changes = (change("a"), change("b", is_new=False), change("c", is_new=False, correction={"spec": {}}))
    objects = DriverObjects(changes=changes)
    apply_driver_objects(cast("Client", server), objects, lambda: checks.append(1), check=True)
    assert server.sent == []
    apply_driver_objects(cast("Client", server), objects, lambda: checks.append(1), check=False)
    assert [(verb, name) for verb, name, dummy in server.sent] == [
        ("create", "a"),
        ("apply", "b"),
        ("patch", "c"),
        ("apply", "c"),
    ]
    assert len(checks) == 3
