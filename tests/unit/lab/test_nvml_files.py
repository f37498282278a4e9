# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine's files for NVIDIA's agents."""

from __future__ import annotations

import pytest

from lab import hardware, nvml_files
from plugins.module_utils.catalog import models

DRIVER = "580.159.04"


@pytest.mark.parametrize(
    ("model", "profile", "index"),
    # The numbers are those of nvml.h.
    [
        ("A100-SXM4-40GB", "1g.5gb", 0),
        ("A100-SXM4-40GB", "1g.5gb+me", 7),
        ("A100-SXM4-40GB", "1g.10gb", 9),
        ("A100-SXM4-40GB", "2g.10gb", 1),
        ("A100-SXM4-40GB", "7g.40gb", 4),
        ("A30", "2g.12gb+me", 8),
        ("A30", "4g.24gb", 3),
        ("RTX-PRO-6000-Server", "1g.24gb-me", 13),
        ("RTX-PRO-6000-Server", "2g.48gb+me.all", 16),
        ("RTX-PRO-6000-Server", "4g.96gb+gfx", 12),
    ],
)
def test_profiles_have_nvml_numbers(model: str, profile: str, index: int) -> None:
    machine = hardware.describe(models.find(model), 1, DRIVER)
    assert nvml_files.profile_index(machine, profile) == index
    assert nvml_files.profile_name(machine, index) == profile


@pytest.mark.parametrize("model", [model for model in models.MODELS if model.mig_capable], ids=lambda model: model.key)
def test_no_two_profiles_share_a_number(model: models.Model) -> None:
    machine = hardware.describe(model, 1, DRIVER)
    lines = [line.split() for line in nvml_files.files(machine, {})[nvml_files.DESCRIPTION].decode().splitlines()]
    profiles = [line for line in lines if line[0] == "profile"]
    assert len({line[1] for line in profiles}) == len({line[2] for line in profiles}) == len(machine["mig"]["profiles"])


@pytest.mark.parametrize(
    ("profile", "machine", "product", "memory", "pci_class"),
    [
        ("A100D-10C", "VMware20,1", "GRID A100D-10C", 10240, "0302"),
        ("A16-4Q", "KVM", "NVIDIA A16-4Q", 4096, "0300"),
        ("A100-1-5C", "KVM", "NVIDIA A100-1-5C", 5120, "0302"),
        ("M10-0B", "KVM", "NVIDIA M10-0B", 512, "0300"),
    ],
)
def test_the_driver_of_a_guest_shows_the_vgpu(
    profile: str, machine: str, product: str, memory: int, pci_class: str
) -> None:
    guest = hardware.describe(
        models.find("A100-80GB-PCIe"), 1, DRIVER, vgpu={"host_driver": DRIVER, "profile": profile}, machine=machine
    )
    assert (guest["product"], guest["memory_mib"], guest["mig_capable"]) == (product, memory, False)
    files = nvml_files.files(guest, {})
    description = files[nvml_files.DESCRIPTION].decode()
    assert product in description
    assert f"memory {memory << 20}\n" in description
    assert f"0x{pci_class}00\n".encode() in files.values()


def test_written_state_can_be_read() -> None:
    machine = hardware.describe(models.find("H200"), 3, DRIVER)
    layout = {0: ("1g.18gb@0", "3g.71gb@4"), 2: ()}
    state = nvml_files.files(machine, layout)[f"{nvml_files.DESCRIPTION}.state"].decode()
    read, positions = nvml_files.read_state(machine, state)
    assert read == layout
    assert sorted(positions.values()) == ["0", "0/1g.18gb@0", "0/3g.71gb@4", "1", "2"]


def test_a_gpu_without_mig_has_no_profiles() -> None:
    description = nvml_files.files(hardware.describe(models.find("L4"), 2, DRIVER), {})[nvml_files.DESCRIPTION].decode()
    assert "mig 0\n" in description
    assert "profile" not in description
    assert description.count("\ngpu GPU-") == 2


def test_a_guest_has_the_signature_of_a_vgpu() -> None:
    vgpu = {"host_driver": "580.159.01", "host_branch": "r580_00"}
    files = nvml_files.files(hardware.describe(models.find("A40"), 1, DRIVER, vgpu=vgpu), {})
    [configuration] = [content for path, content in files.items() if path.endswith("/config")]
    assert len(configuration) == 256
    assert configuration[0xD0:0xD7] == bytes([9, 0, 27]) + b"VF" + bytes([0, 22])
    assert configuration[0xD7:0xEB] == b"580.159.01r580_00\0\0\0"
