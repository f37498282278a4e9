# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of a checkout of NVIDIA/gpu-driver-container, with installers and a catalog, whose images are built without a network.

The folders, files and arguments are those of NVIDIA's repository (rhel9/Dockerfile, versions.mk, vgpu/src/vgpu-util.go). The images have no
base, so that they contain only the drivers and a script.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.programs import run

DISTRIBUTIONS = ("rhel8", "rhel9", "ubuntu22.04", "ubuntu24.04")
CATALOG = "vgpuDriverCatalog.yaml"
_DOCKERFILE = """\
FROM scratch

ARG TARGETARCH
ENV TARGETARCH=$TARGETARCH
ARG GOLANG_VERSION
ARG BASE_URL=https://us.download.nvidia.com/tesla
ARG DRIVER_VERSION
ENV DRIVER_VERSION=$DRIVER_VERSION
ARG DRIVER_BRANCH
ENV DRIVER_BRANCH=$DRIVER_BRANCH
ARG DRIVER_TYPE=passthrough
ENV DRIVER_TYPE=$DRIVER_TYPE
ARG VGPU_LICENSE_SERVER_TYPE=NLS
ENV VGPU_LICENSE_SERVER_TYPE=$VGPU_LICENSE_SERVER_TYPE
ARG DISABLE_VGPU_VERSION_CHECK=true
ENV DISABLE_VGPU_VERSION_CHECK=$DISABLE_VGPU_VERSION_CHECK
ENV NVIDIA_VISIBLE_DEVICES=void
ARG CVE_UPDATES

ADD drivers drivers/
COPY nvidia-driver /usr/local/bin/

WORKDIR /drivers
LABEL name="NVIDIA Driver Container"
LABEL vendor="NVIDIA"
LABEL version="${DRIVER_VERSION}"

ENTRYPOINT ["nvidia-driver", "init"]
"""
_VERSIONS = """\
# Versions that the Makefile passes to the builds.
DRIVER_VERSIONS ?= 535.274.02 570.195.03 580.95.05
DRIVER_BRANCHES ?= $(shell echo $(DRIVER_VERSIONS))
GOLANG_VERSION := 1.25.3
CUDA_VERSION := 13.0.1
"""
_SCRIPT = '#!/bin/sh\n# The real script compiles and loads the driver.\necho "$1 $DRIVER_VERSION"\n'
# The first lines of a file that Makeself has created: a shell script, followed by an archive.
_INSTALLER = """\
#!/bin/sh
# This script was generated using Makeself 2.4.5

label="NVIDIA Accelerated Graphics Driver for Linux-{architecture} {version}"
script="./nvidia-installer"
targetdir="NVIDIA-Linux-{architecture}-{version}{kind}"
filesizes="{size}"
exit 0
"""


def write_context(folder: Path, distributions: Iterable[str] = DISTRIBUTIONS) -> Path:
    """Write the checkout, without installers; return the folder."""
    for distribution in distributions:
        drivers = folder / distribution / "drivers"
        drivers.mkdir(parents=True)
        (drivers / "README.md").write_text("The installers of the drivers.\n")
        (folder / distribution / "Dockerfile").write_text(_DOCKERFILE)
        script = folder / distribution / "nvidia-driver"
        script.write_text(_SCRIPT)
        script.chmod(0o755)
    (folder / "versions.mk").write_text(_VERSIONS)
    return folder


def write_installer(
    folder: Path,
    version: str,
    *,
    kind: str = "-grid",
    architecture: str = "x86_64",
    size: int = 64 * 1024,
    seed: int = 0,
) -> Path:
    """Write an installer of a driver into a folder; `kind` is empty for the driver of bare metal. Equal arguments give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"NVIDIA-Linux-{architecture}-{version}{kind}.run"
    header = _INSTALLER.format(architecture=architecture, version=version, kind=kind, size=size)
    path.write_bytes(header.encode() + random.Random(f"{path.name} {seed}").randbytes(size))
    path.chmod(0o755)
    return path


def branch_name(version: str) -> str:
    """Return the name that the catalog uses for the branch of a driver version."""
    return f"r{version.partition('.')[0]}_00"


def catalog(
    hosts: Sequence[str],
    guests: Sequence[str],
    *,
    allowed: Mapping[str, Sequence[str]] | None = None,
    denied: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return a catalog of the vGPU managers and guest drivers with these versions.

    A branch allows its own branch, and those of `allowed` by version of a driver of that branch. `denied` are the managers that a guest
    driver excludes, by its version.
    """
    more: dict[str, set[str]] = {}
    for version, others in (allowed or {}).items():
        for other in others:
            more.setdefault(branch_name(version), set()).add(branch_name(other))
            more.setdefault(branch_name(other), set()).add(branch_name(version))
    branches = [
        {"name": branch, "type": kind, "allow": {"branch": sorted({branch, *more.get(branch, ())})}}
        for kind, versions in (("host", hosts), ("guest", guests))
        for branch in sorted(set(map(branch_name, versions)))
    ]
    drivers: list[dict[str, Any]] = [_driver(version, "host") for version in hosts]
    for version in guests:
        entry = _driver(version, "guest") | {"os": ["linux"]}
        if managers := (denied or {}).get(version):
            entry["deny"] = {"driver": [{"version": manager} for manager in managers]}
        drivers.append(entry)
    return {"version": 1, "date": "2025-10-01", "branch": branches, "driver": drivers}


def write_catalog(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write a catalog into a folder under NVIDIA's name."""
    path = folder / CATALOG
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


def _driver(version: str, kind: str) -> dict[str, Any]:
    return {"version": version, "date": "2025-10-01", "branch": branch_name(version), "type": kind}


def remove_storage(storage: Path) -> None:
    """Remove the images of buildah's storage in this folder: without root, their layers belong to other users."""
    options = ("--root", storage, "--runroot", storage / "run", "--storage-driver", "vfs")
    run("buildah", *options, "rmi", "--all", "--force")


if __name__ == "__main__":
    given_folder, *given_versions = sys.argv[1:]
    write_context(Path(given_folder, "gpu-driver-container"))
    for given_version in given_versions:
        write_installer(Path(given_folder, "guest-drivers"), given_version)
