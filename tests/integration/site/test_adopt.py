# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters with foreign installations of NFD or an operator: detected, used as they are, and restored by uninstall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.foreign_installations import HELM_NAMESPACE, STATES
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.snapshot import Objects, snapshot, written_by
from tests.labs import Lab
from tests.programs import REPO, run

SITE, UNINSTALL, PLAN = "accel.gpu.site", "accel.gpu.uninstall", "accel.gpu.plan"
POOLS = yaml.safe_load((REPO / "inventories/lab/group_vars/gpu_clusters.yml").read_text())["gpu_pools"]
NODE_CONFIG = "nvidia.com/device-plugin.config"
# Objects of the ClusterPolicy and of NFD change with these and with the nodes; the other objects of a cluster do not.
FOLLOWING = ("Node ", "ClusterPolicy ", "Pod ", "DaemonSet ", "NodeFeature ")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def empty(lab: Lab, tmp_path: Path) -> Lab:
    """A cluster with one machine of each kind and no installation."""
    fleet = yaml.safe_load((REPO / "lab/fleets/default.yaml").read_text())
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump({**fleet, "groups": [{**group, "count": 1} for group in fleet["groups"]]}))
    lab.reset(path)
    return lab


def get(lab: Lab, *words: str) -> Any:
    return json.loads(run("kubectl", "get", *words, "-o", "json", env=lab.env))


def site(lab: Lab, **options: Any) -> PlaybookRun:
    return run_playbook(SITE, environ=lab.env, **options).require_success()


def shown(played: PlaybookRun) -> str:
    """The terminal output, without line breaks."""
    return " ".join(played.stderr.split())


def policy(lab: Lab) -> dict[str, Any]:
    (actual,) = get(lab, "clusterpolicies")["items"]
    return dict(actual)


def gone_or_other(before: Objects, after: Objects) -> list[str]:
    """Foreign objects that were changed or deleted, except those that depend on other objects."""
    kept = {label: item for label, item in before.items() if not label.startswith(FOLLOWING)}
    return [label for label, item in kept.items() if after.get(label) != item]


def require_verified(lab: Lab, played: PlaybookRun) -> None:
    """Every pool is verified by workloads, and the cluster has one NFD, one operator and one policy."""
    (validation,) = played.module_results("accel.gpu.gpu_validation")
    assert {pool: proof["status"] for pool, proof in validation["gpu_validation"]["pools"].items()} == {
        pool["name"]: "verified" for pool in POOLS
    }
    deployments = get(lab, "deployments", "-A")["items"]
    programs = [item["spec"]["template"]["spec"]["containers"][0]["command"][0] for item in deployments]
    assert sorted(name for name in programs if name != "nfd-gc") == ["gpu-operator", "nfd-master"]
    assert len(get(lab, "clusterpolicies")["items"]) == 1


def require_converged(lab: Lab) -> None:
    """A second run changes nothing and sends no write request."""
    since = audit.mark(LabLayout.named(lab.name))
    assert site(lab).changed() == 0
    for agent in ("accel.gpu/", "Helm/"):
        sent = [item for item in audit.requests(LabLayout.named(lab.name), since, agent) if item.mutating]
        assert sent == []


@pytest.mark.soak
@pytest.mark.usual(150)
@pytest.mark.parametrize("state", ["nothing", "nfd", "olm", "cloud"])
def test_every_initial_state_ends_verified_with_one_operator(empty: Lab, state: str) -> None:
    lab = empty
    STATES[state](lab)
    before = snapshot(lab)
    preview = run_playbook(SITE, environ=lab.env, arguments=["--check"]).require_success()
    assert preview.changed() > 0
    played = site(lab)
    require_verified(lab, played)
    assert gone_or_other(before, snapshot(lab)) == []
    require_converged(lab)
    reported = {"nothing": 0, "nfd": 1, "olm": 2, "cloud": 2}[state]
    assert shown(played).count("is adopted and not upgraded") == reported


def require_not_exported(lab: Lab) -> None:
    """With variables that named foreign releases, site would upgrade these."""
    played = run_playbook("accel.gpu.export", environ=lab.env).require_success()
    (written,) = played.module_results("accel.gpu.gpu_pools_export")
    for part in ("operator", "nfd"):
        assert not {"release", "namespace", "values"} & set(written["gpu_cluster"].get(part, {}))
        assert [
            line for line in written["remarks"] if "was not installed by" in line and f"gpu_cluster.{part} " in line
        ]


CONFIG = {
    "any": "version: v1\n",
    "t4": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n",
}


def configure_manually(lab: Lab) -> None:
    """As in guides: a ConfigMap with a default, named by the ClusterPolicy, and a label on a node."""
    entries = [f"--from-literal={name}={text}" for name, text in CONFIG.items()]
    run("kubectl", "-n", HELM_NAMESPACE, "create", "configmap", "time-slicing-config-all", *entries, env=lab.env)
    spec = {"devicePlugin": {"config": {"name": "time-slicing-config-all", "default": "any"}}}
    patch = json.dumps({"spec": spec})
    run("kubectl", "patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", patch, env=lab.env)
    run("kubectl", "label", "node", "t4-1", f"{NODE_CONFIG}=t4", env=lab.env)


def plugins(lab: Lab) -> dict[str, Any]:
    actual = get(lab, "daemonset", "nvidia-device-plugin-daemonset", "-n", HELM_NAMESPACE)
    return dict(actual["spec"])


@pytest.mark.usual(70)
@pytest.mark.sampled(1, group="whole runs")
def test_a_foreign_release_with_manual_settings(empty: Lab) -> None:
    """The foreign ConfigMap gets the collection's entries, no plugin restarts, and uninstall restores everything."""
    lab = empty
    STATES["helm"](lab)
    configure_manually(lab)
    wait = ("kubectl", "wait", "-n", HELM_NAMESPACE, "--timeout=120s")
    run(*wait, "--for=create", "daemonset/nvidia-device-plugin-daemonset", env=lab.env)
    run(*wait, "--for=condition=Ready", "clusterpolicy/cluster-policy", env=lab.env)
    before, spec, rolled = snapshot(lab), policy(lab)["spec"], plugins(lab)

    planned = run_playbook(PLAN, environ=lab.env).require_success()
    assert (
        f"in namespace {HELM_NAMESPACE} (Helm release gpus/nvidia-gpu-operator) is adopted and not upgraded"
        in shown(planned)
    )
    require_verified(lab, site(lab))
    require_converged(lab)
    require_not_exported(lab)

    managed = "ConfigMap gpus/time-slicing-config-all"
    after = snapshot(lab)
    assert gone_or_other(before, after) == [managed]
    assert after[managed]["data"].items() > CONFIG.items()
    assert after[managed]["metadata"] == before[managed]["metadata"]
    assert plugins(lab) == rolled
    # A toleration would restart the driver, so it is held back with its taint.
    assert policy(lab)["spec"] == spec
    assert get(lab, "node", "t4-1")["metadata"]["labels"][NODE_CONFIG].startswith("time-slicing-4-")

    remaining = run_playbook(UNINSTALL, environ=lab.env, variables={"gpu_confirm": lab.name}).require_success()
    reported = [
        line for result in remaining.module_results("accel.gpu.uninstall") for line in result["uninstall"]["kept"]
    ]
    assert "ClusterPolicy cluster-policy: adopted, stays: this collection did not install it" in reported
    assert gone_or_other(before, snapshot(lab)) == []
    assert policy(lab)["spec"] == spec
    assert "annotations" not in policy(lab)["metadata"] or not [
        key for key in policy(lab)["metadata"]["annotations"] if key.startswith("accel.gpu/")
    ]
    # Only the label that uninstall has restored.
    assert get(lab, "node", "t4-1")["metadata"]["labels"][NODE_CONFIG] == "t4"
    assert written_by(lab, "accel.gpu") == ["Node t4-1"]

    run("kubectl", "delete", "clusterpolicy", "--all", env=lab.env)
    refused = run_playbook(SITE, environ=lab.env, arguments=["--tags", "gpu_operator"])
    assert refused.rc != 0
    assert "has no ClusterPolicy" in refused.failure()
    planned = run_playbook(PLAN, environ=lab.env).require_success()
    assert "has no ClusterPolicy" in shown(planned)


@pytest.mark.soak
@pytest.mark.usual(120)
def test_replaced_values_are_restored(empty: Lab) -> None:
    lab = empty
    STATES["olm"](lab)
    # Until the driver runs, the tolerations of the pools are added, and removing them would restart it.
    ready = ("--for=condition=Ready", "clusterpolicy/gpu-cluster-policy", "--timeout=120s")
    run("kubectl", "wait", *ready, env=lab.env)
    spec = policy(lab)["spec"]
    # Devices of different sizes need another strategy than that of the policy.
    cut = {"mode": "mig", "layout": {"3g.40gb": 1, "2g.20gb": 1}}
    pools = [{**pool, **({"sharing": cut} if pool["name"] == "train-a100" else {})} for pool in POOLS]
    site(lab, arguments=["--tags", "gpu_operator"], variables={"gpu_pools": pools})
    managed = policy(lab)["spec"]
    assert managed["migManager"]["config"]["name"] == "accel-gpu-mig-parted"
    assert "strategy" not in managed["mig"]
    assert spec["mig"]["strategy"] == "single"
    run_playbook(UNINSTALL, environ=lab.env, variables={"gpu_confirm": lab.name}).require_success()
    assert policy(lab)["spec"] == spec
