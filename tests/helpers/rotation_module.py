# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation on a cluster in memory: a Secret, vGPU nodes with driver pods, and a lease that another run may hold first."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.modules import license_rotation
from tests.helpers.license_nodes import NAMESPACE, Containers

SECRET = "licensing-config"

Object = dict[str, Any]


@dataclass
class RotationLease:
    """A lease; `before_held` is what another run does before this one holds it."""

    before_held: Callable[[], object] | None = None
    lost: Exception | None = None
    untouched: bool = False
    held: bool = False

    def observe(self) -> None:
        self.untouched = self.before_held is None

    def __enter__(self) -> RotationLease:
        if self.before_held is not None:
            self.before_held()
        self.held = True
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.held = False
        if self.lost is not None and error is None:
            raise self.lost

    def check(self) -> None:
        assert self.held
        if self.lost is not None:
            raise self.lost


@dataclass
class RotationModule:
    """The module, and in its place of the API client the cluster: the files of the Secret, and the containers of the nodes."""

    containers: Containers
    token: str
    config: str
    lease_of_run: RotationLease = field(default_factory=RotationLease)
    check_mode: bool = False
    params: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # The licensingConfig of the ClusterPolicy.
    mounted: Object = field(default_factory=lambda: {"secretName": SECRET, "nlsEnabled": True})

    def __post_init__(self) -> None:
        given: Object = {"provided": None, "node_names": [], "preflight": True, "wait_timeout": 0.1, "wait_sleep": 0.01}
        given |= {"restart_drivers": False, "restart_timeout": 1}
        self.params = {**given, **self.params}
        self.plan = derive({"name": "prod"}, {}, [])
        self.progress = Progress(None)

    @property
    def client(self) -> Any:
        return self

    def lease(self) -> RotationLease:
        return self.lease_of_run

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def work(self) -> Object:
        """The result of the module."""
        return license_rotation.work(cast(Any, self))

    def exec(self, pod_path: str, *arguments: Any, **options: Any) -> Any:
        return self.containers.exec(pod_path, *arguments, **options)

    def list_known(self, path: str) -> Iterable[Object]:
        if not path.endswith("/clusterpolicies"):
            return []
        metadata = {"name": "cluster-policy", "creationTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"driver": {"licensingConfig": self.mounted}}
        return [{"metadata": metadata, "spec": spec, "status": {"namespace": NAMESPACE}}]

    def list(self, path: str, **selectors: Any) -> Iterable[Object]:
        if any(name in (selectors.get("field_selector") or "") for name in ("spec.nodeName", "metadata.name")):
            return self.containers.list(path, **selectors)
        return (
            [self.containers.pod(name) for name in self.containers.by_node] if path.endswith("/pods") else self._nodes()
        )

    def get(self, path: str) -> Object:
        files = {"client_configuration_token.tok": self.token, "gridd.conf": self.config}
        if path.endswith(f"/configmaps/{self.mounted.get('configMapName')}"):
            return {"metadata": {"name": SECRET}, "data": files}
        assert path.endswith(f"/secrets/{SECRET}")
        data = {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}
        return {"metadata": {"name": SECRET}, "type": "Opaque", "data": data}

    def _nodes(self) -> Iterable[Object]:
        labels = {"nvidia.com/vgpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-A100-10C", "pool": "vdi"}
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        return [{"metadata": {"name": name, "labels": labels}, "status": status} for name in self.containers.by_node]
