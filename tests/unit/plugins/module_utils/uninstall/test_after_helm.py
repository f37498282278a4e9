# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Leases of runs, which are deleted last: only those that no run holds, and only as they were read; and the CRDs that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import NODEGROUP_LABEL, NODEGROUP_MARK
from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import MACHINE_CONFIGURATION_PATH
from ansible_collections.accel.gpu.plugins.module_utils.clouds.boot_images import guard_of
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import (
    CLUSTER_POLICIES,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import machine_set_mark
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import ComponentRemoval, Components
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.stages import AfterHelm

Object = dict[str, Any]
LABEL = "Lease kube-system/accel-gpu"


class FakeClient:
    """One Lease; a deletion may meet a conflict."""

    def __init__(self, lease: Object | None, *, conflict: bool = False) -> None:
        self.deleted: list[Object] = []
        self._lease, self._conflict = lease, conflict

    def get(self, path: str) -> Object | None:
        assert path.endswith("/namespaces/kube-system/leases/accel-gpu")
        return self._lease

    def delete(self, path: str, body: Object) -> None:
        if self._conflict:
            raise ApiError("changed", status=409)
        self.deleted.append(body)


def after_helm(client: Any, release: Any = None, *, by_olm: bool = False) -> AfterHelm:
    component = ComponentRemoval(release, own_by_olm=by_olm)
    return AfterHelm(
        client=cast(Client, client),
        progress=Progress(None),
        waiting=None,
        components=Components(component, component),
        nfd_instance="",
        lease_namespace="kube-system",
    )


def lease(holder: str = "") -> Object:
    return {"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"holderIdentity": holder}}


@pytest.mark.parametrize(
    ("client", "removed", "kept"),
    [
        (FakeClient(None), [], []),
        (FakeClient(lease()), [f"{LABEL}: deleted"], []),
        (FakeClient(lease("other")), [], [f"{LABEL}: another run, other, has acquired it"]),
        (FakeClient(lease(), conflict=True), [], [f"{LABEL}: another run, a new one, has acquired it"]),
    ],
)
def test_the_leases_of_runs(client: FakeClient, removed: list[str], kept: list[str]) -> None:
    stage = after_helm(client)
    stage.finish()
    assert (stage.result.removed, stage.result.kept) == (removed, kept)
    assert client.deleted == [{"preconditions": {"uid": "u", "resourceVersion": "7"}}] * len(removed)


class CustomObjects:
    """A cluster with the CRDs of drivers, policies and rules, which this collection created, and some objects of these kinds."""

    CRDS: tuple[str, ...] = (
        "nvidiadrivers.nvidia.com",
        "clusterpolicies.nvidia.com",
        "nodefeaturerules.nfd.k8s-sigs.io",
    )

    def __init__(self, *objects: Object) -> None:
        self._objects = objects

    def get(self, path: str) -> Object | None:
        crds = [f"{CUSTOM_RESOURCE_DEFINITIONS}/{name}" for name in self.CRDS]
        marks = {"accel.gpu/created": "true"}
        return {"metadata": {"uid": "u", "annotations": marks}} if path in crds else None

    def delete(self, path: str) -> None:
        raise AssertionError("a preview deletes nothing")

    def list_known(self, path: str, *, metadata_only: bool = False) -> list[Object]:
        return [item for item in self._objects if path.endswith(f"/{item['plural']}")]

    def list(self, path: str, **_options: Any) -> tuple[Object, ...]:
        return ()


def custom_object(plural: str, name: str, *, own: bool) -> Object:
    marks: Object = {
        "labels": {"app.kubernetes.io/managed-by": "accel.gpu"},
        "annotations": {"accel.gpu/created": "true"},
    }
    marks["managedFields"] = [{"manager": "accel.gpu"}]
    return {"plural": plural, "metadata": {"name": name, **(marks if own else {})}}


@pytest.mark.parametrize("by_olm", [False, True])
@pytest.mark.parametrize("foreign", [(), (custom_object("nvidiadrivers", "theirs", own=False),)])
def test_check_mode_keeps_the_same_as_a_run(foreign: tuple[Object, ...], by_olm: bool) -> None:
    """In check mode, the stage before Helm has not deleted the collection's own objects."""
    own = (custom_object("nvidiadrivers", "accel-gpu-vdi", own=True), custom_object("clusterpolicies", "p", own=True))
    stages = []
    for objects in ((*own, *foreign), foreign):
        release = SimpleNamespace(
            name="r", namespace="n", managed=not by_olm, exists=False, contains=lambda *dummy: False
        )
        stage = after_helm(CustomObjects(*objects), release, by_olm=by_olm)
        stage.read()
        stage.preview()
        stages.append(stage)
    preview, run = stages
    assert (preview.result.kept, preview.result.removed) == (run.result.kept, run.result.removed)
    assert preview.foreign_policies is run.foreign_policies is False
    needed = "CustomResourceDefinition nvidiadrivers.nvidia.com: foreign objects need it: NVIDIADriver theirs"
    assert preview.result.kept == ([needed] if foreign and not by_olm else [])


def test_an_object_that_the_stage_before_helm_does_not_delete_keeps_its_crd() -> None:
    """The user's own rule, created by kube_object with record_creation, and a driver without the label."""
    rule, driver = custom_object("nodefeaturerules", "rule", own=True), custom_object("nvidiadrivers", "d", own=True)
    del driver["metadata"]["labels"]
    release = SimpleNamespace(name="r", namespace="n", managed=True, exists=False, contains=lambda *dummy: False)
    stage = after_helm(CustomObjects(rule, driver), release)
    stage.read()
    stage.preview()
    prefix = "CustomResourceDefinition"
    assert stage.result.kept == [
        f"{prefix} nvidiadrivers.nvidia.com: foreign objects need it: NVIDIADriver d",
        f"{prefix} nodefeaturerules.nfd.k8s-sigs.io: foreign objects need it: NodeFeatureRule rule",
    ]


@pytest.mark.parametrize(("namespace", "kept"), [("n", False), ("gpu-operator", True), ("nfd-of-others", True)])
def test_features_of_agents_that_stay_keep_their_crd(namespace: str, kept: bool) -> None:
    """Of a second NFD, or of gpu-feature-discovery of an operator that is not removed: without the CRD, their nodes would lose their labels."""
    labels = {"nfd.node.kubernetes.io/node-name": "t4-1"}
    features = [
        {"plural": "nodefeatures", "metadata": {"name": name, "namespace": namespace, "labels": labels}}
        for name in ("t4-1", "nvidia-features-for-t4-1")
    ]
    client = CustomObjects(*features)
    client.CRDS = ("nodefeatures.nfd.k8s-sigs.io",)
    release = SimpleNamespace(name="r", namespace="n", managed=True, exists=False, contains=lambda *dummy: False)
    theirs = SimpleNamespace(name="o", namespace="gpu-operator", managed=False, exists=True)
    stage = after_helm(client, release)
    stage.components = Components(ComponentRemoval(cast(Any, theirs)), stage.components.nfd)
    stage.read()
    stage.preview()
    needed = f"CustomResourceDefinition nodefeatures.nfd.k8s-sigs.io: foreign objects need it: NodeFeature {namespace}/"
    assert any(needed in text for text in stage.result.kept) is kept, stage.result.kept
    assert any("nodefeatures.nfd.k8s-sigs.io: deleted" in text for text in stage.result.removed) is not kept


class OnVSphere(CustomObjects):
    """A cluster with MachineSets, and with the entry that excludes those of the collection."""

    def get(self, path: str) -> Object | None:
        if path != MACHINE_CONFIGURATION_PATH:
            return super().get(path)
        return guard_of(None, (5, 0), []).body(None)


def machine_set(name: str, template: str, *, own: bool = True) -> Object:
    spec = {"template": {"spec": {"providerSpec": {"value": {"template": template}}}}}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {NODEGROUP_LABEL: name}}
    item: Object = {"plural": "machinesets", "metadata": metadata, "spec": spec}
    item["metadata"]["annotations"] = {NODEGROUP_MARK: machine_set_mark(item, name)} if own else {}
    return item


def test_what_is_kept_on_vsphere_is_named() -> None:
    """Only templates that the collection has built; those of the installer and of others are none of its business."""
    folder = "/DC1/vm/accel-gpu"
    sets = (
        machine_set("vdi", f"{folder}/vdi-418.94.202501221327-0-3fa0c1"),
        machine_set("edited", f"{folder}/edited-418.94.202501221327-0-3fa0c1-2"),
        machine_set("plain", "prod-rhcos-dc1-zone-a"),
        machine_set("copied", f"{folder}/copied-418.94.202501221327-0-3fa0c1", own=False),
    )
    stage = after_helm(OnVSphere(*sets), SimpleNamespace(name="r", namespace="n", managed=False, exists=False))
    stage.read()
    stage.preview()
    kept = [text.partition(":")[0] for text in stage.result.kept]
    assert kept == [
        f"template {folder}/vdi-418.94.202501221327-0-3fa0c1 in vCenter",
        f"template {folder}/edited-418.94.202501221327-0-3fa0c1-2 in vCenter",
        "expression accel.gpu/nodegroup DoesNotExist in MachineConfiguration cluster, spec.managedBootImages.machineManagers",
    ]
    assert not stage.result.removed
    stage = after_helm(OnVSphere(), SimpleNamespace(name="r", namespace="n", managed=False, exists=False))
    stage.read()
    assert stage.removals == []


class Namespaces:
    """The collection's namespace `n` with a Secret and a ConfigMap of licensing, and a namespace `theirs`; check mode has deleted nothing."""

    MADE: Mapping[str, Any] = {
        "resourceVersion": "1",
        "uid": "u",
        "annotations": {"accel.gpu/created": "true"},
        "managedFields": [{"manager": "accel.gpu"}],
    }
    OBJECTS: Mapping[str, Object] = {
        "secrets": {"metadata": {"name": "token", "namespace": "n", **MADE}},
        "configmaps": {
            "metadata": {"name": "licensing-config", "namespace": "n", **MADE},
            "data": {"client_configuration_token.tok": "x"},
        },
    }

    def __init__(self, *policies: Object, may_list: bool = True) -> None:
        self.listed: list[str] = []
        self._policies, self._may_list = policies, may_list

    def get(self, path: str) -> Object | None:
        kinds = [
            {"kind": kind, "name": plural, "namespaced": True, "verbs": ["list", "delete"]}
            for kind, plural in (("Secret", "secrets"), ("ConfigMap", "configmaps"))
        ]
        answers: dict[str, Object] = {
            f"{NAMESPACES}/n": {"metadata": {"name": "n", **self.MADE}},
            f"{NAMESPACES}/theirs": {"metadata": {"name": "theirs", "uid": "u"}},
            "/apis": {"groups": []},
            "/api/v1": {"resources": kinds},
        }
        return answers.get(path)

    def create(self, _path: str, _body: Object, *, dry_run: bool) -> Object:
        assert dry_run
        return {"status": {"allowed": self._may_list}}

    def list_known(self, path: str) -> list[Object]:
        return [*self._policies] if path == CLUSTER_POLICIES else []

    def list(self, path: str, **_options: Any) -> list[Object]:
        self.listed.append(path)
        return [self.OBJECTS[path.rpartition("/")[2]]]


THEIR_POLICY = {"metadata": {"name": "theirs"}, "spec": {"driver": {"licensingConfig": {"secretName": "token"}}}}


@pytest.mark.parametrize(
    ("client", "name", "kept"),
    [
        (Namespaces(), "n", ""),
        # Without the Secret, the driver of the policy would not start.
        (Namespaces(THEIR_POLICY), "n", "it contains Secret token"),
        (Namespaces(may_list=False), "n", "you do not have permission to list all of its objects"),
        (Namespaces(), "theirs", None),
        (Namespaces(), "absent", None),
    ],
)
def test_check_mode_and_a_namespace_with_licensing_objects(client: Any, name: str, kept: str | None) -> None:
    release = SimpleNamespace(name="r", namespace=name, managed=True, exists=False, contains=lambda *dummy: False)
    removal = after_helm(client, release)._namespace_removal(name)
    assert (removal is None) == (kept is None)
    if removal is not None and kept is not None:
        assert removal.kept.startswith(kept)
        assert bool(removal.kept) == bool(kept)
    # Objects are only listed where the answer counts and the permission is known.
    assert bool(client.listed) == (kept is not None and "permission to list" not in kept)
