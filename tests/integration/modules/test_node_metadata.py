# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_metadata on a real API server: exact predictions, one list without differences, and foreign labels and taints stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import node_metadata
from tests.faults.api_proxy import Answer, Request
from tests.helpers.kube import Kube

Object = dict[str, Any]

FOREIGN = {"key": "example.org/maintenance", "value": "soon", "effect": "PreferNoSchedule"}
DECLARED_TAINT = {"key": "example.com/team", "value": "vision", "effect": "NoSchedule"}


def taints(kube: Kube, name: str) -> list[Object]:
    """A node's taints, except those of Kubernetes' own controllers."""
    actual = kube.node(name)["spec"].get("taints") or []
    return [taint for taint in actual if not taint["key"].startswith("node.kubernetes.io/")]


def spec_options(kube: Kube, **more: Any) -> Object:
    return {
        "name": "vision",
        "label_selectors": [f"test={kube.prefix}"],
        "labels": {"example.com/team": "vision"},
        "annotations": {"example.com/contact": "vision@example.com"},
        "taints": [DECLARED_TAINT],
        **more,
    }


def converge(kube: Kube, *sets: Object, **options: Any) -> Object:
    """Check mode, run, run again: the first two have the same result, the last one sends only the list."""
    predicted = kube.run(node_metadata.main, check=True, sets=list(sets), **options)
    done = kube.run(node_metadata.main, sets=list(sets), **options)
    assert predicted == done
    with kube.watched() as watched:
        again = kube.run(node_metadata.main, sets=list(sets), kubeconfig=watched.kubeconfig, **options)
        assert again["changed"] is False
        assert set(watched.new_requests()) == {"GET /api/v1/nodes"}
    return done


def test_labels_and_taints_are_set_changed_and_removed(kube: Kube) -> None:
    names = kube.nodes(3, labels={"example.org/rack": "7"}, taints=[FOREIGN])
    before = [kube.node(name) for name in names]
    result = converge(kube, spec_options(kube))
    assert result["node_metadata"]["names_changed"] == names
    assert result["node_metadata"]["sets"] == {"vision": 3}
    assert taints(kube, names[0]) == [FOREIGN, DECLARED_TAINT]
    assert kube.node(names[0])["metadata"]["labels"]["example.com/team"] == "vision"

    other = {**DECLARED_TAINT, "value": "speech"}
    converge(kube, spec_options(kube, labels={"example.com/team": "speech", "example.com/more": "1"}, taints=[other]))
    assert taints(kube, names[0]) == [FOREIGN, other]

    converge(kube, spec_options(kube, state="absent"))
    assert taints(kube, names[1]) == [FOREIGN]
    assert "example.com/more" in kube.node(names[1])["metadata"]["labels"]

    converge(kube, {"label_selectors": [f"test={kube.prefix}"], "purge": True})
    for old, name in zip(before, names, strict=True):
        now = kube.node(name)
        assert now["metadata"]["labels"] == old["metadata"]["labels"]
        assert not [key for key in now["metadata"].get("annotations") or {} if "kubernetes.io/" not in key]
        assert taints(kube, name) == [FOREIGN]


def test_existing_labels_and_taints_are_not_removed(kube: Kube) -> None:
    (name,) = kube.nodes(1, labels={"example.com/team": "vision"}, taints=[DECLARED_TAINT])
    chosen = spec_options(kube, annotations={})
    assert kube.run(node_metadata.main, sets=[chosen])["changed"] is False
    converge(kube, spec_options(kube))
    assert kube.run(node_metadata.main, sets=[spec_options(kube, state="absent")])["changed"]
    assert taints(kube, name) == [DECLARED_TAINT]
    assert kube.node(name)["metadata"]["labels"]["example.com/team"] == "vision"


def test_null_removes_a_label(kube: Kube) -> None:
    (name,) = kube.nodes(1)
    chosen = {"names": [name], "labels": {"example.com/a": "1", "example.com/b": "2"}}
    converge(kube, chosen)
    converge(kube, {"names": [name], "labels": {"example.com/a": None, "test": None}})
    labels = kube.node(name)["metadata"]["labels"]
    assert "example.com/a" not in labels
    assert labels["example.com/b"] == "2"
    assert labels["test"] == kube.prefix, "foreign"


def test_sets_may_overlap_but_not_contradict(kube: Kube) -> None:
    names = kube.nodes(2)
    first = spec_options(kube)
    second = {"name": "one", "names": names[:1], "labels": {"example.com/one": "yes"}, "taints": [DECLARED_TAINT]}
    result = converge(kube, first, second)
    assert result["node_metadata"]["sets"] == {"vision": 2, "one": 1}
    contrary = {**second, "labels": {"example.com/team": "speech"}}
    refused = kube.run(node_metadata.main, sets=[first, contrary])
    assert refused["code"] == "invalid"
    assert f"Node {names[0]} is in the sets vision and one" in refused["msg"]


@pytest.mark.parametrize("check", [True, False])
def test_all_mistakes_are_reported_before_any_change(kube: Kube, check: bool) -> None:
    (name,) = kube.nodes(1)
    bad = [
        {"label_selectors": "a in b", "labels": {"x": "1"}},
        {"names": [name], "labels": {"no spaces please": "1"}, "taints": [{"key": "k", "effect": "Sometimes"}]},
        {"names": [name], "labls": {"x": "1"}},
        {"names": [name], "labels": {"x": "y" * 64}},
    ]
    problems = kube.run(node_metadata.main, check=check, sets=bad)["details"]["problems"]
    assert [problem.partition(":")[0] for problem in problems] == [
        "sets[0].label_selectors[0]",
        "sets[1].labels['no spaces please']",
        "sets[1].taints[0].effect",
        "sets[2].labls",
        "sets[3].labels.x",
    ]
    missing = kube.run(node_metadata.main, check=check, sets=[{"names": [name, "nowhere"], "labels": {"x": "1"}}])
    assert "Node nowhere does not exist" in missing["msg"]
    assert "x" not in kube.node(name)["metadata"]["labels"]


def test_a_foreign_taint_that_is_added_meanwhile_stays(kube: Kube) -> None:
    """The node is tainted after it was read and before it is written."""
    (name,) = kube.nodes(1)
    with kube.watched() as watched:
        meddled: list[Request] = []

        def before(request: Request) -> Answer | None:
            if request.method == "PATCH" and not meddled:
                meddled.append(request)
                kube.client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [FOREIGN]}})
            return None

        watched.proxy.before = before
        result = kube.run(node_metadata.main, sets=[spec_options(kube)], kubeconfig=watched.kubeconfig)
    assert meddled
    assert result["node_metadata"]["changed"] == 1
    assert taints(kube, name) == [FOREIGN, DECLARED_TAINT]


def test_a_deleted_node_is_no_failure(kube: Kube) -> None:
    names = kube.nodes(2)
    with kube.watched() as watched:

        def before(request: Request) -> Answer | None:
            if request.method == "PATCH":
                kube.client.delete(f"/api/v1/nodes/{names[0]}")
            return None

        watched.proxy.before = before
        result = kube.run(node_metadata.main, sets=[spec_options(kube)], parallel=1, kubeconfig=watched.kubeconfig)
    assert (result["node_metadata"]["changed"], result["node_metadata"]["gone"], result["node_metadata"]["failed"]) == (
        1,
        1,
        0,
    )


def test_a_failing_node_does_not_hide_the_others(kube: Kube, tmp_path: Path) -> None:
    names = kube.nodes(3)
    report = tmp_path / "report.json"
    with kube.watched() as watched:
        watched.proxy.before = lambda request: (
            Answer(422, b'{"message": "no", "reason": "Invalid"}')
            if request.method == "PATCH" and names[1] in request.path
            else None
        )
        result = kube.run(
            node_metadata.main, sets=[spec_options(kube)], kubeconfig=watched.kubeconfig, report_path=str(report)
        )
    assert (result["failed"], result["code"]) == (True, "partial")
    assert result["node_metadata"]["names_changed"] == [names[0], names[2]]
    assert "422 Invalid: no" in result["node_metadata"]["failures"][names[1]]
    assert json.loads(report.read_text())["failed"] == 1


def test_a_report_that_cannot_be_written_does_not_hide_the_result(kube: Kube, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (name,) = kube.nodes(1)
    path = tmp_path / "file" / "report.json"
    result = kube.run(node_metadata.main, sets=[spec_options(kube)], report_path=str(path))
    assert (result["changed"], result["node_metadata"]["names_changed"]) == (True, [name])
    assert str(path) in str(result["warnings"])
    assert "report_path" not in result["node_metadata"]


def test_no_rights(kube: Kube) -> None:
    kube.nodes(2)
    no_rights = kube.limited_user([])
    denied = kube.run(node_metadata.main, sets=[spec_options(kube)], kubeconfig=no_rights)
    assert denied["code"] == 403
    assert 'resources: ["nodes"], verbs: ["list"]' in denied["msg"]


def test_a_user_with_read_access_gets_a_marked_preview(kube: Kube) -> None:
    kube.nodes(2)
    reader = kube.limited_user([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}])
    preview = kube.run(node_metadata.main, check=True, sets=[spec_options(kube)], kubeconfig=reader)
    assert preview["node_metadata"]["changed"] == 2
    assert preview["node_metadata"]["unchecked"].startswith("not checked by the server")


def test_the_label_of_a_pool_is_refused(kube: Kube) -> None:
    (name,) = kube.nodes(1, labels={"example.com/team": "pool"})
    note = {"accel.gpu/pool-labels": json.dumps(["example.com/team"])}
    kube.client.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": note}})
    refused = kube.run(node_metadata.main, sets=[spec_options(kube)])
    assert "change it in gpu_pools" in refused["msg"]


def test_the_wrong_cluster_is_refused(kube: Kube) -> None:
    refused = kube.run(node_metadata.main, sets=[spec_options(kube)], gpu_cluster={"name": "production"})
    assert refused["code"] == "wrong_cluster"
    assert "This is a different cluster" in refused["msg"]


def test_unknown_models_are_in_after_discovery(kube: Kube) -> None:
    actual, waiting = kube.nodes(1, labels={"nvidia.com/gpu.product": "NVIDIA-L40S-SHARED"})[0], f"{kube.prefix}-new"
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": waiting, "labels": {"test": kube.prefix, "nvidia.com/gpu.present": "true"}},
    }
    kube.client.create("/api/v1/nodes", body)
    kube.delete_afterwards(f"/api/v1/nodes/{waiting}")
    chosen = {"match": {"model": "L40S", "labels": {"test": kube.prefix}}, "labels": {"example.com/l40s": "yes"}}
    preview = kube.run(node_metadata.main, check=True, sets=[chosen])
    assert preview["node_metadata"]["names_changed"] == [actual]
    assert waiting in preview["node_metadata"]["after_discovery"]["undiscovered"]
    assert preview["changed"]
    kube.run(node_metadata.main, sets=[chosen])
    assert kube.run(node_metadata.main, sets=[chosen])["changed"] is False
