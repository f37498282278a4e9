# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Secrets with licensing tokens are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.uninstall.licensing import license_removals
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.result import UninstallResult

Object = dict[str, Any]


class Secrets:
    """The part of the client that lists and deletes Secrets."""

    def __init__(self, *secrets: Object) -> None:
        self.secrets = secrets
        self.deleted: list[tuple[str, Object]] = []

    def list(self, path: str, **options: Any) -> list[Object]:
        assert options == {"field_selector": "type=Opaque", "metadata_only": True}
        return [item for item in self.secrets if path == f"/api/v1/namespaces/{item['metadata']['namespace']}/secrets"]

    def delete(self, path: str, *, body: Object, dry_run: bool = False) -> None:
        assert not dry_run
        self.deleted.append((path, body))


def secret(name: str, *, created: bool = True) -> Object:
    annotations = {"accel.gpu/created": "true"} if created else {}
    return {"metadata": {"name": name, "namespace": "gpu-operator", "uid": f"uid-{name}", "annotations": annotations}}


def policy(secret_name: str) -> Object:
    spec = {"driver": {"licensingConfig": {"secretName": secret_name}}}
    return {"metadata": {"name": "theirs"}, "spec": spec}


def driver(secret_name: str) -> Object:
    return {"metadata": {"name": "theirs"}, "spec": {"licensingConfig": {"secretName": secret_name}}}


def removed(secrets: Secrets, policies: list[Object], drivers: list[Object]) -> UninstallResult:
    result = UninstallResult()
    client: Any = secrets
    for removal in license_removals(client, ["gpu-operator", "gpu-operator", "elsewhere"], policies, drivers):
        removal.report(result)
        if removal.send:
            removal.send()
    return result


def test_created_secrets_are_deleted() -> None:
    secrets = Secrets(secret("licensing-config"), secret("theirs", created=False))
    result = removed(secrets, [], [])
    assert result.removed == ["Secret gpu-operator/licensing-config: deleted"]
    assert result.kept == []
    assert secrets.deleted == [
        (
            "/api/v1/namespaces/gpu-operator/secrets/licensing-config",
            {"preconditions": {"uid": "uid-licensing-config"}},
        )
    ]


@pytest.mark.parametrize(
    ("policies", "drivers", "user"),
    [
        ([policy("licensing-config"), policy("another")], [], "ClusterPolicy theirs"),
        ([], [driver("licensing-config")], "NVIDIADriver theirs"),
    ],
)
def test_a_secret_that_a_kept_operator_names_stays(policies: list[Object], drivers: list[Object], user: str) -> None:
    secrets = Secrets(secret("licensing-config"))
    result = removed(secrets, policies, drivers)
    assert result.removed == []
    assert secrets.deleted == []
    (kept,) = result.kept
    assert kept.startswith(f"Secret gpu-operator/licensing-config: {user}, which this collection did not create")


def test_a_secret_without_a_user_is_deleted() -> None:
    nameless: Object = {"metadata": {"name": "theirs"}, "spec": {"driver": {}}}
    result = removed(Secrets(secret("licensing-config")), [nameless], [{**nameless, "spec": {}}])
    assert result.removed == ["Secret gpu-operator/licensing-config: deleted"]
