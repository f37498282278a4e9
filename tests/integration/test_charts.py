# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rendered charts of NVIDIA and NFD with the Helm values from gpu_cluster.operator."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.filter.plan_problems import plan_problems
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import stays_text_in_helm
from tests.helpers.variables import CLUSTER, Document, leaves
from tests.labs import Lab
from tests.programs import run

Rendering = Callable[..., list[Document]]

REGISTRY = "registry.example.com:5000/mirror"
FULL: Document = {
    "registry": REGISTRY,
    "image_pull_secrets": ["one", "two"],
    "driver": {"version": "580.95.05", "kernel_module_type": "open", "secret_env": "envs"},
    "proxy": {"http": "http://proxy:3128", "https": "http://proxy:3128", "no_proxy": ["10.0.0.0/8", ".svc"]},
    "repo_config": "repos",
    "cert_config": "ca",
    # Operands that the chart disables by default.
    "values": {"dcgm": {"enabled": True}, "gds": {"enabled": True}, "gdrcopy": {"enabled": True}},
}
# Not in any public registry: users who enable these set the registry, too.
PRIVATE = {"spec.vgpuManager"}


@pytest.fixture
def rendered(lab: Lab, tmp_path: Path) -> Rendering:
    """Return a function that renders a chart with the values from `gpu_cluster.operator`."""

    def render(chart: str, **operator: t.Any) -> list[Document]:
        plan = derive({**CLUSTER, "operator": operator}, {}, [])
        release = plan.operator if chart == "gpu-operator" else plan.nfd
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump(release.values))
        path = f"{lab.env['LAB_CHARTS']}/{chart}"
        message = run("helm", "template", release.name, path, "-n", release.namespace, "-f", values, env=lab.env)
        return [actual for actual in yaml.safe_load_all(message) if actual]

    return render


def policy(objects: list[Document]) -> Document:
    (actual,) = (actual for actual in objects if actual["kind"] == "ClusterPolicy")
    return actual


@pytest.mark.parametrize("chart", ["gpu-operator", "node-feature-discovery"])
def test_every_image_of_the_chart_comes_from_the_registry(chart: str, rendered: Rendering) -> None:
    objects = rendered(chart, **FULL)
    text = yaml.safe_dump_all(objects)
    assert not re.findall(r"(?:nvcr\.io|registry\.k8s\.io|docker\.io|ghcr\.io|quay\.io)\S*", text)
    containers = [
        container["image"]
        for actual in objects
        if actual["kind"] in ("Deployment", "DaemonSet", "Job")
        for group in ("initContainers", "containers")
        for container in actual["spec"]["template"]["spec"].get(group) or []
    ]
    assert containers
    assert all(image.startswith(f"{REGISTRY}/") for image in containers)


def test_every_operand_of_the_policy_has_the_registry_and_the_secrets(rendered: Rendering) -> None:
    actual = policy(rendered("gpu-operator", **FULL))
    repositories = dict(leaves(actual, "repository"))
    operands = {path for path, image in leaves(actual, "image")} - PRIVATE
    assert len(operands) >= 20
    assert set(repositories) == operands
    assert all(repository.startswith(f"{REGISTRY}/nvidia") for repository in repositories.values())
    managers = {path for path in operands if path.endswith(("driver.manager", ".driverManager"))}
    secrets = dict(leaves(actual, "imagePullSecrets"))
    assert set(secrets) - PRIVATE == operands - managers
    assert all(secret == ["one", "two"] for secret in secrets.values())


def test_only_the_registry_differs_from_the_defaults_of_the_chart(rendered: Rendering) -> None:
    """Only the host differs from the chart's default."""
    observed = dict(leaves(policy(rendered("gpu-operator", registry=REGISTRY)), "repository"))
    usual = dict(leaves(policy(rendered("gpu-operator")), "repository"))
    assert observed == {path: repository.replace("nvcr.io", REGISTRY) for path, repository in usual.items()}


def test_the_driver_settings_are_in_the_policy(rendered: Rendering) -> None:
    driver = policy(rendered("gpu-operator", **FULL))["spec"]["driver"]
    assert (driver["version"], driver["kernelModuleType"], driver["secretEnv"]) == ("580.95.05", "open", "envs")
    assert (driver["repoConfig"], driver["certConfig"]) == ({"configMapName": "repos"}, {"name": "ca"})
    assert {entry["name"] for entry in driver["env"]} == {
        spelled for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for spelled in (name, name.lower())
    }
    precompiled = {"version": "580", "precompiled": True}
    driver = policy(rendered("gpu-operator", driver=precompiled))["spec"]["driver"]
    assert (driver["version"], driver["usePrecompiled"]) == ("580", True)
    assert policy(rendered("gpu-operator", driver={"enabled": False}))["spec"]["driver"]["enabled"] is False


# Texts that some reader of YAML takes for a number or a boolean.
AMBIGUOUS = [
    *(
        "y",
        "Y",
        "n",
        "N",
        "yes",
        "off",
        "true",
        "null",
        "~",
        "1e3",
        "7e10",
        "1E-3",
        "1.5e3",
        "1.5e+3",
        "08",
        "0123",
        "0o17",
    ),
    *(
        "0O17",
        "0x1F",
        "0b11",
        "017",
        "1_000",
        "1.",
        ".5",
        "+.5",
        "-.5e1",
        "+1",
        "-08",
        "1:30",
        ".inf",
        "2026-01-01",
        "1.10",
        "v1",
    ),
    *(
        "580.95.05",
        "1e",
        "e3",
        "0o9",
        "12345678901234567890",
        "0",
        "0X1F",
        "0B101",
        "-0X1F",
        "-0x1F",
        "1_0e3",
        "0_8",
        "0o1_7",
    ),
    *("1e1_0", "1.5e1_0", "1e400", "12e4567", "1234e567", "_1", "1_", "0_7", "0x_1F", "_", "1e-400"),
]


def test_text_that_helm_would_convert_is_rejected(lab: Lab, tmp_path: Path) -> None:
    """No text that stays text is rejected, and no other one is accepted."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: kinds, version: 1.0.0}")
    (tmp_path / "templates" / "kinds.yaml").write_text("kinds: [{{ range .Values.texts }}{{ kindOf . }}, {{ end }}]\n")
    values = tmp_path / "values.yaml"
    # As kubernetes.core.helm writes values.
    values.write_text(yaml.dump({"texts": AMBIGUOUS}, default_flow_style=False))
    kinds = yaml.safe_load(run("helm", "template", "x", tmp_path, "-f", values, env=lab.env))["kinds"]
    converted = {text for text, kind in zip(AMBIGUOUS, kinds, strict=True) if kind != "string"}
    assert {text for text in AMBIGUOUS if stays_text_in_helm(text)} == converted
    assert {"Y", "08", "1e3"} <= converted
    problems = list(
        plan_problems({"gpu_cluster": {**CLUSTER, "operator": {"values": {"a": AMBIGUOUS}}}, "gpu_pools": []})
    )
    assert len(problems) == len(converted)
