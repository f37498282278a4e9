# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of gpu_cluster.known_issues: issues that a plan warns about, like those in the catalog (catalog/known_issues.py)."""

from __future__ import annotations

import re

from ..catalog.known_issues import CONDITIONS, MODEL_CONDITION
from .messages import nearest
from .types import ListOf, Section, Text

_RELEASE = re.compile(r"v?[0-9]+(\.[0-9]+){0,2}", re.ASCII)


def _release(value: str) -> str | None:
    """Accepts the beginning of an operator release: its first one, two or three numbers."""
    if _RELEASE.fullmatch(value):
        return None
    return "is not the beginning of a release; use v26, v26.3 or v26.3.1"


def _condition(value: str) -> str | None:
    """Accepts a condition of the catalog, or MODEL_CONDITION followed by the beginning of a model's name."""
    if value in CONDITIONS or (value.startswith(MODEL_CONDITION) and value.removeprefix(MODEL_CONDITION).strip()):
        return None
    similar = nearest(value, CONDITIONS)
    question = f"did you mean {similar}? " if similar else ""
    return f"is not a known condition; {question}known: {', '.join(sorted(CONDITIONS))}, and model followed by the beginning of a model's name"


KNOWN_ISSUES = ListOf(
    item=Section(
        fields={
            "releases": ListOf(item=Text((_release,))),
            "conditions": ListOf(item=Text((_condition,))),
            "text": Text(required=True, missing="set the sentence that a plan shows"),
        }
    ),
    splits=False,
)
