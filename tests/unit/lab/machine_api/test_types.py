# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instance types of OpenShift's platforms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import machine_type_gpus
from lab.errors import LabError
from lab.fleet import HARDWARE_ANNOTATION
from lab.machine_api import types
from lab.machine_api.machine_sets import machine_sets
from lab.openshift import objects, releases
from lab.vsphere import inventory


def test_every_platform_has_types_with_and_without_gpus() -> None:
    for platform, machines in types.load().items():
        assert {bool(machine.gpus) for machine in machines.values()} == {True, False}, platform
    assert set(types.load()) == set(objects.PLATFORMS) - {"VSphere"}


def test_the_gpus_are_those_of_the_catalog() -> None:
    for platform in ("AWS", "Azure", "GCP"):
        for name, machine in types.load()[platform].items():
            known = machine_type_gpus(name)
            if known is not None:
                assert (machine.gpus, machine.model in known.keys) == (known.count, True), name


@pytest.mark.parametrize("minor", releases.RELEASES)
@pytest.mark.parametrize("platform", objects.PLATFORMS)
def test_the_installers_machines_have_a_type(platform: str, minor: str) -> None:
    known = types.cloud(platform, releases.find(minor), 1)
    for machine_set in machine_sets(platform):
        provider = machine_set["spec"]["template"]["spec"]["providerSpec"]["value"]
        kind = (
            provider.get("instanceType")
            or provider.get("vmSize")
            or provider.get("machineType")
            or ""  # virtual machines have no types
        )
        node = known["types"][kind]["node"]
        assert "node-role.kubernetes.io/worker" in node["metadata"]["labels"]
        assert node["metadata"]["labels"]["lab.accel.gpu/cloud"] == "machines"
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("cri-o://")


def test_virtual_machines_have_the_vgpus_of_each_profile() -> None:
    known = types.cloud("VSphere", releases.find("4.18"), 1)["types"]
    assert known[""]["gpus"] == 0
    hardware = json.loads(known["grid_a100-3-20cx2"]["node"]["metadata"]["annotations"][HARDWARE_ANNOTATION])
    assert (hardware["product"], hardware["gpus"], hardware["memory_mib"]) == ("GRID A100-3-20C", 2, 20480)
    assert hardware["vgpu"]["host_driver"] == inventory.MANAGER_VERSION
    offered = {
        profile["name"]
        for center in inventory.inventory()["datacenters"]
        for cluster in center["clusters"]
        for host in cluster["hosts"]
        for gpu in host["gpus"]
        for profile in gpu["profiles"]
    }
    assert offered == {name.removesuffix("x1") for name in known if name.endswith("x1")}


@pytest.mark.parametrize(("memory", "expected"), [("512Mi", 512), ("16Gi", 16384), ("2Ti", 2 << 20)])
def test_mebibytes(memory: str, expected: int) -> None:
    assert types.mebibytes(memory) == expected


def test_every_error_of_the_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "types.yaml"
    path.write_text("AWS: {a: {model: T5, gpus: 1}, b: {labels: {}}}\nMars: {c: {cpus: 4}}\n")
    with pytest.raises(LabError) as error:
        types.load(path)
    for part in ("AWS.a.model: 'T5'", "AWS.b.labels: is not a key", "Mars: is not a platform"):
        assert part in str(error.value)
    with pytest.raises(LabError, match="invalid amount of memory '16G'"):
        types.mebibytes("16G")
