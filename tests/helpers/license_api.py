# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server of a cluster in memory, for the modules license and license_rotation: it has what they read and write, and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest import mock

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import LICENSE_CONFIG_KEY, LICENSE_TOKEN_KEY
from ansible_collections.accel.gpu.plugins.module_utils.kube.module import ClusterModule
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import (
    CLUSTER_POLICIES,
    NODES,
    NVIDIA_DRIVERS,
    object_path,
)
from ansible_collections.accel.gpu.plugins.modules import license as license_module
from ansible_collections.accel.gpu.plugins.modules import license_info, license_rotation
from tests.helpers.modules import run_module
from tests.helpers.rotation_module import RotationLease

NAMESPACE = "gpu-operator"

Object = dict[str, Any]


def vgpu_pool(name: str, secret: str | None = None) -> Object:
    """A pool with the vGPU driver."""
    licensing = {"licensing_secret": secret} if secret else {}
    driver = {"type": "vgpu", "version": "580.95.05", "repository": "registry.example.com/nvidia", **licensing}
    return {"name": name, "match": {"labels": {"pool": name}}, "sharing": {"mode": "none"}, "driver": driver}


def cluster_policy(**driver: Any) -> Object:
    """A ClusterPolicy with these fields in spec.driver."""
    labels = {"app.kubernetes.io/version": "v25.10.1"}
    metadata = {"name": "cluster-policy", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
    return {"metadata": metadata, "spec": {"driver": driver}, "status": {"namespace": NAMESPACE}}


def gpu_node(name: str, product: str = "NVIDIA-A100-10C", *, vgpu: bool = True, **labels: str) -> Object:
    """A node with a GPU, or with a vGPU."""
    gpu = {f"nvidia.com/gpu.{key}": value for key, value in (("present", "true"), ("count", "1"), ("product", product))}
    driver = {"nvidia.com/gpu.deploy.driver": "true", "nvidia.com/vgpu.present": str(vgpu).lower()}
    metadata = {"name": name, "labels": {**gpu, **driver, **labels}, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def license_secret(name: str, token: str, config: str = "", **metadata: Any) -> Object:
    """A Secret with the files; `metadata` are labels, annotations and ownerReferences."""
    files = {LICENSE_TOKEN_KEY: token, LICENSE_CONFIG_KEY: config}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}
    described = {"name": name, "namespace": NAMESPACE, "resourceVersion": "7", **metadata}
    return {"kind": "Secret", "metadata": described, "type": "Opaque", "data": data}


@dataclass
class LicenseApi:
    """The objects of the cluster; `written` are the bodies that the module has sent, `before_held` is what another run does before this one holds the lease."""

    policies: list[Object] = field(default_factory=list)
    drivers: list[Object] = field(default_factory=list)
    nodes: list[Object] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)
    written: list[Object] = field(default_factory=list)
    daemonsets: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    before_held: Callable[[], object] | None = None

    def add(self, *items: Object) -> LicenseApi:
        """Add Secrets."""
        self.objects |= {object_path("v1", "Secret", item["metadata"]["name"], NAMESPACE): item for item in items}
        return self

    def files(self, name: str) -> dict[str, str]:
        """The files in a Secret."""
        data = self.objects[object_path("v1", "Secret", name, NAMESPACE)]["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def list_known(self, path: str, **dummy: Any) -> Sequence[Object]:
        """The objects of an optional kind."""
        return {CLUSTER_POLICIES: self.policies, NVIDIA_DRIVERS: self.drivers}[path]

    def list(self, path: str, **dummy: Any) -> Sequence[Object]:
        """The nodes, the DaemonSets and the driver pods."""
        if path.endswith("/daemonsets"):
            return self.daemonsets
        return self.nodes if path == NODES else self.pods

    def get(self, path: str) -> Object | None:
        """The object."""
        return self.objects.get(path)

    def get_once(self, path: str) -> Object | None:
        """None: the cluster is not one of OpenShift."""

    def create(self, path: str, body: Object, *, dry_run: bool) -> Object:
        """Create a Secret."""
        return self._write(f"{path}/{body['metadata']['name']}", body, dry_run)

    def patch(self, path: str, body: Object, *, dry_run: bool) -> Object:
        """Merge the files of a Secret."""
        merged = {**self.objects[path]["data"], **body["data"]}
        data = {key: value for key, value in merged.items() if value is not None}
        return self._write(path, {**self.objects[path], "data": data}, dry_run)

    def apply(self, path: str, body: Object, *, dry_run: bool, **dummy: Any) -> Object:
        """Set fields of the ClusterPolicy."""
        return self._write(path, body, dry_run)

    def _write(self, path: str, body: Object, dry_run: bool) -> Object:
        self.written.append(body)
        if not dry_run:
            self.objects[path] = {**body, "metadata": {**body["metadata"], "resourceVersion": "8"}}
        return body

    def license(self, pools: Sequence[Object] = (), *, check: bool = False, **options: Any) -> Object:
        """The result of the module license."""
        return self._run(license_module, pools, check=check, **options)

    def info(self, pools: Sequence[Object] = (), **options: Any) -> Object:
        """The result of the module license_info."""
        return self._run(license_info, pools, **options)

    def rotation(self, pools: Sequence[Object] = (), **options: Any) -> Object:
        """The result of the module license_rotation."""
        return self._run(license_rotation, pools, **options)

    def _run(self, module: ModuleType, pools: Sequence[Object], *, check: bool = False, **options: Any) -> Object:
        lease = RotationLease(self.before_held)
        arguments = {"gpu_cluster": {"name": "prod"}, "gpu_pools": [*pools], **options}
        client = mock.PropertyMock(return_value=self)
        with (
            mock.patch.object(ClusterModule, "client", client),
            mock.patch.object(ClusterModule, "lease", return_value=lease),
        ):
            environment = {"NLS_CLIENT_TOKEN": ""}
            return run_module(module.main, arguments, check=check, diff=True, env=environment)
