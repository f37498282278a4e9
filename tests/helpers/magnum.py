# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A project of the lab's OpenStack for tests of the Magnum modules: names are unique to a test, and its objects are deleted afterwards."""

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
from tests.helpers.polling import until
from tests.labs import Lab

Object = dict[str, Any]

# The keys that a run and its check mode have in common; only the cloud knows the others.
_KNOWN_LATER = ("id", "status", "diff")
# A cluster without Kubernetes, thus without nodes to wait for.
CLUSTER = "api"


def main_of(module: str) -> Any:
    """The main() of magnum_NAME."""
    return importlib.import_module(f"ansible_collections.accel.gpu.plugins.modules.magnum_{module}").main


@dataclass
class Magnum:
    """Access of one test to the clusters of project demo; a prefix makes names unique."""

    lab: Lab
    release: str
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:6]}")

    def __post_init__(self) -> None:
        """Connect with a client other than the collection's."""
        self.layout = Layout.named(self.lab.name)
        self.api = Cloud(self.layout, version="1.14" if self.has_node_labels else "1.10")

    @property
    def has_node_labels(self) -> bool:
        """Whether this release supports labels and taints of nodes."""
        return self.release != "20"

    def run(self, module: str, *, check: bool = False, cloud: str = "lab", **args: Any) -> Object:
        """The result of a module, which polls often."""
        if module == "nodegroup":
            args = {"cluster": CLUSTER, "wait_sleep": 1, "timeout": 120, **args}
            args.setdefault("confirm", [args["cluster"]])
        if module == "cluster" and args.get("state") == "absent":
            args.setdefault("confirm", [args["name"]])
        options = {"cloud": cloud, **args}
        return run_module(main_of(module), options, check=check, diff=True, env=self.lab.env)

    def group(self, name: str = "g", **args: Any) -> Object:
        """The result of magnum_nodegroup for one node group of the test."""
        return self.run("nodegroup", name=self.named(name), **args)

    def named(self, name: str) -> str:
        """A name of the test."""
        return f"{self.prefix}-{name}"

    def converge(self, name: str = "g", **args: Any) -> Object:
        """Check mode, run, run again: check mode predicts the run, and the last run sends no write request."""
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
        """The requests that can change something, as METHOD PATH; the list is filled when the block ends."""
        actual: list[str] = []
        since = cloud_requests.mark(self.layout)
        yield actual
        actual += [
            f"{request.method} {request.path}"
            for request in cloud_requests.writes(self.layout, since)
            if "accel.gpu" in request.user_agent
        ]

    def live(self, name: str = "g", cluster: str = CLUSTER) -> Object:
        """A node group of the test as Magnum returns it."""
        group = self.api.group(cluster, self.named(name))
        assert group is not None
        return group

    def fault(self, *words: str) -> None:
        """Inject a fault into the cloud; all are cleared after the test."""
        self.lab.command("cloud", "fault", "inject", *words)

    def close(self) -> None:
        """Clear faults, and delete all node groups and clusters with the prefix."""
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
    """All predicted values are in the result; maps may contain additional keys of the cloud."""
    for key, value in predicted.items():
        if key in _KNOWN_LATER:
            continue
        if isinstance(value, dict):
            assert value.items() <= done[key].items(), key
        else:
            assert done[key] == value, key
