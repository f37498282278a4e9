# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An unmanaged NFD has to tolerate the taints that nodes of the pools register with."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.detect import find_nfd, object_conditions
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import DAEMONSETS, DEPLOYMENTS, GPU_CLUSTERS, NODES
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]

STARTUP_TAINT = "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu:NoSchedule"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
POOL = {"name": "cut", "gpus_per_node": 1, "match": {"model": "A100-SXM4-40GB"}}
MIG = {"sharing": {"mode": "mig", "layout": {"3g.20gb": 2}}}


class UnmanagedNfd:
    """A client for a cluster in which NFD runs without marks of Helm, with workers that have these tolerations."""

    def __init__(self, tolerations: list[Object]) -> None:
        pod = {"containers": [{"command": ["nfd-master"], "image": "nfd/node-feature-discovery:v0.18.3"}]}
        metadata = {"name": "nfd-master", "namespace": "nfd"}
        self._listed = {
            DEPLOYMENTS: [{"metadata": metadata, "spec": {"template": {"spec": pod}}}],
            DAEMONSETS: [{"metadata": metadata, "spec": {"template": {"spec": {"tolerations": tolerations}}}}],
            NODES: [],
        }

    def list(self, path: str, **dummy: str) -> list[Object]:
        return self._listed[path]

    def get(self, path: str) -> None:
        return None


@pytest.mark.parametrize(
    ("pool", "missing"),
    [
        ({}, ""),
        ({"taints": [TAINT]}, "team:NoSchedule"),
        ({**MIG, "startup_taint": True}, STARTUP_TAINT),
        ({**MIG, "startup_taint": True, "taints": [TAINT]}, f"{STARTUP_TAINT}, team:NoSchedule"),
    ],
    ids=["no taint", "a taint", "the startup taint alone", "both"],
)
def test_taints_at_registration_that_its_workers_do_not_tolerate(pool: Object, missing: str) -> None:
    plan = derive({"name": "c"}, {}, [{**POOL, **pool}])
    finding = find_nfd(cast("Client", UnmanagedNfd([])), plan)
    assert finding.adopted
    assert [note for note in finding.notes if "tolerate" in note] == (
        [
            f"its workers do not tolerate {missing}: add a toleration where NFD is managed; otherwise, they cannot restart on nodes with these taints"
        ]
        if missing
        else []
    )
    assert find_nfd(cast("Client", UnmanagedNfd([{"operator": "Exists"}])), plan).notes == ()


class WithGpuClusters:
    """A client for a cluster with these GPUClusters, or that answers with an error."""

    def __init__(self, answer: list[Object] | ApiError) -> None:
        self._answer = answer

    def list_known(self, path: str, *, metadata_only: bool) -> list[Object]:
        assert path == GPU_CLUSTERS
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("version", "answer", "conditions"),
    [
        ("v26.7.0", [{}], {"gpucluster"}),
        ("v26.7.0", [], set()),
        ("v26.7.0", ApiError("no", status=403, reason="Forbidden", method="GET", path=GPU_CLUSTERS), set()),
        ("v26.3.3", [{}], set()),
        ("", [{}], set()),
        (None, [{}], set()),
    ],
)
def test_a_gpu_cluster_beside_the_policy(version: str | None, answer: Any, conditions: set[str]) -> None:
    labels = {"app.kubernetes.io/version": version} if version else {}
    policy = None if version is None else {"metadata": {"name": "p", "labels": labels}}
    assert object_conditions(cast("Client", WithGpuClusters(answer)), policy) == conditions
