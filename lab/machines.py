# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that a cloud of the lab makes for a node group: Nodes of the lab's cluster with the hardware of a flavor.

Both clouds use this, from processes of their own: it needs the standard library, PyYAML, lab.* and the catalog, with the
repository on PYTHONPATH.
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
# What clouds' controllers say of a node's flavor (Kubernetes' well-known labels).
FLAVOR_LABEL = "node.kubernetes.io/instance-type"


def address(name: str) -> str:
    """The InternalIP that a machine of that name has when its maker gives it none; the same for ever."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % (NETWORK.num_addresses - 2)
    return str(NETWORK[number + 1])


class Machines:
    """The machines of one cloud ("magnum" or "vks") in one lab, whose API server is up."""

    def __init__(self, lab: Lab, cloud: str) -> None:
        if cloud not in flavors.CLOUDS:
            raise LabError(f"'{cloud}' is no cloud of the lab: known are {', '.join(flavors.CLOUDS)}")
        self._api, self._lab, self._cloud = Api(lab), lab, cloud
        self._flavors = flavors.load()

    def nodes(self, group_id: str) -> Iterator[Object]:
        """Yield the Node objects of a node group's machines."""
        for node in self._api.list(NODES, labelSelector=f"{CLOUD_LABEL}={self._cloud}"):
            if node["metadata"]["annotations"].get(NODE_GROUP_ANNOTATION) == group_id:
                yield node

    def names(self, group_id: str) -> list[str]:
        """The names of a node group's machines, sorted."""
        return sorted(node["metadata"]["name"] for node in self.nodes(group_id))

    def ready(self, group_id: str) -> set[str]:
        """The names of those of a node group's machines that take pods."""
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
        """Make machines, born with these labels, taints and annotations; one that the group has already is left as it is.

        `provider_ids` and `addresses` are by name; a name without an address gets `address(name)`. Ready they are soon after.
        """
        template = self._template(flavor, labels, taints)

        def make(name: str) -> None:
            node = template.node(name)
            node["metadata"]["annotations"] |= {**(annotations or {}), NODE_GROUP_ANNOTATION: group_id}
            node["spec"]["providerID"] = provider_ids[name]
            node["status"]["addresses"] = [
                {"type": "InternalIP", "address": (addresses or {}).get(name) or address(name)},
                # Where kwok answers for the kubelet: the API server prefers this type of address.
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
        """Send the merge patch that `change` makes of a node, if it makes one; it begins anew when others were faster."""
        while (node := self._api.get(f"{NODES}/{name}")) is not None and (patch := change(node)) is not None:
            patch.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
            try:
                self._api.merge(f"{NODES}/{name}", patch)
                return
            except ApiError as error:
                if error.status != 409:
                    raise

    def delete(self, names: Iterable[str]) -> None:
        """End machines, which take their pods with them; one that is gone is no mistake, one that is not this cloud's is."""

        def end(name: str) -> None:
            node = self._api.get(f"{NODES}/{name}")
            if node is None:
                return
            if node["metadata"].get("labels", {}).get(CLOUD_LABEL) != self._cloud:
                raise LabError(f"node '{name}' is none of the machines of {self._cloud}, and cannot be deleted by it")
            try:
                self._api.request("DELETE", f"{NODES}/{name}")
            except ApiError as error:
                if error.status != 404:
                    raise

        in_parallel(end, names)

    def _template(self, flavor: str, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]]) -> Template:
        offered = self._flavors.get(flavor)
        if offered is None or getattr(offered, self._cloud) is None:
            known = ", ".join(name for name, one in self._flavors.items() if getattr(one, self._cloud) is not None)
            raise LabError(f"{self._cloud} offers no flavor '{flavor}': known are {known}")
        own = {CLOUD_LABEL: self._cloud, FLAVOR_LABEL: flavor}
        group = dataclasses.replace(offered.machine, labels={**own, **labels}, taints=[dict(taint) for taint in taints])
        return Template(group, self._lab.ports()["kwok"])

    def _has(self, group_id: str, name: str) -> bool:
        return name in self.names(group_id)
