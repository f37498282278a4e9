# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine's hardware as files, which the lab's libnvidia-ml.so.1 (lab/nvml) and NVIDIA's agents read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plugins.module_utils.catalog import mig as catalog
from plugins.module_utils.sharing_modes.mig import plain

from .api import Object

DESCRIPTION = "/lab/gpus"
_STATE = f"{DESCRIPTION}.state"

# NVML_GPU_INSTANCE_PROFILE_* of nvml.h, by suffix of the profile name and number of compute slices.
_PLAIN = {1: 0x0, 2: 0x1, 3: 0x2, 4: 0x3, 7: 0x4, 8: 0x5, 6: 0x6}
_OF_KIND = {
    "+me": {1: 0x7, 2: 0x8},
    "double": {1: 0x9},
    "+gfx": {1: 0xA, 2: 0xB, 4: 0xC},
    "-me": {1: 0xD, 2: 0xE},
    "+me.all": {1: 0xF, 2: 0x10},
}
# Base for profile ids that no source documents; they only have to be unique.
_INVENTED_ID = 100

# A vGPU guest's PCI configuration has a vendor-specific capability with the signature "VF". Its record 0 contains the
# host's driver version and branch, 10 bytes each. Source: k8s-device-plugin v0.19.0 internal/vgpu/{pciutil,vgpu}.go.
_CAPABILITIES, _CAPABILITIES_AT, _VENDOR_SPECIFIC = 0x10, 0xD0, 0x09
_RECORD_SIZE = 22


def profile_index(hardware: Object, name: str) -> int:
    """Return the NVML_GPU_INSTANCE_PROFILE_* number of one of this hardware's profiles."""
    profiles = {profile["name"]: profile for profile in hardware["mig"]["profiles"]}
    compute, size = profiles[name]["compute"], profiles[name]["size"]
    kind = name.removeprefix(plain(name))
    if not kind and any(p["compute"] == compute and p["size"] < size for p in profiles.values()):
        kind = "double"
    return _OF_KIND[kind][compute] if kind else _PLAIN[compute]


def profile_name(hardware: Object, index: int) -> str:
    """Return the name of the profile with this NVML_GPU_INSTANCE_PROFILE_* number."""
    names: list[str] = [profile["name"] for profile in hardware["mig"]["profiles"]]
    return next(name for name in names if profile_index(hardware, name) == index)


def files(
    hardware: Object,
    layout: Mapping[int, Sequence[str]],
    *,
    busy: frozenset[int] = frozenset(),
    first_fit: bool = False,
) -> dict[str, bytes]:
    """Return the content of a machine's files, by path.

    `layout` has the MIG devices (`3g.71gb@4`: profile and first memory slice) of each GPU that has MIG on; `busy` has
    the GPUs in use; `first_fit` makes the driver place instances from the start of a GPU.
    """
    named_files = {
        DESCRIPTION: _description(hardware, first_fit).encode(),
        _STATE: _state(hardware, layout, busy).encode(),
        "/lab/machine": hardware["machine"].encode(),
    }
    for gpu in range(hardware["gpus"]):
        for name, content in _pci(hardware).items():
            named_files[f"/sys/bus/pci/devices/{_bus_id(gpu)[4:].lower()}/{name}"] = content
    return named_files


def uuid(gpu: int) -> str:
    """Return the UUID of a GPU; a sandbox contains one machine, so the index is unique."""
    return f"GPU-00000000-0000-4000-8000-{gpu:012x}"


def read_state(hardware: Object, state: str) -> tuple[dict[int, tuple[str, ...]], dict[str, str]]:
    """Parse the library's state file: the MIG devices of each GPU with MIG on, and the position (`0/3g.71gb@4`) by UUID."""
    layout: dict[int, list[str]] = {}
    places = {uuid(gpu): str(gpu) for gpu in range(hardware["gpus"])}
    for line in state.splitlines():
        kind, gpu, *values = line.split()
        if kind == "mode" and values[0] == "1":
            layout[int(gpu)] = []
        elif kind == "instance":
            device = f"{profile_name(hardware, int(values[1]))}@{values[2]}"
            layout[int(gpu)].append(device)
            places[values[5]] = f"{gpu}/{device}"
    return {gpu: tuple(sorted(devices)) for gpu, devices in layout.items()}, places


def _description(hardware: Object, first_fit: bool) -> str:
    major, _dot, minor = hardware["cuda"].partition(".")
    lines = [
        f"driver {hardware['driver']}",
        f"product {hardware['product']}",
        f"cuda {int(major) * 1000 + int(minor) * 10}",
        f"compute {hardware['compute']}",
        f"pci {hardware['pci']}",
        f"memory {hardware['memory_mib'] << 20}",
        f"mig {hardware['mig_capable']:d}",
        f"reset {hardware['family'] in catalog.RESET_FAMILIES:d}",
        f"first-fit {first_fit:d}",
    ]
    if hardware["mig"]:
        lines.append(f"slices {hardware['mig']['slices']}")
        lines += [_profile(hardware, profile) for profile in hardware["mig"]["profiles"]]
    lines += [f"gpu {uuid(gpu)} {_bus_id(gpu)}" for gpu in range(hardware["gpus"])]
    return "\n".join(lines) + "\n"


def _profile(hardware: Object, profile: Object) -> str:
    index = profile_index(hardware, profile["name"])
    known = profile["id"] != catalog.UNKNOWN_ID
    values = (
        index,
        profile["id"] if known else _INVENTED_ID + index,
        profile["compute"],
        profile["most"],
        profile["sms"],
        profile["copy"],
        profile["decoder"],
        profile.get("encoder", 0),
        profile["jpeg"],
        profile["ofa"],
        profile["memory_mib"],
        profile["size"],
        profile["media"],
        ",".join(map(str, profile["starts"])),
    )
    return " ".join(["profile", *map(str, values)])


def _state(hardware: Object, layout: Mapping[int, Sequence[str]], busy: frozenset[int]) -> str:
    lines = []
    for gpu in range(hardware["gpus"]):
        mode = int(gpu in layout)
        lines.append(f"mode {gpu} {mode} {mode} {gpu in busy:d}")
        for number, device in enumerate(layout.get(gpu, ()), 1):
            name, _at, start = device.partition("@")
            index = profile_index(hardware, name)
            lines.append(
                f"instance {gpu} {number} {index} {start} 1 0 MIG-{gpu:08x}-{index:04x}-4000-8000-{int(start):012x}"
            )
    return "\n".join(lines) + "\n"


def _bus_id(gpu: int) -> str:
    return f"00000000:{gpu + 1:02X}:00.0"


def _pci(hardware: Object) -> dict[str, bytes]:
    # The class that the simulated NFD worker also reports.
    return {
        "vendor": b"0x10de\n",
        "device": f"0x{hardware['pci']}\n".encode(),
        "class": f"0x{hardware.get('pci_class', '0302')}00\n".encode(),
        "numa_node": b"-1\n",
        "resource": b"0x0000000000000000 0x0000000000000000 0x0000000000000000\n",
        "config": _configuration(hardware["vgpu"]),
    }


def _configuration(vgpu: Mapping[str, str] | None) -> bytes:
    configuration = bytearray(256)
    configuration[0:2] = (0x10DE).to_bytes(2, "little")
    if vgpu:
        configuration[0x06] = _CAPABILITIES
        configuration[0x34] = _CAPABILITIES_AT
        version, branch = (vgpu.get(key, "").encode().ljust(10, b"\0") for key in ("host_driver", "host_branch"))
        record = bytes([0, _RECORD_SIZE]) + version + branch
        capability = bytes([_VENDOR_SPECIFIC, 0, 5 + len(record)]) + b"VF" + record
        configuration[_CAPABILITIES_AT : _CAPABILITIES_AT + len(capability)] = capability
    return bytes(configuration)
