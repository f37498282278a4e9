# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints lines for people on stderr, where no callback that writes JSON on stdout can be disturbed."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):
    """Works on the controller alone; no connection is opened and no module is run."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Print the lines, except under no_log; nothing is changed."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        dummy, given = self.validate_argument_spec(
            argument_spec={"lines": {"type": "list", "elements": "str", "required": True}}
        )
        if not self._task.no_log:
            display = Display()
            for line in given["lines"]:
                display.display(line, stderr=True)
        result.update(changed=False, show={"count": len(given["lines"])})
        return result
