# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with a working operator, for the tests of modules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.helpers.modules import run_module
from tests.helpers.playbook import run_playbook
from tests.helpers.polling import until
from tests.labs import Lab
from tests.programs import REPO, run

NAMESPACE = "gpu-operator"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
_INVENTORY = REPO / "inventories" / "lab" / "group_vars" / "gpu_clusters.yml"
# Fields that change continuously: heartbeats with their times and versions, and the capacity, in which a kubelet keeps removed
# resources for five minutes.
_MOVING = re.compile(r"heartbeat|resourceVersion|managedFields|timestamp|conditions|capacity", re.IGNORECASE)


@dataclass(frozen=True)
class Cluster:
    """Runs modules in this process and reads their effects from the cluster."""

    lab: Lab

    def install(self) -> Cluster:
        """The default fleet with NFD and the GPU operator as the playbook site installs them, and no other objects of the collection."""
        self.lab.become("installed", lambda: self._site("--tags", "pools,nfd,gpu_operator"))
        return self

    def share(self) -> Cluster:
        """The same, with the inventory's pools applied."""
        self.lab.become("shared", self._share)
        return self

    def _share(self) -> None:
        self.install()._site("--skip-tags", "nfd,gpu_operator,validation")

    def _site(self, *arguments: str) -> None:
        run_playbook("accel.gpu.site", environ=self.lab.env, arguments=arguments).require_success()

    def pools(self, *changes: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The inventory's pools, each change merged into the pool of its name."""
        pools: list[dict[str, Any]] = yaml.safe_load(_INVENTORY.read_text())["gpu_pools"]
        for change in changes:
            next(pool for pool in pools if pool["name"] == change["name"]).update(change)
        return pools

    def run(self, main: Callable[[], Any], **options: Any) -> dict[str, Any]:
        """A module's result on this cluster; `check` and `diff` are Ansible's modes."""
        modes = {mode: options.pop(mode, False) for mode in ("check", "diff")}
        args = {"gpu_cluster": {"name": self.lab.name, "kubeconfig": str(self.lab.kubeconfig)}, **options}
        return run_module(main, args, env=self.lab.env, **modes)

    def kubectl(self, *words: str) -> str:
        """The output of kubectl."""
        return run("kubectl", *words, env=self.lab.env)

    def get(self, *words: str) -> Any:
        """An object or a list from kubectl's JSON."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Every node by name."""
        return {node["metadata"]["name"]: node for node in self.get("nodes")["items"]}

    def offered(self, prefix: str) -> dict[str, dict[str, int]]:
        """The NVIDIA resources above 0 of the nodes whose names have this prefix."""
        return {
            name: {
                key: int(count)
                for key, count in node["status"]["allocatable"].items()
                if key.startswith("nvidia.com/") and int(count)
            }
            for name, node in self.nodes().items()
            if name.startswith(prefix)
        }

    def entries(self) -> set[str]:
        """The entries of the device plugin's ConfigMap."""
        return set(self.get("configmap", "accel-gpu-device-plugin", "-n", NAMESPACE)["data"])

    def restarts(self) -> int:
        """The number of restarts of containers in the operator's pods."""
        return sum(
            status.get("restartCount", 0)
            for pod in self.get("pods", "-n", NAMESPACE)["items"]
            for status in (pod["status"].get("containerStatuses") or [])
        )

    def requests(self, since: str, module: str, status: int | None = None) -> list[str]:
        """The requests of a module since a mark, or only those with this status, as 'verb path'."""
        listed = self.lab.command("audit", "--since", since, "--agent", f" {module} ", "--list")
        actual = [line.split()[:3] for line in listed.splitlines() if line.strip()]
        return [f"{verb} {path}" for answered, verb, path in actual if status in (None, int(answered))]

    def written_nodes(self, since: str, module: str) -> set[str]:
        """The nodes that a module has changed since a mark; the lab's own programs change nodes, too."""
        actual = (request.split()[:2] for request in self.requests(since, module))
        return {
            path.partition("/nodes/")[2].partition("?")[0]
            for verb, path in actual
            if verb in ("patch", "update") and path.startswith("/api/v1/nodes/")
        }

    def mark(self) -> str:
        """The present time, for requests()."""
        return self.lab.command("audit", "--mark").strip()

    def until(self, done: Callable[[], bool], seconds: float = 30) -> None:
        """Wait for an action of the simulated agents."""
        until(done, limit=seconds)


def settled(node: Mapping[str, Any]) -> Any:
    """A node without the fields that change continuously."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if not _MOVING.search(key)}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return strip(node)
