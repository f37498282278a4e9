# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the pages."""

from __future__ import annotations

from tests.pages import mig_layouts

if __name__ == "__main__":
    mig_layouts.PAGE.write_text(mig_layouts.page(), encoding="utf-8")
