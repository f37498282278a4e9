# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `plan` accepts every example inventory without a cluster, and without credentials for a cloud."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog.distributions import BY_NAME
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.programs import REPO, environment

EXAMPLES = sorted(path.parent for path in (REPO / "examples").glob("*/inventory.yml"))


def printed(run: PlaybookRun, host: str) -> str:
    """The lines of a host's plan, with each white space as one space."""
    (result,) = run.module_results("accel.gpu.gpu_info", host)
    return " ".join(" ".join(lines(result["gpu_info"], "plan")).split())


@pytest.mark.usual(30)
def test_plan_accepts_every_example(tmp_path: Path) -> None:
    environ = environment(KUBECONFIG=str(tmp_path / "none"), HOME=str(tmp_path), ANSIBLE_SHOW_CUSTOM_STATS="1")
    inventories = [argument for path in EXAMPLES[1:] for argument in ("-i", str(path))]
    run = run_playbook(
        "accel.gpu.plan", environ=environ, inventory=EXAMPLES[0], arguments=inventories
    ).require_success()
    hosts = {
        host
        for path in EXAMPLES
        for host in yaml.safe_load((path / "inventory.yml").read_text())["gpu_clusters"]["hosts"]
    }
    assert len(EXAMPLES) >= 7
    assert {host for host in hosts if not run.module_results("accel.gpu.gpu_info", host)} == set()
    for name in ("rke2", "k3s", "k0s", "microk8s"):
        distribution = BY_NAME[name]
        assert f"operator: settings for {distribution.title}: " in printed(run, name)
        assert f"CONTAINERD_SOCKET={distribution.toolkit_variables('v25.10.1')['CONTAINERD_SOCKET']}" in printed(
            run, name
        )
    on_openshift = " ".join(printed(run, "openshift").split())
    assert (
        "unless the cluster has it: GPU operator v25.10.1 through OLM: Subscription nvidia-gpu-operator/gpu-operator-certified"
        in on_openshift
    )
    summary = run.document["global_custom_stats"]["gpu_report_summary"]
    assert len(summary) == len(hosts), "AWX passes one map for all clusters to the next job"
    assert {entry["reachable"] for entry in summary.values()} == {False}


def test_the_example_that_expects_an_operator_evicts_no_pod() -> None:
    """The pools of the other examples have no driver yet, so that no pod can use their GPUs."""
    host = yaml.safe_load((REPO / "examples/openshift/inventory.yml").read_text())["gpu_clusters"]["hosts"]["openshift"]
    plan = derive(host["gpu_cluster"], host["gpu_defaults"], host["gpu_pools"])
    existing = [pool for pool in plan.pools if pool.nodegroup is None]
    assert [pool.rollout.drain for pool in existing] == ["none"]


def test_the_example_without_internet_access_can_be_mirrored() -> None:
    """The role mirror finds the registry and the operating systems, so that the cluster is not read; the nodes get the logins."""
    host = yaml.safe_load((REPO / "examples/air-gap/inventory.yml").read_text())["gpu_clusters"]["hosts"]["isolated"]
    operator = host["gpu_cluster"]["operator"]
    assert {entry["registry"] for entry in host["gpu_registries"]} == {operator["registry"].partition("/")[0]}
    assert operator["image_pull_secrets"]
    for name in ("gpu_mirror_operating_systems", "gpu_mirror_dest"):
        assert host[name]
        assert name in yaml.safe_load((REPO / "roles/mirror/defaults/main.yml").read_text())
