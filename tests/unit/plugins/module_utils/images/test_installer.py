# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver in an installer file, by its name."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.images.driver_build import (
    Installer,
    WrongInstaller,
    parse_installer,
)


@pytest.mark.parametrize(
    ("name", "version", "architecture"),
    [
        ("NVIDIA-Linux-x86_64-580.95.05-grid.run", "580.95.05", "amd64"),
        ("NVIDIA-Linux-x86_64-470.63-grid.run", "470.63", "amd64"),
        ("NVIDIA-Linux-aarch64-595.58.03-grid.run", "595.58.03", "arm64"),
    ],
)
def test_guest_drivers(name: str, version: str, architecture: str) -> None:
    assert parse_installer(name) == Installer(name, version, architecture)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "NVIDIA-Linux-x86_64-580.95.02-vgpu-kvm.run",
            "is the vGPU manager for KVM hosts. The image needs the guest driver",
        ),
        ("NVIDIA-Linux-x86_64-580.95.02-vgpu-kvm-aie.run", "is the vGPU manager for KVM hosts"),
        ("NVIDIA-Linux-x86_64-470.63-vgpu-xen.run", "is the vGPU manager for Xen hosts"),
        ("NVIDIA-Linux-x86_64-580.95.05.run", "is the data center driver, which has no vGPU license client"),
        ("NVIDIA-Linux-x86_64-580.95.05-no-compat32.run", "is the data center driver"),
        ("NVIDIA-Linux-x86_64-580.95.05-custom.run", "is a driver of a different kind (custom)"),
        ("NVIDIA-Linux-ppc64le-580.95.05-grid.run", "does not have the name of an NVIDIA driver"),
        ("NVIDIA-Linux-x86_64-580-grid.run", "does not have the name of an NVIDIA driver"),
        ("NVIDIA-Linux-x86_64-580.95.05-grid.run.part", "does not have the name of an NVIDIA driver"),
        ("driver.run", "such as NVIDIA-Linux-x86_64-580.95.05-grid.run"),
        ("", "does not have the name of an NVIDIA driver"),
    ],
)
def test_other_files(name: str, message: str) -> None:
    with pytest.raises(WrongInstaller) as raised:
        parse_installer(name)
    assert message in str(raised.value)


def test_the_message_names_the_file_to_use() -> None:
    with pytest.raises(
        WrongInstaller, match=r"NVIDIA-Linux-aarch64-580\.95\.02-grid\.run in the directory Guest_Drivers"
    ):
        parse_installer("NVIDIA-Linux-aarch64-580.95.02-vgpu-kvm.run")
