# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of a lab's OpenStack: openstacksdk's adapter with unprocessed responses."""

from __future__ import annotations

from typing import Any

import openstack
from openstack.config import OpenStackConfig

from lab.layout import Lab
from lab.openstack import layout
from tests.helpers.polling import until

Object = dict[str, Any]


class Cloud:
    """A user of a lab's Magnum, with a name of clouds.yaml."""

    def __init__(self, lab: Lab, cloud: str = "lab", version: str = "1.10") -> None:
        config = OpenStackConfig(config_files=[str(layout.clients(lab))], load_envvars=False)
        self.connection = openstack.connection.Connection(config=config.get_one(cloud))
        self.magnum = self.connection.container_infrastructure_management
        self._headers = {"OpenStack-API-Version": f"container-infra {version}"}

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send a request to Magnum, and return the response, also an error."""
        return self.magnum.request(path, method, json=body, headers=self._headers, raise_exc=False, **more)

    def get(self, path: str) -> Object | None:
        """Return the response body, or None for 404."""
        answer = self.send("GET", path)
        if answer.status_code == 404:
            return None
        assert answer.ok, answer.text
        actual: Object = answer.json()
        return actual

    def group(self, cluster: str, name: str) -> Object | None:
        """Return a node group, or None."""
        return self.get(f"/clusters/{cluster}/nodegroups/{name}")

    def create(self, cluster: str, name: str, flavor: str, count: int = 1, **more: Any) -> None:
        """Request the creation of a node group."""
        body = {"name": name, "flavor_id": flavor, "node_count": count, **more}
        answer = self.send("POST", f"/clusters/{cluster}/nodegroups", body)
        assert answer.status_code == 202, answer.text

    def resize(self, cluster: str, name: str, count: int) -> None:
        """Resize a node group, and wait until Magnum returns the new number of nodes."""
        body = {"nodegroup": self._existing(cluster, name)["uuid"], "node_count": count}
        answer = self.send("POST", f"/clusters/{cluster}/actions/resize", body)
        assert answer.status_code == 202, answer.text
        until(lambda: self._existing(cluster, name)["node_count"] == count)

    def settled(self, cluster: str, name: str) -> Object:
        """Wait until a node group exists and no operation is in progress, and return it."""

        def found() -> Object | None:
            group = self.group(cluster, name)
            return group if group and not (group["status"] or "IN_PROGRESS").endswith("IN_PROGRESS") else None

        group: Object = until(found)
        return group

    def delete(self, cluster: str, name: str) -> None:
        """Delete a node group, and wait until it no longer exists."""
        answer = self.send("DELETE", f"/clusters/{cluster}/nodegroups/{name}")
        assert answer.status_code == 204, answer.text
        until(lambda: self.group(cluster, name) is None)

    def _existing(self, cluster: str, name: str) -> Object:
        group = self.group(cluster, name)
        assert group is not None
        return group
