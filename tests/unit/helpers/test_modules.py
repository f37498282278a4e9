# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that is run in the tests' own process answers as it does in one of its own."""

from __future__ import annotations

import importlib

from ansible.module_utils.basic import AnsibleModule

from tests.helpers.modules import run_module


def warning_module() -> None:
    module = AnsibleModule(argument_spec={})
    module.warn("look out")
    module.exit_json(changed=False)


def test_warnings_come_with_the_result_though_the_controller_is_loaded() -> None:
    importlib.import_module("ansible.utils.display")
    assert "look out" in str(run_module(warning_module, {})["warnings"])
