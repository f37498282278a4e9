# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints lines to stderr, so that they do not corrupt the JSON output of a callback on stdout."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.common.results import visible


class ActionModule(ActionBase):
    """Runs on the controller only, without a connection or a module."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Print the lines, except under no_log."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        dummy, options = self.validate_argument_spec(
            argument_spec={"lines": {"type": "list", "elements": "str", "required": True}}
        )
        if not self._task.no_log:
            display = Display()
            for line in options["lines"]:
                # Node annotations, for example, can contain terminal escape sequences.
                display.display(visible(line), stderr=True)
        result.update(changed=False, print_lines={"count": len(options["lines"])})
        return result
