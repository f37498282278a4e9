# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines a problem that prevents an installation through OLM: the object, its field and value, the violated rule, and the remedy."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.errors import ModuleFailure

# The number of seconds that a problem must last before it is reported. Conditions that OLM sets while it works may be wrong for
# a few seconds: during an upgrade, ResolutionFailed was True for up to 4 s. Statuses that do not change unless the user acts are
# reported immediately. It can take CATALOG_START until OLM is connected to a new catalog.
FINAL, SHORT, MEDIUM, LONG, CATALOG_START = 0.0, 5.0, 30.0, 60.0, 90.0


@dataclass(frozen=True)
class Problem:
    """One problem. `code` identifies the kind of problem, for use in playbooks."""

    code: str
    subject: str
    field: str
    value: str
    rule: str
    remedy: str
    minimum_seconds: float = FINAL
    # The verb between the field and the value in the message; "are" for a plural field.
    verb: str = "is"

    def __str__(self) -> str:
        value = self.value.rstrip(".")
        return f"{self.subject}: {self.field} {self.verb} {value}. {self.rule} {self.remedy}"

    def as_dict(self) -> dict[str, str]:
        """The problem in the format that the module returns."""
        return {
            "code": self.code,
            "object": self.subject,
            "field": self.field,
            "value": self.value,
            "rule": self.rule,
            "remedy": self.remedy,
        }


class OlmFailure(ModuleFailure):
    """Raised if OLM cannot install the operator because of a problem."""

    def __init__(self, problem: Problem, partial: t.Mapping[str, t.Any] | None = None) -> None:
        """Use the problem's code as the code of the failure."""
        super().__init__(str(problem), partial)
        self.problem = problem
        self.code = problem.code  # type: ignore[misc]
