# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release of the GPU operator that the examples declare: the default of the collection.

Users copy the examples, and should pin the release: otherwise, a new release of the collection with another default would upgrade their operator.
"""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import OPERATOR_VERSION
from tests.programs import REPO

PAGES = (
    REPO / "README.md",
    *sorted((REPO / "examples").glob("*/inventory.yml")),
)
_DECLARED = re.compile(r"(?<=operator: \{version: )v[\d.]+|(?<= operator:\n)( +version: )v[\d.]+")


def page(path: Path) -> str:
    """The page with the default release."""
    return _DECLARED.sub(lambda actual: f"{actual[1] or ''}{OPERATOR_VERSION}", path.read_text(encoding="utf-8"))
