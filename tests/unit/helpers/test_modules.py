# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module in the tests' own process has the same result as in a process of its own."""

from __future__ import annotations

import importlib

from ansible.module_utils.basic import AnsibleModule

from tests.helpers.modules import run_module


def warning_module() -> None:
    module = AnsibleModule(argument_spec={})
    module.warn("look out")
    module.exit_json(changed=False)


def test_warnings_are_in_the_result_although_the_controller_is_imported() -> None:
    importlib.import_module("ansible.utils.display")
    assert "look out" in str(run_module(warning_module, {})["warnings"])
