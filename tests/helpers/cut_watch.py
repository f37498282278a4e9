# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches nodes for one forbidden moment: a node is schedulable while its GPUs are partitioned and no label asks for that."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.api import Api, ApiError
from lab.layout import Lab as LabLayout
from tests.labs import Lab
from tests.programs import run

# The simulator stores the MIG state of a node's GPUs here, like the hardware.
HARDWARE = "lab.accel.gpu/mig"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"


def is_cut(node: dict[str, Any]) -> bool:
    """Whether any GPU of the machine has MIG enabled, whatever the labels are (lab/sim/rules/layout.go: the listed GPUs have)."""
    layout = json.loads(node["metadata"].get("annotations", {}).get(HARDWARE) or "{}")
    return bool(layout.get("gpus"))


@dataclass
class CutWatch:
    """Every state of every node since the start; `wrong` are those in which a pod could get a part of a GPU as a whole GPU."""

    api: Api
    states: int = 0
    cut_states: int = 0
    wrong: list[str] = field(default_factory=list)
    marker: str = ""
    _over: threading.Event = field(default_factory=threading.Event)
    _seen: threading.Event = field(default_factory=threading.Event)

    def follow(self, version: str) -> None:
        """Check each state until the end."""
        while not self._over.is_set():
            try:
                for event in self.api.watch("/api/v1/nodes", version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._judge(event["object"])
                    if self._over.is_set():
                        return
            except ApiError as error:
                self.wrong.append(f"the watch has missed states: {error}")
                return

    def finish(self) -> None:
        """Return when the watch has received the label that marks the end."""
        assert self._seen.wait(30), "the watch of nodes has stopped"
        self._over.set()

    def _judge(self, node: dict[str, Any]) -> None:
        self.states += 1
        labels = node["metadata"].get("labels", {})
        if self.marker and labels.get("watched") == self.marker:
            self._seen.set()
        if not is_cut(node):
            return
        self.cut_states += 1
        config = labels.get(CONFIG, "")
        if not node["spec"].get("unschedulable") and not config.startswith("mig-"):
            self.wrong.append(
                f"{node['metadata']['name']}: schedulable and cut, mig.config {config!r}, state {labels.get(STATE)!r}"
            )


@contextmanager
def cut_watch(lab: Lab) -> Iterator[CutWatch]:
    """Watch the nodes of a lab while the block runs."""
    api = Api(LabLayout.named(lab.name))
    listed = api.request("GET", "/api/v1/nodes")
    watch = CutWatch(api)
    thread = threading.Thread(target=watch.follow, args=(str(listed["metadata"]["resourceVersion"]),), daemon=True)
    thread.start()
    yield watch
    marker = f"at-{time.monotonic_ns()}"
    name = listed["items"][0]["metadata"]["name"]
    watch.marker = marker
    run("kubectl", "label", "--overwrite", "node", name, f"watched={marker}", env=lab.env)
    watch.finish()
    run("kubectl", "label", "node", name, "watched-", env=lab.env)
