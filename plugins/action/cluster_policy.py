# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module cluster_policy and shows its progress."""

from __future__ import annotations

from ..modules import cluster_policy
from ..plugin_utils.module_action import ModuleAction


class ActionModule(ModuleAction):
    """The action plugin of the module."""

    module = cluster_policy
