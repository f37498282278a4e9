# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible side of modules that take machines out of a cluster: the option `kubernetes`, and the emptier that it asks for."""

from __future__ import annotations

import functools
import typing as t

from ansible.module_utils.basic import missing_required_lib

from ..catalog.names import LEASE_NAMESPACE
from ..kube.errors import ApiError, explain
from ..kube.lease import Lease, LeaseHeld, LeaseLost
from ..running.module import ArgumentSpec, BaseModule
from .common_lease import CommonLease
from .drain import PARALLEL, Rules
from .telling import teller

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..running.errors import ServiceError
    from .emptier import Emptier

KUBERNETES: ArgumentSpec = {
    "kubernetes": {
        "type": "dict",
        "options": {
            "kubeconfig": {"type": "raw", "no_log": False},
            "context": {"type": "str"},
            "request_timeout": {"type": "int", "default": 30},
            "lease_namespace": {"type": "str", "default": LEASE_NAMESPACE},
            "lease_wait_timeout": {"type": "int", "default": 300},
            "drain": {
                "type": "dict",
                "default": {},
                "options": {
                    "evict": {"type": "bool", "default": True},
                    "force": {"type": "bool", "default": False},
                    "grace_period": {"type": "int"},
                    "drain_timeout": {"type": "int", "default": int(Rules.drain_timeout)},
                    "parallel": {"type": "int", "default": PARALLEL},
                },
            },
        },
    },
}


class EmptyingModule(BaseModule):
    """A module of a cloud that may have to empty nodes before their machines go; its argument spec contains KUBERNETES."""

    failures: t.ClassVar[dict[type[Exception], str]] = {
        **BaseModule.failures,
        LeaseHeld: "lease_held",
        LeaseLost: "lease_lost",
    }
    _kube: Client | None = None

    @functools.cached_property
    def emptier(self) -> Emptier | None:
        """For the cluster that `kubernetes` names; None where the option is not given. Nothing is sent yet."""
        given = self.params["kubernetes"]
        if given is None:
            return None
        # Read here: a module that is told of no cluster empties nothing, and these take half a second to read.
        from ..kube.client import Client
        from ..kube.config import KUBERNETES_IMPORT_ERROR, ConnectionOptions, secrets_of
        from .emptier import Emptier

        if KUBERNETES_IMPORT_ERROR is not None:
            self.fail_json(msg=missing_required_lib("kubernetes"), exception=KUBERNETES_IMPORT_ERROR)
        self.no_log_values.update(secrets_of(given["kubeconfig"]))
        client = self._kube = Client(ConnectionOptions.from_params(given), self.user_agent)
        drain = given["drain"]
        rules = Rules(drain["evict"], drain["force"], drain["grace_period"], drain["drain_timeout"])
        return Emptier(
            client, rules, CommonLease(self._lease_of(client)), teller(self.progress), parallel=drain["parallel"]
        )

    def explained(self, error: ServiceError) -> str:
        """With the connection's story, where Kubernetes has failed."""
        if isinstance(error, ApiError) and self._kube is not None:
            return explain(error, self._kube)
        return super().explained(error)

    def warnings_seen(self) -> t.Iterable[str]:
        """What the API server has warned of."""
        return [f"Kubernetes: {text}" for text in self._kube.warnings] if self._kube is not None else ()

    def _lease_of(self, client: Client) -> t.Callable[[], Lease]:
        given = self.params["kubernetes"]
        return functools.partial(
            Lease,
            client,
            self.run_id,
            namespace=given["lease_namespace"],
            wait_timeout=given["lease_wait_timeout"],
            progress=self.progress,
            active=not self.check_mode,
        )
