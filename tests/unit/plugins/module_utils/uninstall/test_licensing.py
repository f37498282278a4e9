# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Secrets and ConfigMaps with licensing tokens are deleted, and that check mode sends the same requests."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import (
    OF_OPERATORS,
    created_removals,
    named_license_objects,
)
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import UninstallResult

Object = dict[str, Any]


class Secrets:
    """The part of the client that lists and deletes Secrets and ConfigMaps."""

    def __init__(self, *secrets: Object, configmaps: tuple[Object, ...] = ()) -> None:
        self.secrets, self.configmaps = secrets, configmaps
        self.deleted: list[tuple[str, Object]] = []

    def list(self, path: str, **options: Any) -> list[Object]:
        if path.endswith("/configmaps"):
            return [*self.configmaps] if "/gpu-operator/" in path else []
        assert options == {"field_selector": "type=Opaque", "metadata_only": True}
        return [item for item in self.secrets if path == f"/api/v1/namespaces/{item['metadata']['namespace']}/secrets"]

    def delete(self, path: str, *, body: Object, dry_run: bool = False) -> None:
        assert not dry_run
        self.deleted.append((path, body))


def secret(name: str, *, created: bool = True) -> Object:
    marks: Object = {"annotations": {"accel.gpu/created": "true"}, "managedFields": [{"manager": "accel.gpu"}]}
    return {"metadata": {"name": name, "namespace": "gpu-operator", "uid": f"uid-{name}", **(marks if created else {})}}


def configmap(name: str, *, created: bool = True, key: str = "client_configuration_token.tok") -> Object:
    return {**secret(name, created=created), "data": {key: "text"}}


def policy(name: str, field: str = "secretName") -> Object:
    spec = {"driver": {"licensingConfig": {field: name}}}
    return {"metadata": {"name": "theirs"}, "spec": spec}


def driver(name: str, field: str = "secretName") -> Object:
    return {"metadata": {"name": "theirs"}, "spec": {"licensingConfig": {field: name}}}


def removed(secrets: Secrets, policies: list[Object], drivers: list[Object]) -> UninstallResult:
    result = UninstallResult()
    client: Any = secrets
    for namespace in ("gpu-operator", "elsewhere"):
        kept = named_license_objects(policies, drivers)
        for removal in created_removals(client, OF_OPERATORS, namespace, kept):
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


def test_a_created_configmap_with_a_token_is_deleted() -> None:
    others = (configmap("theirs", created=False), configmap("accel-gpu-mig-parted", key="config.yaml"))
    actual = Secrets(configmaps=(configmap("by-release"), *others))
    assert removed(actual, [policy("by-release")], []).removed == ["ConfigMap gpu-operator/by-release: deleted"]
    assert [path for path, dummy in actual.deleted] == ["/api/v1/namespaces/gpu-operator/configmaps/by-release"]

    users: list[tuple[list[Object], list[Object]]] = [
        ([policy("by-release", "configMapName")], []),
        ([], [driver("by-release", "name")]),
    ]
    for policies, drivers in users:
        result = removed(Secrets(configmaps=(configmap("by-release"), *others)), policies, drivers)
        assert result.removed == []
        assert [line.partition(":")[0] for line in result.kept] == ["ConfigMap gpu-operator/by-release"]
