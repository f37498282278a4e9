# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The build that follows from an installer and NVIDIA's build context: folder, arguments, and the digest of all inputs."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import BuildTarget
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.images.driver_build import (
    CATALOG_NAME,
    INPUTS_LABEL,
    BuildOptions,
    BuildSpec,
    build_arg_problems,
    downloads,
    find_spec,
    inputs_of,
    unreachable,
)

VERSION = "580.95.05"
RHEL9 = BuildTarget("rhel9")
GUEST = f"NVIDIA-Linux-x86_64-{VERSION}-grid.run"
DOCKERFILE = """\
ARG CUDA_VERSION
FROM registry.example.com/base:${CUDA_VERSION}
ARG DRIVER_TYPE=passthrough
ARG DRIVER_VERSION
ARG DRIVER_BRANCH
ARG TARGETARCH
ARG GOLANG_VERSION
ARG VGPU_LICENSE_SERVER_TYPE=NLS
ARG DISABLE_VGPU_VERSION_CHECK=true
"""
VERSIONS = "CUDA_VERSION ?= 13.0.1\nGOLANG_VERSION := 1.25.1\nUNUSED = 1\nDERIVED = $(CUDA_VERSION)\n"


@pytest.fixture
def options(tmp_path: Path) -> BuildOptions:
    """A build context with one folder, and a folder with one installer."""
    folder, installers = tmp_path / "context" / "rhel9", tmp_path / "installers"
    (folder / "drivers").mkdir(parents=True)
    installers.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "nvidia-driver").write_text("#!/bin/bash\n")
    (tmp_path / "context" / "versions.mk").write_text(VERSIONS)
    (installers / GUEST).write_text("driver")
    return BuildOptions(context=str(tmp_path / "context"), installers=str(installers))


def spec(options: BuildOptions) -> BuildSpec:
    """The build of the folder rhel9."""
    return find_spec(RHEL9, VERSION, options)


def test_arguments_are_those_of_the_makefile_that_the_dockerfile_declares(options: BuildOptions) -> None:
    expected = {
        "CUDA_VERSION": "13.0.1",
        "GOLANG_VERSION": "1.25.1",
        "DRIVER_TYPE": "vgpu",
        "DRIVER_VERSION": f"{VERSION}-grid",
        "DRIVER_BRANCH": "580",
        "VGPU_LICENSE_SERVER_TYPE": "NLS",
        "DISABLE_VGPU_VERSION_CHECK": "true",
        "TARGETARCH": "amd64",
    }
    assert spec(options).arguments == expected
    checked = replace(options, version_check=True, build_args={"GOLANG_VERSION": "1.26", "OWN": "x"})
    assert spec(checked).arguments == {
        **expected,
        "GOLANG_VERSION": "1.26",
        "OWN": "x",
        "DISABLE_VGPU_VERSION_CHECK": "false",
    }


def test_arguments_of_the_operating_system(options: BuildOptions) -> None:
    first, second = (
        BuildTarget("rhel9", (("OS_VERSION", version), ("UNDECLARED", "x"))) for version in ("15.6", "15.7")
    )
    (Path(options.context) / "rhel9" / "Dockerfile").write_text(f"ARG OS_VERSION\n{DOCKERFILE}")
    builds = [find_spec(target, VERSION, options) for target in (first, second)]
    assert [build.arguments["OS_VERSION"] for build in builds] == ["15.6", "15.7"]
    assert len({build.local_name for build in builds}) == 2
    assert "UNDECLARED" not in builds[0].arguments
    chosen = replace(options, build_args={"OS_VERSION": "15.5"})
    assert find_spec(first, VERSION, chosen).arguments["OS_VERSION"] == "15.5"


def test_a_context_without_versions(options: BuildOptions) -> None:
    (Path(options.context) / "versions.mk").unlink()
    assert not {"CUDA_VERSION", "GOLANG_VERSION"} & set(spec(options).arguments)


def test_labels_and_name(options: BuildOptions) -> None:
    actual = spec(options)
    labels = actual.labels()
    assert labels == {
        "accel.gpu/inputs": actual.inputs,
        "accel.gpu/driver-version": VERSION,
        "accel.gpu/driver-installer": GUEST,
        "accel.gpu/build-folder": "rhel9",
    }
    assert actual.local_name == f"localhost/accel-gpu/driver:rhel9-{actual.inputs[:24]}"
    assert (inputs_of(labels), inputs_of({}), inputs_of({INPUTS_LABEL: ""})) == (actual.inputs, "", "")


def test_the_inputs_of_an_unchanged_build_are_equal(options: BuildOptions) -> None:
    first = spec(options).inputs
    context, installers = Path(options.context) / "rhel9", Path(options.installers)
    os.utime(context / "nvidia-driver", (0, 0))
    (context / "drivers" / "old.run").write_text("not used")
    (context.parent / "README.md").write_text("another folder")
    (installers / "NVIDIA-Linux-x86_64-570.172.08-grid.run").write_text("another driver")
    assert spec(options).inputs == first
    # The path of the installer does not count.
    assert spec(replace(options, installers=str(installers / GUEST))).inputs == first


def test_each_input_counts(options: BuildOptions, tmp_path: Path) -> None:
    context, catalog = Path(options.context) / "rhel9", tmp_path / "catalog.yaml"
    seen = [spec(options).inputs]

    def changed(given: BuildOptions) -> None:
        seen.append(spec(given).inputs)
        assert len(set(seen)) == len(seen)

    (context / "nvidia-driver").write_text("#!/bin/sh\n")
    changed(options)
    (context / "nvidia-driver").chmod(0o755)
    changed(options)
    (context / "drivers" / "new").write_text("")
    changed(options)
    (context / "link").symlink_to("nvidia-driver")
    changed(options)
    # The link itself: the build gets it as it is.
    (context / "linked").symlink_to("drivers")
    changed(options)
    (context / "drivers" / CATALOG_NAME).write_text("a catalog in the checkout")
    changed(options)
    (context.parent / "versions.mk").write_text(VERSIONS.replace("1.25.1", "1.25.2"))
    changed(options)
    (Path(options.installers) / GUEST).write_text("another build of the driver")
    changed(options)
    catalog.write_text("version: 1\n")
    changed(replace(options, catalog_file=str(catalog)))
    changed(replace(options, version_check=True))
    changed(replace(options, build_args={"OWN": "x"}))


def test_a_catalog_in_the_checkout_is_replaced_by_that_of_the_options(options: BuildOptions, tmp_path: Path) -> None:
    (tmp_path / "catalog.yaml").write_text("version: 1\n")
    given = replace(options, catalog_file=str(tmp_path / "catalog.yaml"))
    first = spec(given).inputs
    (Path(options.context) / "rhel9" / "drivers" / CATALOG_NAME).write_text("not used")
    assert spec(given).inputs == first


def test_files_behind_a_link_to_the_drivers_count(options: BuildOptions, tmp_path: Path) -> None:
    drivers, elsewhere = Path(options.context) / "rhel9" / "drivers", tmp_path / "elsewhere"
    (drivers / "README.md").write_text("empty")
    first = spec(options).inputs
    drivers.rename(elsewhere)
    drivers.symlink_to(elsewhere)
    assert spec(options).inputs == first
    (elsewhere / "new").write_text("")
    assert spec(options).inputs != first


def test_pipes_and_sockets_are_refused(options: BuildOptions) -> None:
    context = Path(options.context) / "rhel9"
    os.mkfifo(context / "drivers" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(context / "socket"))
    # Neither is an installer.
    os.mkfifo(Path(options.installers) / f"NVIDIA-Linux-aarch64-{VERSION}-grid.run")
    with pytest.raises(InvalidOptions) as raised:
        spec(options).inputs  # noqa: B018
    assert raised.value.problems == [
        f"build_context: {context / name} is a pipe, a socket or a device; remove it, because a build needs only files, directories and links"
        for name in ("drivers/pipe", "socket")
    ]


@pytest.mark.parametrize(
    ("names", "version", "chosen"),
    [
        ([GUEST, f"NVIDIA-Linux-x86_64-{VERSION}.run"], VERSION, GUEST),
        ([GUEST, "NVIDIA-Linux-x86_64-580.95.02-vgpu-kvm.run"], VERSION, GUEST),
        (
            ["NVIDIA-Linux-x86_64-470.82.01-grid.run", "NVIDIA-Linux-x86_64-470.82-grid.run"],
            "470.82",
            "NVIDIA-Linux-x86_64-470.82-grid.run",
        ),
    ],
)
def test_the_guest_installer_of_the_version(options: BuildOptions, names: list[str], version: str, chosen: str) -> None:
    for name in names:
        (Path(options.installers) / name).write_text("x")
    assert Path(find_spec(RHEL9, version, options).installer).name == chosen


@pytest.mark.parametrize(
    ("names", "version", "problem"),
    [
        ([], "570.172.08", "has no installer of driver 570.172.08; copy NVIDIA-Linux-x86_64-570.172.08-grid.run from"),
        (["NVIDIA-Linux-x86_64-470.82.01-grid.run"], "470.82", "has no installer of driver 470.82;"),
        (["NVIDIA-Linux-x86_64-580.95.02-vgpu-kvm.run"], "580.95.02", "is the vGPU manager for KVM hosts"),
        (
            [f"NVIDIA-Linux-aarch64-{VERSION}-grid.run"],
            VERSION,
            f"has several installers of driver {VERSION}: NVIDIA-Linux-aarch64-{VERSION}-grid.run, {GUEST}. Set installers to one of these files",
        ),
    ],
)
def test_installers_that_do_not_fit(options: BuildOptions, names: list[str], version: str, problem: str) -> None:
    for name in names:
        (Path(options.installers) / name).write_text("x")
    with pytest.raises(InvalidOptions) as raised:
        find_spec(RHEL9, version, options)
    (actual,) = raised.value.problems
    assert actual.startswith("installers: ")
    assert problem in actual


def test_a_named_installer_has_the_declared_version(options: BuildOptions) -> None:
    named = replace(options, installers=str(Path(options.installers) / GUEST))
    with pytest.raises(InvalidOptions, match=r"contains driver 580\.95\.05, but the pools declare 570\.172\.08"):
        find_spec(RHEL9, "570.172.08", named)


def test_all_missing_files_are_reported(options: BuildOptions) -> None:
    broken = replace(options, installers="/nowhere", catalog_file="/nowhere.yaml")
    with pytest.raises(InvalidOptions) as raised:
        find_spec(BuildTarget("ubuntu22.04"), VERSION, broken)
    assert raised.value.problems == [
        "installers: there is no file or directory /nowhere",
        f"build_context: {options.context} has no ubuntu22.04/Dockerfile; it must be a checkout of NVIDIA's gpu-driver-container with that folder",
        "catalog_file: there is no file /nowhere.yaml",
    ]


def test_the_hosts_that_a_build_downloads_from(options: BuildOptions) -> None:
    folder = Path(options.context) / spec(options).folder
    (folder / "Dockerfile").write_text(
        f"""{DOCKERFILE}
# https://comment.example.org
RUN wget -O - https://go.dev/dl/go${{GOLANG_VERSION}}.tar.gz && git clone https://GitHub.com/NVIDIA/gpu-driver-container
ARG BASE_URL=https://mirror.example.com:8443/tesla
RUN curl https://${{HOST}}/x
"""
    )
    (folder / "install.sh").write_text('  echo "deb http://archive.ubuntu.com/ubuntu/ jammy main"\n')
    assert downloads(spec(options)) == {
        "go.dev": ("https", 443),
        "github.com": ("https", 443),
        "mirror.example.com": ("https", 8443),
        "archive.ubuntu.com": ("http", 80),
    }


def test_only_hosts_that_refuse_a_connection_are_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as open_port, socket.socket() as closed:
        open_port.bind(("127.0.0.1", 0))
        open_port.listen()
        closed.bind(("127.0.0.1", 0))
        hosts = {"localhost": ("http", open_port.getsockname()[1]), "127.0.0.1": ("http", closed.getsockname()[1])}
        assert unreachable(hosts) == ["127.0.0.1"]
        assert unreachable({}) == []
        # A proxy decides on the hosts behind it.
        monkeypatch.setenv("http_proxy", "http://proxy.example.com:3128")
        monkeypatch.setenv("no_proxy", "localhost")
        assert unreachable(hosts) == []


def test_the_installer_is_read_once(options: BuildOptions) -> None:
    actual = spec(options)
    first = actual.inputs
    (Path(options.installers) / GUEST).write_text("changed during the build")
    assert (actual.inputs, actual.local_name) == (first, f"localhost/accel-gpu/driver:rhel9-{first[:24]}")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("", "x", 'build_args: "" is not the name of an argument'),
        ("a b", "x", 'build_args: "a b" is not the name of an argument'),
        ("RHSM_PASSWORD", "planted", "build_args.RHSM_PASSWORD: is named like a secret"),
        ("A", None, "build_args.A: is"),
        ("A", ["planted"], "build_args.A: is"),
    ],
)
def test_build_arguments_that_are_rejected(name: str, value: object, problem: str) -> None:
    assert build_arg_problems({"BASE_IMAGE": "x", "JOBS": 4, "KERNEL_TOKENIZER": ""}) == []
    (actual,) = build_arg_problems({name: value})
    assert actual.startswith(problem)
    assert "planted" not in actual
