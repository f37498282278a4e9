# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of the clouds' machine types."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import models
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import machine_type_gpus


@pytest.mark.parametrize(
    ("machine_type", "count", "model"),
    [
        ("g4dn.xlarge", 1, "T4"),
        ("g4dn.12xlarge", 4, "T4"),
        ("g5.48xlarge", 8, "A10G"),
        ("g6e.2xlarge", 1, "L40S"),
        ("p4d.24xlarge", 8, "A100-SXM4-40GB"),
        ("p5.48xlarge", 8, "H100-80GB-HBM3"),
        ("p5e.48xlarge", 8, "H200"),
        ("p5en.48xlarge", 8, "H200"),
        ("Standard_NC4as_T4_v3", 1, "T4"),
        ("Standard_NC24ads_A100_v4", 1, "A100-80GB-PCIe"),
        ("Standard_ND96asr_v4", 8, "A100-SXM4-40GB"),
        ("g2-standard-24", 2, "L4"),
        ("a2-highgpu-1g", 1, "A100-SXM4-40GB"),
        ("a3-megagpu-8g", 8, "H100-80GB-HBM3"),
    ],
)
def test_known_machine_types(machine_type: str, count: int, model: str) -> None:
    actual = machine_type_gpus(machine_type)
    assert actual is not None
    assert (actual.count, actual.keys) == (count, (model,))


@pytest.mark.parametrize(
    "machine_type", ["m6i.xlarge", "n1-standard-4", "Standard_NV6ads_A10_v5", "g4dn", "g4dn.9xlarge", ""]
)
def test_other_machine_types_say_nothing(machine_type: str) -> None:
    assert machine_type_gpus(machine_type) is None


def test_every_model_is_in_the_catalog() -> None:
    keys = {key for dummy, dummy2, keys, dummy3 in models._FAMILIES for key in keys}
    assert keys <= {model.key for model in models.MODELS}
