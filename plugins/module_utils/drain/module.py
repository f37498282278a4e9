# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible side of modules that take machines out of a cluster: the option `kubernetes`, and the emptier that it asks for."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible.module_utils.basic import missing_required_lib

from ..catalog.names import LEASE_NAMESPACE
from ..common.module import ArgumentSpec, BaseModule
from ..kube.connection_options import secret_variables
from ..kube.connection_spec import CONNECTION
from ..kube.errors import ApiError, WrongCluster, explain
from ..kube.lease import Lease, LeaseHeld, LeaseLost
from ..kube.lease_holder import holder_of
from ..kube.shown_options import secrets_in, shown_options
from .node_progress import progress_by_node
from .pod_eviction import PARALLEL, DrainOptions
from .shared_lease import SharedLease

if t.TYPE_CHECKING:
    from ..common.errors import ServiceError
    from ..kube.client import Client
    from ..kube.cluster_identity import ClusterIdentity
    from .drainer import NodeDrainer

KUBERNETES: ArgumentSpec = {
    "kubernetes": {
        "type": "dict",
        "options": {
            **CONNECTION,
            "lease_namespace": {"type": "str", "default": LEASE_NAMESPACE},
            "lease_wait_timeout": {"type": "int", "default": 300},
            "drain": {
                "type": "dict",
                "default": {},
                "options": {
                    "evict": {"type": "bool", "default": True},
                    "force": {"type": "bool", "default": False},
                    "grace_period": {"type": "int"},
                    "drain_timeout": {"type": "int", "default": int(DrainOptions.drain_timeout)},
                    "parallel": {"type": "int", "default": PARALLEL},
                },
            },
        },
    },
}


class DrainingModule(BaseModule):
    """A module of a cloud that may have to empty nodes before their machines go; its argument spec contains KUBERNETES."""

    failures: t.ClassVar[dict[type[Exception], str]] = {
        **BaseModule.failures,
        WrongCluster: "wrong_cluster",
        LeaseHeld: "lease_held",
        LeaseLost: "lease_lost",
    }
    _kube: Client | None = None
    _identity: ClusterIdentity | None = None
    _verified = False

    def secrets(self) -> set[str]:
        """With those of the connection that nodes are drained by."""
        return super().secrets() | secrets_in(self.params.get("kubernetes") or {}) | secret_variables(os.environ)

    def shown_params(self) -> dict[str, t.Any]:
        """Without a kubeconfig that nodes are drained by."""
        shown = super().shown_params()
        if isinstance(shown.get("kubernetes"), dict):
            shown["kubernetes"] = shown_options(shown["kubernetes"])
        return shown

    @functools.cached_property
    def emptier(self) -> NodeDrainer | None:
        """For the cluster that `kubernetes` names; None where the option is not given. Nothing is sent yet."""
        given = self.params["kubernetes"]
        if given is None:
            return None
        # Imported here: a module that is given no cluster drains nothing, and these take half a second to import.
        from ..kube.connection import KUBERNETES_IMPORT_ERROR
        from ..kube.module import connect_module, identity_of

        if KUBERNETES_IMPORT_ERROR is not None:
            self.fail_json(msg=missing_required_lib("kubernetes"), exception=KUBERNETES_IMPORT_ERROR)
        cluster = given["gpu_cluster"] or {}
        client = self._kube = connect_module(given, cluster, self.user_agent)
        self._identity = identity_of(client, cluster, records=False)
        try:
            self._verify()
        except ApiError as error:
            # A cluster that does not answer yet may get nodes all the same; none is drained before it is verified.
            if not error.unreachable:
                raise
        drain = given["drain"]
        rules = DrainOptions(drain["evict"], drain["force"], drain["grace_period"], drain["drain_timeout"])
        return NodeDrainer(
            client, rules, SharedLease(self._lease), progress_by_node(self.progress), parallel=drain["parallel"]
        )

    def explained(self, error: ServiceError) -> str:
        """With the connection's story, where Kubernetes has failed."""
        if isinstance(error, ApiError) and self._kube is not None:
            return explain(error, self._kube)
        return super().explained(error)

    def warnings_seen(self) -> t.Iterable[str]:
        """What the API server has warned of, and which variables have no effect."""
        if self._kube is None:
            return ()
        from ..kube.module import warnings_of

        return warnings_of(self._kube)

    def _verify(self) -> None:
        if self._identity is not None and not self._verified:
            self._identity.verify()
            self._verified = True

    def _lease(self) -> Lease:
        self._verify()
        given = self.params["kubernetes"]
        return Lease(
            t.cast("Client", self._kube),
            holder_of(self.run_id, self.inventory_hostname),
            namespace=given["lease_namespace"],
            wait_timeout=given["lease_wait_timeout"],
            progress=self.progress,
            active=not self.check_mode,
            identity=self._identity,
        )
