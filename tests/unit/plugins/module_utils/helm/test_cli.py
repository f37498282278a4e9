# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm's command lines, its reasons in one line, and its processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.accel.gpu.plugins.module_utils.helm import release
from ansible_collections.accel.gpu.plugins.module_utils.helm.release import (
    ChartProblem,
    Helm,
    HelmMissing,
    HelmUnsupported,
    cache_environment,
    error_summary,
    find_helm,
    is_running,
    require_supported_helm,
)
from tests.helpers.modules import run_module
from tests.helpers.programs import run_program


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ("Error: dial tcp 127.0.0.1:9: connect: connection refused\n", "Nothing listens at this address"),
        ("Error: lookup example.org: no such host\n", "does not resolve"),
        ('Error: chart "x" version "9" not found in http://r repository', "Check the name and version of the chart"),
        ("Error: repo x not found", "name and version"),
        ("Error: unexpected status: 401 Unauthorized", "registry login"),
        ("", "helm gave no reason"),
    ],
)
def test_error_summary_is_one_line_with_the_remedy(errors: str, text: str) -> None:
    line = error_summary(errors)
    assert text in line
    assert "\n" not in line
    assert not line.startswith("helm says: Error")


def test_a_helm_that_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "_TIMEOUT", 0.2)
    binary = tmp_path / "helm"
    binary.write_text("#!/bin/sh\nexec sleep 60\n")
    binary.chmod(0o755)
    with pytest.raises(
        ChartProblem, match=r"helm pull oci://r/x was stopped because it did not finish within 0.2 seconds"
    ):
        Helm(str(binary), run_program, str(tmp_path)).fetch("oci://r/x", None, None)


def test_helm_gets_no_value_on_its_command_line_and_no_cluster(tmp_path: Path) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []
    inputs: list[str | None] = []

    def run(
        args: list[str], *, environ_update: dict[str, str], data: str | None = None, **dummy: Any
    ) -> tuple[int, str, str]:
        calls.append((args, environ_update))
        inputs.append(data)
        return (
            (1, "", "Error: chart requires kubeVersion which is incompatible with Kubernetes v1")
            if len(calls) == 1
            else (0, "out", "")
        )

    helm = Helm("helm", run, str(tmp_path))
    assert helm.render("/charts/x", "x", "ns", {"password": "s3cr3t"}, lambda: "v1.36.4") == "out"
    assert all(
        "s3cr3t" not in " ".join(args) and environment["KUBECONFIG"] == "/dev/null" for args, environment in calls
    )
    assert calls[1][0][-2:] == ["--kube-version", "v1.36.4"]
    assert inputs == ["password: s3cr3t\n"] * 2
    assert list(tmp_path.iterdir()) == [], "a file would remain after a run that is killed"


@pytest.mark.parametrize(
    ("arguments", "running"),
    [
        (["/usr/bin/helm", "upgrade", "-i", "nfd", "/charts/nfd"], True),
        (["helm", "--namespace=x", "upgrade", "other", "c"], False),
        (["python", "helm", "nfd"], False),
        ([""], False),
        ([], False),
    ],
)
def test_is_running(arguments: list[str], running: bool) -> None:
    assert is_running("nfd", [["sh"], arguments]) is running


def test_helm_is_found_at_the_path_or_on_path(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text("")
    with pytest.raises(HelmMissing, match=r"no executable at binary_path .*Install Helm"):
        find_helm(str(helm), lambda name: "/usr/bin/helm")
    helm.chmod(0o755)
    assert find_helm(str(helm), lambda name: None) == str(helm)
    assert find_helm(None, lambda name: f"/usr/bin/{name}") == "/usr/bin/helm"
    with pytest.raises(HelmMissing, match="helm is not installed on this machine"):
        find_helm(None, lambda name: None)


def test_a_helm_that_cannot_be_started_is_missing(tmp_path: Path) -> None:
    """AnsibleModule.run_command itself would end the module with a message that names neither the program nor a remedy."""
    broken = tmp_path / "helm"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)

    def work() -> None:
        module = AnsibleModule({})
        try:
            Helm(str(broken), module.run_command, str(tmp_path)).render("/charts/x", "x", "ns", {}, lambda: "v1.36.4")
        except HelmMissing as error:
            module.exit_json(message=str(error))

    assert f"{broken} cannot be started: Exec format error. Install Helm" in run_module(work, {})["message"]


@pytest.mark.parametrize(
    ("output", "supported"),
    [("v3.12", True), ("v3.21.4\n", True), ("v3.11.3", False), ("v4.3", False), ("v4.0.0-rc.1", False), ("", True)],
)
def test_the_roles_need_helm_3(output: str, supported: bool) -> None:
    commands = []

    def run(command: list[str], **options: Any) -> tuple[int, str, str]:
        commands.append(command)
        return 0, output, ""

    if supported:
        require_supported_helm("/opt/helm", cast("Any", run))
    else:
        with pytest.raises(HelmUnsupported, match=r"^/opt/helm is Helm v\d.*set gpu_helm_binary"):
            require_supported_helm("/opt/helm", cast("Any", run))
    assert commands == [["/opt/helm", "version", "--template", "{{.Version}}"]]


@pytest.fixture
def without_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache of a user without a home."""
    for name in ("HOME", "HELM_CACHE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"accel-gpu-helm-{os.getuid()}"


def test_helm_has_a_cache_without_a_home(without_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_environment() == {"HELM_CACHE_HOME": str(without_home)}
    assert without_home.stat().st_mode & 0o777 == 0o700
    # The next call uses the same folder.
    assert cache_environment() == {"HELM_CACHE_HOME": str(without_home)}
    monkeypatch.setenv("HOME", "/nonexistent")
    assert cache_environment() == {"HELM_CACHE_HOME": str(without_home)}


@pytest.mark.parametrize("name", ["HOME", "HELM_CACHE_HOME", "XDG_CACHE_HOME"])
def test_helm_uses_the_cache_of_the_user(
    without_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(tmp_path))
    assert cache_environment() == {}
    assert not without_home.exists()


def test_helm_uses_no_cache_of_another_user(without_home: Path) -> None:
    without_home.mkdir()
    without_home.chmod(0o777)
    assert cache_environment() == {}
    without_home.rmdir()
    without_home.symlink_to("/tmp")
    assert cache_environment() == {}
