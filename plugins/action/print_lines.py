# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints lines to stderr, so that they do not corrupt the JSON output of a callback on stdout; if stdout is redirected and is text, also to stdout."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible import constants as C  # noqa: N812
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.core.messages import visible

# The callbacks whose output is text for people, so that more lines do not corrupt it.
_TEXT_CALLBACKS = ("default", "ansible.builtin.default", "minimal", "ansible.builtin.minimal")


def _is_redirected_alone() -> bool:
    """Whether stdout of ansible-playbook, the parent of this process, is a file or a pipe that does not also receive stderr.

    The process of a task has no stdout of its own in newer releases of ansible-core. Without /proc, the answer is no.
    """
    if C.DEFAULT_STDOUT_CALLBACK not in _TEXT_CALLBACKS:
        return False
    try:
        out, err = (os.stat(f"/proc/{os.getppid()}/fd/{number}") for number in (1, 2))
    except OSError:
        return False
    is_same = (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
    return not is_same and (stat.S_ISREG(out.st_mode) or stat.S_ISFIFO(out.st_mode))


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
            also_on_stdout = _is_redirected_alone()
            for line in options["lines"]:
                # Node annotations, for example, can contain terminal escape sequences.
                display.display(visible(line), stderr=True)
                if also_on_stdout:
                    display.display(visible(line))
        result.update(changed=False, print_lines={"count": len(options["lines"])})
        return result
