# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base classes of modules that drain nodes before they delete machines, with the options of the drain."""

from __future__ import annotations

import functools
import typing as t

from ..common.module import ArgumentSpec
from ..kube.connection_options import CONNECTION
from ..kube.errors import ApiError
from ..kube.module import LEASE_OPTIONS, ClusterModule
from ..kube.shown_options import shown_options
from ..pools.drain_options import DrainOptions
from .drainer import PARALLEL, NodeDrainer, SharedLease, progress_by_node
from .removal import NodeRemoval

if t.TYPE_CHECKING:
    from ..kube.client import Client

DRAIN: ArgumentSpec = {
    "drain": {
        "type": "dict",
        "default": {},
        "options": {**DrainOptions.argument_spec(), "parallel": {"type": "int", "default": PARALLEL}},
    },
}
KUBERNETES: ArgumentSpec = {"kubernetes": {"type": "dict", "options": {**CONNECTION, **LEASE_OPTIONS, **DRAIN}}}


class NodeDrainingModule(ClusterModule):
    """Base of modules that drain nodes. Provides a drainer, whose options (DRAIN) are at the same level as the connection options."""

    @functools.cached_property
    def drainer(self) -> NodeDrainer | None:
        """The drainer; None in subclasses if the options do not request draining."""
        return self.make_drainer(self.client)

    def make_drainer(self, client: Client) -> NodeDrainer:
        """The drainer for the cluster of this client."""
        drain = dict(self.kube_params["drain"])
        parallel = drain.pop("parallel")
        lease, removal = SharedLease(self.lease), self.node_removal(client)
        report = progress_by_node(self.progress)
        return NodeDrainer(client, DrainOptions(**drain), lease, report, parallel=parallel, removal=removal)

    def node_removal(self, client: Client) -> NodeRemoval:
        """The additional work on drained nodes before their machines are removed; none unless a subclass overrides this."""
        return NodeRemoval()


class DrainingModule(NodeDrainingModule):
    """Base of cloud modules that drain nodes before their machines are deleted; the argument spec contains KUBERNETES."""

    records_name = False

    @property
    def kube_params(self) -> dict[str, t.Any]:
        """The option `kubernetes`; empty if it is not set."""
        return self.params.get("kubernetes") or {}

    def name_to_confirm(self) -> str:
        """The name in the option `kubernetes.gpu_cluster`; without it, the cloud's name or ID of the cluster in the option `cluster`."""
        return str((self.kube_params.get("gpu_cluster") or {}).get("name") or self.params["cluster"])

    def shown_params(self) -> dict[str, t.Any]:
        """The parameters to show, with the kubeconfig in the option `kubernetes` hidden."""
        shown = super().shown_params()
        if isinstance(shown.get("kubernetes"), dict):
            shown["kubernetes"] = shown_options(shown["kubernetes"])
        return shown

    @functools.cached_property
    def drainer(self) -> NodeDrainer | None:
        """The drainer for the cluster in the option `kubernetes`; None without this option."""
        if self.params["kubernetes"] is None:
            return None
        try:
            client = self.client
        except ApiError as error:
            # A cluster that does not respond yet may still get nodes; lease() verifies the cluster before a node is
            # drained.
            if not error.unreachable or self._client is None:
                raise
            client = self._client
        return self.make_drainer(client)
