# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base of cloud modules that drain nodes before they delete machines: the option `kubernetes` and the drainer that it configures."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible.module_utils.basic import missing_required_lib

from ..catalog.names import LEASE_NAMESPACE
from ..common.module import ArgumentSpec, BaseModule
from ..kube.connection_options import CONNECTION, secret_variables
from ..kube.errors import ApiError, WrongCluster, explain
from ..kube.lease import Lease, LeaseHeld, LeaseLost
from ..kube.lease_holder import holder_of
from ..kube.shown_options import secrets_in, shown_options
from .drainer import PARALLEL, NodeDrainer, progress_by_node
from .eviction import DrainOptions
from .shared_lease import SharedLease

if t.TYPE_CHECKING:
    from ..common.errors import ServiceError
    from ..kube.client import Client
    from ..kube.cluster_identity import ClusterIdentity

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
    """Base of cloud modules that drain nodes before their machines are deleted; the argument spec contains KUBERNETES."""

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
        """Includes the secrets of the option `kubernetes`."""
        return super().secrets() | secrets_in(self.params.get("kubernetes") or {}) | secret_variables(os.environ)

    def shown_params(self) -> dict[str, t.Any]:
        """Hides the kubeconfig in the option `kubernetes`."""
        shown = super().shown_params()
        if isinstance(shown.get("kubernetes"), dict):
            shown["kubernetes"] = shown_options(shown["kubernetes"])
        return shown

    @functools.cached_property
    def drainer(self) -> NodeDrainer | None:
        """Drains nodes of the cluster in the option `kubernetes`; None without that option."""
        options = self.params["kubernetes"]
        if options is None:
            return None
        # Imported here because it takes half a second, and most runs of a cloud module drain nothing.
        from ..kube.connection import KUBERNETES_IMPORT_ERROR
        from ..kube.module import connect_module, identity_of

        if KUBERNETES_IMPORT_ERROR is not None:
            self.fail_json(msg=missing_required_lib("kubernetes"), exception=KUBERNETES_IMPORT_ERROR)
        cluster = options["gpu_cluster"] or {}
        client = self._kube = connect_module(options, cluster, self.user_agent)
        self._identity = identity_of(client, cluster, records=False)
        try:
            self._verify()
        except ApiError as error:
            # A cluster that does not answer yet may still get nodes; none is drained before the cluster is verified.
            if not error.unreachable:
                raise
        drain = dict(options["drain"])
        parallel = drain.pop("parallel")
        lease = SharedLease(self._make_lease)
        return NodeDrainer(client, DrainOptions(**drain), lease, progress_by_node(self.progress), parallel=parallel)

    def explain_error(self, error: ServiceError) -> str:
        """Adds how the cluster was reached, if the error is one of Kubernetes."""
        if isinstance(error, ApiError) and self._kube is not None:
            return explain(error, self._kube)
        return super().explain_error(error)

    def service_warnings(self) -> t.Iterable[str]:
        """Adds the API server's warnings and the variables without effect."""
        if self._kube is None:
            return ()
        from ..kube.module import warnings_of

        return warnings_of(self._kube)

    def _verify(self) -> None:
        if self._identity is not None and not self._verified:
            self._identity.verify()
            self._verified = True

    def _make_lease(self) -> Lease:
        self._verify()
        options = self.params["kubernetes"]
        return Lease(
            t.cast("Client", self._kube),
            holder_of(self.run_id, self.inventory_hostname),
            namespace=options["lease_namespace"],
            wait_timeout=options["lease_wait_timeout"],
            progress=self.progress,
            active=not self.check_mode,
            identity=self._identity,
        )
