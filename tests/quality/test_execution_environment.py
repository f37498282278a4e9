# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definition of the execution environment: the build context of the real ansible-builder, its pins, its downloads, and the packages of the collection.

tests/integration/awx/test_execution_environment.py builds it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.helpers.execution_environment import DEFINITION, HELM, KUBECTL, Dockerfile, pinned_package
from tests.programs import REPO, environment, run

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SYSTEMS = {
    "rhel": ('ID="rhel"\nVERSION_ID="9.6"\n', {"buildah", "shadow-utils", "skopeo"}, {"gzip", "tar"}),
    "centos": ('ID="centos"\nVERSION_ID="9"\n', {"buildah", "shadow-utils", "skopeo"}, {"gzip", "tar"}),
    "debian": ('ID=debian\nVERSION_ID="13"\n', {"buildah", "skopeo", "uidmap"}, {"curl", "gzip", "tar"}),
    "ubuntu": ('ID=ubuntu\nVERSION_ID="24.04"\n', {"buildah", "skopeo", "uidmap"}, {"curl", "gzip", "tar"}),
}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build context of the example."""
    folder = tmp_path_factory.mktemp("execution-environment") / "context"
    run("ansible-builder", "create", "-f", DEFINITION, "-c", folder, "--output-filename", "Dockerfile")
    return folder


@pytest.fixture(scope="module")
def requirements(context: Path, tree: Path) -> Path:
    """The folder with what ansible-builder's introspection writes for the collection: bindep.txt and requirements.txt."""
    run(
        *("python", context / "_build" / "scripts" / "introspect.py", "introspect", tree.parents[2]),
        *("--user-bindep", context / "_build" / "bindep.txt"),
        *("--write-bindep", context / "bindep.txt", "--write-pip", context / "requirements.txt"),
    )
    return context


@pytest.mark.usual(3)
def test_versions_are_those_that_the_project_tests(context: Path) -> None:
    arguments = Dockerfile(context).arguments
    core, runner = pinned_package("ansible-core"), pinned_package("ansible-runner")
    assert arguments["HELM_VERSION"] == HELM
    assert arguments["KUBECTL_VERSION"] == KUBECTL
    assert arguments["ANSIBLE_INSTALL_REFS"] == f"ansible-core=={core} ansible-runner=={runner}"
    checksums = [value for name, value in arguments.items() if "SHA256" in name]
    assert len(set(checksums)) == 2 * len(ARCHITECTURES)
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in checksums)


@pytest.mark.usual(5)
@pytest.mark.parametrize("system", SYSTEMS)
def test_system_packages(requirements: Path, tmp_path: Path, system: str) -> None:
    release, installed, compiled = SYSTEMS[system]
    (tmp_path / "os-release").write_text(release)
    (tmp_path / "lsb-release").touch()
    packages = {
        profile: set(
            run(
                *("bindep", "-f", requirements / "bindep.txt", "-l", "newline", *profile),
                env=environment(UNIXCONFDIR=str(tmp_path)),
            ).split()
        )
        for profile in ((), ("compile",))
    }
    assert packages[()] == installed
    assert packages["compile",] - installed == compiled


@pytest.mark.usual(3)
def test_python_packages(requirements: Path) -> None:
    lines = (REPO / "requirements.txt").read_text(encoding="utf-8").splitlines()
    needed = {Requirement(line.partition("#")[0]).name for line in lines if not line.startswith("#")}
    written = (requirements / "requirements.txt").read_text(encoding="utf-8").splitlines()
    # ansible-builder leaves PyYAML to ansible-core.
    assert {Requirement(line.partition("#")[0]).name for line in written} == needed - {"PyYAML"}


def mirror(folder: Path, architecture: str) -> dict[str, str]:
    """Write the files of both mirrors; return the build arguments for them."""
    content = folder / "content"
    content.mkdir()
    (content / "helm").write_text(f"helm of {architecture}")
    archive = folder / f"helm-{HELM}-linux-{architecture}.tar.gz"
    with tarfile.open(archive, "w:gz") as writer:
        writer.add(content / "helm", f"linux-{architecture}/helm")
    kubectl = folder / KUBECTL / "bin" / "linux" / architecture / "kubectl"
    kubectl.parent.mkdir(parents=True)
    kubectl.write_text(f"kubectl of {architecture}")
    checksums = {
        f"{name}_SHA256_{architecture.upper()}": hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in (("HELM", archive), ("KUBECTL", kubectl))
    }
    return {"HELM_URL": folder.as_uri(), "KUBECTL_URL": folder.as_uri(), **checksums}


def download(context: Path, folder: Path, machine: str, arguments: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the download of the Dockerfile in a folder, on a machine of this kind."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "uname").write_text(f"#!/bin/sh\necho {machine}\n")
    (programs / "uname").chmod(0o755)
    (folder / "programs").mkdir()
    dockerfile = Dockerfile(context)
    given: dict[str, Any] = {**dockerfile.arguments, **arguments}
    environ = environment()
    return subprocess.run(
        ["/bin/sh", "-c", dockerfile.shell_command("curl")],
        cwd=folder / "programs",
        env={**environ, **given, "PATH": f"{programs}:{environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_downloads(context: Path, tmp_path: Path, machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    (tmp_path / "mirror").mkdir()
    done = download(context, tmp_path, machine, mirror(tmp_path / "mirror", architecture))
    assert done.returncode == 0, done.stderr
    programs = {path.name: path for path in (tmp_path / "programs").iterdir()}
    assert {name: path.read_text() for name, path in programs.items()} == {
        "helm": f"helm of {architecture}",
        "kubectl": f"kubectl of {architecture}",
    }
    assert {path.stat().st_mode & 0o777 for path in programs.values()} == {0o755}


@pytest.mark.parametrize("name", ["HELM", "KUBECTL"])
def test_a_download_with_another_checksum_fails_the_build(context: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "mirror").mkdir()
    arguments = mirror(tmp_path / "mirror", "amd64")
    del arguments[f"{name}_SHA256_AMD64"]
    done = download(context, tmp_path, "x86_64", arguments)
    assert done.returncode != 0
    assert "computed checksum did NOT match" in done.stderr
    assert not (tmp_path / "programs" / "helm").exists()


def test_another_machine_fails_the_build(context: Path, tmp_path: Path) -> None:
    done = download(context, tmp_path, "riscv64", {})
    assert (done.returncode, done.stderr) == (1, "there are no checksums for riscv64\n")
