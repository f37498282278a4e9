# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator is stopped for its upgrade, and started again if the upgrade was not completed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress, WaitOptions
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.upgrade import OperatorUpgrade
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from tests.helpers.cluster import Cluster
from tests.labs import Lab

SPACE = "upgrading"
LABELS = {"app": "gpu-operator"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "gpu-operator", "namespace": SPACE},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "main", "image": "example.com/operator"}]},
        },
    },
}
MANIFEST = yaml.safe_dump(DEPLOYMENT, sort_keys=False)
WAITING = WaitOptions(30, 0.2, Progress(None))


@pytest.fixture
def cluster(lab: Lab) -> Iterator[Cluster]:
    cluster = Cluster(lab)
    cluster.kubectl("create", "namespace", SPACE)
    yield cluster
    cluster.kubectl("delete", "namespace", SPACE)


@pytest.fixture
def upgrading(cluster: Cluster) -> OperatorUpgrade:
    client = Client(ConnectionOptions(kubeconfig=str(cluster.lab.kubeconfig)), "accel.gpu/test")
    return OperatorUpgrade(client, SPACE, allowed=True)


def replicas(cluster: Cluster) -> list[int]:
    return [item["spec"]["replicas"] for item in cluster.get("deployments", "-n", SPACE)["items"]]


def test_an_operator_stopped_for_an_upgrade_is_started_again(
    cluster: Cluster, upgrading: OperatorUpgrade, tmp_path: Path
) -> None:
    (tmp_path / "operator.yaml").write_text(MANIFEST)
    cluster.kubectl("apply", "-f", str(tmp_path / "operator.yaml"))
    written: list[str] = []
    upgrading.stop(MANIFEST, WAITING)
    assert replicas(cluster) == [0]
    assert cluster.get("pods", "-n", SPACE)["items"] == []
    assert upgrading.resume(MANIFEST, check=True, before_write=lambda: written.append("check"))
    assert (replicas(cluster), written) == ([0], [])
    assert upgrading.resume(MANIFEST, check=False, before_write=lambda: written.append("run"))
    assert (replicas(cluster), written) == ([1], ["run"])
    # A foreign Deployment that was stopped stays stopped.
    cluster.kubectl("scale", "deployment/gpu-operator", "--replicas=0", "-n", SPACE)
    assert not upgrading.resume(MANIFEST, check=False, before_write=lambda: written.append("again"))
    assert (replicas(cluster), written) == ([0], ["run"])


def test_a_missing_operator_needs_no_stop(cluster: Cluster, upgrading: OperatorUpgrade) -> None:
    upgrading.stop(MANIFEST, WAITING)
    assert not upgrading.resume(MANIFEST, check=False, before_write=lambda: None)
    assert replicas(cluster) == []
