# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tags of images that depend on the operating system and on the kernel."""

from __future__ import annotations

from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.images.mirror import policy_images

OFF: dict[str, Any] = {
    part: {"enabled": False}
    for part in ("toolkit", "devicePlugin", "gfd", "dcgm", "dcgmExporter", "migManager", "vfioManager")
}


def image(name: str, **more: Any) -> dict[str, Any]:
    """A part of the ClusterPolicy with an image."""
    return {"repository": "nvcr.io/nvidia", "image": name, "version": "580", **more}


def suffixes_of(precompiled: bool) -> list[str]:
    return ["5.15.0-91-generic-ubuntu22.04"] if precompiled else ["ubuntu22.04"]


def tags(**parts: Any) -> set[str]:
    spec = {**OFF, "driver": {"enabled": False}, "validator": image("validator"), **parts}
    return set(policy_images(spec, suffixes_of, {}).values())


def test_precompiled_drivers_have_the_kernel_in_their_tags() -> None:
    driver = image("driver", usePrecompiled=True, manager=image("manager"))
    assert "nvcr.io/nvidia/driver:580-5.15.0-91-generic-ubuntu22.04" in tags(driver=driver)
    driver["usePrecompiled"] = False
    assert "nvcr.io/nvidia/driver:580-ubuntu22.04" in tags(driver=driver)


def test_the_vgpu_manager_has_the_operating_system_in_its_tag() -> None:
    switched_off = {"sandboxDevicePlugin": {"enabled": False}, "vgpuDeviceManager": {"enabled": False}}
    manager = image("vgpu-manager", enabled=True, driverManager=image("manager"))
    actual = tags(sandboxWorkloads={"enabled": True}, vgpuManager=manager, **switched_off)
    assert "nvcr.io/nvidia/vgpu-manager:580-ubuntu22.04" in actual


def test_images_that_the_policy_does_not_name_are_those_of_the_operators_variables() -> None:
    """Source: ImagePath in gpu-operator v25.10.1, api/nvidia/v1/clusterpolicy_types.go."""
    names = {
        "CONTAINER_TOOLKIT_IMAGE": "toolkit",
        "DEVICE_PLUGIN_IMAGE": "plugin",
        "GFD_IMAGE": "gfd",
        "DCGM_IMAGE": "dcgm",
        "DCGM_EXPORTER_IMAGE": "exporter",
        "MIG_MANAGER_IMAGE": "mig",
        "VALIDATOR_IMAGE": "validator",
        "DRIVER_MANAGER_IMAGE": "manager",
        "VFIO_MANAGER_IMAGE": "vfio",
        "SANDBOX_DEVICE_PLUGIN_IMAGE": "sandbox",
        "VGPU_DEVICE_MANAGER_IMAGE": "vgpu",
    }
    spec = {"driver": image("driver"), "nodeStatusExporter": {"enabled": True}, "sandboxWorkloads": {"enabled": True}}
    actual = policy_images(spec, suffixes_of, names)
    assert set(actual.values()) == {"nvcr.io/nvidia/driver:580-ubuntu22.04", *names.values()}
    assert (actual["nodeStatusExporter"], actual["vfioManager.driverManager"]) == ("validator", "manager")
