# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible side of modules that talk to a cluster: the connection's options, the documents, the lease."""

from __future__ import annotations

import functools
import typing as t

from ansible.module_utils.basic import env_fallback, missing_required_lib

from ..catalog.names import LEASE_NAMESPACE
from ..pools.derive import derive
from ..pools.documents import InvalidDocuments
from ..pools.plan import Plan
from ..running.errors import ServiceError
from ..running.module import ArgumentSpec, BaseModule, composed
from .client import Client
from .config import KUBERNETES_IMPORT_ERROR, ConnectionOptions, check_cluster, secrets_of
from .definitions import Expected
from .errors import ApiError, explain
from .lease import Lease, LeaseHeld, LeaseLost


def _env(name: str) -> tuple[t.Any, list[str]]:
    return (env_fallback, [f"K8S_AUTH_{name}"])


# K8S_AUTH_KUBECONFIG and K8S_AUTH_CONTEXT are read after gpu_cluster, not as a fallback of the option (see config.py).
CONNECTION: ArgumentSpec = {
    "cluster": {"type": "dict"},
    "kubeconfig": {"type": "raw", "no_log": False},
    "context": {"type": "str"},
    "host": {"type": "str", "fallback": _env("HOST")},
    "api_key": {"type": "str", "no_log": True, "fallback": _env("API_KEY")},
    "validate_certs": {"type": "bool", "aliases": ["verify_ssl"], "fallback": _env("VERIFY_SSL")},
    "ca_cert": {"type": "path", "aliases": ["ssl_ca_cert"], "fallback": _env("SSL_CA_CERT")},
    "client_cert": {"type": "path", "aliases": ["cert_file"], "fallback": _env("CERT_FILE")},
    "client_key": {"type": "path", "aliases": ["key_file"], "no_log": False, "fallback": _env("KEY_FILE")},
    "proxy": {"type": "str", "fallback": _env("PROXY")},
    "request_timeout": {"type": "int", "default": 30},
}
DOCUMENTS: ArgumentSpec = {
    "defaults": {"type": "dict"},
    "pools": {"type": "list", "elements": "dict"},
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
        InvalidDocuments: "invalid",
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
        **kwargs: t.Any,
    ) -> None:
        """Compose the argument spec; a module's own options win over the shared ones of the same name."""
        shared = ((DOCUMENTS, documents), (EXPECTED, expected), (WAIT, wait), (LEASE, lease))
        parts = [CONNECTION, *(part for part, used in shared if used)]
        super().__init__(composed(*parts, argument_spec or {}), **kwargs)
        self._client: Client | None = None
        for given in (self.params["kubeconfig"], (self.params["cluster"] or {}).get("kubeconfig")):
            self.no_log_values.update(secrets_of(given))

    @property
    def client(self) -> Client:
        """The cluster, made sure to be the one that is meant; raises ConnectionProblem if it is not."""
        if self._client is None:
            if KUBERNETES_IMPORT_ERROR is not None:
                self.fail_json(msg=missing_required_lib("kubernetes"), exception=KUBERNETES_IMPORT_ERROR)
            cluster = self.params["cluster"] or {}
            client = Client(ConnectionOptions.from_params(self.params, cluster), self.user_agent)
            if cluster.get("name"):
                check_cluster(client.connection, str(cluster["name"]), cluster.get("kube_name"))
            self._client = client
        return self._client

    @functools.cached_property
    def plan(self) -> Plan:
        """What the documents decide; raises InvalidDocuments with all that is wrong in them."""
        missing = [name for name in ("cluster", "pools") if self.params[name] is None]
        if missing:
            self.fail_json(msg=f"missing required arguments: {', '.join(missing)}")
        return derive(self.params["cluster"], self.params.get("defaults") or {}, self.params["pools"])

    @property
    def expected(self) -> Expected:
        """What earlier steps of this run will have created by the time of the real run."""
        return Expected.from_dict(self.params["expected"])

    def lease(self) -> Lease:
        """The right to change this cluster, to be held (with) around all changes; does nothing in check mode."""
        return Lease(
            self.client,
            self.run_id,
            namespace=self.params["lease_namespace"],
            wait_timeout=self.params["lease_wait_timeout"],
            progress=self.progress,
            active=not self.check_mode,
        )

    def explained(self, error: ServiceError) -> str:
        """With the connection's story."""
        return explain(error, self.client) if isinstance(error, ApiError) else super().explained(error)

    def warnings_seen(self) -> t.Iterable[str]:
        """What the API server has warned of."""
        return [f"Kubernetes: {text}" for text in self._client.warnings] if self._client is not None else ()
