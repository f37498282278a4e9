# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which parts of a component are removed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.preparation import ReleaseRemoval
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import (
    ComponentRemoval,
    Components,
    read_components,
)
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import Removal
from ansible_collections.accel.gpu.plugins.modules.uninstall import consequence_of

Object = dict[str, Any]


def release(name: str, *, managed: bool, exists: bool) -> ReleaseRemoval:
    actual = SimpleNamespace(
        name=name,
        namespace="gpu",
        managed=managed,
        exists=exists,
        initial_status="deployed" if exists else "absent",
        contains=lambda dummy, item: item.get("release") == name,
    )
    return cast("ReleaseRemoval", actual)


OWN = release("operator", managed=True, exists=True)
FOREIGN = release("nfd", managed=False, exists=True)
ABSENT = release("nfd", managed=False, exists=False)


class Cluster:
    """A client of a cluster with one Subscription of each of these packages, or with OLM's namespace only."""

    def __init__(self, *packages: str, own_namespace: bool = False, manager: str = "accel.gpu") -> None:
        self._packages, self._own_namespace, self._manager = packages, own_namespace, manager

    def get(self, path: str) -> Object | None:
        created = {"accel.gpu/created": "true"} if self._own_namespace else {}
        marks = {"annotations": created, "managedFields": [{"manager": self._manager}]}
        return {"metadata": marks} if path.endswith("/namespaces/gpu") else {"resources": []}

    def list_known(self, dummy: str) -> list[Object]:
        annotations = {"accel.gpu/created": "true"}
        return [
            {
                "metadata": {
                    "name": package,
                    "namespace": "n",
                    "annotations": annotations,
                    "managedFields": [{"manager": "accel.gpu"}],
                },
                "spec": {"name": package},
            }
            for package in self._packages
        ]


def test_the_collections_release_is_uninstalled() -> None:
    component = ComponentRemoval(OWN)
    assert component.as_dict() == {
        "name": "operator",
        "namespace": "gpu",
        "status": "deployed",
        "managed": True,
        "uninstall": True,
    }
    assert component.is_removed
    assert (component.kept_reason, component.namespace_kept_reason) == ("", "")
    assert component.removes({"metadata": {}, "release": "operator"})
    assert not component.removes({"metadata": {}, "release": "other"})
    created = {"annotations": {"accel.gpu/created": "true"}, "managedFields": [{"manager": "accel.gpu"}]}
    assert component.removes({"metadata": created})
    assert not component.removes({"metadata": {**created, "managedFields": [{"manager": "argocd-controller"}]}})
    assert not component.removes({"metadata": {"annotations": created["annotations"]}})


def test_a_foreign_release_is_kept_with_a_reason_and_without_the_collections_record() -> None:
    component = ComponentRemoval(FOREIGN)
    assert not component.as_dict()["uninstall"]
    assert not component.is_removed
    assert component.kept_reason == "adopted, stays: this collection did not install it"
    assert component.namespace_kept_reason == "it contains the Helm release nfd, which this collection did not install"
    assert [path.rpartition("/")[2] for path in component.lease_paths] == ["accel-gpu-helm-nfd"]
    assert list(Components(ComponentRemoval(OWN), component, unreadable=True).kept())[1:] == [
        ("Helm release gpu/nfd", "adopted, stays: this collection did not install it")
    ]


def test_the_confirmation_says_what_stays() -> None:
    own, adopted = ComponentRemoval(OWN), ComponentRemoval(FOREIGN)
    text = consequence_of("prod", Components(own, own))
    assert "removes the GPU operator, the driver" in text
    for operator in (adopted, ComponentRemoval(ABSENT, by_olm=True)):
        text = consequence_of("prod", Components(operator, adopted))
        assert "removes the GPU operator" not in text
        assert "operator and the driver stay" in text
    assert "removes the GPU operator" in consequence_of(
        "prod", Components(ComponentRemoval(ABSENT, own_by_olm=True), own)
    )
    assert "CronJob" in consequence_of("prod", None)


@pytest.mark.parametrize(
    ("removal", "planned"),
    [
        (Removal("ConfigMap a/b"), "ConfigMap a/b"),
        (Removal("ClusterPolicy x", action="managed fields removed"), "ClusterPolicy x (managed fields removed)"),
    ],
)
def test_the_confirmation_distinguishes_objects_from_their_parts(removal: Removal, planned: str) -> None:
    assert removal.planned == planned


def test_an_absent_release_has_no_reason() -> None:
    assert list(Components(ComponentRemoval(ABSENT), ComponentRemoval(ABSENT)).kept()) == []


@pytest.mark.parametrize(
    ("cluster", "declared", "by_olm", "own"),
    [
        (Cluster("nfd"), False, True, True),
        (Cluster(), True, True, False),
        (Cluster(own_namespace=True), True, True, True),
        # The namespace was exported and applied again, for example by GitOps.
        (Cluster(own_namespace=True, manager="argocd-controller"), True, True, False),
        (Cluster(own_namespace=True), False, False, False),
    ],
)
def test_olm_has_installed_the_components(cluster: Cluster, declared: bool, by_olm: bool, own: bool) -> None:
    components = read_components(cast("Client", cluster), ABSENT, ABSENT, by_olm=declared)
    for component in components:
        assert (component.by_olm, component.own_by_olm, component.is_removed) == (by_olm, own, own)


def test_each_component_has_its_subscriptions() -> None:
    cluster = cast("Client", Cluster("nfd", "gpu-operator-certified"))
    operator, nfd = read_components(cluster, ABSENT, ABSENT, by_olm=False)
    assert [item["package"] for item in operator.subscriptions] == ["gpu-operator-certified"]
    assert [item["package"] for item in nfd.subscriptions] == ["nfd"]
