# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every distribution's example on nodes of that distribution; distributions that are detected, and settings that cannot work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.systems import DISTRIBUTIONS
from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab
from tests.programs import REPO

pytestmark = [pytest.mark.timeout(900)]

GPUS = {"Tesla-T4": ("T4", 1), "L40S": ("L40S", 2), "A100-SXM4-80GB": ("A100-SXM4-80GB", 8)}
TOOLKIT = "nvidia-container-toolkit-daemonset"
SOCKET = "CONTAINERD_SOCKET"


def example(distribution: str) -> dict[str, Any]:
    """The variables of the distribution's example."""
    hosts = yaml.safe_load((REPO / "examples" / distribution / "inventory.yml").read_text())["gpu_clusters"]["hosts"]
    variables: dict[str, Any] = hosts[distribution]
    return variables


def reset(lab: Lab, folder: Path, distribution: str, pools: list[dict[str, Any]]) -> None:
    """A lab with two nodes of the distribution for each pool, and one without a GPU."""
    models = [GPUS[pool["match"]["model"]] for pool in pools]
    groups: list[dict[str, Any]] = [
        {"name": pool["name"], "count": 2, "model": model, "gpus": gpus}
        for pool, (model, gpus) in zip(pools, models, strict=True)
    ]
    fleet = folder / "fleet.yaml"
    defaults = {"distribution": distribution}
    fleet.write_text(yaml.safe_dump({"defaults": defaults, "groups": [*groups, {"name": "cpu", "count": 1}]}))
    lab.reset(fleet)


def play(lab: Lab, playbook: str, variables: dict[str, Any], *arguments: str, **cluster: Any) -> PlaybookRun:
    """Run a playbook with an example's variables in the lab; `cluster` are further keys of gpu_cluster."""
    declared = dict(variables["gpu_cluster"])
    for key in ("kube_name", "kubeconfig"):
        declared.pop(key, None)
    charts = lab.env["LAB_CHARTS"]
    declared |= {
        "name": lab.name,
        "nfd": {"chart": f"{charts}/node-feature-discovery"},
        **cluster,
        "operator": {**declared["operator"], "chart": f"{charts}/gpu-operator", **cluster.get("operator", {})},
    }
    declared = {key: value for key, value in declared.items() if value is not None}
    return run_playbook(
        f"accel.gpu.{playbook}", environ=lab.env, variables={**variables, "gpu_cluster": declared}, arguments=arguments
    )


def toolkit_paths(cluster: Cluster) -> dict[str, str]:
    """The folders on the nodes that the toolkit's pods mount for containerd."""
    spec = cluster.get("daemonset", TOOLKIT, "-n", NAMESPACE)["spec"]["template"]["spec"]
    return {
        volume["name"]: volume["hostPath"]["path"]
        for volume in spec["volumes"]
        if volume["name"].startswith("containerd-")
    }


@pytest.mark.usual(100)
@pytest.mark.sampled(1, group="whole runs")
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_an_example_works_on_its_distribution(lab: Lab, tmp_path: Path, distribution: str) -> None:
    variables = example(distribution)
    reset(lab, tmp_path, distribution, variables["gpu_pools"])
    planned = play(lab, "plan", variables).require_success()
    version = variables["gpu_cluster"]["operator"]["version"]
    assert planned.shown(f"operator: installs GPU operator {version} as Helm release gpu-operator/gpu-operator")
    assert planned.shown(f"{SOCKET}={DISTRIBUTIONS[distribution].socket}") == (distribution != "kubeadm")
    play(lab, "site", variables).require_success()
    cluster = Cluster(lab)
    socket = DISTRIBUTIONS[distribution].socket
    assert toolkit_paths(cluster)["containerd-socket"] == str(Path(socket).parent)
    assert cluster.get("runtimeclass", "nvidia")["handler"] == "nvidia"
    for pool in variables["gpu_pools"]:
        assert all(cluster.offered(f"{pool['name']}-").values())
    again = play(lab, "site", variables).require_success()
    assert again.changed() == 0
    result = again.module_results("accel.gpu.cluster_policy")[-1]["cluster_policy"]
    assert result["runtime_classes"] == {"nvidia": "nvidia"}
    # Detected instead of declared: nothing changes, and the plan names the distribution.
    detected = play(lab, "plan", variables, distribution=None).require_success()
    info = detected.module_results("accel.gpu.gpu_info")[-1]["gpu_info"]
    assert info["installed"]["operator"]["distribution"] == distribution
    assert info["installed"]["operator"]["notes"] == []


@pytest.mark.soak
@pytest.mark.usual(100)
def test_settings_are_detected_and_then_kept(lab: Lab, tmp_path: Path) -> None:
    variables = example("rke2")
    reset(lab, tmp_path, "rke2", variables["gpu_pools"])
    tags = ("--tags", "nfd,gpu_operator")
    play(lab, "site", variables, *tags, distribution=None).require_success()
    assert play(lab, "site", variables, *tags, distribution=None).require_success().changed() == 0
    assert play(lab, "site", variables, *tags).require_success().changed() == 0
    # What was changed manually stays.
    cluster = Cluster(lab)
    env = [{"name": SOCKET, "value": DISTRIBUTIONS["rke2"].socket}, {"name": "TOOLKIT_LOG_LEVEL", "value": "debug"}]
    patch = json.dumps({"spec": {"toolkit": {"env": env}}})
    cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", patch)
    edited = play(lab, "site", variables, *tags, distribution=None).require_success()
    assert edited.changed() == 0
    assert cluster.get("clusterpolicy", "cluster-policy")["spec"]["toolkit"]["env"] == env


@pytest.mark.soak
@pytest.mark.usual(100)
def test_a_declared_distribution_that_no_node_has_changes_no_toolkit_that_works(lab: Lab, tmp_path: Path) -> None:
    variables = example("rke2")
    reset(lab, tmp_path, "kubeadm", variables["gpu_pools"])
    tags = ("--tags", "nfd,gpu_operator")
    play(lab, "site", variables, *tags, distribution="kubeadm").require_success()
    cluster = Cluster(lab)
    before = cluster.get("clusterpolicy", "cluster-policy")["spec"]
    planned = play(lab, "plan", variables).require_success()
    run = play(lab, "site", variables, *tags).require_success()
    actual = planned.module_results("accel.gpu.gpu_info")[-1]["gpu_info"]["installed"]["operator"]["notes"]
    warned = run.module_results("accel.gpu.operator_info")[-1]["warnings"]
    for notes in (actual, warned):
        contradicted, kept = notes
        assert "gpu_cluster.distribution is rke2, but 2 node(s) are not recognized as RKE2" in contradicted
        assert "inference-1 (kubeadm, kubelet v1." in contradicted
        assert "its container toolkit works on 2 node(s), so it is not changed" in kept
    assert run.changed() == 0
    assert cluster.get("clusterpolicy", "cluster-policy")["spec"] == before
    # Variables that the user sets are applied.
    env = [{"name": "TOOLKIT_LOG_LEVEL", "value": "debug"}]
    explicit = {"values": {"toolkit": {"env": env}}}
    play(lab, "site", variables, *tags, operator=explicit).require_success()
    assert cluster.get("clusterpolicy", "cluster-policy")["spec"]["toolkit"]["env"] == env


@pytest.mark.soak
@pytest.mark.usual(100)
def test_a_wrong_socket_is_named_and_corrected(lab: Lab, tmp_path: Path) -> None:
    variables = example("k3s")
    reset(lab, tmp_path, "k3s", variables["gpu_pools"])
    wrong = {"values": {"toolkit": {"env": [{"name": SOCKET, "value": "/run/containerd/containerd.sock"}]}}}
    tags = ("--tags", "nfd,gpu_operator")
    plan = play(lab, "plan", variables, operator=wrong).require_success()
    warnings = plan.module_results("accel.gpu.gpu_info")[-1]["gpu_info"]["warnings"]
    assert any(f"{SOCKET}=/run/containerd/containerd.sock" in text for text in warnings)
    failed = play(lab, "site", variables, *tags, operator=wrong)
    message = failed.failure()
    for part in ("edge-1", "K3s", "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"):
        assert part in message, message
    play(lab, "site", variables, *tags).require_success()


@pytest.mark.soak
@pytest.mark.usual(120)
def test_a_file_that_containerd_does_not_read_is_named(lab: Lab, tmp_path: Path) -> None:
    variables = example("k0s")
    reset(lab, tmp_path, "k0s", variables["gpu_pools"])
    # The recipe of earlier releases of the operator.
    names = {"CONTAINERD_CONFIG": "/etc/k0s/containerd.d/nvidia.toml", SOCKET: "/run/k0s/containerd.sock"}
    env = [{"name": name, "value": value} for name, value in names.items()]
    failed = play(lab, "site", variables, "--tags", "nfd,gpu_operator", operator={"values": {"toolkit": {"env": env}}})
    message = failed.failure()
    for part in ("train-1", "k0s", "/etc/containerd/conf.d/99-nvidia.toml", "/etc/k0s/containerd.d/nvidia.toml"):
        assert part in message, message


@pytest.mark.soak
@pytest.mark.usual(60)
def test_nothing_is_installed_where_drivers_have_no_image(lab: Lab, tmp_path: Path) -> None:
    variables = example("kubeadm")
    fleet = tmp_path / "fleet.yaml"
    group = {"name": "t4", "count": 1, "model": "T4", "gpus": 1, "os": "fedora-coreos-43"}
    fleet.write_text(yaml.safe_dump({"groups": [group]}))
    lab.reset(fleet)
    plan = play(lab, "plan", variables).require_success()
    info = plan.module_results("accel.gpu.gpu_info")[-1]["gpu_info"]
    assert any("Fedora CoreOS 43" in text for text in info["warnings"])
    failed = play(lab, "site", variables)
    assert "node t4-1: NVIDIA publishes no driver image for Fedora CoreOS 43" in failed.failure()
    cluster = Cluster(lab)
    assert cluster.kubectl("get", "namespaces", "-o", "name").count("gpu-operator") == 0
    assert cluster.kubectl("get", "namespaces", "-o", "name").count("node-feature-discovery") == 0
    # A driver of the nodes' own is not affected.
    tags = ("--tags", "nfd,gpu_operator")
    play(lab, "site", variables, *tags, operator={"driver": {"enabled": False}}).require_success()


@pytest.mark.soak
@pytest.mark.usual(80)
def test_nouveau_is_reported(lab: Lab, tmp_path: Path) -> None:
    variables = example("kubeadm")
    fleet = tmp_path / "fleet.yaml"
    group = {"name": "t4", "count": 1, "model": "T4", "gpus": 1, "modules": ["nouveau"]}
    fleet.write_text(yaml.safe_dump({"groups": [group]}))
    lab.reset(fleet)
    play(lab, "site", variables, "--tags", "nfd").require_success()
    plan = play(lab, "plan", variables).require_success()
    info = plan.module_results("accel.gpu.gpu_info")[-1]["gpu_info"]
    assert any(text.startswith("node t4-1: the kernel module nouveau is loaded") for text in info["warnings"])
