# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter refuses what gpu_info never returns, and unknown kinds."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.report_lines import report_lines


@pytest.mark.parametrize(
    ("info", "kind", "message"),
    [
        ([], "plan", "needs the value gpu_info"),
        ({"changed": False, "gpu_info": {"pools": {}}}, "plan", "needs the value gpu_info of the result"),
        ({"pools": {}}, "html", "kind is 'html'; it must be one of plan, report"),
    ],
)
def test_invalid_input_is_refused(info: t.Any, kind: str, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        report_lines(info, kind)
