# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of the licenses of several clusters: its table, its problems and its exit status, also for nodes that join later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.rbac import USER_PREFIX
from tests.helpers.cluster import NAMESPACE
from tests.helpers.licensing import NEW_HOST, NODES, SECRET, Licensing
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until

pytestmark = [pytest.mark.lab, pytest.mark.usual(60), pytest.mark.timeout(900)]


def table_of(run: PlaybookRun) -> list[list[str]]:
    """The words of each line of the report, from the heads of its table on."""
    lines = run.stderr.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("CLUSTER"))
    return [line.split() for line in lines[head:]]


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_one_report_for_two_clusters(licensing: Licensing) -> None:
    inventory = licensing.folder / "inventory.yml"
    missing = {"name": "elsewhere", "kubeconfig": str(licensing.folder / "missing")}
    hosts = {
        "first": licensing.variables,
        "second": {**licensing.variables, "gpu_cluster": missing},
    }
    inventory.write_text(json.dumps({"gpu_clusters": {"hosts": hosts}}))
    run = run_playbook("accel.gpu.license_report", environ=licensing.lab.env, inventory=inventory)
    assert run.rc == 2
    first, second = table_of(run)[1:3]
    assert first[:6] == ["first", "20", "20", "0", "0", "0"]
    assert second[:2] == ["second", "-"]
    assert run.shown("second: The cluster could not be read: The kubeconfig")
    assert run.stats["first"]["failures"] == 0
    assert run.stats["second"]["failures"] == 1
    soon = licensing.play("license_report", gpu_licensing_min_days=400)
    assert soon.rc == 2
    assert f"The token in Secret {NAMESPACE}/{SECRET} expires at " in soon.failure()
    assert ", in 364 days. " in soon.failure()
    assert licensing.play("license_report", gpu_licensing_min_days=300).rc == 0
    licensing.put_token(licensing.token(NEW_HOST))
    outdated = licensing.play("license_report", gpu_licensing_min_days=300)
    assert outdated.rc == 2
    assert f"{NODES} nodes have a token that differs from the one in their Secret." in outdated.failure()


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_a_report_with_licenses_and_leases(licensing: Licensing) -> None:
    env = licensing.lab.env
    key = Path(env["LAB_NLS_API_KEY_FILE"]).read_text()
    given: dict[str, Any] = {
        "gpu_licensing_org": env["LAB_NLS_ORG"],
        "gpu_licensing_api_url": env["LAB_NLS"],
        "gpu_licensing_ca_cert": env["LAB_NLS_CA"],
    }

    def licenses_and_leases() -> list[str]:
        run = licensing.play("license_report", environ={"NLS_API_KEY": key}, **given).require_success()
        assert key not in run.stdout + run.stderr
        heads, row = table_of(run)[:2]
        assert heads[4:8] == ["UNKNOWN", "OUTDATED", "LICENSES", "LEASES"]
        return row[6:8]

    # Of four products.
    until(lambda: licenses_and_leases() == ["400", str(NODES)], limit=60)
    refused = licensing.play("license_report", gpu_licensing_api_key="wrong", **given)
    assert refused.rc == 2
    assert "The license servers could not be read: The license service does not accept the API key" in refused.failure()


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_a_report_with_an_expired_token_and_an_unreachable_cluster(licensing: Licensing) -> None:
    licensing.put_token(licensing.token(NEW_HOST, expires=4))
    until(lambda: not licensing.info()["license_info"]["objects"][0]["valid"], limit=20)
    folder = licensing.folder
    unreachable = yaml.safe_load(Path(licensing.lab.env["KUBECONFIG"]).read_text())
    unreachable["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (folder / "unreachable").write_text(yaml.safe_dump(unreachable))
    away = {"name": "away", "kube_name": licensing.lab.name, "kubeconfig": str(folder / "unreachable")}
    hosts = {"away": {**licensing.variables, "gpu_cluster": away}, "expired": licensing.variables}
    (folder / "inventory.yml").write_text(json.dumps({"gpu_clusters": {"hosts": hosts}}))
    environ = {**licensing.lab.env, "ANSIBLE_SHOW_CUSTOM_STATS": "1"}
    run = run_playbook("accel.gpu.license_report", environ=environ, inventory=folder / "inventory.yml")
    assert run.rc == 2
    assert [run.stats[name]["failures"] for name in hosts] == [1, 1]
    away_row, row = table_of(run)[1:3]
    assert away_row[:9] == ["away", *["-"] * 8]
    assert (row[:6], row[7:]) == (["expired", "20", "20", "0", "0", "20"], ["-1", NEW_HOST])
    expired = f"The token in Secret {NAMESPACE}/{SECRET} expired at "
    assert expired in run.failure("expired")
    assert run.shown(f"expired: {expired}")
    assert "".join(run.stderr.split()).count("".join(expired.split())) == 1
    assert "The cluster could not be read: Cannot reach the Kubernetes API at https://127.0.0.1:9" in run.failure(
        "away"
    )
    # The artifacts of AWX.
    summary = run.document["global_custom_stats"]["gpu_licensing_summary"]
    assert summary["away"] == {"days_left": None}
    assert (summary[licensing.lab.name]["licensed"], summary[licensing.lab.name]["days_left"]) == (NODES, -1)


def metrics_of(licensing: Licensing, node: str) -> str:
    """The metrics of a node, through the API server's proxy to its pod of dcgm-exporter."""
    selector = ("-l", "app=nvidia-dcgm-exporter", f"--field-selector=spec.nodeName={node}")
    (pod,) = licensing.cluster.get("pods", "-n", NAMESPACE, *selector)["items"]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9400/proxy/metrics"
    return str(licensing.cluster.kubectl("get", "--raw", path))


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_a_report_by_the_metric_without_commands(licensing: Licensing) -> None:
    environ = licensing.lab.env_as("license_report")
    kubectl = licensing.cluster.kubectl
    kubectl("delete", "rolebinding", "accel-gpu-license-report", "-n", NAMESPACE)
    metric, user = "accel-gpu-license-report-metric", f"{USER_PREFIX}license_report"
    kubectl("create", "rolebinding", metric, "-n", NAMESPACE, f"--role={metric}", f"--user={user}")
    given: dict[str, Any] = {"environ": environ, "gpu_licensing_min_days": 300}
    refused = licensing.play("license_report", **given)
    assert 'resources: ["pods/exec"]' in refused.failure()
    given["gpu_licensing_report_source"] = "dcgm_exporter"
    report = licensing.play("license_report", **given).require_success()
    assert report.shown(f"lab {NODES} {NODES} 0 0 0")
    sample = metrics_of(licensing, "vdi-1").splitlines()[-1]
    assert sample.startswith('DCGM_FI_DEV_VGPU_LICENSE_STATUS{gpu="0",UUID="GPU-')
    assert sample.endswith(',Hostname="vdi-1",DCGM_FI_DRIVER_VERSION="580.95.05"} 1')
    licensing.take_license("vdi-1")
    assert metrics_of(licensing, "vdi-1").splitlines()[-1] == f"{sample[:-1]}0"
    failed = licensing.play("license_report", **given)
    assert f"1 of {NODES} nodes have no verified license." in failed.failure()
    assert failed.shown("lab: Node vdi-1: Unlicensed. The metric does not show the cause.")


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_nodes_that_join_later(licensing: Licensing) -> None:
    joined = [f"vdi-{number}" for number in range(NODES + 1, NODES + 3)]
    licensing.lab.command("nodes", "scale", "vdi", str(NODES + len(joined)))
    until(lambda: licensing.info()["license_info"]["counts"]["nodes"] == NODES + 2, limit=60)
    # Their pool selects nodes that do not have its label yet, and its driver needs the label.
    early = licensing.play("license_report", gpu_licensing_min_days=300)
    assert early.rc == 2
    assert early.shown(
        "lab: 2 nodes, vdi-21, vdi-22: No driver pod. If the node has joined since the last run, run the playbook new_nodes."
    )
    licensing.play("new_nodes").require_success()
    # It waits until their drivers have started.
    verified = licensing.play("license").require_success()
    assert verified.changed("lab") == 0
    (result,) = verified.module_results("accel.gpu.license_info")
    assert (result["license_info"]["counts"]["nodes"], result["license_info"]["counts"]["licensed"]) == (NODES + 2,) * 2
    report = licensing.play("license_report", gpu_licensing_min_days=300).require_success()
    assert report.shown(f"lab {NODES + 2} {NODES + 2} 0 0 0")
    # One that gets no license is reported.
    licensing.take_license(joined[0])
    failed = licensing.play("license_report", gpu_licensing_min_days=300)
    assert failed.rc == 2
    assert f"1 of {NODES + 2} nodes have no verified license." in failed.failure()
    assert failed.shown(f"lab: Node {joined[0]}: Unlicensed")
    # One that leaves needs no license.
    licensing.lab.command("nodes", "scale", "vdi", str(NODES))
    licensing.play("license_report", gpu_licensing_min_days=300).require_success()
