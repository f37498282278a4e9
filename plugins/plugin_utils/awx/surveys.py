# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Surveys of AWX, from the argument specifications of the roles (pure).

AWX accepts more than it handles correctly, so a survey has only what works (AWX 24.6.1, awx/api/views/__init__.py and awx/main/models/mixins.py):

- A multiselect's default never reaches the job. A list is therefore a text with commas, which the roles accept.
- There is no boolean. A boolean is a choice of the words true and false.
- An empty text satisfies `required`. A required text therefore has the minimum length 1, which AWX checks at launch.
- A default that violates min, max or the choices is dropped without a message at launch, so each default is within them.
- The default null is refused, and choices in one text are matched by substring. Choices are lists.
- A password stands in the job's files in clear text, and its default makes every run of awx.awx report a change. Secrets belong into credentials.
"""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass

from ...module_utils.core.types import MAX_NODES
from ..argument_specs import all_roles, plain, role_variables, roles_of
from .operations import Operation

_WORDS = ["true", "false"]
# The longest text that a variable of the collection may have (core/types.py); a map in JSON may be longer.
_MAX_TEXT = 1024
_MAX_JSON = 16384
_DAY = 86400
# The end of a variable's name, and the lowest and the highest number that the survey accepts.
_LIMITS = (("_timeout", 1, _DAY), ("_seconds", 1, _DAY), ("_days", 0, 3650), ("", 0, MAX_NODES))


@dataclass(frozen=True)
class _Variable:
    """A variable as a question: its name in the survey, its description, and its specification."""

    label: str
    description: str
    default: t.Any = ""
    choices: tuple[str, ...] = ()


# The variables of playbooks, which no argument specification describes.
_OF_PLAYBOOKS = {
    "gpu_pool": _Variable("Pool", "Name of the pool. Some operations also accept names that are separated by commas, and the word all."),
    "gpu_node_count": _Variable("Number of nodes", "The number of nodes of the pool.", default=0),
}  # fmt: skip


def survey(name: str, *operations: Operation) -> dict[str, t.Any]:
    """Return the survey for the questions of all operations; an empty map, which removes a survey, if there are none."""
    questions = {
        variable: _question(operation, variable, required=variable in operation.required)
        for operation in reversed(operations)
        for variable in operation.questions
    }
    order = dict.fromkeys(variable for operation in operations for variable in operation.questions)
    if not order:
        return {}
    return {"name": name, "description": "", "spec": [questions[variable] for variable in order]}


def _question(operation: Operation, variable: str, *, required: bool) -> dict[str, t.Any]:
    asked = _OF_PLAYBOOKS.get(variable) or _of_role(operation, variable)
    return {
        "question_name": asked.label,
        "question_description": asked.description,
        "required": required,
        "variable": variable,
        **_answer(variable, asked, required=required),
    }


def _answer(variable: str, asked: _Variable, *, required: bool) -> dict[str, t.Any]:
    """Return the type of a question with its limits and its default. A required question has none, so that nobody accepts it unread."""
    default = asked.default
    if asked.choices:
        return _choice(list(asked.choices), default)
    if isinstance(default, bool):
        return _choice(_WORDS, str(default).lower())
    if isinstance(default, int):
        low, high = next((low, high) for end, low, high in _LIMITS if variable.endswith(end))
        return {"type": "integer", "min": low, "max": high, "default": "" if required else default}
    if isinstance(default, dict):
        return {"type": "textarea", "min": 0, "max": _MAX_JSON, "default": json.dumps(default) if default else ""}
    text = ", ".join(map(str, default)) if isinstance(default, list) else default or ""
    # A template is the default of a variable that another variable determines.
    return {
        "type": "text",
        "min": int(required),
        "max": _MAX_TEXT,
        "default": "" if required or "{{" in text else text,
    }


def _choice(choices: list[str], default: str) -> dict[str, t.Any]:
    return {"type": "multiplechoice", "choices": choices, "min": None, "max": None, "default": default}


@functools.cache
def _of_role(operation: Operation, variable: str) -> _Variable:
    """Return a variable of the first role of the playbook that specifies it, or of another role, whose variable the playbook reads."""
    for role in (*roles_of(operation.playbook), *all_roles()):
        if option := role_variables(role).get(variable):
            described = option["description"]
            paragraph = described if isinstance(described, str) else described[0]
            return _Variable(
                _label(role, variable), plain(paragraph), option.get("default"), tuple(option.get("choices", ()))
            )
    raise KeyError(variable)


def _label(role: str, variable: str) -> str:
    """Return a short name: `Sharing: wait timeout` for gpu_sharing_wait_timeout, `Confirm` for gpu_confirm."""
    own = f"gpu_{role.removeprefix('gpu_')}_"
    area = f"{role.removeprefix('gpu_')}: " if variable.startswith(own) else ""
    return f"{area}{variable.removeprefix(own).removeprefix('gpu_')}".replace("_", " ").capitalize()
