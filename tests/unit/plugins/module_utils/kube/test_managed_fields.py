# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The writers of a field by managedFields, as the API server records them."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import as_applied, has_records, writers

Object = dict[str, Any]


def entry(manager: str, fields: Object, time: str = "2026-01-01T00:00:00Z", **more: str) -> Object:
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields, **more}


def live(*entries: Object) -> Object:
    return {"metadata": {"managedFields": list(entries)}}


HELM = entry("helm", {"f:spec": {".": {}, "f:migManager": {".": {}, "f:config": {".": {}, "f:name": {}}, "f:env": {}}}})
EDIT = entry("kubectl-edit", {"f:spec": {"f:migManager": {"f:config": {"f:name": {}}}}}, "2026-02-01T00:00:00Z")
STATUS = entry("gpu-operator", {"f:status": {"f:state": {}}}, subresource="status")
LIST = entry("apply", {"f:spec": {"f:ports": {'k:{"name":"x"}': {"f:name": {}}}}})


@pytest.mark.parametrize(
    ("entries", "path", "expected"),
    [
        ([HELM], "spec.migManager.config.name", ["helm"]),
        ([HELM, EDIT], "spec.migManager.config.name", ["kubectl-edit", "helm"]),
        ([EDIT, HELM], "spec.migManager.config.name", ["kubectl-edit", "helm"]),
        ([HELM, EDIT], "spec.migManager.env", ["helm"]),
        # A leaf is owned with all that is below it.
        ([HELM], "spec.migManager.env.A", ["helm"]),
        # A map is not owned with all that is below it.
        ([HELM], "spec.migManager.config.default", []),
        ([HELM], "spec.driver.version", []),
        ([LIST], "spec.ports", ["apply"]),
        ([STATUS], "status.state", []),
        ([], "spec.driver", []),
    ],
)
def test_writers(entries: list[Object], path: str, expected: list[str]) -> None:
    assert writers(live(*entries), path.split(".")) == expected


@pytest.mark.parametrize(
    ("actual", "expected"),
    [({"metadata": {}}, False), (live(), False), (live({}), False), (live(HELM), True), (live(STATUS), True)],
)
def test_users_may_remove_the_records(actual: Object, expected: bool) -> None:
    assert has_records(actual) == expected


def test_what_a_manager_has_written_counts_as_applied() -> None:
    applied = {**entry("m", {"f:spec": {"f:a": {}}}), "operation": "Apply"}
    updated = entry("m", {"f:spec": {"f:b": {}}}, apiVersion="v1")
    for entries in ([], [HELM, STATUS], [HELM, applied]):
        assert as_applied(live(*entries), "m") == entries
    assert as_applied(live(updated, HELM), "m") == [HELM, {**updated, "operation": "Apply"}]
    both = as_applied(live(applied, updated, {**STATUS, "manager": "m"}), "m")
    assert both == [
        {**STATUS, "manager": "m"},
        {**updated, "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {}}}},
    ]
