# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ..plugin_utils.module_action import ModuleAction


class ActionModule(ModuleAction):
    """Runs license and shows its progress."""

    MODULE = "license"
