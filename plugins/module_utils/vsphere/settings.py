# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a template's virtual machine that the machine controller does not set when it clones the template, so that clones inherit them.

A new setting whose value is the same for all templates (`fixed`) is one entry in SETTINGS, and a field in the RETURN of the modules vgpu_template and
vgpu_template_info (`configuration`). A setting that pools declare, such as mmio_gib, is in addition a field of Configuration and of TemplateRequest (both in
_resolve of templates.py), an option (_TEMPLATE and _request in module.py, and the documentation fragment vsphere), and a key of VGPU in schema/pool.py. Either
changes the checksum of every configuration, so the next run of each user builds new templates.

Source of what is inherited: openshift/machine-api-operator, pkg/controller/vsphere/reconciler.go, clone(). Source of what vGPUs need: NVIDIA's guide
"NVIDIA AI Enterprise with OpenShift" (openshift/nvaie-with-ocp.rst in NVIDIA/cloud-native-docs).
"""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from dataclasses import dataclass

from .client import PYVMOMI_IMPORT_ERROR, Item

if PYVMOMI_IMPORT_ERROR is None:
    from pyVmomi import vim

Values = t.Mapping[str, t.Any]
_USES_MMIO, _MMIO_SIZE = "pciPassthru.use64bitMMIO", "pciPassthru.64bitMMIOSizeGB"


@dataclass(frozen=True)
class Setting:
    """One setting.

    name: its name in results, and in reports of drift. properties: the paths of vCenter's properties from which `read` determines the actual value.
    write: adds it to the specification of a virtual machine, from the values of all settings. fixed: its value, if that is the same for all templates.
    """

    name: str
    properties: tuple[str, ...]
    read: t.Callable[[Item], t.Any]
    write: t.Callable[[t.Any, Values], None]
    fixed: t.Any = None


@dataclass(frozen=True)
class Configuration:
    """The settings that differ between templates."""

    profile: str
    count: int
    mmio_gib: int

    def to_dict(self) -> dict[str, t.Any]:
        """All settings by name, in the order of SETTINGS."""
        return {
            setting.name: getattr(self, setting.name) if setting.fixed is None else setting.fixed
            for setting in SETTINGS
        }


def extra_config(item: Item) -> dict[str, str]:
    """The extra configuration of a virtual machine, as text."""
    return {each.key: str(each.value) for each in item.get("config.extraConfig", ())}


def set_extra_config(spec: t.Any, options: t.Mapping[str, str]) -> None:
    """Add options to the extra configuration of a specification, in place of those with the same keys."""
    kept = [each for each in spec.extraConfig or () if each.key not in options]
    spec.extraConfig = [*kept, *(vim.option.OptionValue(key=key, value=value) for key, value in options.items())]


def vgpu_profiles(item: Item) -> Counter[str]:
    """The number of vGPU devices of each profile."""
    return Counter(
        str(device.backing.vgpu)
        for device in item.get("config.hardware.device", ())
        if isinstance(device, vim.vm.device.VirtualPCIPassthrough)
        and isinstance(device.backing, vim.vm.device.VirtualPCIPassthrough.VmiopBackingInfo)
    )


def _add_devices(spec: t.Any, values: Values) -> None:
    devices = []
    for number in range(values["count"]):
        backing = vim.vm.device.VirtualPCIPassthrough.VmiopBackingInfo(vgpu=values["profile"])
        # Negative keys are placeholders; the devices in the descriptor of an OVA use those from -1 on.
        device = vim.vm.device.VirtualPCIPassthrough(key=-1000 - number, backing=backing)
        devices.append(vim.vm.device.VirtualDeviceSpec(operation="add", device=device))
    spec.deviceChange = [*(spec.deviceChange or ()), *devices]


def _read_mmio(item: Item) -> int:
    extra = extra_config(item)
    size, is_used = extra.get(_MMIO_SIZE, ""), extra.get(_USES_MMIO, "").lower() == "true"
    return int(size) if is_used and re.fullmatch("[0-9]{1,9}", size) else 0


def _write_firmware(spec: t.Any, values: Values) -> None:
    spec.firmware = values["firmware"]


def _write_secure_boot(spec: t.Any, values: Values) -> None:
    spec.bootOptions = vim.vm.BootOptions(efiSecureBootEnabled=values["secure_boot"])


def _write_memory(spec: t.Any, values: Values) -> None:
    # A fixed reservation would not fit after the machine controller has set the size of the memory.
    spec.memoryReservationLockedToMax = values["memory_locked"]


SETTINGS: tuple[Setting, ...] = (
    # The devices of the profile are added by the next setting.
    Setting(
        "profile",
        ("config.hardware.device",),
        lambda item: ", ".join(sorted(vgpu_profiles(item))),
        lambda spec, values: None,
    ),
    Setting("count", ("config.hardware.device",), lambda item: vgpu_profiles(item).total(), _add_devices),
    Setting(
        "mmio_gib",
        ("config.extraConfig",),
        _read_mmio,
        lambda spec, values: set_extra_config(spec, {_USES_MMIO: "TRUE", _MMIO_SIZE: str(values["mmio_gib"])}),
    ),
    Setting(
        "firmware",
        ("config.firmware",),
        lambda item: str(item.get("config.firmware") or ""),
        _write_firmware,
        fixed="efi",
    ),
    # NVIDIA's driver is not signed with a key that the firmware knows.
    Setting(
        "secure_boot",
        ("config.bootOptions",),
        lambda item: bool(getattr(item.get("config.bootOptions"), "efiSecureBootEnabled", False)),
        _write_secure_boot,
        fixed=False,
    ),
    Setting(
        "memory_locked",
        ("config.memoryReservationLockedToMax",),
        lambda item: bool(item.get("config.memoryReservationLockedToMax")),
        _write_memory,
        fixed=True,
    ),
)
PROPERTIES = tuple(dict.fromkeys(path for setting in SETTINGS for path in setting.properties))


def read_settings(item: Item) -> dict[str, t.Any]:
    """The actual values of all settings of a virtual machine, whose PROPERTIES were read."""
    return {setting.name: setting.read(item) for setting in SETTINGS}


def write_settings(spec: t.Any, values: Values, only: t.Collection[str] | None = None) -> None:
    """Add settings to the specification of a virtual machine; `only`: the names of those to add."""
    for setting in SETTINGS:
        if only is None or setting.name in only:
            setting.write(spec, values)


def settings_differences(values: Values, actual: Values) -> dict[str, dict[str, t.Any]]:
    """The settings whose actual value differs: name -> recorded and actual value.

    Names that another release of this collection has recorded, and that are no settings of this one, have no actual value.
    """
    return {
        name: {"recorded": value, "actual": actual[name]}
        for name, value in values.items()
        if name in actual and actual[name] != value
    }
