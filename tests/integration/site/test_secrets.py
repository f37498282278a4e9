# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Planted secrets are found nowhere: not in output, results, objects of the cluster, files, or arguments of processes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.planted_secrets import (
    CLOUD_VARIABLES,
    Planted,
    Shown,
    admin_config,
    key_of,
    objects_with,
    token_config,
)
from tests.helpers.snapshot import kinds
from tests.labs import Lab
from tests.programs import environment, run

SITE, PLAN, EXPORT, JOIN = (f"accel.gpu.{name}" for name in ("site", "plan", "export", "new_nodes"))
RELEASES = {"gpu-operator": NAMESPACE, "nfd": "node-feature-discovery"}
CHARTS = {"nfd": "node-feature-discovery"}
JOINING = {"gpu_new_nodes_image": "registry.example.com/accel-gpu:1", "gpu_new_nodes_schedule": "0 0 29 2 *"}

pytestmark = pytest.mark.timeout(900)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("playbook", [SITE, PLAN, EXPORT])
def test_a_secret_in_values_is_refused_and_not_shown(tmp_path: Path, playbook: str) -> None:
    """Without a cluster."""
    planted = Planted()
    operator = {
        "driver": {"licensingConfig": {"token": planted.new("token")}},
        "note": f"Bearer {planted.new('header')}",
    }
    nfd = {"master": {"env": [{"name": "PROXY_PASSWORD", "value": planted.new("variable")}]}}
    shown = Shown(environment(TMPDIR=str(tmp_path)), tmp_path)
    cluster = {"name": "lab", "operator": {"values": operator}, "nfd": {"values": nfd}}
    assert shown.play(playbook, variables={"gpu_cluster": cluster, "gpu_pools": [{"name": "p"}]}) != 0
    assert "gpu_cluster.operator.values.driver.licensingConfig.token: contains a secret" in shown.text
    assert "set driver.licensingConfig.secretName" in shown.text
    assert "gpu_cluster.nfd.values.master.env[0].value: contains a secret" in shown.text
    assert planted.found_in(shown.text) == []
    assert planted.found_below(tmp_path) == []


@pytest.fixture
def planted(lab: Lab, tmp_path: Path) -> Planted:
    """The inventory's pools on a cluster whose releases have passwords from another helm run; the folder has two kubeconfigs."""
    cluster, planted = Cluster(lab).share(), Planted()
    for release, namespace in RELEASES.items():
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump({"leftover": {"password": planted.new(f"value of {release}")}}))
        chart = f"{lab.env['LAB_CHARTS']}/{CHARTS.get(release, release)}"
        run("helm", "upgrade", release, chart, "-n", namespace, "--reuse-values", "--no-hooks", "-f", str(values), env=lab.env)  # fmt: skip
        values.unlink()
    of_key, of_token = admin_config(cluster), token_config(cluster, "planted")
    planted.add("key", key_of(of_key))
    planted.add("token", of_token["users"][0]["user"]["token"])
    for name, config in (("key", of_key), ("token", of_token)):
        (tmp_path / f"{name}.kubeconfig").write_text(yaml.safe_dump(config))
    return planted


def shown_by(lab: Lab, planted: Planted, folder: Path, kubeconfig: str) -> Shown:
    """Runs with this kubeconfig, with the clouds' credentials in the environment, and with all their files in one folder."""
    (folder / "work").mkdir(exist_ok=True)
    work = folder / "work"
    local = {
        "TMPDIR": str(work), "ANSIBLE_LOCAL_TEMP": str(work / "local"), "ANSIBLE_REMOTE_TEMP": str(work / "remote"),
        "ANSIBLE_LOG_PATH": str(work / "ansible.log"), **{name: planted.new(name) for name in CLOUD_VARIABLES},
    }  # fmt: skip
    # kubernetes.core copies a kubeconfig from K8S_AUTH_KUBECONFIG for helm; see docs/secrets.md.
    kept = {name: value for name, value in lab.env.items() if not name.startswith("K8S_AUTH_")}
    return Shown({**kept, "KUBECONFIG": str(folder / f"{kubeconfig}.kubeconfig"), **local}, work)


def require_nowhere(planted: Planted, shown: Shown, seen: list[str], cluster: Cluster) -> None:
    """None of the secrets is in the output, in arguments, in files, or in objects other than Secrets."""
    assert planted.found_in(shown.text) == []
    assert seen == []
    assert planted.found_below(shown.folder) == []
    assert objects_with(cluster, planted, kinds(cluster.lab)) == []
    assert [path.name for path in shown.folder.iterdir() if path.name.startswith("accel-gpu-")] == []


@pytest.mark.usual(25)
@pytest.mark.sampled(1, group="planted secrets")
def test_output_of_reading_playbooks_has_no_secrets(lab: Lab, planted: Planted, tmp_path: Path) -> None:
    """Export omits the passwords of releases from its file, and reports that."""
    shown, export = shown_by(lab, planted, tmp_path, "key"), tmp_path / "work" / "export.yml"
    with planted.watched(shown.folder) as seen:
        assert shown.play(EXPORT, variables={"gpu_export_path": str(export)}, json_output=True) == 0, shown.text[-3000:]
        assert shown.play(EXPORT) == 0, shown.text[-3000:]
        assert shown.play(PLAN) == 0, shown.text[-3000:]
    require_nowhere(planted, shown, seen, Cluster(lab))
    assert stat.S_IMODE(export.stat().st_mode) == 0o600
    for text in (shown.text, export.read_text()):
        assert "not exported, because they look like secrets" in " ".join(text.replace("# ", " ").split())
        assert "values.leftover.password" in text


@pytest.mark.usual(40)
@pytest.mark.sampled(1, group="planted secrets")
def test_output_of_changing_playbooks_has_no_secrets(lab: Lab, planted: Planted, tmp_path: Path) -> None:
    """Releases with other values are upgraded, reports written, and the CronJob's ConfigMap created."""
    cluster, shown = Cluster(lab), shown_by(lab, planted, tmp_path, "token")
    reports = {
        "gpu_report_path": str(shown.folder / "report.json"),
        "gpu_report_html_path": str(shown.folder / "report.html"),
    }
    with planted.watched(shown.folder) as seen:
        tags = ("--tags", "nfd,gpu_operator,report")
        assert shown.play(SITE, *tags, "--check", json_output=True) == 0, shown.text[-3000:]
        assert shown.play(SITE, *tags, variables=reports) == 0, shown.text[-3000:]
        assert shown.play(JOIN, variables=JOINING) == 0, shown.text[-3000:]
    require_nowhere(planted, shown, seen, cluster)
    for path in map(Path, reports.values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    # Both releases have the declared values: the passwords are only in old revisions.
    for release, namespace in RELEASES.items():
        assert "leftover" not in run("helm", "get", "values", release, "-n", namespace, env=lab.env)
    config = cluster.get("configmap", "accel-gpu-new-nodes", "-n", "accel-gpu-new-nodes")
    (host,) = yaml.safe_load(config["data"]["inventory.yml"])["gpu_clusters"]["hosts"].values()
    assert set(host["gpu_cluster"]) <= {"name", "uid", "cloud", "operator"}
    assert set(host["gpu_cluster"]["operator"]) <= {"version", "namespace", "release"}
