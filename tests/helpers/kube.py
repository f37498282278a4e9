# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server for a test of one module: an administrator's client, and objects with names of the test, which are deleted afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NAMESPACES, NODES, object_path
from tests.faults.api_proxy import ApiProxy, Request
from tests.helpers.modules import run_module

Object = dict[str, Any]


@dataclass
class Kube:
    """An administrator's access to a cluster; `prefix` makes names unique to one test."""

    kubeconfig: Path
    folder: Path
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    _cleanup: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Connect as the kubeconfig's user, with a user agent other than the collection's."""
        self.client = self.connect("accel-gpu-tests")

    def connect(self, agent: str, kubeconfig: Path | None = None) -> Client:
        """A client with a user agent, with the admin's or another kubeconfig."""
        return Client(ConnectionOptions(kubeconfig=str(kubeconfig or self.kubeconfig), request_timeout=30), agent)

    def close(self) -> None:
        """Delete the objects of the test."""
        self._cleanup.close()

    def delete_afterwards(self, path: str) -> str:
        """Delete the object at the path after the test."""
        self._cleanup.callback(self.client.delete, path)
        return path

    def namespace(self) -> str:
        """A namespace of the test."""
        name = self.prefix
        self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.delete_afterwards(f"{NAMESPACES}/{name}")
        return name

    def nodes(self, count: int, labels: dict[str, str] | None = None, taints: list[Object] | None = None) -> list[str]:
        """Nodes with the label `test` and the prefix as its value; nothing runs on them."""
        names = [f"{self.prefix}-{index}" for index in range(count)]
        for name in names:
            metadata = {"name": name, "labels": {"test": self.prefix, **(labels or {})}}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints or []}}
            self.client.create(NODES, body)
            self.delete_afterwards(f"{NODES}/{name}")
        return names

    def node(self, name: str) -> Object:
        """The present state of a node."""
        return self.require(f"{NODES}/{name}")

    def require(self, path: str) -> Object:
        """The object at a path, which must exist."""
        actual = self.client.get(path)
        assert actual is not None, path
        return actual

    def limited_user(self, rules: list[Object]) -> Path:
        """A kubeconfig of a service account that has only these permissions."""
        name = f"{self.prefix}-user"
        group = "rbac.authorization.k8s.io"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        for body in (account, role, binding):
            namespace = body["metadata"].get("namespace")  # type: ignore[attr-defined]
            path = object_path(str(body["apiVersion"]), str(body["kind"]), name, namespace)
            self.client.create(path.rpartition("/")[0], body)
            self.delete_afterwards(path)
        token_path = f"{object_path('v1', 'ServiceAccount', name, 'default')}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.client.create(token_path, request)["status"]["token"]
        return self.kubeconfig_with({"token": token})

    def kubeconfig_with(self, user: Object, cluster: Object | None = None) -> Path:
        """The kubeconfig with another user, and with some of the cluster's fields changed."""
        import yaml

        document = yaml.safe_load(self.kubeconfig.read_text())
        document["users"] = [{"name": entry["name"], "user": user} for entry in document["users"]]
        for entry in document["clusters"]:
            entry["cluster"] = {**_absolute(entry["cluster"], self.kubeconfig.parent), **(cluster or {})}
        path = self.folder / f"kubeconfig-{uuid.uuid4().hex[:6]}"
        path.write_text(yaml.safe_dump(document))
        return path

    def run(self, main: Callable[[], Any], *, check: bool = False, **args: Any) -> Object:
        """The result of a module on this cluster, with its diff."""
        kubeconfig = str(args.pop("kubeconfig", self.kubeconfig))
        result = run_module(main, {"kubeconfig": kubeconfig, **args}, check=check, diff=True)
        result.pop("invocation", None)
        return result

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """A proxy for the same cluster, which records requests and can inject faults."""
        proxy = ApiProxy(self.kubeconfig)
        with proxy.running():
            yield Watched(proxy, proxy.kubeconfig(self.folder / f"watched-{uuid.uuid4().hex[:6]}"))

    def wait_gone(self, path: str) -> bool:
        """Whether the path has no object."""
        try:
            return self.client.get(path) is None
        except ApiError:
            return False


@dataclass
class Watched:
    """The proxy and a kubeconfig for it."""

    proxy: ApiProxy
    kubeconfig: Path

    def new_requests(self) -> list[str]:
        """Verb and path of each request since the last call."""
        requests = [f"{request.method} {request.path.partition('?')[0]}" for request in self.proxy.requests]
        self.proxy.requests.clear()
        return requests

    def last(self) -> Request:
        """The newest request."""
        return self.proxy.requests[-1]


def _absolute(cluster: Object, folder: Path) -> Object:
    authority = cluster.get("certificate-authority")
    return {**cluster, "certificate-authority": str(folder / authority)} if authority else cluster
