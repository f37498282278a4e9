# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""requirements.yml, with which execution environments install the collections that galaxy.yml requires."""

from __future__ import annotations

import yaml

from tests.programs import REPO

PAGE = REPO / "requirements.yml"


def page() -> str:
    """The content of PAGE."""
    required = yaml.safe_load((REPO / "galaxy.yml").read_text(encoding="utf-8"))["dependencies"]
    entries = "".join(f'  - name: {name}\n    version: "{version}"\n' for name, version in required.items())
    return f"---\ncollections:\n{entries}"
