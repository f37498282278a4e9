# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a pool's driver, alone and beside the settings of the operator."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

Object = dict[str, Any]

V26 = {"version": "v26.7.0"}
CASES: list[tuple[Object, Object, list[str]]] = [
    ({}, {}, []),
    ({"version": "570.148.08"}, {}, []),
    ({"version": "580", "precompiled": True}, {}, []),
    ({"version": "580"}, {"driver": {"precompiled": True}}, []),
    ({"type": "vgpu", "repository": "registry.example.com/nvidia", "licensing_secret": "nls"}, {}, []),
    ({"upgrade": {"max_parallel": 0, "max_unavailable": "25%"}}, V26, []),
    ({"version": "580"}, {}, ['version: "580" is only a branch']),
    ({"version": "580.105.08", "precompiled": True}, {}, ['version: "580.105.08" is not a branch']),
    ({"version": "580.105.08"}, {"driver": {"precompiled": True}}, ["is not a branch"]),
    ({"precompiled": True}, {}, ["version: is missing; precompiled: true needs a version"]),
    (
        {"precompiled": False},
        {"driver": {"precompiled": True}},
        ["version: is missing; precompiled: false needs a version"],
    ),
    ({"version": "580.105.08-ubuntu24.04"}, {}, ["version: "]),
    (
        {"version": "580", "precompiled": True, "secret_env": "s", "repo_config": "r"},
        {},
        ["secret_env: has no effect with precompiled", "repo_config: has no effect with precompiled"],
    ),
    ({"image": "driver:580"}, {}, ['image: "driver:580" is not the name of an image']),
    ({"image": "i" * 240}, {}, []),
    ({"image": "i" * 241}, {}, ["image: repository and image have 256 characters together"]),
    (
        {"image": "i" * 240},
        {"values": {"driver": {"repository": "registry.example.com"}}},
        ["image: repository and image have 261"],
    ),
    ({"repository": f"registry.example.com/{'r' * 240}"}, {}, ["repository: repository and image have 268 characters"]),
    ({"repository": "sha256:00"}, {}, ['repository: "sha256:00" is a digest of an image; write the registry']),
    (
        {"version": "5.6.7.8"},
        {},
        ['version: "5.6.7.8" is not a driver\'s version; write only its numbers, two or three such as'],
    ),
    ({"version": "00580.1"}, {}, ['version: "00580.1" is not a driver\'s version']),
    ({"version": "580.1"}, {}, []),
    ({"image_pull_secrets": ["a", "b"]}, {}, []),
    ({"image_pull_secrets": ["a", "b", "a"]}, {}, ['image_pull_secrets[2]: "a" is listed twice']),
    ({"type": "vgpu"}, {}, ["repository: is missing; NVIDIA publishes no image of the vGPU driver"]),
    (
        {"type": "vgpu", "repository": "registry.example.com/nvidia", "version": "580", "precompiled": True},
        {},
        ["precompiled: is not available with type: vgpu"],
    ),
    ({"licensing_secret": "nls"}, {}, ["licensing_secret: has no effect without type: vgpu"]),
    (
        {"upgrade": {"automatic": False}},
        {},
        ["upgrade: is not supported by operator v25.10.1; it was added in v26.7"],
    ),
    ({"upgrade": {"max_parallel": -1}}, V26, ["upgrade.max_parallel: "]),
    ({"kernel_module_type": "open"}, {"version": "v24.9.2"}, ["kernel_module_type: is not supported by operator"]),
    ({}, {"driver": {"enabled": False}}, ["driver: has no effect with gpu_cluster.operator.driver.enabled: false"]),
    (
        {},
        {"values": {"driver": {"nvidiaDriverCRD": {"enabled": True}}}},
        ["driver: the chart's own NVIDIADriver would select the same nodes"],
    ),
    ({}, {"values": {"driver": {"nvidiaDriverCRD": {"enabled": True, "deployDefaultCR": False}}}}, []),
    ({"vers": "1"}, {}, ["vers: is not a known key; did you mean version?"]),
]


@pytest.mark.parametrize(("driver", "operator", "problems"), CASES)
def test_driver_of_a_pool(driver: Object, operator: Object, problems: list[str]) -> None:
    actual = validate({"name": "lab", "operator": operator}, {}, [{"name": "a", "driver": driver}])
    assert len(actual) == len(problems), actual
    for message, expected in zip(actual, problems, strict=True):
        assert message.startswith("gpu_pools[0].driver")
        assert expected in message


@pytest.mark.parametrize(
    ("model", "driver", "operator", "path"),
    [
        ("T4", {"kernel_module_type": "open"}, {}, ""),
        ("T4", {"kernel_module_type": "proprietary"}, {}, ""),
        ("V100-SXM2-16GB", {"kernel_module_type": "proprietary"}, {}, ""),
        ("V100-SXM2-16GB", {"kernel_module_type": "auto"}, {}, ""),
        (
            "V100-SXM2-16GB",
            {"kernel_module_type": "open"},
            {},
            '"open" kernel modules do not support the GPUs V100-SXM2-16GB; set proprietary',
        ),
        (
            "B200",
            {"kernel_module_type": "proprietary"},
            {},
            '"proprietary" kernel modules do not support the GPUs B200; set open',
        ),
        ("GH200-480GB", {"kernel_module_type": "proprietary"}, {}, "set open"),
        # What the pool does not declare is that of the operator, and what it declares wins.
        ("V100-SXM2-16GB", {"version": "580.105.08"}, {"driver": {"kernel_module_type": "open"}}, "set proprietary"),
        ("V100-SXM2-16GB", {"kernel_module_type": "auto"}, {"driver": {"kernel_module_type": "open"}}, ""),
    ],
)
def test_kernel_modules_that_do_not_support_the_model(model: str, driver: Object, operator: Object, path: str) -> None:
    pool = {"name": "a", "match": {"model": model}, "driver": driver}
    actual = validate({"name": "lab", "operator": operator}, {}, [pool])
    assert len(actual) == bool(path), actual
    assert all(text.startswith("gpu_pools[0].driver.kernel_module_type: ") and path in text for text in actual)


def test_defaults_give_every_pool_a_driver() -> None:
    assert validate({"name": "lab"}, {"driver": {"version": "580"}}, [{"name": "a"}])
    assert not validate({"name": "lab"}, {"driver": {"version": "580.105.08"}}, [{"name": "a"}])
