# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks of ours on objects, kinds and namespaces that somebody else needs, and how all of it is told."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.ownership import NodeEdit
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.crds import Definition, by_agent, decide
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.namespace_contents import (
    ReleasedContents,
    foreign_objects,
)
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.ownership_marks import (
    applied_labels,
    is_marked,
    keys_of,
    unmarked,
    writers,
)
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.result import SHOWN, UninstallResult

Object = dict[str, Any]


def written(*entries: tuple[str, Object], **metadata: Any) -> Object:
    """An object with the server's notes of who wrote what."""
    fields = [{"manager": name, "operation": "Apply", "fieldsV1": tree} for name, tree in entries]
    return {"metadata": {"name": "x", "resourceVersion": "7", "managedFields": fields, **metadata}}


LABEL: Object = {"f:metadata": {"f:labels": {".": {}, "f:pod-security": {}}}}


def test_our_name_comes_off_and_no_field_changes() -> None:
    live = written(("kubectl", {}), ("accel.gpu", LABEL), annotations={"accel.gpu/created": "true", "other": "x"})
    assert is_marked(live)
    patch = unmarked(live)
    assert patch is not None
    assert patch["metadata"]["annotations"] == {"accel.gpu/created": None}
    assert [entry["manager"] for entry in patch["metadata"]["managedFields"]] == ["kubectl"]
    assert patch["metadata"]["resourceVersion"] == "7"
    assert set(patch) == {"metadata"}


def test_an_object_that_nobody_else_has_written_is_written_by_nobody() -> None:
    patch = unmarked(written(("accel.gpu", LABEL)))
    assert patch == {"metadata": {"resourceVersion": "7", "managedFields": [{}]}}


def test_nothing_of_ours_is_no_patch() -> None:
    live = written(("kubectl", {}), annotations={"other": "x"})
    assert (is_marked(live), unmarked(live)) == (False, None)


def test_labels_that_we_have_applied() -> None:
    assert applied_labels(written(("accel.gpu", LABEL), ("kubectl", {"f:metadata": {"f:labels": {"f:b": {}}}}))) == {
        "pod-security"
    }


@pytest.mark.parametrize(
    ("entries", "mine", "theirs"),
    [
        ([("accel.gpu", {"f:data": {"f:a": {}, "f:b": {}}})], ["a", "b"], []),
        ([("accel.gpu", {"f:data": {"f:a": {}}}), ("kubectl", {"f:data": {"f:b": {}}})], ["a"], ["b"]),
        ([("accel.gpu", {"f:data": {"f:a": {}, "f:b": {}}}), ("kubectl", {"f:data": {"f:b": {}}})], ["a"], ["b"]),
        ([("kubectl", {"f:data": {"f:a": {}, "f:b": {}}})], [], ["a", "b"]),
        ([], [], ["a", "b"]),
    ],
)
def test_whose_entries_a_configmap_has(entries: list[tuple[str, Object]], mine: list[str], theirs: list[str]) -> None:
    assert keys_of({**written(*entries), "data": {"a": "1", "b": "2"}}) == (mine, theirs)


# Kinds

FEATURE = Definition("nfd.k8s-sigs.io/v1alpha1", "NodeFeature")
SPEC: Object = {"f:spec": {"f:names": {}}}


def feature(name: str, node: str | None = None, namespace: str = "nfd") -> Object:
    labels = {"nfd.node.kubernetes.io/node-name": node} if node else {}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


@pytest.mark.parametrize(
    ("definition", "name", "path"),
    [
        (FEATURE, "nodefeatures.nfd.k8s-sigs.io", "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"),
        (
            Definition("nvidia.com/v1", "ClusterPolicy"),
            "clusterpolicies.nvidia.com",
            "/apis/nvidia.com/v1/clusterpolicies",
        ),
        (
            Definition("nvidia.com/v1alpha1", "NVIDIADriver"),
            "nvidiadrivers.nvidia.com",
            "/apis/nvidia.com/v1alpha1/nvidiadrivers",
        ),
        (
            Definition("resource.nvidia.com/v1beta1", "ComputeDomainClique"),
            "computedomaincliques.resource.nvidia.com",
            "/apis/resource.nvidia.com/v1beta1/computedomaincliques",
        ),
    ],
)
def test_where_a_kind_is(definition: Definition, name: str, path: str) -> None:
    assert (definition.name, definition.objects) == (name, path)


@pytest.mark.parametrize(
    ("found", "agent"),
    [
        (feature("t4-1", "t4-1"), True),
        (feature("nvidia-features-for-t4-1", "t4-1"), True),
        (feature("my-fpga", "t4-1"), False),
        (feature("t4-1"), False),
    ],
)
def test_whose_node_feature(found: Object, agent: bool) -> None:
    assert by_agent(found) is agent


CASES: list[tuple[Object, list[Object], str]] = [
    (written(("accel.gpu", SPEC)), [], ""),
    (written(("accel.gpu", SPEC)), [feature("t4-1", "t4-1")], ""),
    (
        written(("accel.gpu", SPEC)),
        [feature("t4-1", "t4-1"), feature("my-fpga", "t4-1", "fpga")],
        "somebody else's objects need it: NodeFeature fpga/my-fpga",
    ),
    (
        written(("accel.gpu", SPEC)),
        [feature(f"f{number}", namespace="f") for number in range(5)],
        "somebody else's objects need it: NodeFeature f/f0, NodeFeature f/f1, NodeFeature f/f2 and 2 more",
    ),
    (written(("accel.gpu", SPEC), ("helm", SPEC)), [], "helm has written it, too"),
    (
        written(("accel.gpu", SPEC), labels={"operators.coreos.com/nfd.ns": ""}),
        [],
        "OLM looks after it (label operators",
    ),
]


@pytest.mark.parametrize(("live", "objects", "reason"), CASES)
def test_a_kind_goes_unless_somebody_needs_it(live: Object, objects: list[Object], reason: str) -> None:
    found = decide(FEATURE, live, objects, lambda dummy: False)
    assert found.reason.startswith(reason)
    assert bool(found.reason) is bool(reason)
    assert all(by_agent(item) for item in found.mine)


def test_the_server_writes_only_the_status_of_a_kind() -> None:
    live = written(("accel.gpu", SPEC))
    live["metadata"]["managedFields"].append({"manager": "kube-apiserver", "fieldsV1": SPEC, "subresource": "status"})
    assert writers(live) == []


def test_objects_of_our_release_do_not_keep_a_kind() -> None:
    assert decide(FEATURE, written(("accel.gpu", SPEC)), [feature("any")], lambda dummy: True).reason == ""


# Namespaces

LEAVING = ReleasedContents(
    frozenset({("nfd", "nfd-ns")}), frozenset({"accel-gpu-device-plugin"}), frozenset({"accel-gpu-helm-nfd"})
)
THEIR_ENTRY = [{"manager": "kubectl", "fieldsV1": {"f:data": {"f:own": {}}}}]
HELM = {"meta.helm.sh/release-name": "nfd", "meta.helm.sh/release-namespace": "nfd-ns"}


def entry(kind: str, name: str, **metadata: Any) -> tuple[str, Object]:
    return kind, {"name": name, "namespace": "nfd-ns", "uid": f"uid-{name}", **metadata}


GOING = [
    entry("ConfigMap", "kube-root-ca.crt"),
    entry("ServiceAccount", "default"),
    entry("Event", "x.123"),
    entry("Lease", "53822513.nvidia.com"),
    entry("Lease", "accel-gpu-helm-nfd"),
    entry("ConfigMap", "accel-gpu-device-plugin"),
    entry("DaemonSet", "worker", annotations=HELM),
    entry("Pod", "worker-1", ownerReferences=[{"kind": "DaemonSet", "uid": "uid-worker"}]),
    entry("ControllerRevision", "worker-abc", ownerReferences=[{"kind": "DaemonSet", "uid": "uid-worker"}]),
    entry("DaemonSet", "driver", ownerReferences=[{"kind": "ClusterPolicy", "uid": "elsewhere"}]),
    entry("Secret", "sh.helm.release.v1.nfd.v1", labels={"owner": "helm", "name": "nfd"}),
    entry("Secret", "default-dockercfg-x", annotations={"kubernetes.io/service-account.name": "default"}),
    entry("NodeFeature", "t4-1", labels={"nfd.node.kubernetes.io/node-name": "t4-1"}),
    entry("Pod", "going", deletionTimestamp="2026-01-01T00:00:00Z"),
]
STAYING = [
    entry("ConfigMap", "dashboards"),
    entry("Lease", "somebody"),
    entry("ConfigMap", "accel-gpu-device-plugin", uid="other", managedFields=THEIR_ENTRY),
    entry("Secret", "sh.helm.release.v1.other.v1", labels={"owner": "helm", "name": "other"}),
    entry("Deployment", "web", annotations={**HELM, "meta.helm.sh/release-name": "other"}),
    entry("Pod", "of-a-job-elsewhere", ownerReferences=[{"kind": "Workflow", "uid": "elsewhere"}]),
    entry("NodeFeature", "my-fpga", labels={"nfd.node.kubernetes.io/node-name": "t4-1"}),
]


def test_what_is_on_its_way_out_is_nobody() -> None:
    assert foreign_objects(GOING, LEAVING) == []


@pytest.mark.parametrize("found", STAYING, ids=[name["name"] for _kind, name in STAYING])
def test_a_stranger_keeps_the_namespace(found: tuple[str, Object]) -> None:
    others = [entry for entry in GOING if entry[1]["name"] != found[1]["name"]]
    assert foreign_objects([*others, found], LEAVING) == [f"{found[0]} {found[1]['name']}"]


def test_what_a_stranger_owns_is_told_by_its_owner() -> None:
    pod = entry("Pod", "web-1", ownerReferences=[{"kind": "ReplicaSet", "uid": "uid-web"}])
    assert foreign_objects([entry("ReplicaSet", "web"), pod], LEAVING) == ["ReplicaSet web"]


# How it is told


def edited(number: int) -> NodeEdit:
    return NodeEdit(f"n{number:03}", {}, {"labels": {"a": "1"}}, {"labels": {}})


def test_second_patch_of_a_node_goes_on_from_the_first() -> None:
    account = UninstallResult()
    account.node(NodeEdit("n", {}, {"labels": {"mig": "x", "a": "1"}}, {"labels": {"mig": "off"}}))
    account.node(NodeEdit("n", {}, {"labels": {"mig": "off"}}, {"labels": {}}))
    before, after = account.diff()
    assert before["nodes"] == {"n": {"labels": {"mig": "x", "a": "1"}}}
    assert after["nodes"]["n"]["labels"] == {}
    assert account.result()["nodes_changed"] == 1


def test_of_many_nodes_a_hundred_are_shown() -> None:
    account = UninstallResult()
    for number in range(SHOWN + 20):
        account.node(edited(number))
        account.stays_on(f"n{number:03}", "a pin")
    result = account.result()
    assert (result["nodes_changed"], len(result["names_changed"])) == (120, 100)
    assert result["left"] == ["120 nodes, n000, n001, n002 and 117 more: a pin"]
    before, after = account.diff()
    assert (len(before["nodes"]), after["nodes_not_shown"]) == (100, 20)
    assert account.changed


def test_the_same_is_told_once() -> None:
    account = UninstallResult()
    for dummy in range(2):
        account.took("ConfigMap a/b", ["x"])
        account.keeps("Namespace a", "it holds ConfigMap c")
        account.stays_on("n", "a pin")
    assert account.result()["removed"] == ["ConfigMap a/b: deleted"]
    assert account.result()["left"] == ["Namespace a: it holds ConfigMap c", "node n: a pin"]
