# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign settings on a cluster, which must not change."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.labs import Lab
from tests.programs import run

_LABEL = "example.org/rack"
_TAINT = {"key": "example.org/maintenance", "value": "soon", "effect": "PreferNoSchedule"}
_ANNOTATION = "example.org/owner"


@dataclass
class Foreign:
    """A foreign label, annotation, taint and cordon on nodes, and a ConfigMap beside the collection's."""

    lab: Lab
    _nodes: tuple[str, ...] = field(default=(), init=False)

    def create(self) -> None:
        """Create them on the first nodes of the cluster; the last of these is cordoned."""
        names = sorted(node["metadata"]["name"] for node in self._get("nodes")["items"])
        self._nodes = tuple(names[:3])
        for name in self._nodes:
            self._kubectl("label", "--overwrite", "node", name, f"{_LABEL}={name}")
            self._kubectl("annotate", "--overwrite", "node", name, f"{_ANNOTATION}=facilities")
            taint = f"{_TAINT['key']}={_TAINT['value']}:{_TAINT['effect']}"
            self._kubectl("taint", "--overwrite", "node", name, taint)
        self._kubectl("cordon", self._nodes[-1])
        self._kubectl("create", "configmap", "foreign", "-n", "default", "--from-literal=kept=yes")

    def require_intact(self) -> None:
        """Fail if any of them is missing or has another value."""
        for name in self._nodes:
            node = self._get("node", name)
            assert node["metadata"]["labels"].get(_LABEL) == name
            assert node["metadata"]["annotations"].get(_ANNOTATION) == "facilities"
            assert _TAINT in node["spec"].get("taints", [])
        cordoned = self._get("node", self._nodes[-1])
        assert cordoned["spec"].get("unschedulable") is True
        assert self._get("configmap", "foreign", "-n", "default")["data"] == {"kept": "yes"}

    def _get(self, *words: str) -> Any:
        return json.loads(self._kubectl("get", *words, "-o", "json"))

    def _kubectl(self, *words: str) -> str:
        return run("kubectl", *words, env=self.lab.env)
