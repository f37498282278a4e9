# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan previews the upgrade of the operator's release, and what it says where it cannot; the lab's tests have real releases."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import (
    Installation,
    InstallationFinding,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.upgrade import (
    HelmTools,
    RefusalPreview,
    initial_values,
    preview_upgrade_of_site,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from tests.programs import REPO

Object = dict[str, Any]
VERSION = "v25.10.1"
POOL = {"name": "train", "match": {"model": "H200"}, "taints": [{"key": "team", "effect": "NoSchedule"}]}


def plan(chart: str = "gpu-operator", version: str = VERSION, pools: tuple[Object, ...] = (POOL,)) -> Plan:
    return derive({"name": "lab", "operator": {"version": version, "chart": chart}}, {}, list(pools))


def finding(managed: bool = True) -> InstallationFinding:
    actual = Installation("operator", "gpu-operator", "gpu-operator", "helm", "Helm release", VERSION)
    return InstallationFinding(actual, managed=managed)


class Server:
    """The Secrets of one release, or a user who may not read them."""

    def __init__(self, config: Object | None = None, status: str = "deployed", forbidden: bool = False) -> None:
        self.config, self.status, self.forbidden = config, status, forbidden

    def list(self, path: str, **options: Any) -> list[Object]:
        if self.forbidden:
            raise ApiError("forbidden", status=403)
        return [self.get(path)]

    def get(self, path: str) -> Object:
        metadata = {"name": "gpu-operator", "version": VERSION, "appVersion": VERSION}
        release = {"chart": {"metadata": metadata}, "config": self.config or {}, "manifest": ""}
        packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
        labels = {"version": "1", "status": self.status}
        return {
            "metadata": {"name": "sh.helm", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "data": {"release": packed},
        }


def preview(planned: Plan, server: Server, actual: InstallationFinding | None = None) -> RefusalPreview | None:
    def run(*arguments: Any, **options: Any) -> tuple[int, str, str]:
        raise AssertionError(f"helm was called: {arguments}")

    tools = HelmTools(None, lambda name: None, run, "/tmp")
    return preview_upgrade_of_site(cast("Client", server), planned, actual or finding(), tools, allowed=False)


def test_an_unchanged_release_needs_no_helm(tmp_path: Path) -> None:
    values = {**plan().operator.values, **initial_values(plan())}
    assert preview(plan(), Server(values)) is None
    # An earlier upgrade has added the name of the MIG configuration.
    assert preview(plan(), Server({**values, "migManager": {"config": {"name": "accel-gpu-mig-parted"}}})) is None
    chart = {"name": "gpu-operator", "version": VERSION, "appVersion": VERSION}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    # A chart from a path has its own version.
    assert preview(plan(str(tmp_path), "v26.7.0"), Server(values)) is None


@pytest.mark.parametrize(
    ("planned", "server"),
    [
        (plan(version="v26.7.0"), Server(plan().operator.values)),
        (plan(), Server(plan().operator.values, status="failed")),
        (plan(), Server({**plan().operator.values, "toolkit": {"version": "v9"}})),
    ],
    ids=["another version", "a failed revision", "another value"],
)
def test_a_changed_release_needs_helm(planned: Plan, server: Server) -> None:
    actual = preview(planned, server)
    assert actual is not None
    assert actual.problem.startswith("helm is not installed on this machine")
    assert actual.as_dict()["refusals"] == []


def test_a_missing_chart_is_a_problem(tmp_path: Path) -> None:
    actual = preview(plan(str(tmp_path / "missing"), "v26.7.0"), Server())
    assert actual is not None
    assert "does not exist" in actual.problem


def test_without_the_right_to_read_secrets_only_another_version_is_a_problem() -> None:
    assert preview(plan(), Server(forbidden=True)) is None
    actual = preview(plan(version="v26.7.0"), Server(forbidden=True))
    assert actual == RefusalPreview(problem="this user is not allowed to read Secrets in namespace gpu-operator")


@pytest.mark.parametrize(
    ("planned", "actual"),
    [
        (plan(pools=()), finding()),
        (plan(), finding(managed=False)),
        (plan(), InstallationFinding(None, managed=True)),
    ],
    ids=["no pools", "adopted", "not installed"],
)
def test_releases_that_site_does_not_upgrade(planned: Plan, actual: InstallationFinding) -> None:
    assert preview(planned, Server(forbidden=True), actual) is None


def test_the_initial_values_are_those_of_the_role() -> None:
    variables = yaml.safe_load((REPO / "roles" / "gpu_operator" / "vars" / "main.yml").read_text())
    assert " ".join(variables["__gpu_operator_initial_values"].split()) == (
        "{{ {'daemonsets': {'tolerations': gpu_plan.policy.tolerations}} "
        "| combine({'driver': {'nvidiaDriverCRD': {'enabled': true, 'deployDefaultCR': false}}} if 'driver' in gpu_plan.policy.spec else {}) }}"
    )
    tolerations = {"daemonsets": {"tolerations": [dict(item) for item in plan().policy.tolerations]}}
    assert initial_values(plan()) == tolerations
    declaring = plan(pools=({**POOL, "driver": {"version": "570.148.08"}},))
    assert initial_values(declaring) == {
        **tolerations,
        "driver": {"nvidiaDriverCRD": {"enabled": True, "deployDefaultCR": False}},
    }


def test_changed_values_are_listed_without_confidential_ones() -> None:
    installed = {
        **plan().operator.values,
        **initial_values(plan()),
        "devicePlugin": {"enabled": True},
        "driver": {"env": [{"name": "TOKEN", "value": "hidden-1"}], "labels": {"a.b/c": "hidden-2"}},
    }
    actual = preview(plan(), Server(installed))
    assert actual is not None
    values = {value["path"]: value for value in actual.as_dict()["values"]}
    assert values["devicePlugin.enabled"] == {"path": "devicePlugin.enabled", "before": True, "after": None}
    assert values["driver.env"] == {"path": "driver.env"}
    assert values["driver.labels.a.b/c"] == {"path": "driver.labels.a.b/c"}
    assert "hidden" not in str(actual.as_dict())
