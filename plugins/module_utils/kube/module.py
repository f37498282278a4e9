# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible side of modules that talk to a cluster: the connection's options, the documents, the lease."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible.module_utils.basic import missing_required_lib

from ..catalog.names import LEASE_NAMESPACE
from ..common.errors import ServiceError
from ..common.module import ArgumentSpec, BaseModule, merge_specs
from ..common.results import diff_of
from ..pools.derive import derive
from ..pools.plan import Plan
from ..pools.variables import InvalidVariables
from ..schema.coercion import names
from .client import Client
from .cluster_identity import RECORD, ClusterIdentity
from .conflicts import ignored_variables
from .connection import KUBERNETES_IMPORT_ERROR, check_cluster
from .connection_options import CONNECTION, ConnectionOptions, secret_variables
from .errors import ApiError, WrongCluster, explain
from .lease import Lease, LeaseHeld, LeaseLost
from .lease_holder import holder_of
from .object_changes import ExpectedObjects
from .shown_options import secrets_in, shown_options

DOCUMENTS: ArgumentSpec = {
    "gpu_defaults": {"type": "dict"},
    "gpu_pools": {"type": "list", "elements": "dict"},
}
EXPECTED: ArgumentSpec = {
    "expected": {
        "type": "dict",
        "options": {
            "namespaces": {"type": "list", "elements": "str", "default": []},
            "kinds": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "api_version": {"type": "str", "required": True},
                    "kind": {"type": "str", "required": True},
                },
            },
        },
    },
}
WAIT: ArgumentSpec = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 600},
    "wait_sleep": {"type": "int", "default": 2},
}
LEASE: ArgumentSpec = {
    "lease_wait_timeout": {"type": "int", "default": 300},
    "lease_namespace": {"type": "str", "default": LEASE_NAMESPACE},
}


class GpuModule(BaseModule):
    """A module that talks to a cluster: always with the connection's options, with others as it asks for them."""

    failures: t.ClassVar[dict[type[Exception], str]] = {
        **BaseModule.failures,
        WrongCluster: "wrong_cluster",
        InvalidVariables: "invalid",
        LeaseHeld: "lease_held",
        LeaseLost: "lease_lost",
    }

    def __init__(
        self,
        argument_spec: ArgumentSpec | None = None,
        *,
        documents: bool = False,
        expected: bool = False,
        wait: bool = False,
        lease: bool = False,
        records_name: bool = True,
        **kwargs: t.Any,
    ) -> None:
        """Compose the argument spec; a module's own options win over the shared ones of the same name.

        records_name: whether the module, when it takes the lease, makes the cluster remember the name of gpu_cluster.
        """
        shared = ((DOCUMENTS, documents), (EXPECTED, expected), (WAIT, wait), (LEASE, lease))
        parts = [CONNECTION, *(part for part, used in shared if used)]
        super().__init__(merge_specs(*parts, argument_spec or {}), **kwargs)
        self._client: Client | None = None
        self._records_name = records_name
        self._verified = False
        # A group of a directory has commas in its name, so that the option is taken as it is.
        for name, option in self.argument_spec.items():
            if name == "impersonate_groups":
                continue
            if option.get("type") == "list" and option.get("elements") == "str" and self.params[name] is not None:
                # Ansible splits text at commas only, and leaves spaces, line breaks and brackets.
                self.params[name] = self._names(name)

    def secrets(self) -> set[str]:
        """Those of kubeconfigs and of the environment, and what looks like one among Helm values."""
        return secrets_in(self.params) | secret_variables(os.environ)

    def _names(self, option: str) -> list[str]:
        given = self.params[option]
        try:
            found = names(given)
        except ValueError as error:
            self.fail_json(msg=f"{option}: {error}", code="invalid")
        # Ansible has made one empty element of an empty text, and two of a comma.
        if not found and (len(given) > 1 or any(str(item).strip() not in ("", "[]") for item in given)):
            # An empty list means everything to many options, which text such as "," must not.
            self.fail_json(msg=f"{option}: names nothing; give names, with commas between them", code="invalid")
        return found

    def shown_params(self) -> dict[str, t.Any]:
        """Without kubeconfigs that are dictionaries, and without Helm values."""
        return shown_options(self.params)

    @property
    def client(self) -> Client:
        """The cluster, verified to be the one that is meant; raises WrongCluster if it is not, ConnectionProblem, or ApiError."""
        if self._client is None:
            if KUBERNETES_IMPORT_ERROR is not None:
                self.fail_json(msg=missing_required_lib("kubernetes"), exception=KUBERNETES_IMPORT_ERROR)
            self._client = connect_module(self.params, self.params["gpu_cluster"], self.user_agent)
        if not self._verified:
            self.identity.verify()
            self._verified = True
        return self._client

    @functools.cached_property
    def identity(self) -> ClusterIdentity:
        """What gpu_cluster says of the identity of the cluster; to be used after `client`."""
        return identity_of(t.cast("Client", self._client), self.params["gpu_cluster"], records=self._records_name)

    @functools.cached_property
    def plan(self) -> Plan:
        """What the documents decide; raises InvalidDocuments with all that is wrong in them."""
        if self.params["gpu_cluster"] is None:
            self.fail_json(msg="missing required arguments: cluster")
        return derive(self.params["gpu_cluster"], self.params.get("gpu_defaults") or {}, self.params["gpu_pools"])

    @property
    def expected(self) -> ExpectedObjects:
        """What earlier steps of this run will have created by the time of the real run."""
        return ExpectedObjects.from_dict(self.params["expected"])

    def lease(self) -> Lease:
        """The right to change this cluster, to be held (with) around all changes; does nothing in check mode."""
        return Lease(
            self.client,
            holder_of(self.run_id, self.inventory_hostname),
            namespace=self.params["lease_namespace"],
            wait_timeout=self.params["lease_wait_timeout"],
            progress=self.progress,
            active=not self.check_mode,
            identity=self.identity,
        )

    def run(self, work: t.Callable[[t.Any], dict[str, t.Any]]) -> t.NoReturn:
        """As every module does; a name that the cluster is made to remember is a change like any other."""
        super().run(lambda module: self._with_record(work(module)))

    def explained(self, error: ServiceError) -> str:
        """With the connection's story."""
        if isinstance(error, ApiError) and self._client is not None:
            return explain(error, self._client)
        return super().explained(error)

    def warnings_seen(self) -> t.Iterable[str]:
        """What the API server has warned of, and which variables have no effect."""
        return warnings_of(self._client)

    def _with_record(self, result: dict[str, t.Any]) -> dict[str, t.Any]:
        """The result, with the record of the cluster's name where this module has written it, or would by a change."""
        if not self._verified or "lease_namespace" not in self.params:
            return result
        if self.identity.renames and not self.check_mode:
            with self.lease():
                pass
        foreseen = self.identity.pending if self.check_mode and (result["changed"] or self.identity.renames) else None
        change = self.identity.change or foreseen
        if change is None:
            return result
        names = [{"cluster_name": name} if name else {} for name in change]
        diff = result.get("diff") or []
        if isinstance(diff, list):
            diff = [*diff, diff_of(names[0], names[1], RECORD)]
        else:
            before, after = ({**diff[side], **name} for side, name in zip(("before", "after"), names, strict=True))
            diff = {**diff, "before": before, "after": after}
        return {**result, "changed": True, "diff": diff}


def connect_module(params: t.Mapping[str, t.Any], cluster: t.Mapping[str, t.Any] | None, user_agent: str) -> Client:
    """A client by the one source that counts; raises WrongCluster where the environment or the kubeconfig contradicts gpu_cluster."""
    document = cluster or {}
    client = Client(ConnectionOptions.from_params(params, document), user_agent)
    if document.get("name"):
        name, kube_name = str(document["name"]), document.get("kube_name")
        check_cluster(client.connection, name, kube_name if kube_name != name else None)
    return client


def identity_of(client: Client, cluster: t.Mapping[str, t.Any] | None, *, records: bool = True) -> ClusterIdentity:
    """The identity that gpu_cluster declares, to be verified by a client."""
    return ClusterIdentity(client, cluster or {}, f"{client.server} ({client.origin})", records=records)


def warnings_of(client: Client | None) -> list[str]:
    """What the API server has warned of, and which variables of the environment have no effect on this connection."""
    if client is None:
        return []
    ignored = [
        f"{name} has no effect, since {' and '.join(client.options.names())} names the connection; use the option instead."
        for name in ignored_variables(client.options, os.environ)
    ]
    return [*(f"Kubernetes: {text}" for text in client.warnings), *ignored]
