# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a release: those that Helm wrote or that its manifest contains, and no copies of them."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress, WaitOptions
from ansible_collections.accel.gpu.plugins.module_utils.helm.preparation import ReleaseRemoval

Object = dict[str, Any]

MANIFEST = """\
---
# Source: nfd/templates/worker.yaml
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: worker}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: elsewhere, namespace: other}}
---
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: stays, annotations: {helm.sh/resource-policy: keep}}
"""


def record(manifest: str) -> str:
    document = {"chart": {"metadata": {"name": "nfd"}}, "manifest": manifest}
    return base64.b64encode(base64.b64encode(gzip.compress(json.dumps(document).encode()))).decode()


class Cluster:
    """The release `nfd` in the namespace `nfd-ns`; without a manifest, there is no release."""

    def __init__(self, manifest: str | None) -> None:
        self.read: list[str] = []
        self._manifest = manifest

    def get(self, path: str) -> Object | None:
        self.read.append(path)
        return {"data": {"release": record(str(self._manifest))}} if "/secrets/" in path else None

    def list(self, _path: str, **_options: Any) -> list[Object]:
        labels = {"version": "1", "status": "deployed"}
        metadata = {"name": "record", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
        return [] if self._manifest is None else [{"metadata": metadata}]


def removal(cluster: Cluster) -> ReleaseRemoval:
    waiting = WaitOptions(0, 1, Progress(None))
    return ReleaseRemoval(cast(Any, cluster), "nfd", "nfd-ns", cast(Any, None), waiting, 600)


HELM = {"meta.helm.sh/release-name": "nfd", "meta.helm.sh/release-namespace": "nfd-ns"}


def item(name: str, *managers: str, namespace: str | None = "nfd-ns", **annotations: str) -> Object:
    scope = {"namespace": namespace} if namespace else {}
    managed = [{"manager": manager} for manager in managers]
    return {"metadata": {"name": name, **scope, "annotations": {**HELM, **annotations}, "managedFields": managed}}


KEEP = {"helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize(
    ("kind", "actual", "with_release", "without"),
    [
        ("DaemonSet.apps", item("worker", "helm", "kubectl"), True, True),
        # An object of an earlier revision: both check mode and the run know that Helm wrote it.
        ("DaemonSet.apps", item("former", "helm"), True, True),
        # Restored from a backup: the manifest decides while there is one.
        ("DaemonSet.apps", item("worker", "velero-server"), True, False),
        ("ConfigMap", item("elsewhere", "velero-server", namespace="other"), True, False),
        ("ClusterPolicy.nvidia.com", item("cluster-policy", "velero-server", namespace=None), True, False),
        # Copies with other names, in another namespace, or of another kind or group.
        ("DaemonSet.apps", item("copy", "kubectl-create"), False, False),
        ("DaemonSet.apps", item("worker", "kubectl-create", namespace="mine"), False, False),
        ("Deployment.apps", item("worker", "kubectl-create"), False, False),
        ("DaemonSet.example.com", item("worker", "kubectl-create"), False, False),
        ("ClusterPolicy.nvidia.com", item("copy", "kubectl-create", namespace=None), False, False),
        ("ConfigMap", item("stays", "helm", **KEEP), False, False),
        ("DaemonSet.apps", item("worker", "helm", **{"meta.helm.sh/release-name": "other"}), False, False),
    ],
)
def test_contents_of_a_release(kind: str, actual: Object, with_release: bool, without: bool) -> None:
    assert removal(Cluster(MANIFEST)).contains(kind, actual) is with_release
    assert removal(Cluster(None)).contains(kind, actual) is without


def test_the_record_is_read_only_for_an_object_that_helm_did_not_write() -> None:
    cluster = Cluster(MANIFEST)
    release = removal(cluster)
    cluster.read.clear()
    assert release.contains("DaemonSet.apps", item("worker", "helm"))
    assert cluster.read == []
    for name in ("copy", "worker"):
        release.contains("DaemonSet.apps", item(name))
    assert len(cluster.read) == 1


def test_a_manifest_that_is_not_yaml_contains_nothing() -> None:
    assert not removal(Cluster("a: [")).contains("DaemonSet.apps", item("worker"))
