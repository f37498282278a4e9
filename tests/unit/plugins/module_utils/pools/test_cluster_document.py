# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes of gpu_cluster: paths, rules and remedies."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.documents import validate
from tests.helpers.documents import CLUSTER, Document

CLUSTER_MISTAKES: list[tuple[t.Any, str]] = [
    ({}, "gpu_cluster.name: is missing; say what the kubeconfig calls this cluster"),
    (None, "gpu_cluster.name: is missing"),
    ("lab", 'gpu_cluster: "lab" is text, not a map'),
    ({**CLUSTER, "operater": {}}, "gpu_cluster.operater: is not known here; did you mean operator?"),
    ({**CLUSTER, "version": "v25.10.1"}, "gpu_cluster.version: is not known here; it belongs under operator or nfd"),
    ({**CLUSTER, "operator": {"version": 25.1}}, "gpu_cluster.operator.version: 25.1 is a number with a fraction, not"),
    ({**CLUSTER, "operator": {"version": "v25.10"}}, 'gpu_cluster.operator.version: "v25.10" is not one exact version'),
    ({**CLUSTER, "operator": {"version": ">=25.3.0"}}, "gpu_cluster.operator.version: "),
    ({**CLUSTER, "operator": {"namespace": "GPU"}}, 'gpu_cluster.operator.namespace: "GPU" is not a DNS label'),
    ({**CLUSTER, "operator": {"release": "x" * 54}}, "gpu_cluster.operator.release: "),
    ({**CLUSTER, "operator": {"chart": "nvidia/gpu-operator"}}, "gpu_cluster.operator.chart: "),
    ({**CLUSTER, "operator": {"chart_repo": "oci://x/y"}}, "gpu_cluster.operator.chart_repo: "),
    ({**CLUSTER, "operator": {"chart_repo": "x"}}, 'gpu_cluster.operator.chart_repo: "x" is not the address'),
    ({**CLUSTER, "operator": {"chart_repo": ""}}, "gpu_cluster.operator.chart_repo: is missing; the chart"),
    ({**CLUSTER, "operator": {"chart": "./c", "chart_repo": "https://x"}}, "gpu_cluster.operator.chart_repo: "),
    ({**CLUSTER, "nfd": {"chart": "nfd"}}, 'gpu_cluster.nfd.chart_repo: is missing; the chart "nfd" is only a name'),
    ({**CLUSTER, "nfd": {"values": []}}, "gpu_cluster.nfd.values: is a list, not a map"),
    (
        {**CLUSTER, "operator": {"values": {"devicePlugin": {"config": {"name": "x"}}}}},
        "gpu_cluster.operator.values.devicePlugin.config: is not yours to set",
    ),
    (
        {**CLUSTER, "operator": {"values": {"nfd": {"enabled": True}}}},
        "gpu_cluster.operator.values.nfd.enabled: is not",
    ),
    (
        {**CLUSTER, "operator": {"namespace": "gpu", "release": "nfd"}, "nfd": {"namespace": "gpu"}},
        "gpu_cluster.nfd.release: is the operator's release in the same namespace",
    ),
    ({**CLUSTER, "kubeconfig": "apiVersion: v1\nkind: Config"}, "gpu_cluster.kubeconfig: "),
    ({**CLUSTER, "kubeconfig": "https://k8s:6443"}, "gpu_cluster.kubeconfig: "),
    ({**CLUSTER, "validation": {"image": "nvidia/cuda"}}, "gpu_cluster.validation.image: "),
    ({**CLUSTER, "validation": {"image": "https://nvcr.io/nvidia/cuda:1"}}, "gpu_cluster.validation.image: "),
]


@pytest.mark.parametrize(("cluster", "message"), CLUSTER_MISTAKES)
def test_mistake_of_the_cluster(cluster: t.Any, message: str) -> None:
    (problem,) = validate(cluster, {}, [])
    assert problem.startswith(message)


@pytest.mark.parametrize(
    "cluster",
    [
        {"kubeconfig": "~/.kube/config", "context": "kubernetes-admin@kubernetes", "kube_name": "kubernetes"},
        {"kubeconfig": "/a:/b"},
        {"operator": {"chart": "oci://registry.example/charts/gpu-operator"}},
        {"operator": {"chart": "https://example.com/gpu-operator-v25.10.1.tgz"}},
        {"operator": {"chart": "~/charts/gpu-operator-v25.10.1.tgz"}},
        {"operator": {"chart": "gpu-operator.tgz", "version": "25.3.2-rc.1+meta"}},
        {"operator": {"values": {"driver": {"version": "{{ not ours to read }}"}, "devicePlugin": {"args": []}}}},
        {"nfd": {"chart": "node-feature-discovery", "chart_repo": "https://charts.example/nfd"}},
        {"nfd": None, "validation": {"image": f"cuda@sha256:{'0' * 64}", "namespace": "proofs"}},
        {"validation": {"image": "registry.example:5000/nvidia/cuda:13.0.1-base-ubi9"}},
    ],
)
def test_good_cluster(cluster: Document) -> None:
    assert validate({**CLUSTER, **cluster}, None, None) == []
