# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan shows the Helm releases of NFD and the operator that a run installs, and the settings of the distribution."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines

RELEASES = {
    "nfd": {"version": "0.19.0", "release": "nfd", "namespace": "nfd-ns"},
    "operator": {
        "version": "v25.10.1",
        "release": "gpu-operator",
        "namespace": "gpus",
        "distribution": "rke2",
        "toolkit_env": [{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}],
    },
}
BY_OLM = {
    "nfd": {
        "installer": "olm",
        "version": "",
        "namespace": "openshift-nfd",
        "package": "nfd",
        "channel": "",
        "source": ["redhat-operators"],
    },
    "operator": {
        "installer": "olm",
        "version": "v25.10.1",
        "namespace": "nvidia-gpu-operator",
        "package": "gpu-operator-certified",
        "channel": "stable",
        "source": ["staging", "certified-operators"],
    },
}
MISSING = {"found": False, "managed": True, "adopted": False, "problem": "", "notes": []}
SETTINGS = "settings for RKE2: CONTAINERD_SOCKET=/run/k3s/containerd/containerd.sock"
ADOPTED = {**MISSING, "found": True, "managed": False, "adopted": True, "what": "NFD v0.18.2 in namespace x (OLM)"}
POOL = {
    "model": "Tesla-T4", "models": ["Tesla-T4"], "mode": "none", "replicas": 1, "resource": "nvidia.com/gpu", "memory_mib_per_share": 15360,
    "nodes": 1, "gpus": 1, "expected": 1, "allocatable": 1, "changes": {}, "drift": [], "drifted_nodes": 0, "as_declared": True,
}  # fmt: skip


def _info(**changes: t.Any) -> dict[str, t.Any]:
    totals = {"nodes": 1, "gpu_nodes": 1, "gpus": 1, "allocatable": {}}
    return {
        "reachable": True,
        "cluster": "lab",
        "pools": {"p": POOL},
        "totals": totals,
        "releases": RELEASES,
        **changes,
    }


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (
            {"installed": {"nfd": MISSING, "operator": MISSING}},
            [
                "nfd: installs NFD 0.19.0 as Helm release nfd-ns/nfd",
                f"operator: installs GPU operator v25.10.1 as Helm release gpus/gpu-operator; {SETTINGS}",
            ],
        ),
        (
            {"installed": {"nfd": ADOPTED, "operator": MISSING}},
            ["is adopted and not upgraded", "operator: installs GPU operator v25.10.1"],
        ),
        ({"reachable": False}, [f"operator: {SETTINGS}"]),
        (
            {"installed": {"nfd": MISSING, "operator": MISSING}, "releases": BY_OLM},
            [
                "nfd: installs NFD through OLM: Subscription openshift-nfd/nfd, redhat-operators",
                "operator: installs GPU operator v25.10.1 through OLM: Subscription nvidia-gpu-operator/gpu-operator-certified, "
                "channel stable of staging or certified-operators",
            ],
        ),
        (
            {
                "tolerations": [
                    {
                        "object": "ClusterPolicy gpu-cluster-policy",
                        "adds": ["a=b:NoSchedule"],
                        "removes": ["c:NoExecute"],
                        "restarts": "x",
                    }
                ]
            },
            [
                "ClusterPolicy gpu-cluster-policy gets a toleration for a=b:NoSchedule; loses the toleration for c:NoExecute; x"
            ],
        ),
    ],
)
def test_a_plan_shows_what_helm_installs(info: dict[str, t.Any], words: list[str]) -> None:
    text = " ".join(" ".join(lines(_info(**info), "plan")).split())
    assert [word for word in words if word not in text] == []
    assert "installs" not in "\n".join(lines(_info(**info), "report"))


@pytest.mark.parametrize(
    "info",
    [
        {"pools": {}, "installed": {"nfd": MISSING, "operator": MISSING}},
        {"installed": {"nfd": MISSING, "operator": {**MISSING, "managed": False, "problem": "Two."}}},
        {"installed": {name: {**MISSING, "found": True} for name in RELEASES}},
    ],
    ids=["no pools", "a problem ends the run", "installed"],
)
def test_a_plan_that_installs_nothing(info: dict[str, t.Any]) -> None:
    text = "\n".join(lines(_info(**info), "plan"))
    assert "installs" not in text
    assert "settings of" not in text


def test_the_licenses_that_a_run_has_read() -> None:
    vgpu = {"p": {**POOL, "driver": {"type": "vgpu"}}}
    summary = "19 of 20 vGPU nodes have a license; the token expires in 364 days"
    shown = {"licenses": {"summary": summary}}
    assert f"licenses: {summary}" in " ".join("\n".join(lines(_info(**shown, pools=vgpu))).split())
    unread = " ".join("\n".join(lines(_info(licenses={}, pools=vgpu))).split())
    assert "licenses: this run has not read the licenses of the vGPU nodes; the playbook license_report does" in unread
    assert "licenses:" not in "\n".join(lines(_info(licenses={})))
    assert "licenses:" not in "\n".join(lines(_info(**shown, pools=vgpu), "plan"))
