# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small cluster with one pool whose sharing is changed while GPU pods run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.accel.gpu.plugins.modules import cluster_policy, gpu_sharing
from tests.helpers.cluster import Cluster
from tests.helpers.playbook import run_playbook
from tests.helpers.workloads import Users
from tests.labs import Lab

Object = dict[str, Any]

POOL = "train"
MODEL = "A100-SXM4-80GB"
HALVES = {"mode": "mig", "layout": {"3g.40gb": 2}}
MPS = {"mode": "mps", "replicas": 4}
# The node of three that a test breaks.
TARGET = "a100-2"
ALL_AT_ONCE = {"max_unavailable": 3}
NONE: Object = {"mode": "none"}
CORDONED, FAILED = "accel.gpu/cordoned", "accel.gpu/failed"
# A MIG change takes 3 seconds in the lab.
ROLLOUT: Object = {"max_unavailable": 2, "drain": "gpu-pods", "drain_timeout": 60}


@dataclass
class Rolling:
    """The pool, its GPU pods, and its rollout settings."""

    lab: Lab
    rollout: Object = field(default_factory=lambda: dict(ROLLOUT))

    def __post_init__(self) -> None:
        """Connect to the lab as an administrator."""
        self.cluster = Cluster(self.lab)
        self.users = Users(self.lab)

    def install(self, folder: Path, nodes: int, gpus: int) -> Rolling:
        """A cluster of this many equal nodes and one without a GPU, with NFD and the operator installed."""
        fleet = folder / "fleet.yaml"
        groups = [{"name": "a100", "count": nodes, "model": MODEL, "gpus": gpus}, {"name": "cpu", "count": 1}]
        fleet.write_text(yaml.safe_dump({"groups": groups}))
        self.lab.become(f"rolling-{nodes}x{gpus}", self._site, fleet)
        self.users.create_namespace()
        return self

    def _site(self) -> None:
        run_playbook(
            "accel.gpu.site",
            environ=self.lab.env,
            variables={"gpu_pools": [self.pool(NONE)]},
            arguments=["--tags", "pools,nfd,gpu_operator,sharing"],
        ).require_success()

    def pool(self, sharing: Mapping[str, Any], **rollout: Any) -> Object:
        """The pool's declaration."""
        return {
            "name": POOL,
            "match": {"model": MODEL},
            "sharing": dict(sharing),
            "rollout": {**self.rollout, **rollout},
        }

    def scale(self, count: int) -> None:
        """Scale to this many GPU nodes, and wait until they are ready."""
        self.lab.command("nodes", "scale", "a100", str(count), "--wait")

    def nodes(self) -> list[str]:
        """The names of the GPU nodes."""
        return sorted(name for name in self.cluster.nodes() if name.startswith("a100-"))

    def share(
        self,
        sharing: Mapping[str, Any],
        *,
        rollout: Mapping[str, Any] | None = None,
        settled: bool = True,
        **options: Any,
    ) -> Object:
        """Run cluster_policy and gpu_sharing with this sharing; returns the result of the latter.

        Without `settled`, cluster_policy does not wait until the policy is ready, for tests in which an operand fails already.
        """
        pools = [self.pool(sharing, **(rollout or {}))]
        check = bool(options.get("check"))
        policy = self.cluster.run(
            cluster_policy.main, gpu_pools=pools, wait=settled, wait_timeout=90, wait_sleep=1, check=check
        )
        assert not policy.get("failed"), policy
        args = {"gpu_pools": pools, "wait_timeout": 90, "expected_policy": policy["cluster_policy"], **options}
        return self.cluster.run(gpu_sharing.main, **args)

    def require_offered(self, offered: Mapping[str, int], *, but: str = "") -> None:
        """Every GPU node, except one, offers exactly this."""
        actual = {name: resources for name, resources in self.cluster.offered("a100-").items() if name != but}
        assert actual == {name: offered for name in self.nodes() if name != but}

    def require_clean(self, *except_nodes: str) -> None:
        """No other node has a cordon, taint or annotation of an unfinished change."""
        for name, node in self.cluster.nodes().items():
            annotations = node["metadata"].get("annotations", {})
            marks = [key for key in (CORDONED, FAILED) if key in annotations]
            taints = [taint["key"] for taint in node["spec"].get("taints", []) if taint["key"].startswith("accel.gpu/")]
            if name not in except_nodes:
                assert (marks, taints, bool(node["spec"].get("unschedulable"))) == ([], [], False), name
