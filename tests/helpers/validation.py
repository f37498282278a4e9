# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of validation pods for unit tests."""

from __future__ import annotations

from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import VALIDATION_CONFIGMAP
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import ValidationPlan
from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import PROGRAMS
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import Workload, option_spec

DEFAULTS: dict[str, Any] = {name: option["default"] for name, option in option_spec().items()}


def workload(**options: Any) -> Workload:
    """One image for each program, and the module's defaults with these options."""
    images = {program.image: {"0.0": f"registry.example/{program.image}:1"} for program in PROGRAMS}
    settings = ValidationPlan(
        images=images, image_pull_secrets=(), namespace="gpu-operator", configmap=VALIDATION_CONFIGMAP
    )
    return Workload(settings, "run-1", {**DEFAULTS, **options})
