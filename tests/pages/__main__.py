# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the pages."""

from __future__ import annotations

from tests.pages import mig_layouts, role_defaults, variables

if __name__ == "__main__":
    mig_layouts.PAGE.write_text(mig_layouts.page(), encoding="utf-8")
    variables.PAGE.write_text(variables.page(), encoding="utf-8")
    variables.FRAGMENT.write_text(variables.fragment(), encoding="utf-8")
    variables.ROLE.write_text(variables.role(), encoding="utf-8")
    for path in role_defaults.PAGES:
        path.write_text(role_defaults.page(path), encoding="utf-8")
