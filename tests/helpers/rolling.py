# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One pool of a small cluster, whose sharing is changed while users work on it."""

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
# One of three, to which something happens.
VICTIM = "a100-2"
ALL_AT_ONCE = {"max_unavailable": 3}
NONE: Object = {"mode": "none"}
CORDONED, FAILED = "accel.gpu/cordoned", "accel.gpu/failed"
# Times of the lab: a MIG change takes 3 seconds there.
ROLLOUT: Object = {"max_unavailable": 2, "drain": "gpu-pods", "drain_timeout": 60}


@dataclass
class Rolling:
    """The pool, its users, and what is declared of it."""

    lab: Lab
    rollout: Object = field(default_factory=lambda: dict(ROLLOUT))

    def __post_init__(self) -> None:
        """Speak to the lab as an admin does."""
        self.cluster = Cluster(self.lab)
        self.users = Users(self.lab)

    def install(self, folder: Path, nodes: int, gpus: int) -> Rolling:
        """A cluster of so many alike machines and one without a GPU, with NFD and the operator at work."""
        fleet = folder / "fleet.yaml"
        groups = [{"name": "a100", "count": nodes, "model": MODEL, "gpus": gpus}, {"name": "cpu", "count": 1}]
        fleet.write_text(yaml.safe_dump({"groups": groups}))
        self.lab.become(f"rolling-{nodes}x{gpus}", self._site, fleet)
        self.users.arrive()
        return self

    def _site(self) -> None:
        run_playbook(
            "accel.gpu.site",
            environ=self.lab.env,
            variables={"gpu_pools": [self.pool(NONE)]},
            arguments=["--tags", "pools,nfd,gpu_operator,sharing"],
        ).require_success()

    def pool(self, sharing: Mapping[str, Any], **rollout: Any) -> Object:
        """The pool's document."""
        return {
            "name": POOL,
            "match": {"model": MODEL},
            "sharing": dict(sharing),
            "rollout": {**self.rollout, **rollout},
        }

    def machines(self, count: int) -> None:
        """So many machines with GPUs, made or taken away, and ready."""
        self.lab.command("nodes", "scale", "a100", str(count), "--wait")

    def nodes(self) -> list[str]:
        """The machines with GPUs."""
        return sorted(name for name in self.cluster.nodes() if name.startswith("a100-"))

    def share(
        self,
        sharing: Mapping[str, Any],
        *,
        rollout: Mapping[str, Any] | None = None,
        settled: bool = True,
        **options: Any,
    ) -> Object:
        """What the module answers when the pool is to be shared so, after cluster_policy has had its turn.

        Where an operand ails already the policy is not ready, and nobody waits for that (`settled`).
        """
        pools = [self.pool(sharing, **(rollout or {}))]
        check = bool(options.get("check"))
        policy = self.cluster.run(
            cluster_policy.main, gpu_pools=pools, wait=settled, wait_timeout=90, wait_sleep=1, check=check
        )
        assert not policy.get("failed"), policy
        given = {"gpu_pools": pools, "wait_timeout": 90, "expected_policy": policy["cluster_policy"], **options}
        return self.cluster.run(gpu_sharing.main, **given)

    def require_offered(self, offered: Mapping[str, int], *, but: str = "") -> None:
        """Every machine, but for one, offers exactly this."""
        found = {name: of for name, of in self.cluster.offered("a100-").items() if name != but}
        assert found == {name: offered for name in self.nodes() if name != but}

    def require_clean(self, *ours_may_be: str) -> None:
        """Nothing of ours is left on any node: no cordon, no taint, no mark of a failure."""
        for name, node in self.cluster.nodes().items():
            annotations = node["metadata"].get("annotations", {})
            marks = [key for key in (CORDONED, FAILED) if key in annotations]
            taints = [taint["key"] for taint in node["spec"].get("taints", []) if taint["key"].startswith("accel.gpu/")]
            if name not in ours_may_be:
                assert (marks, taints, bool(node["spec"].get("unschedulable"))) == ([], [], False), name
