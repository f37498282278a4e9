# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A configured cluster is exported; a plan with the exported variables has no changes, and a run makes none."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab
from tests.programs import run

# Every mode, a layout by GPU, labels, a taint, Helm values, and a pool that only its registration labels define.
TUNED: list[dict[str, Any]] = [
    {
        "name": "notebooks",
        "match": {"model": "T4"},
        "labels": {"team": "teaching"},
        "sharing": {"mode": "mps", "replicas": 4},
    },
    {
        "name": "inference",
        "match": {"model": "L40S"},
        "sharing": {"mode": "time-slicing", "replicas": 2, "rename": True},
    },
    {"name": "pinned", "sharing": {"mode": "time-slicing", "replicas": 3, "fail_requests_greater_than_one": False}},
    {
        "name": "train-a100",
        "match": {"model": "A100-SXM4-80GB"},
        "gpus_per_node": 8,
        "sharing": {"mode": "mig", "layout": {0: {"7g.80gb": 1}, 1: {"1g.10gb": 7}}},
    },
    {
        "name": "train-h100",
        "match": {"model": "H100-80GB-HBM3"},
        "taints": [{"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}],
        "sharing": {"mode": "mig", "layout": {"1g.10gb": 7}},
    },
]


def reported(played: PlaybookRun) -> dict[str, Any]:
    (fleet,) = played.require_success().module_results("accel.gpu.gpu_info")
    actual: dict[str, Any] = fleet["gpu_info"]
    return actual


@pytest.mark.usual(80)
@pytest.mark.sampled(1, group="whole runs")
@pytest.mark.timeout(1800)
def test_a_tuned_cluster_comes_back(lab: Lab, tmp_path: Path) -> None:
    lab.reset()
    cluster = Cluster(lab)
    cluster.kubectl("label", "node", "h200-1", "accel.gpu/pool=pinned")
    charts = Path(lab.env["LAB_CHARTS"])
    settings = {
        "name": lab.name,
        "operator": {"chart": str(charts / "gpu-operator"), "values": {"dcgm": {"enabled": False}}},
        "nfd": {"chart": str(charts / "node-feature-discovery")},
    }
    tuned = {"gpu_cluster": settings, "gpu_defaults": {}, "gpu_pools": TUNED}
    run_playbook("accel.gpu.site", environ=lab.env, variables=tuned, timeout=1200).require_success()

    mark = cluster.mark()
    path = tmp_path / "export.yml"
    path.write_text("readable by all")
    path.chmod(0o644)
    # It gets only those variables that an export cannot find in the cluster.
    bare = {"name": lab.name, **{part: {"chart": settings[part]["chart"]} for part in ("operator", "nfd")}}  # type: ignore[index]
    # A relative path starts where ansible-playbook is started.
    variables = {"gpu_cluster": bare, "gpu_pools": [], "gpu_export_path": os.path.relpath(path)}
    preview = run_playbook("accel.gpu.export", environ=lab.env, variables=variables, arguments=["--check"])
    assert preview.require_success().changed() == 1
    assert path.read_text() == "readable by all"
    played = run_playbook("accel.gpu.export", environ=lab.env, variables=variables).require_success()
    assert played.changed() == 1
    (actual,) = played.module_results("accel.gpu.gpu_pools_export")
    assert not [
        request for request in cluster.requests(mark, "gpu_pools_export") if not request.startswith(("get", "list"))
    ]
    assert actual["changing_nodes"] == 0
    assert "dcgm" not in str(actual)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run_playbook("accel.gpu.export", environ=lab.env, variables=variables).require_success().changed() == 0
    written = yaml.safe_load(path.read_text())
    assert written["gpu_cluster"]["operator"]["values"] == {"dcgm": {"enabled": False}}
    by_name = {pool["name"]: pool for pool in written["gpu_pools"]}
    # The other H200 node had no pool, so the export creates one for it.
    assert {*by_name} == {pool["name"] for pool in TUNED} | {"h200"}
    for pool in TUNED:
        assert by_name[pool["name"]]["sharing"] == pool["sharing"]
        assert by_name[pool["name"]].get("taints") == pool.get("taints")

    del by_name["h200"]
    written["gpu_pools"] = list(by_name.values())
    planned = run_playbook("accel.gpu.plan", environ=lab.env, variables=written)
    fleet = reported(planned)
    assert fleet["drift"] == []
    assert all(pool["changes"] == {} for pool in fleet["pools"].values())
    assert not any(fleet["impact"].values())
    assert "IMPACT" not in planned.stderr
    again = run_playbook("accel.gpu.site", environ=lab.env, variables=written, timeout=1200).require_success()
    assert again.changed() == 0


@pytest.mark.usual(70)
@pytest.mark.sampled(1, group="whole runs")
@pytest.mark.timeout(1800)
def test_hostile_text_of_a_cluster_is_data(lab: Lab, tmp_path: Path) -> None:
    """Nothing that a cluster contains is executed by the export, by a plan with the exported file, by a check, or by a run that passes it to Helm."""
    cluster = Cluster(lab).share()
    canary, path = tmp_path / "canary", tmp_path / "export.yml"
    template = f"{{{{ lookup('pipe', 'touch {canary}') }}}}"
    header = f"#jinja2:variable_start_string:'[[', variable_end_string:']]'\n[[ lookup('pipe', 'touch {canary}') ]]"
    hostile = {
        template: [template, {"in": header}],
        "go": "{{- range .Values.x }}{{ . }}{{ end -}}",
        "line": "\u2028gpu_pools: []",
        "esc": "\x1b[2J",
    }
    values = tmp_path / "values.json"
    values.write_text(json.dumps({"extra": hostile}))
    chart = str(Path(lab.env["LAB_CHARTS"]) / "gpu-operator")
    upgrade = ("helm", "upgrade", "gpu-operator", chart, "-n", "gpu-operator", "--reuse-values", "-f", str(values))
    run(*upgrade, env=lab.env)
    entry = json.dumps({"data": {"foreign": json.dumps({"version": template})}})
    cluster.kubectl("patch", "configmap", "accel-gpu-device-plugin", "-n", "gpu-operator", "--type=merge", "-p", entry)
    cluster.kubectl("annotate", "nodes", "--all", f"example.com/owner={template}")

    variables = {"gpu_export_path": str(path)}
    run_playbook("accel.gpu.export", environ=lab.env, variables=variables).require_success()
    assert "!unsafe" in path.read_text()
    exported = ["-e", f"@{path}"]
    planned = run_playbook("accel.gpu.plan", environ=lab.env, arguments=exported)
    assert reported(planned)["drift"] == []
    without_validation = [*exported, "--skip-tags", "validation"]
    checked = run_playbook("accel.gpu.site", environ=lab.env, arguments=[*without_validation, "--check", "--diff"])
    assert [
        (name, result.get("diff")) for name, result in checked.require_success().results() if result.get("changed")
    ] == []

    path.write_text(path.read_text().replace("extra:", f"more: !unsafe {json.dumps(template)}\n      extra:", 1))
    run_playbook("accel.gpu.site", environ=lab.env, arguments=without_validation, timeout=1200).require_success()
    live = json.loads(run("helm", "get", "values", "gpu-operator", "-n", "gpu-operator", "-o", "json", env=lab.env))
    assert (live["extra"], live["more"]) == (hostile, template)
    assert not canary.exists()
