# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An unmanaged NFD has to tolerate the taints that nodes of the pools register with."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.detect import find_nfd
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import DAEMONSETS, DEPLOYMENTS, NODES
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
        [f"its workers do not tolerate {missing}: add a toleration where NFD is managed, or they cannot restart there"]
        if missing
        else []
    )
    assert find_nfd(cast("Client", UnmanagedNfd([{"operator": "Exists"}])), plan).notes == ()
