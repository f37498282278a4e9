# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exception that all lab commands raise."""

from __future__ import annotations


class LabError(Exception):
    """A failure with a one-line message that says what is wrong and what to do."""
