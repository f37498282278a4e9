# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: role_options
short_description: Convert variables to the types of their defaults
version_added: 0.1.0
description:
  - Converts variables to the types of their defaults. Variables from a survey or from the command line can be strings, for example.
  - An empty string or null selects the default. Numbers and booleans can be given as strings. A list can be given as a string, either with the elements
    separated by commas or line breaks, or with a list in brackets. A map can be given as a JSON string.
  - If any value has the wrong type, the filter fails, and lists all of these variables with the accepted values.
positional: _input, defaults
options:
  _input:
    description: A map from the names of the variables to their values.
    type: dict
    required: true
  defaults:
    description: The default of each variable, such as the content of a role's C(defaults/main.yml).
    type: dict
    required: true
seealso:
  - plugin: accel.gpu.misspelled_variables
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Take the pools from a survey
  ansible.builtin.debug:
    msg: "{{ ({'pools': 'train, notebooks', 'timeout': ''} | accel.gpu.role_options({'pools': [], 'timeout': 600})) }}"

# {"pools": ["train", "notebooks"], "timeout": 600}
"""

RETURN = r"""
_value:
  description: The variables, each with the type of its default.
  type: dict
  sample: {pools: [train, notebooks], timeout: 600}
"""

import copy
import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.core.messages import quote, type_name
from ..module_utils.core.types import Boolean, from_json, is_blank, seconds, to_names
from ..module_utils.schema.variables import plain

# Fields for types other than lists, maps and strings. bool comes before int, because in Python a bool is also an int.
_FIELDS = ((bool, Boolean()), (int, seconds()))


def role_options(values: t.Any, defaults: t.Any) -> dict[str, t.Any]:
    """Return the variables with the types of their defaults."""
    values, defaults = plain(values), plain(defaults)
    if not isinstance(values, dict) or not isinstance(defaults, dict):
        raise AnsibleFilterError("accel.gpu.role_options: needs a map of variables and a map of their defaults")
    options: dict[str, t.Any] = {}
    problems = []
    for name, value in values.items():
        if name not in defaults:
            problems.append(f"{name}: has no default")
        elif value is None or is_blank(value):
            options[name] = copy.deepcopy(defaults[name])
        elif field := next((field for kind, field in _FIELDS if isinstance(defaults[name], kind)), None):
            options[name] = field.coerce(value)
            problems += field.problems(options[name], name)
        else:
            try:
                options[name] = _convert(value, defaults[name])
            except ValueError as error:
                shown = f"{quote(value)} " if isinstance(value, (str, int, float)) else ""
                problems.append(f"{name}: {shown}{error}")
    if problems:
        raise AnsibleFilterError("\n".join(problems))
    return options


def _convert(value: t.Any, default: t.Any) -> t.Any:
    if isinstance(default, list):
        return _names(value)
    if isinstance(default, dict):
        decoded = from_json(value) if isinstance(value, str) else value
        if not isinstance(decoded, dict):
            raise ValueError(f'is {type_name(value)}, not a map; write it as JSON, such as {{"train": 3}}')
        return decoded
    if isinstance(value, (dict, list)):
        raise ValueError(f"is {type_name(value)}, not a string; specify one value")
    return value


def _names(value: t.Any) -> list[str]:
    """Return the names in a value. Raise ValueError for a string without a name, because for many roles an empty list selects all pools."""
    listed = to_names(value)
    if not listed and value and value != "[]":
        raise ValueError("contains no name; use comma-separated names")
    return listed


class FilterModule:
    """The filter accel.gpu.role_options."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"role_options": role_options}
