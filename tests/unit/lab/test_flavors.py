# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flavors of the lab's clouds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab import flavors, fleet
from lab.errors import LabError


def test_the_file_is_a_fleet_without_machines() -> None:
    assert fleet.load(flavors.FILE).groups == ()


def test_vks_names_match_the_hardware() -> None:
    offered = {name: flavor for name, flavor in flavors.load().items() if "vks" in flavor.offers}
    gpus = {name: flavor.machine for name, flavor in offered.items() if flavor.machine.gpus}
    assert {machine.model for machine in gpus.values()} == {"RTX-2080-Ti", "RTX-4090", "A40", "L40S", "H100-80GB-HBM3"}
    for name, machine in gpus.items():
        match = re.fullmatch(r"g[1-5]-standard-(\d+)x(\d+)(?:x\w+NVMe)?-(\d)(\w+)", name)
        assert match, name
        assert (machine.cpus, machine.memory, machine.gpus) == (int(match[1]), f"{match[2]}Gi", int(match[3]))
    ids = [flavor.offers["vks"]["id"] for flavor in offered.values()]
    assert len(set(ids)) == len(ids)


def test_nova_flavors_use_all_gpu_extra_specs() -> None:
    specs = {
        name: flavor.offers["magnum"].get("extra_specs", {})
        for name, flavor in flavors.load().items()
        if "magnum" in flavor.offers
    }
    keys = {key for spec in specs.values() for key in spec}
    assert keys == {"pci_passthrough:alias", "resources:VGPU", "trait:CUSTOM_NVIDIA_T4", "resources:PGPU"}
    machines = flavors.load()
    assert {name for name in specs if specs[name]} == {name for name in specs if machines[name].machine.gpus}


def test_every_error_has_its_location(tmp_path: Path) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text(
        "flavors:\n"
        "  a: {cpus: 2}\n"
        "  b: {model: T5, gpus: 1, magnum: {disk: 1}}\n"
        "  c: {count: 3, vks: {}}\n"
        "  d: {cpus: 2, aws: {}, vks: {}}\n"
    )
    with pytest.raises(LabError) as raised:
        flavors.load(path)
    for part in (
        "flavors.a.no cloud offers this flavor: add magnum or vks",
        "flavors.b.model: 'T5' is not in the catalog",
        "flavors.c.count: is not a key of a flavor",
        "flavors.d.aws: unknown key",
    ):
        assert part in str(raised.value)
