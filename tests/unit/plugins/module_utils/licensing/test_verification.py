# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A verification follows the nodes of the cluster: those that join, become ready, restart or leave while it waits."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import LICENSE_CONFIG_KEY, LICENSE_TOKEN_KEY
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import CLUSTER_POLICIES, NODES, collection_path
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import TOKEN_PATH
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.modules import license_info
from tests.helpers.license_nodes import NAMESPACE, Container, Containers, initial_files
from tests.helpers.license_tokens import make_token

LABELS = {"nvidia.com/gpu.present": "true", "nvidia.com/vgpu.present": "true", "pool": "vdi"}
OLD, NEW = make_token(hosts=["old.example.com"]), make_token(hosts=["new.example.com"])
CONFIG = "FeatureType=1\n"
PLAN = derive({"name": "lab"}, {}, [{"name": "vdi", "match": {"labels": {"pool": "vdi"}}, "sharing": {"mode": "none"}}])
PODS = collection_path("v1", "Pod", NAMESPACE)
POLICY = {
    "metadata": {"name": "cluster-policy", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"driver": {"licensingConfig": {"secretName": "licensing-config", "nlsEnabled": True}}},
    "status": {"state": "ready", "namespace": NAMESPACE},
}


@dataclass
class Cluster(Containers):
    """Nodes with driver pods, in place of the API client; `passes` changes it at the start of each pass."""

    passes: list[Callable[[], None]] = field(default_factory=list)
    token: str = OLD
    unready: set[str] = field(default_factory=set)
    started: dict[str, str] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)

    def join(self, name: str, *, licensed: bool = False, started: str = "2026-01-01T00:00:00Z") -> None:
        """Add a node; without `started`, it has no driver pod yet."""
        self.by_node[name] = Container(initial_files(OLD, CONFIG), pid=100 if licensed else None)
        self.started[name] = started

    def grant(self, name: str) -> None:
        """Let the license client of a node start."""
        container = self.by_node[name]
        container.pid, container.loaded = 200, dict(container.files)

    def restart(self, name: str) -> None:
        """Replace the driver's container, whose client has no license yet."""
        self.join(name, started="2026-01-02T00:00:00Z")

    def leave(self, name: str) -> None:
        del self.by_node[name]

    def list_known(self, path: str) -> list[Any]:
        return [POLICY] if path == CLUSTER_POLICIES else []

    def list(self, path: str, **dummy: Any) -> list[Any]:
        self.requests[path] += 1
        # A pass has two lists.
        if self.requests.total() % 2 == 1:
            self.passes.pop(0)()
        if path == NODES:
            return [self._node(name) for name in self.by_node]
        assert path == PODS
        return [self._pod(name) for name in self.by_node if self.started[name]]

    def get(self, dummy: str) -> Any:
        files = {LICENSE_TOKEN_KEY: self.token, LICENSE_CONFIG_KEY: CONFIG}
        return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}}

    def _node(self, name: str) -> Any:
        ready = "False" if name in self.unready else "True"
        return {
            "metadata": {"name": name, "labels": LABELS},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }

    def _pod(self, name: str) -> Any:
        running = {"name": "nvidia-driver-ctr", "state": {"running": {"startedAt": self.started[name]}}}
        return {
            "metadata": {"name": f"driver-{name}", "namespace": NAMESPACE},
            "spec": {"nodeName": name},
            "status": {"phase": "Running", "containerStatuses": [running]},
        }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with a licensed node and one without a license."""
    monkeypatch.setattr(license_info, "adapt_plan", lambda client, plan, policy: plan)
    actual = Cluster({})
    actual.join("n0", licensed=True)
    actual.join("n1")
    return actual


def verify(cluster: Cluster, *passes: Callable[[], object], **options: Any) -> dict[str, Any]:
    """The result of license_info; the cluster changes at the start of its passes."""
    cluster.passes = [cast(Any, change) for change in passes]
    module = SimpleNamespace(
        params={
            "source": "nvidia_smi",
            "require_licensed": True,
            "wait_timeout": 2,
            "wait_sleep": 0,
            "compare_files": True,
            "check_services": False,
            "min_days": 0,
            "limit": 100,
            **options,
        },
        client=cluster,
        plan=PLAN,
        check_mode=False,
        progress=SimpleNamespace(report=lambda *dummy: None),
    )
    result: dict[str, Any] = license_info.work(cast(Any, module))["license_info"]
    return result


def unchanged() -> None:
    """Nothing changes at the start of this pass."""


def reads(cluster: Cluster, node: str) -> int:
    """How often the state of a node was read."""
    return cluster.commands.count((node, ("nvidia-smi", "-q")))


def test_each_pass_lists_nodes_and_pods_once(cluster: Cluster) -> None:
    actual = verify(cluster, unchanged, unchanged, lambda: cluster.grant("n1"))
    assert (actual["counts"]["nodes"], actual["counts"]["licensed"]) == (2, 2)
    assert cluster.requests == {NODES: 3, PODS: 3}
    assert (reads(cluster, "n0"), reads(cluster, "n1")) == (1, 3)


def test_a_node_that_joins_is_verified(cluster: Cluster) -> None:
    def join() -> None:
        cluster.grant("n1")
        cluster.join("n2", started="")

    def start() -> None:
        cluster.started["n2"] = "2026-01-03T00:00:00Z"

    actual = verify(cluster, unchanged, join, start, lambda: cluster.grant("n2"))
    assert {entry["name"]: entry["state"] for entry in actual["nodes"]} == dict.fromkeys(["n0", "n1", "n2"], "licensed")
    assert cluster.requests[NODES] == 4


def test_a_node_that_leaves_needs_no_license(cluster: Cluster) -> None:
    actual = verify(cluster, unchanged, lambda: cluster.leave("n1"))
    assert [entry["name"] for entry in actual["nodes"]] == ["n0"]
    assert actual["counts"]["nodes"] == 1


def test_a_node_that_becomes_ready_is_verified(cluster: Cluster) -> None:
    cluster.join("n2")
    cluster.unready.add("n2")

    def become_ready() -> None:
        cluster.grant("n1")
        cluster.unready.clear()

    actual = verify(cluster, unchanged, become_ready, unchanged, lambda: cluster.grant("n2"))
    assert (actual["counts"]["licensed"], actual["counts"]["not_required"]) == (3, 0)


def test_a_node_that_is_not_ready_is_read_once(cluster: Cluster) -> None:
    cluster.join("n2")
    cluster.unready.add("n2")
    actual = verify(cluster, unchanged, unchanged, lambda: cluster.grant("n1"))
    assert actual["counts"]["not_required"] == 1
    assert reads(cluster, "n2") == 1


def test_a_driver_that_restarts_is_read_again(cluster: Cluster) -> None:
    def restart() -> None:
        cluster.restart("n0")
        cluster.grant("n1")

    actual = verify(cluster, unchanged, restart, unchanged, lambda: cluster.grant("n0"))
    assert actual["counts"]["licensed"] == 2
    assert reads(cluster, "n0") == 4


def test_a_secret_that_changes_is_compared(cluster: Cluster) -> None:
    def rotate() -> None:
        cluster.token = NEW
        cluster.by_node["n1"].files[TOKEN_PATH] = NEW.encode()
        cluster.grant("n1")

    actual = verify(cluster, unchanged, rotate)
    assert {entry["name"]: entry["token_matches"] for entry in actual["nodes"]} == {"n0": False, "n1": True}
    assert {service["host"] for service in actual["objects"][0]["services"]} == {"new.example.com"}


def test_the_metric_without_commands(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = "".join(f'DCGM_FI_DEV_VGPU_LICENSE_STATUS{{gpu="{gpu}"}} {gpu}\n' for gpu in (0, 1))
    monkeypatch.setattr(cluster, "read_pod", lambda *dummy, **others: samples.encode(), raising=False)
    # The third list is that of the exporters.
    actual = verify(cluster, unchanged, unchanged, source="dcgm_exporter", require_licensed=False, check_services=True)
    assert cluster.commands == []
    assert actual["counts"] == {
        "nodes": 2,
        "licensed": 0,
        "unlicensed": 2,
        "unknown": 0,
        "outdated": 0,
        "not_required": 0,
    }
    for entry in actual["nodes"]:
        assert (entry["state"], entry["status"], entry["product"], entry["expires"]) == (
            "unlicensed",
            "Unlicensed",
            "",
            None,
        )
        assert entry["token_matches"] is None
        assert "The metric does not show the cause. Set gpu_licensing_report_source (option source" in entry["problem"]


def test_a_timeout_reports_the_last_nodes(cluster: Cluster) -> None:
    with pytest.raises(WaitTimeout) as failed:
        verify(cluster, lambda: cluster.join("n2"), wait_timeout=0, check_services=True)
    assert "2 of 3 nodes have no verified license." in str(failed.value)
    assert failed.value.partial["license_info"]["counts"]["unlicensed"] == 2
