# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of modules that change node groups, and may have to empty nodes for it."""

from __future__ import annotations

from ...drain.module import DrainingModule
from .module import VksModule


class VksNodeGroupModule(VksModule, DrainingModule):
    """A module that talks to VNG Cloud, and to the cluster that `kubernetes` names; its argument spec contains KUBERNETES."""
