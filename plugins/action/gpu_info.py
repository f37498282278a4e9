# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of all modules that report progress: meta/runtime.yml routes them here."""

from __future__ import annotations

from ..plugin_utils.progress import ProgressAction


class ActionModule(ProgressAction):
    """Runs the module of the task and shows its progress."""
