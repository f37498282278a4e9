# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's libnvidia-ml.so.1 returns the values of NVIDIA's on a real H200 with MIG disabled (driver 580.159.04)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import build, nvml_files
from plugins.module_utils.catalog import models
from tests.integration.agents import agent_cases

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 0, 2, 3, 6
# Measured on an H200, driver 580.159.04: the error strings of the error codes.
ERRORS = {
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    7: "Insufficient Size",
    9: "Driver Not Loaded",
    19: "In use by another client",
    23: "Insufficient Resources",
}
# id, slices, instances, multiprocessors, CE, DEC, ENC, JPEG, OFA, MiB by NVML_GPU_INSTANCE_PROFILE_*.
PROFILES = {
    0: (19, 1, 7, 16, 1, 1, 0, 1, 0, 16384),
    1: (14, 2, 3, 32, 2, 2, 0, 2, 0, 33280),
    2: (9, 3, 2, 60, 3, 3, 0, 3, 0, 71424),
    3: (5, 4, 1, 64, 4, 4, 0, 4, 0, 71424),
    4: (0, 7, 1, 132, 8, 7, 0, 7, 1, 143360),
    7: (20, 1, 1, 16, 1, 1, 0, 1, 1, 16384),
    9: (15, 1, 4, 26, 1, 1, 0, 1, 0, 33280),
}
PROFILE_COUNT = 17


NUMBERS = ("id", "slices", "instances", "sms", "copy", "decoder", "encoder", "jpeg", "ofa", "memory")


class ProfileInfo(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_t of nvml.h."""

    _fields_ = [
        ("id", ctypes.c_uint),
        ("p2p", ctypes.c_uint),
        *((name, ctypes.c_uint) for name in NUMBERS[1:-1]),
        ("memory", ctypes.c_ulonglong),
    ]


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """The library, for an H200."""
    h200 = models.find("H200")
    assert h200 is not None
    for path, content in nvml_files.files(agent_cases.hardware(h200), {}).items():
        if path.startswith(nvml_files.DESCRIPTION):
            (tmp_path / Path(path).name).write_bytes(content)
    monkeypatch.setenv("LAB_NVML", str(tmp_path / Path(nvml_files.DESCRIPTION).name))
    library = ctypes.CDLL(str(build.ensure(["nvml"])["nvml"] / "bin" / "libnvidia-ml.so.1"))
    assert library.nvmlInit_v2() == SUCCESS
    return library


@pytest.fixture
def device(nvml: ctypes.CDLL) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == SUCCESS
    return handle


def test_profiles(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    """Profiles are available with MIG disabled; those that the GPU lacks are not supported."""
    actual = {}
    for index in range(PROFILE_COUNT):
        info = ProfileInfo()
        output = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, index, ctypes.byref(info))
        assert output in (SUCCESS, NOT_SUPPORTED)
        if output == SUCCESS:
            actual[index] = tuple(getattr(info, name) for name in NUMBERS)
    assert actual == PROFILES


def test_errors(nvml: ctypes.CDLL) -> None:
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    assert {number: nvml.nvmlErrorString(number).decode() for number in ERRORS} == ERRORS


def text(run_agents: Callable[[ctypes.Array[ctypes.c_char], int], int]) -> str:
    buffer = ctypes.create_string_buffer(96)
    assert run_agents(buffer, 96) == SUCCESS
    return buffer.value.decode()


def test_names_and_versions(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    assert text(nvml.nvmlSystemGetNVMLVersion) == "13.580.159.04"
    assert text(nvml.nvmlSystemGetDriverVersion) == "580.159.04"
    assert text(lambda buffer, size: int(nvml.nvmlDeviceGetName(device, buffer, size))) == "NVIDIA H200"


def test_mig_is_disabled(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    mode, pending, most = ctypes.c_uint(9), ctypes.c_uint(9), ctypes.c_uint(9)
    assert nvml.nvmlDeviceGetMigMode(device, ctypes.byref(mode), ctypes.byref(pending)) == SUCCESS
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(device, ctypes.byref(most)) == SUCCESS
    assert (mode.value, pending.value, most.value) == (0, 0, 0)
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0, ctypes.byref(ctypes.c_void_p())) == NOT_FOUND
    assert nvml.nvmlDeviceGetAttributes_v2(device, ctypes.create_string_buffer(200)) == NOT_SUPPORTED


def test_no_fabric(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    fabric = ctypes.create_string_buffer(b"\1" * 24, 400)
    assert nvml.nvmlDeviceGetGpuFabricInfo(device, fabric) == SUCCESS
    assert fabric.raw[:24] == bytes(24)


@pytest.mark.parametrize(
    ("function", "desired", "error"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", 9, INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleByUUID", b"GPU-x", NOT_FOUND),
        ("nvmlDeviceGetHandleByPciBusId_v2", b"0000:99:00.0", NOT_FOUND),
    ],
)
def test_no_such_device(nvml: ctypes.CDLL, function: str, desired: int | bytes, error: int) -> None:
    assert getattr(nvml, function)(desired, ctypes.byref(ctypes.c_void_p())) == error
