# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the progress of the module nodes."""

from __future__ import annotations

from ..plugin_utils.progress import ProgressAction


class ActionModule(ProgressAction):
    """The module of the same name, with its progress."""
