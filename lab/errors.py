# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception of the lab."""

from __future__ import annotations


class LabError(Exception):
    """A failure that one line explains, with what to do about it."""
