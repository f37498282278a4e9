# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab's OpenStack as its users see it: openstacksdk's adapter, with the answers as they are."""

from __future__ import annotations

from typing import Any

import openstack
from openstack.config import OpenStackConfig

from lab.layout import Lab
from lab.openstack import layout
from tests.helpers.waiting import until

Object = dict[str, Any]


class Cloud:
    """One user of a lab's Magnum, by the name that clouds.yaml has for it."""

    def __init__(self, lab: Lab, cloud: str = "lab", version: str = "1.10") -> None:
        config = OpenStackConfig(config_files=[str(layout.clients(lab))], load_envvars=False)
        self.connection = openstack.connection.Connection(config=config.get_one(cloud))
        self.magnum = self.connection.container_infrastructure_management
        self._headers = {"OpenStack-API-Version": f"container-infra {version}"}

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send a request to Magnum, and return the answer whatever it is."""
        return self.magnum.request(path, method, json=body, headers=self._headers, raise_exc=False, **more)

    def get(self, path: str) -> Object | None:
        """Return what is there, or None where there is nothing."""
        answer = self.send("GET", path)
        if answer.status_code == 404:
            return None
        assert answer.ok, answer.text
        found: Object = answer.json()
        return found

    def group(self, cluster: str, name: str) -> Object | None:
        """Return a node group, or None."""
        return self.get(f"/clusters/{cluster}/nodegroups/{name}")

    def create(self, cluster: str, name: str, flavor: str, count: int = 1, **more: Any) -> None:
        """Ask for a node group."""
        body = {"name": name, "flavor_id": flavor, "node_count": count, **more}
        answer = self.send("POST", f"/clusters/{cluster}/nodegroups", body)
        assert answer.status_code == 202, answer.text

    def resize(self, cluster: str, name: str, count: int) -> None:
        """Ask for another number of nodes, and wait until that is seen."""
        body = {"nodegroup": self._there(cluster, name)["uuid"], "node_count": count}
        answer = self.send("POST", f"/clusters/{cluster}/actions/resize", body)
        assert answer.status_code == 202, answer.text
        until(lambda: self._there(cluster, name)["node_count"] == count)

    def settled(self, cluster: str, name: str) -> Object:
        """Wait until a node group is there and nothing of it is in progress, and return it."""

        def found() -> Object | None:
            group = self.group(cluster, name)
            return group if group and not (group["status"] or "IN_PROGRESS").endswith("IN_PROGRESS") else None

        group: Object = until(found)
        return group

    def delete(self, cluster: str, name: str) -> None:
        """End a node group, and wait until it is gone."""
        answer = self.send("DELETE", f"/clusters/{cluster}/nodegroups/{name}")
        assert answer.status_code == 204, answer.text
        until(lambda: self.group(cluster, name) is None)

    def _there(self, cluster: str, name: str) -> Object:
        group = self.group(cluster, name)
        assert group is not None
        return group
