# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of the role licensing: how long it waits for licenses, and the limits that it passes to license_info."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import LIMIT_OPTIONS
from tests.programs import REPO


@pytest.mark.parametrize(
    ("rotated", "timeout"),
    [
        # It does not wait for nodes whose driver has failed, as the rotation has just found.
        ({"skipped": True}, 300),
        ({"license_rotation": {"failing": []}}, 300),
        ({"license_rotation": {"failing": ["n1"]}}, 0),
    ],
)
def test_the_timeout_of_the_verification(rotated: dict[str, Any], timeout: int) -> None:
    verify, *dummy = yaml.safe_load((REPO / "roles/licensing/tasks/verify.yml").read_text(encoding="utf-8"))
    environment, options = NativeEnvironment(), {"gpu_licensing_wait_timeout": 300}
    failing = environment.from_string(verify["vars"]["__licensing_failing"]).render(__licensing_rotated=rotated)
    template = environment.from_string(verify["accel.gpu.license_info"]["wait_timeout"])
    rendered: Any = template.render(__licensing_options=options, __licensing_failing=failing)
    assert rendered == timeout


def test_the_report_passes_every_limit_to_the_module() -> None:
    specs, tasks = (
        yaml.safe_load((REPO / "roles/licensing" / name).read_text(encoding="utf-8"))
        for name in ("meta/argument_specs.yml", "tasks/report.yml")
    )
    variables = specs["argument_specs"]["report"]["options"]
    (passed,) = (task["accel.gpu.license_info"] for task in tasks if "accel.gpu.license_info" in task)
    for name, option in LIMIT_OPTIONS.items():
        assert variables[f"gpu_licensing_{name}"]["default"] == option["default"]
        assert passed[name] == f"{{{{ __licensing_options.gpu_licensing_{name} }}}}"
