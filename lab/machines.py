# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines that a cloud of the lab creates for a node group: Nodes of the lab's cluster with the hardware of a flavor.

The clouds use this module in their own processes. It needs only the standard library, PyYAML, lab.* and the catalog, with
the repository on PYTHONPATH.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from . import flavors
from .api import Api, ApiError, Object, in_parallel
from .errors import LabError
from .fleet import Template
from .layout import Lab
from .nodes import CLOUD_LABEL, NODE_GROUP_ANNOTATION, NODES, is_ready

NETWORK = ipaddress.ip_network("10.128.0.0/9")
# The well-known label of Kubernetes that clouds' controllers set to a node's flavor.
FLAVOR_LABEL = "node.kubernetes.io/instance-type"


def address(name: str) -> str:
    """Return the default InternalIP of a machine, a constant that follows from its name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % (NETWORK.num_addresses - 2)
    return str(NETWORK[number + 1])


class Machines:
    """The machines of one cloud, one of flavors.CLOUDS, in one lab, whose API server is up."""

    def __init__(self, lab: Lab, cloud: str) -> None:
        if cloud not in flavors.CLOUDS:
            raise LabError(f"unknown cloud '{cloud}'; known: {', '.join(flavors.CLOUDS)}")
        self._api, self._lab, self._cloud = Api(lab), lab, cloud
        self._flavors = flavors.load()

    def nodes(self, group_id: str) -> Iterator[Object]:
        """Yield the Node objects of a node group."""
        for node in self._api.list(NODES, labelSelector=f"{CLOUD_LABEL}={self._cloud}"):
            if node["metadata"]["annotations"].get(NODE_GROUP_ANNOTATION) == group_id:
                yield node

    def names(self, group_id: str) -> list[str]:
        """Return the sorted names of a node group's machines."""
        return sorted(node["metadata"]["name"] for node in self.nodes(group_id))

    def ready(self, group_id: str) -> set[str]:
        """Return the names of a node group's machines that are ready."""
        return {node["metadata"]["name"] for node in self.nodes(group_id) if is_ready(node)}

    def create(
        self,
        group_id: str,
        names: Iterable[str],
        flavor: str,
        *,
        labels: Mapping[str, str],
        taints: Sequence[Mapping[str, str]],
        provider_ids: Mapping[str, str],
        addresses: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Create machines with these labels, taints and annotations; existing machines of the group are not changed.

        `provider_ids` and `addresses` are by name; the default address is `address(name)`. The nodes become ready shortly
        after the call.
        """
        template = self._template(flavor, labels, taints)

        def make(name: str) -> None:
            node = template.node(name)
            node["metadata"]["annotations"] |= {**(annotations or {}), NODE_GROUP_ANNOTATION: group_id}
            node["spec"]["providerID"] = provider_ids[name]
            node["status"]["addresses"] = [
                {"type": "InternalIP", "address": (addresses or {}).get(name) or address(name)},
                # The address of kwok, which simulates the kubelet: the API server prefers this address type.
                {"type": "InternalDNS", "address": "localhost"},
                {"type": "Hostname", "address": name},
            ]
            try:
                self._api.request("POST", NODES, node)
            except ApiError as error:
                if error.status != 409 or not self._has(group_id, name):
                    raise

        in_parallel(make, names)

    def edit(self, name: str, change: Callable[[Object], Object | None]) -> None:
        """Send the merge patch that `change` returns for a node, if any; retry after a conflict with another writer."""
        while (node := self._api.get(f"{NODES}/{name}")) is not None and (patch := change(node)) is not None:
            patch.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
            try:
                self._api.merge(f"{NODES}/{name}", patch)
                return
            except ApiError as error:
                if error.status != 409:
                    raise

    def delete(self, names: Iterable[str]) -> None:
        """Delete machines and their pods; missing machines are ignored, machines of other owners raise LabError."""

        def end(name: str) -> None:
            node = self._api.get(f"{NODES}/{name}")
            if node is None:
                return
            if node["metadata"].get("labels", {}).get(CLOUD_LABEL) != self._cloud:
                raise LabError(f"node '{name}' is not a machine of {self._cloud}: {self._cloud} cannot delete it")
            try:
                self._api.request("DELETE", f"{NODES}/{name}")
            except ApiError as error:
                if error.status != 404:
                    raise

        in_parallel(end, names)

    def _template(self, flavor: str, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]]) -> Template:
        offered = self._flavors.get(flavor)
        if offered is None or self._cloud not in offered.offers:
            known = ", ".join(name for name, one in self._flavors.items() if self._cloud in one.offers)
            raise LabError(f"{self._cloud} has no flavor '{flavor}'; known: {known}")
        own = {CLOUD_LABEL: self._cloud, FLAVOR_LABEL: flavor}
        group = dataclasses.replace(offered.machine, labels={**own, **labels}, taints=[dict(taint) for taint in taints])
        return Template(group, self._lab.ports()["kwok"])

    def _has(self, group_id: str, name: str) -> bool:
        return name in self.names(group_id)
