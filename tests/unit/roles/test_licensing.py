# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role licensing does not wait for nodes whose driver has failed, as the rotation has just found."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from tests.programs import REPO


@pytest.mark.parametrize(
    ("rotated", "timeout"),
    [
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
