# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of Node objects with only an API server and etcd, so that no other component uses CPU time."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import lifecycle, supervisor
from lab.api import Api, Object, in_parallel
from lab.layout import Lab as LabLayout
from tests.helpers.gpu_nodes import gpu_node
from tests.labs import Lab

NODES = "/api/v1/nodes"
LABEL = {"bench": "yes"}
# The controller manager would set nodes without heartbeats NotReady; the others would process every change of 5,000 nodes.
_PAUSED = ("kwok", "sim", "runner", "kube-scheduler", "kube-controller-manager")
_NO_MACHINES = "groups: []\n"


class BareCluster:
    """Nodes `bench-0000`, `bench-0001`, ... with the state after the device plugin and a first run of gpu_sharing."""

    def __init__(self, lab: Lab, folder: Path, replicas: int) -> None:
        """Reset the lab to no nodes and stop all services except its API server and etcd."""
        fleet = folder / "fleet.yaml"
        fleet.write_text(_NO_MACHINES)
        lab.reset(fleet)
        layout = LabLayout.named(lab.name)
        program = lifecycle.supervisor_program(layout)
        assert program is not None
        supervisor.pause(layout, program, _PAUSED)
        self._api = Api(layout, "admin")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}
        self._api.request("POST", "/api/v1/namespaces", namespace)
        self._replicas = replicas
        self._template: Object | None = None
        self.count = 0

    def grow(self, count: int, adopt: Callable[[], Any]) -> None:
        """Create nodes up to `count`; `adopt` runs gpu_sharing once on the first node, which the others copy."""
        if self._template is None:
            self._api.request("POST", NODES, self._new(0))
            self.count = 1
            adopt()
            self._template = self._api.request("GET", f"{NODES}/{self._name(0)}")
        in_parallel(lambda number: self._api.request("POST", NODES, self._copy(number)), range(self.count, count))
        self.count = count

    def node_bytes(self) -> int:
        """Return the size of one node in a list response, in bytes."""
        actual = self._api.request("GET", f"{NODES}/{self._name(0)}")
        return len(json.dumps(actual, separators=(",", ":")))

    def _new(self, number: int) -> Object:
        return gpu_node(self._name(number), self._replicas, LABEL)

    def _copy(self, number: int) -> Object:
        template = self._template
        assert template is not None
        node = copy.deepcopy(self._new(number))
        for part in ("labels", "annotations"):
            node["metadata"][part] = {**template["metadata"][part], **node["metadata"][part]}
        return node

    def _name(self, number: int) -> str:
        return f"bench-{number:04}"
