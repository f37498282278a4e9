# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A project of the lab's OpenStack as a test of the Magnum modules sees it: names of its own, and whatever it made gone afterwards."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab import cloud_requests
from lab.layout import Lab as Layout
from tests.helpers.modules import run_module
from tests.helpers.openstack import Cloud
from tests.helpers.waiting import until
from tests.labs import Lab

Object = dict[str, Any]

# What a run has in common with its preview: the rest only the cloud knows.
_KNOWN_LATER = ("id", "status", "diff")
# A cluster that has no Kubernetes, and so no nodes to wait for.
CLUSTER = "api"


def main_of(module: str) -> Any:
    """The main() of magnum_NAME."""
    return importlib.import_module(f"ansible_collections.accel.gpu.plugins.modules.magnum_{module}").main


@dataclass
class Magnum:
    """What one test does to the clusters of project demo; a prefix makes names its own."""

    lab: Lab
    release: str
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:6]}")

    def __post_init__(self) -> None:
        """Look with eyes that are not the collection's."""
        self.layout = Layout.named(self.lab.name)
        self.api = Cloud(self.layout, version="1.14" if self.has_node_labels else "1.10")

    @property
    def has_node_labels(self) -> bool:
        """Whether this release has labels and taints of nodes."""
        return self.release != "20"

    def run(self, module: str, *, check: bool = False, cloud: str = "lab", **args: Any) -> Object:
        """The result of a module, which waits with little patience between two looks."""
        if module == "nodegroup":
            args = {"cluster": CLUSTER, "wait_sleep": 1, "timeout": 120, **args}
        given = {"cloud": cloud, **args}
        return run_module(main_of(module), given, check=check, diff=True, env=self.lab.env)

    def group(self, name: str = "g", **args: Any) -> Object:
        """What magnum_nodegroup makes of one group of the test's."""
        return self.run("nodegroup", name=self.named(name), **args)

    def named(self, name: str) -> str:
        """A name of the test's own."""
        return f"{self.prefix}-{name}"

    def converge(self, name: str = "g", **args: Any) -> Object:
        """Preview, run, run again: the preview says what the run does, and the last one sends nothing that writes."""
        with self.watched() as watched:
            predicted = self.group(name, check=True, **args)
        assert not predicted.get("failed"), predicted["msg"]
        assert watched == [], "check mode writes"
        done = self.group(name, **args)
        assert not done.get("failed"), done["msg"]
        assert predicted["changed"] == done["changed"]
        assert predicted["diff"] == done["diff"]
        _agree(predicted["nodegroup"], done["nodegroup"])
        with self.watched() as watched:
            again = self.group(name, **args)
        assert again["changed"] is False, again["diff"]
        assert watched == []
        return done

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        """The requests that could change something, as METHOD PATH; filled when the block ends."""
        found: list[str] = []
        since = cloud_requests.mark(self.layout)
        yield found
        found += [
            f"{request.method} {request.path}"
            for request in cloud_requests.writes(self.layout, since)
            if "accel.gpu" in request.user_agent
        ]

    def live(self, name: str = "g", cluster: str = CLUSTER) -> Object:
        """A group of the test's as Magnum shows it."""
        group = self.api.group(cluster, self.named(name))
        assert group is not None
        return group

    def fault(self, *words: str) -> None:
        """Put a fault on the cloud; all are cleared when the test is over."""
        self.lab.command("cloud", "fault", "inject", *words)

    def close(self) -> None:
        """Clear faults, and delete every group and cluster that bears the prefix."""
        self.lab.command("cloud", "fault", "clear")
        for cluster in (self.api.get("/clusters") or {})["clusters"]:
            if cluster["name"].startswith(self.prefix):
                self._delete_cluster(cluster["uuid"])
                continue
            for group in (self.api.get(f"/clusters/{cluster['uuid']}/nodegroups") or {})["nodegroups"]:
                if group["name"].startswith(self.prefix):
                    self.api.delete(cluster["uuid"], group["uuid"])

    def _delete_cluster(self, cluster: str) -> None:
        self.api.send("DELETE", f"/clusters/{cluster}")
        until(lambda: self.api.send("GET", f"/clusters/{cluster}").status_code == 404)


def _agree(predicted: Object, done: Object) -> None:
    """Everything that was predicted has come true; of a map that the cloud adds to, what was predicted is in it."""
    for key, value in predicted.items():
        if key in _KNOWN_LATER:
            continue
        if isinstance(value, dict):
            assert value.items() <= done[key].items(), key
        else:
            assert done[key] == value, key
