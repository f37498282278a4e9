# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible side of every module: options, connection, lease, and the one place where errors become failures."""

from __future__ import annotations

import functools
import os
import typing as t
import uuid

from ansible.module_utils.basic import AnsibleModule, env_fallback, missing_required_lib

from ..catalog.names import LEASE_NAMESPACE, VERSION
from ..pools.derive import derive
from ..pools.documents import InvalidDocuments
from ..pools.plan import Plan
from .client import Client
from .config import KUBERNETES_IMPORT_ERROR, ConnectionOptions, check_cluster
from .definitions import Expected
from .errors import ApiError, ConnectionProblem, InvalidOptions, SomeFailed, explain
from .lease import Lease, LeaseHeld, LeaseLost
from .progress import RUN_ID_ENV, Progress
from .wait import TimeoutStory

ArgumentSpec = dict[str, dict[str, t.Any]]


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


_SECRET_KEYS = ("client-key-data", "client-certificate-data", "password", "token")


class GpuModule(AnsibleModule):
    """A module of this collection: always with the connection's options, with others as it asks for them."""

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
        composed: ArgumentSpec = {}
        for part in (*parts, argument_spec or {}):
            composed.update({name: {**composed.get(name, {}), **option} for name, option in part.items()})
        kwargs.setdefault("supports_check_mode", True)
        super().__init__(argument_spec=composed, **kwargs)
        self._client: Client | None = None
        for given in (self.params["kubeconfig"], (self.params["cluster"] or {}).get("kubeconfig")):
            self.no_log_values.update(_secrets(given))

    @functools.cached_property
    def progress(self) -> Progress:
        """Where the module tells what it does."""
        return Progress.from_env()

    @functools.cached_property
    def run_id(self) -> str:
        """The same for all modules of one ansible-playbook run, and for no other."""
        return os.environ.get(RUN_ID_ENV) or f"module-{uuid.uuid4().hex[:12]}"

    @property
    def client(self) -> Client:
        """The cluster, made sure to be the one that is meant; raises ConnectionProblem if it is not."""
        if self._client is None:
            if KUBERNETES_IMPORT_ERROR is not None:
                self.fail_json(msg=missing_required_lib("kubernetes"), exception=KUBERNETES_IMPORT_ERROR)
            cluster = self.params["cluster"] or {}
            agent = f"accel.gpu/{VERSION} {self._name.rpartition('.')[2]} run/{self.run_id}"
            client = Client(ConnectionOptions.from_params(self.params, cluster), agent)
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

    def run(self, work: t.Callable[[GpuModule], dict[str, t.Any]]) -> t.NoReturn:
        """Do the module's work and exit with its result (`changed`, `diff`, one dict under its noun), or fail.

        An exception's attribute `partial`, where it has one, goes into the failure.
        """
        try:
            result = work(self)
        except ApiError as error:
            details = {"reason": error.reason, "method": error.method, "path": error.path}
            self._fail(error, explain(error, self.client), error.code, details)
        except (InvalidDocuments, InvalidOptions) as error:
            self._fail(error, str(error), "invalid", {"problems": list(error.problems)})
        except ConnectionProblem as error:
            self._fail(error, str(error), "connection")
        except LeaseHeld as error:
            self._fail(error, str(error), "lease_held")
        except LeaseLost as error:
            self._fail(error, str(error), "lease_lost")
        except TimeoutStory as error:
            self._fail(error, str(error), "timeout")
        except SomeFailed as error:
            self._fail(error, str(error), "partial")
        self._warn()
        if not self._diff:
            result.pop("diff", None)
        self.exit_json(**result)
        raise SystemExit(0)

    def _fail(self, error: Exception, msg: str, code: int | str, details: t.Any = None) -> t.NoReturn:
        self._warn()
        partial = dict(getattr(error, "partial", None) or {})
        if not self._diff:
            partial.pop("diff", None)
        self.fail_json(msg=msg, code=code, details=details or {}, **partial)
        raise SystemExit(1)

    def _warn(self) -> None:
        for text in self._client.warnings if self._client is not None else ():
            self.warn(f"Kubernetes: {text}")


def _secrets(kubeconfig: t.Any) -> set[str]:
    """What must not be shown of a kubeconfig that was given as a dictionary: everything but names in its users."""
    if not isinstance(kubeconfig, dict):
        return set()
    users = [entry.get("user") for entry in kubeconfig.get("users") or [] if isinstance(entry, dict)]
    return {
        str(value)
        for user in users
        if isinstance(user, dict)
        for key, value in user.items()
        if key in _SECRET_KEYS and value
    }


def diff_of(before: t.Any, after: t.Any, header: str = "") -> dict[str, t.Any]:
    """A diff as Ansible shows it, with a name for what is compared."""
    return {"before": before, "after": after, "before_header": header, "after_header": header}
