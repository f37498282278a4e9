# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: role_options
short_description: Convert the variables of a role to the types of their defaults
version_added: 0.1.0
description:
  - Returns the variables in a role's C(defaults/main.yml) with their current values, which P(accel.gpu.role_options#filter) converts.
  - C(__ROLE_computed_defaults) in the role's C(vars/main.yml) contains the defaults that are templates.
  - Fails if a variable of the host appears to be misspelled, because a role without its selection changes all pools. P(accel.gpu.misspelled_variables#filter)
    describes what is checked. So the selection is also checked if a run starts at a later task.
  - C(__ROLE_unconverted) in the same file is a regular expression for the names of variables that are not returned.
options:
  _terms:
    description: The directory of the role, which is the value of C(role_path) in the role's tasks.
    type: list
    elements: str
    required: true
seealso:
  - plugin: accel.gpu.role_options
    plugin_type: filter
  - plugin: accel.gpu.misspelled_variables
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
# In vars/main.yml of the role example
__example_options: "{{ lookup('accel.gpu.role_options', role_path) }}"
"""

RETURN = r"""
_list:
  description: For each role, a map from the names of its variables to their values.
  type: list
  elements: dict
  sample: [{pools: [train, notebooks], timeout: 600}]
"""

import functools
import os
import re
import typing as t

from ansible.errors import AnsibleFilterError, AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ..filter.misspelled_variables import known_variables, problems_of_variables
from ..filter.role_options import role_options
from ..module_utils.core.yaml_text import load_yaml_documents


@functools.cache
def _defaults(path: str) -> dict[str, t.Any]:
    """Return the defaults of a role, which do not change during a task."""
    with open(os.path.join(path, "defaults", "main.yml"), encoding="utf-8") as file:
        return load_yaml_documents(file) or {}


class LookupModule(LookupBase):
    """The lookup accel.gpu.role_options. YAML expressions for the same conversion took a third of the time of a task with several options."""

    def run(self, terms: list[str], variables: dict[str, t.Any], **dummy: t.Any) -> list[dict[str, t.Any]]:
        """Return the options of each role. Without a role, only the names of the variables are loaded, for all processes that are forked later."""
        if problems := problems_of_variables(variables) if terms else []:
            raise AnsibleLookupError("\n".join(problems))
        known_variables()
        return [self._role_options(path, variables) for path in terms]

    def _role_options(self, path: str, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        prefix = f"__{os.path.basename(path)}"
        unconverted = re.compile(variables.get(f"{prefix}_unconverted", ""))
        defaults = {**_defaults(path), **variables.get(f"{prefix}_computed_defaults", {})}
        defaults = {name: default for name, default in defaults.items() if not unconverted.fullmatch(name)}
        if missing := defaults.keys() - variables.keys():
            raise AnsibleLookupError(
                f"accel.gpu.role_options: the variables {', '.join(sorted(missing))} are not defined; use the lookup in the tasks of the role {path}"
            )
        values, defaults = self._templar.template([{name: variables[name] for name in defaults}, defaults])
        try:
            # Templating removes values that are omitted.
            return role_options({name: values.get(name) for name in defaults}, defaults)
        except AnsibleFilterError as error:
            raise AnsibleLookupError(str(error)) from None
