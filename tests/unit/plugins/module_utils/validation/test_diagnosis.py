# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The meaning of failed programs, from the texts that CUDA, the container toolkit and the shell print."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import KERNEL, PROGRAMS, Program
from ansible_collections.accel.gpu.plugins.module_utils.validation.evaluation import diagnose
from tests.helpers.fleet import node

IMAGE = "registry.example/kernel:13"
NODE = node(
    labels={"nvidia.com/cuda.runtime-version.full": "12.2", "nvidia.com/cuda.driver-version.full": "535.183.01"}
)
TOO_OLD = "Driver 535.183.01 supports CUDA 12.2, and registry.example/kernel:13 needs a newer one"
LOST = "The container toolkit has not mounted the driver"


@pytest.mark.parametrize(
    ("text", "code", "meaning"),
    [
        (
            "Failed to allocate device vector A (error code CUDA driver version is insufficient for CUDA runtime version)!",
            1,
            TOO_OLD,
        ),
        (
            "ended with exit code 128 (StartError): failed to create task: nvidia-container-cli: requirement error: unsatisfied "
            "condition: cuda>=13.0, please update your driver to a newer version, or use an earlier cuda container: unknown",
            128,
            TOO_OLD,
        ),
        ("(error code the provided PTX was compiled with an unsupported toolchain.)!", 1, TOO_OLD),
        ("Result verification failed at element 0!", 1, "A GPU computes wrong results: cordon the node"),
        ("(error code uncorrectable ECC error encountered)!", 1, "The GPU reports errors: cordon the node"),
        ("(error code no kernel image is available for execution on the device)!", 1, "has no code for"),
        ("(error code system not yet initialized)!", 1, "Fabric Manager"),
        ("(error code CUDA-capable device(s) is/are busy or unavailable)!", 1, "exclusive mode"),
        ("(error code all CUDA-capable devices are busy or unavailable)!", 1, "exclusive mode"),
        ("(error code out of memory)!", 1, "use the GPU's memory"),
        ("(error code no CUDA-capable device is detected)!", 1, "CUDA cannot use the device"),
        ("(error code unknown error)!", 1, "CUDA cannot use the device"),
        ("sh: 1: nvidia-smi: not found", 127, LOST),
        ('exec: "nvidia-smi": executable file not found in $PATH', 127, LOST),
        ("timeout: failed to run command 'vectorAdd': No such file or directory", 127, "lacks this program"),
        ("sh: 1: timeout: not found", 127, "lacks this program"),
        ("kernel ended with exit code 137 (OOMKilled)", 137, "memory limit"),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)", 124, "The GPU does not respond"),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)", 137, "The GPU does not respond"),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)", 3, ""),
    ],
)
def test_meaning(text: str, code: int, meaning: str) -> None:
    actual = diagnose(text, NODE, KERNEL, IMAGE, code)
    assert meaning in actual
    assert bool(actual) == bool(meaning)


TAGGED = "nvcr.io:5000/nvidia/k8s/cuda-sample:vectoradd-cuda"
INSUFFICIENT = "CUDA driver version is insufficient for CUDA runtime version"
REQUIREMENT = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>={}, please update your driver"


@pytest.mark.parametrize(
    ("text", "image", "other_driver"),
    [
        (INSUFFICIENT, f"{TAGGED}11.7.1", True),
        (INSUFFICIENT, f"{TAGGED}12.2.0", True),
        (INSUFFICIENT, f"{TAGGED}12.5.0", False),
        (INSUFFICIENT, f"{TAGGED}13.0.0", False),
        (INSUFFICIENT, "registry.example/kernel:13", False),
        (REQUIREMENT.format("13.0"), f"{TAGGED}11.7.1", False),
        (REQUIREMENT.format("12.0"), f"{TAGGED}13.0.0", True),
    ],
)
def test_a_sufficient_driver_is_not_called_too_old(text: str, image: str, other_driver: bool) -> None:
    actual = diagnose(text, NODE, KERNEL, image, 1)
    supports = "Driver 535.183.01 supports CUDA 12.2, "
    enough = f"which is sufficient for {image}, so the container does not use this driver. Look for an older libcuda.so"
    assert actual.startswith(supports + (enough if other_driver else f"and {image} needs a newer one. Update"))


def test_without_the_version_of_the_node_a_driver_may_be_too_old() -> None:
    assert "needs a newer one" in diagnose(INSUFFICIENT, node(), KERNEL, f"{TAGGED}11.7.1", 1)


@pytest.mark.parametrize(("name", "words"), [("all_reduce", "nvidia-smi nvlink"), ("network_all_reduce", "port 29500")])
def test_a_program_may_have_its_own_remedy_for_a_timeout(name: str, words: str) -> None:
    [program] = [program for program in PROGRAMS if program.name == name]
    assert words in diagnose("", NODE, program, IMAGE, 124)
    assert "use the GPU's memory" in diagnose("out of memory", NODE, program, IMAGE, 124)


@pytest.mark.parametrize("program", PROGRAMS[1:], ids=[program.name for program in PROGRAMS[1:]])
def test_the_messages_of_one_program_have_no_meaning_for_another(program: Program) -> None:
    assert [diagnose("Result verification failed", NODE, program, IMAGE, 1) for program in (KERNEL, program)] == [
        "A GPU computes wrong results: cordon the node, look for XIDs in its kernel log (dmesg | grep NVRM) and for errors in nvidia-smi -q -d "
        "ECC,ROW_REMAPPER, run dcgmi diag -r 3, then reset or replace the GPU.",
        "",
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_each_program_that_its_image_lacks_is_recognized(program: Program) -> None:
    for command in program.commands:
        for text in (f"sh: 1: {command}: not found", f"failed to run command '{command}': No such file or directory"):
            assert diagnose(text, NODE, program, IMAGE, 127) == (
                f"{IMAGE} lacks this program. Remove gpu_cluster.validation.{program.image} to use NVIDIA's image, "
                "or set it to one with the program in its PATH."
            )


def test_the_remedies_name_the_variables_of_driver_and_image() -> None:
    meaning = diagnose("CUDA driver version is insufficient", NODE, PROGRAMS[1], IMAGE, 1)
    for variable in (
        "driver.version of the pool",
        "gpu_cluster.operator.driver.version",
        "gpu_cluster.validation.load_image",
    ):
        assert variable in meaning


def test_under_mps_another_user_may_hold_the_gpu() -> None:
    shared = node(labels={"nvidia.com/gpu.sharing-strategy": "mps"})
    assert "gpu_validation_run_as_user" in diagnose("", shared, KERNEL, IMAGE, 124)
    assert "gpu_validation_run_as_user" not in diagnose("", NODE, KERNEL, IMAGE, 124)
