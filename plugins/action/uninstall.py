# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of this module is the one of gpu_info."""

from __future__ import annotations

from .gpu_info import ActionModule

__all__ = ["ActionModule"]
