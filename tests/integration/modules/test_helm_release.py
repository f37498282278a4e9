# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""helm_release with the real helm and the real charts: preparation, verification, repair, and clear failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import helm_release
from tests.helpers.cluster import Cluster
from tests.labs import Lab

# No other test uses this name: a helm with it on this machine counts as working on the release, whatever its cluster.
SPACE, NAME = "nfd-test", "prepared-nfd"
ANNOTATION = "nfd.node.kubernetes.io/feature-labels"
FEW = {"master": {"enable": True}, "worker": {"enable": False}, "gc": {"enable": True}}


@pytest.fixture(scope="module")
def empty(lab: Lab) -> Cluster:
    lab.reset()
    cluster = Cluster(lab)
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


@pytest.fixture
def cluster(empty: Cluster) -> Iterator[Cluster]:
    """The cluster without the release; its CRDs may be there."""
    yield empty
    helm(empty, "uninstall", NAME, "--no-hooks", "--ignore-not-found")
    empty.kubectl("delete", "secrets,leases", "-n", SPACE, "--all")


def helm(cluster: Cluster, *words: str) -> str:
    done = subprocess.run(
        ["helm", "--namespace", SPACE, *words], env=cluster.lab.env, capture_output=True, text=True, check=True
    )
    return done.stdout


def chart(cluster: Cluster) -> str:
    return f"{cluster.lab.env['LAB_CHARTS']}/node-feature-discovery"


def upgrade(cluster: Cluster, *more: str) -> list[str]:
    """Helm's command line for the release of the tests."""
    values = ["--set", "worker.enable=false,master.enable=true,gc.enable=true"]
    return ["helm", "--namespace", SPACE, "upgrade", "--install", NAME, chart(cluster), "--skip-crds", *values, *more]


def prepare(cluster: Cluster, **options: Any) -> dict[str, Any]:
    args = {
        "release_name": NAME,
        "release_namespace": SPACE,
        "chart_ref": chart(cluster),
        "release_values": FEW,
        "wait_timeout": 60,
        "wait_sleep": 1,
    }
    return cluster.run(helm_release.main, **{**args, **options})


def statuses(cluster: Cluster) -> list[str]:
    actual = cluster.get("secrets", "-n", SPACE, "-l", f"owner=helm,name={NAME}")["items"]
    return [
        item["metadata"]["labels"]["status"]
        for item in sorted(actual, key=lambda s: int(s["metadata"]["labels"]["version"]))
    ]


def killed_while_pending(cluster: Cluster, *more: str) -> None:
    """Kill helm while its release is pending."""
    # A hook that never ends keeps helm running until the status is observed.
    process = subprocess.Popen(
        upgrade(cluster, "--wait", "--timeout", "5m", "--set", "master.nodeSelector.nowhere=yes", *more),
        env=cluster.lab.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    cluster.until(lambda: any(state.startswith("pending") for state in statuses(cluster)))
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_release_is_prepared_installed_and_verified(cluster: Cluster) -> None:
    predicted = prepare(cluster, check=True, diff=True)
    done = prepare(cluster, diff=True)
    assert done["diff"] == predicted["diff"]
    assert done["helm_release"] == predicted["helm_release"]
    assert done["changed"]
    assert done["helm_release"]["action"] == "install"
    assert sorted(done["helm_release"]["crds"]["created"]) == [
        "nodefeaturegroups.nfd.k8s-sigs.io",
        "nodefeaturerules.nfd.k8s-sigs.io",
        "nodefeatures.nfd.k8s-sigs.io",
    ]
    # Helm leaves the validation to a server that has published the schemas.
    assert "apis/nfd.k8s-sigs.io/v1alpha1" in json.loads(cluster.kubectl("get", "--raw", "/openapi/v3"))["paths"]
    assert len(str(done["diff"])) < 2000, "the diff names CRDs, it does not print them"
    subprocess.run(upgrade(cluster), env=cluster.lab.env, check=True, capture_output=True)
    mark = cluster.mark()
    again = prepare(cluster)
    assert again["changed"] is False
    assert again["helm_release"]["action"] == "none"
    assert all(pods == "1/1" for pods in again["helm_release"]["workloads"].values())
    sent = cluster.requests(mark, "helm_release")
    assert sent
    assert {request.split()[0] for request in sent} <= {"get", "list"}


def test_changed_values_are_named_and_crds_are_restored(cluster: Cluster) -> None:
    prepare(cluster)
    subprocess.run(upgrade(cluster), env=cluster.lab.env, check=True, capture_output=True)
    cluster.kubectl("label", "crd", "nodefeatures.nfd.k8s-sigs.io", "example.org/mine=yes")
    cluster.kubectl(
        "patch", "crd", "nodefeatures.nfd.k8s-sigs.io", "--type=json",
        '-p=[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"old"}]',
    )  # fmt: skip
    changed = {**FEW, "imagePullSecrets": [{"name": "s3cr3t"}]}
    predicted = prepare(cluster, check=True, diff=True, release_values=changed)
    done = prepare(cluster, diff=True, release_values=changed)
    assert done["diff"] == predicted["diff"]
    assert done["helm_release"]["reasons"] == ["values differ: imagePullSecrets"]
    assert done["helm_release"]["crds"]["updated"] == ["nodefeatures.nfd.k8s-sigs.io"]
    assert "s3cr3t" not in str(done)
    definition = cluster.get("crd", "nodefeatures.nfd.k8s-sigs.io")
    assert definition["metadata"]["labels"]["example.org/mine"] == "yes"


def test_a_killed_installation_of_the_collection_is_repaired_at_once(cluster: Cluster) -> None:
    assert prepare(cluster)["helm_release"]["action"] == "install"
    killed_while_pending(cluster)
    assert statuses(cluster) == ["pending-install"]
    predicted = prepare(cluster, check=True)
    assert statuses(cluster) == ["pending-install"], "check mode changes nothing"
    done = prepare(cluster)
    assert done["helm_release"] == predicted["helm_release"]
    assert done["helm_release"]["action"] == "upgrade"
    assert "is no longer running" in done["helm_release"]["repaired"][0]
    assert statuses(cluster) == ["superseded"]
    # A value of the killed installation, a selector that fits no node, is removed: all pods run.
    subprocess.run(upgrade(cluster), env=cluster.lab.env, check=True, capture_output=True)
    assert prepare(cluster)["helm_release"]["action"] == "none"


def test_a_killed_upgrade_is_repeated_even_without_differences(cluster: Cluster) -> None:
    subprocess.run(upgrade(cluster), env=cluster.lab.env, check=True, capture_output=True)
    killed_while_pending(cluster)
    assert statuses(cluster) == ["deployed", "pending-upgrade"]
    done = prepare(cluster, pending_timeout=0)
    assert done["helm_release"]["action"] == "upgrade"
    assert statuses(cluster) == ["superseded"]
    subprocess.run(upgrade(cluster), env=cluster.lab.env, check=True, capture_output=True)
    assert statuses(cluster) == ["superseded", "deployed"]
    assert prepare(cluster)["helm_release"]["action"] == "none"


def test_a_running_helm_is_awaited_and_not_disturbed(cluster: Cluster) -> None:
    process = subprocess.Popen(
        upgrade(cluster, "--wait", "--timeout", "5m", "--set", "master.nodeSelector.nowhere=yes"),
        env=cluster.lab.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        cluster.until(lambda: statuses(cluster) == ["pending-install"])
        actual = prepare(cluster, wait_timeout=2, pending_timeout=0)
        assert actual["failed"]
        assert actual["code"] == "timeout"
        assert "a helm process on this machine is working on it" in actual["msg"]
        assert statuses(cluster) == ["pending-install"]
    finally:
        process.kill()
        process.wait()


def test_a_pending_release_of_another_machine_is_awaited(cluster: Cluster) -> None:
    killed_while_pending(cluster)
    actual = prepare(cluster, wait=False)
    assert actual["failed"]
    assert "a helm process on another machine may be working on it" in actual["msg"]
    done = prepare(cluster, pending_timeout=8)
    assert "it has been unfinished for" in done["helm_release"]["repaired"][0]


def test_pods_that_are_not_running_are_named(cluster: Cluster) -> None:
    stuck = {**FEW, "master": {**FEW["master"], "nodeSelector": {"nowhere": "yes"}}}
    prepare(cluster, release_values=stuck)
    subprocess.run(
        upgrade(cluster, "--set", "master.nodeSelector.nowhere=yes"),
        env=cluster.lab.env,
        check=True,
        capture_output=True,
    )
    actual = prepare(cluster, release_values=stuck, wait_timeout=3)
    assert actual["failed"]
    assert f"Deployment {NAME}-node-feature-discovery-master: 0 of 1 pods are ready" in actual["msg"]
    assert "didn't match" in actual["msg"], "the scheduler's own reason"


def test_initial_values_are_set_once(cluster: Cluster) -> None:
    first = {"priorityClassName": "system-node-critical"}
    assert prepare(cluster, initial_values=first)["helm_release"]["initial_values"] == first
    subprocess.run(
        upgrade(cluster, "--set", "priorityClassName=system-node-critical"),
        env=cluster.lab.env, check=True, capture_output=True,
    )  # fmt: skip
    later = prepare(cluster, initial_values={"priorityClassName": "other"})["helm_release"]
    assert (later["action"], later["initial_values"]) == ("none", first)


@pytest.mark.parametrize("check", [True, False])
def test_a_missing_namespace_fails_before_any_change(cluster: Cluster, check: bool) -> None:
    actual = prepare(cluster, check=check, release_namespace="misspelt")
    assert actual["failed"]
    assert "Namespace 'misspelt' does not exist" in actual["msg"]
    expected = {"namespaces": ["misspelt"]}
    predicted = prepare(cluster, check=True, release_namespace="misspelt", expected=expected)
    assert predicted["helm_release"]["action"] == "install"
    assert prepare(cluster, release_namespace="misspelt", expected=expected)["failed"], "expected is for check mode"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"binary_path": "/nowhere/helm"}, "There is no executable at binary_path /nowhere/helm"),
        ({"chart_ref": "/nowhere/chart"}, "The chart /nowhere/chart does not exist on this machine"),
        ({"chart_ref": "bare"}, "A bare chart name needs chart_repo_url"),
        ({"chart_ref": "x", "chart_repo_url": "http://127.0.0.1:9/"}, "Nothing listens at this address"),
        ({"chart_ref": "oci://127.0.0.1:9/x", "chart_version": "1.0.0"}, "Nothing listens at this address"),
        ({"release_values": {"worker": 1}}, "does not accept these values"),
    ],
)
def test_error_messages(cluster: Cluster, options: dict[str, Any], message: str) -> None:
    mark = cluster.mark()
    actual = prepare(cluster, **options)
    assert actual["failed"]
    assert message in actual["msg"]
    assert "\n" not in actual["msg"]
    # At most the cluster's identity is read.
    record = "get /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"
    assert cluster.requests(mark, "helm_release") in ([], [record])


def test_missing_helm(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cluster.lab.env, "PATH", str(tmp_path))
    actual = prepare(cluster)
    assert actual["failed"]
    assert "helm is not installed on this machine" in actual["msg"]
    assert "binary_path" in actual["msg"]


def test_a_packed_chart_from_a_repository(cluster: Cluster, tmp_path: Path) -> None:
    helm(cluster, "package", chart(cluster), "--destination", str(tmp_path))
    helm(cluster, "repo", "index", str(tmp_path))
    server = subprocess.Popen(
        ["python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ},
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().split(" port ")[1].split()[0]
        repository = f"http://127.0.0.1:{port}"
        actual = prepare(cluster, check=True, chart_ref="node-feature-discovery", chart_repo_url=repository)
        local = prepare(cluster, check=True)
        assert actual["helm_release"] == local["helm_release"]
        gone = prepare(cluster, chart_ref="node-feature-discovery", chart_repo_url=repository, chart_version="9.9.9")
        assert 'version "9.9.9" not found' in gone["msg"]
    finally:
        server.kill()
        server.wait()
