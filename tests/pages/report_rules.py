# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RBAC rules of the report, which the files of all playbooks with a report contain.

An administrator applies one file, so each contains all its rules. Those of the plan are the source of the others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.programs import REPO

_RULES = re.compile(r"^ +# For the report\. .*?^ +# In addition to the report:$", re.MULTILINE | re.DOTALL)
_SOURCE = REPO / "examples" / "rbac" / "plan.yaml"
PAGES = [
    path
    for path in sorted(_SOURCE.parent.rglob("*.yaml"))
    if path != _SOURCE and _RULES.search(path.read_text(encoding="utf-8"))
]


def page(path: Path) -> str:
    """One of PAGES, with the rules of the report."""
    return _RULES.sub(lambda _match: _text(), path.read_text(encoding="utf-8"))


def rules() -> list[dict[str, Any]]:
    """The rules of the report."""
    loaded: list[dict[str, Any]] = yaml.safe_load(_text())
    return loaded


def _text() -> str:
    """The rules, from their first comment to the comment after them."""
    actual = _RULES.search(_SOURCE.read_text(encoding="utf-8"))
    if actual is None:
        raise ValueError(f"{_SOURCE} lacks the comments around the rules of the report")
    return actual[0]
