# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import typing as t

from ..plugin_utils.module_action import ModuleAction


class ActionModule(ModuleAction):
    """Runs license and shows its progress."""

    MODULE = "license"

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's result. The module runs in the playbook's folder, so the path of the token is resolved here, in that of the user."""
        if path := self._task.args.get("token_path"):
            self._task.args["token_path"] = os.path.abspath(os.path.expanduser(os.path.expandvars(str(path))))
        return super().run(tmp, task_vars)
