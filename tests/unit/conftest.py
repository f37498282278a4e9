# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hypothesis has a limited number of examples and no deadline, since the machine can be busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", deadline=None, max_examples=60)
settings.load_profile("unit")
