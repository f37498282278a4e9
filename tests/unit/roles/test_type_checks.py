# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each role checks the types of its variables first; otherwise, the error blames the first option of a module that needs any of them."""

from __future__ import annotations

import pytest
import yaml

from tests.programs import REPO

# The role pools only defines how the options of a role are converted, and the first tasks of the role licensing have conditions with its variables.
_OTHERS = ("pools", "licensing")
ROLES = [
    path.parent.parent.name
    for path in sorted((REPO / "roles").glob("*/vars/main.yml"))
    if f"__{path.parent.parent.name}_options:" in path.read_text() and path.parent.parent.name not in _OTHERS
]


@pytest.mark.parametrize("role", ROLES)
def test_the_first_task_checks_the_types(role: str) -> None:
    first = yaml.safe_load((REPO / "roles" / role / "tasks" / "main.yml").read_text())[0]
    # A condition of the first task costs less time than a task of its own; the first condition is always evaluated.
    checked = first["ansible.builtin.assert"]["that"] if "ansible.builtin.assert" in first else first["when"]
    assert f"__{role}_options is mapping" == (checked if isinstance(checked, str) else checked[0])


def test_there_are_roles() -> None:
    assert {"nfd", "report", "sharing"} <= set(ROLES)
