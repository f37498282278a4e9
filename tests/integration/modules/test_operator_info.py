# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenShift, where OLM installs what is missing, and installations that Argo CD or Flux manages from a repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import gpu_info, operator_info
from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.playbook import run_playbook
from tests.labs import Lab

GROUP = "config.openshift.io"
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"clusterversions.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Cluster",
        "names": {"kind": "ClusterVersion", "plural": "clusterversions", "singular": "clusterversion"},
        "versions": [
            {
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}  # fmt: skip
VERSION = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "ClusterVersion",
    "metadata": {"name": "version"},
    "status": {"desired": {"version": "4.18.3"}},
}


def apply(cluster: Cluster, item: dict[str, Any]) -> None:
    command = ["kubectl", "apply", "-f", "-"]
    subprocess.run(command, input=json.dumps(item), text=True, env=cluster.lab.env, check=True, capture_output=True)


@pytest.fixture
def openshift(lab: Lab) -> Iterator[Cluster]:
    """An empty cluster with OpenShift's characteristic kind of object; the test creates its only object."""
    lab.reset()
    cluster = Cluster(lab)
    apply(cluster, CRD)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/clusterversions.{GROUP}")
    yield cluster
    cluster.kubectl("delete", f"crd/clusterversions.{GROUP}")


@pytest.mark.usual(25)
def test_on_openshift_olm_installs_and_nothing_else(openshift: Cluster) -> None:
    cluster = openshift
    pools = cluster.pools()
    variables = {"name": cluster.lab.name, "kubeconfig": str(cluster.lab.kubeconfig)}
    alone = cluster.run(operator_info.main, gpu_pools=pools)["operator_info"]
    assert alone["operator"]["installer"] == alone["nfd"]["installer"] == "helm", "the kind alone makes no OpenShift"
    apply(cluster, VERSION)
    mark = cluster.mark()
    for check in (True, False):
        refused = cluster.run(operator_info.main, gpu_pools=pools, check=check)
        assert refused["failed"]
        assert (
            "This cluster has no OLM (the API operators.coreos.com/v1alpha1), which gpu_cluster needs for NFD"
            in refused["msg"]
        )
        assert "set gpu_cluster.operator.installer: helm" in refused["msg"]
    declared = cluster.run(operator_info.main, gpu_pools=pools, gpu_cluster={**variables, "distribution": "k3s"})
    assert declared["failed"]
    assert "This cluster is OpenShift 4.18.3, but gpu_cluster.distribution is k3s" in declared["msg"]
    chosen = {**variables, "operator": {"installer": "helm"}, "nfd": {"installer": "helm"}}
    by_helm = cluster.run(operator_info.main, gpu_pools=pools, gpu_cluster=chosen)
    assert by_helm["operator_info"]["operator"]["installer"] == "helm"
    assert "support operators on OpenShift only if OLM installs them" in json.dumps(by_helm["warnings"])
    planned = cluster.run(gpu_info.main, gpu_pools=pools, include_impact=True)["gpu_info"]["installed"]
    assert all("has no OLM" in actual["problem"] for actual in planned.values())
    played = run_playbook("accel.gpu.site", environ=cluster.lab.env)
    assert played.rc != 0
    assert "gpu_cluster.operator.chart: has no effect with installer: olm, the default on OpenShift" in played.failure()
    listed = cluster.lab.command("audit", "--since", mark, "--agent", "accel.gpu/", "--list")
    sent = {line.split()[1] for line in listed.splitlines() if line.strip()}
    assert sent <= {"get", "list", "watch"}
    assert not cluster.get("namespaces", "--field-selector", f"metadata.name={NAMESPACE}")["items"]


@pytest.mark.usual(10)
def test_an_installation_from_a_repository_is_used_and_reverted_fields_are_named(lab: Lab) -> None:
    cluster = Cluster(lab).install()
    tracking = "argocd.argoproj.io/tracking-id"
    cluster.kubectl("annotate", "-n", NAMESPACE, "deployment/gpu-operator", f"{tracking}=gpu:apps/Deployment:{NAMESPACE}/gpu-operator")  # fmt: skip
    cluster.kubectl("annotate", "clusterpolicy/cluster-policy", f"{tracking}=gpu:nvidia.com/ClusterPolicy:/cluster-policy")  # fmt: skip
    (master,) = cluster.get("deployments", "-A", "-l", "role=master")["items"]
    name, namespace = (master["metadata"][key] for key in ("name", "namespace"))
    labels = [f"helm.toolkit.fluxcd.io/{key}={value}" for key, value in (("name", "nfd"), ("namespace", "flux-system"))]
    cluster.kubectl("label", "-n", namespace, f"deployment/{name}", *labels)
    reported = cluster.run(operator_info.main, gpu_pools=cluster.pools())
    assert not reported.get("failed"), reported
    operator, nfd = (reported["operator_info"][part] for part in ("operator", "nfd"))
    assert (operator["managed"], operator["adopted"], operator["manager"]) == (False, True, "argocd")
    assert (nfd["managed"], nfd["adopted"], nfd["managed_by"]) == (False, True, "Flux HelmRelease flux-system/nfd")
    (note,) = operator["notes"]
    assert "Argo CD application gpu reconciles ClusterPolicy cluster-policy from its source" in note
    assert "/spec/devicePlugin/config" in note
    assert "spec.ignoreDifferences" in note
    assert note in json.dumps(reported["warnings"])
    assert cluster.run(gpu_info.main, gpu_pools=cluster.pools())["gpu_info"]["installed"]["operator"]["notes"] == [note]
