# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: misspelled_variables
short_description: List names that resemble one of this collection's variables
version_added: 0.1.0
description:
  - Compares names with all variables of this collection's roles and playbooks, and returns one line for each name that is similar to one of these variables.
    Ansible ignores a misspelled variable, so C(-e gpu_sharing_pool_name=train) would select all pools.
  - The collection reserves names that begin with C(gpu_) and the name of a role, such as C(gpu_sharing_), except C(gpu_pools_). It also reserves names that end
    like the variables that select pools or nodes, such as C(_pool_names).
  - It also returns a line for V(gpu_pool) and V(gpu_node_count), which only the playbooks C(scale) and C(delete_nodegroups) read, unless the names contain
    V(__gpu_pool_is_read), a variable of these playbooks.
  - The filter does not report other names that extend the name of a variable, such as C(gpu_pools_of_team_a), or names that do not resemble any variable.
positional: _input
options:
  _input:
    description: The names, such as those that the lookup C(ansible.builtin.varnames) returns.
    type: list
    elements: str
    required: true
seealso:
  - plugin: accel.gpu.role_options
    plugin_type: filter
  - plugin: ansible.builtin.varnames
    plugin_type: lookup
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Reject misspelled variables
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems }}"
  vars:
    problems: "{{ query('ansible.builtin.varnames', '^(gpu_|__gpu_pool_is_read$)') | accel.gpu.misspelled_variables }}"

# gpu_sharing_pool_name: the collection does not read this variable; did you mean gpu_sharing_pool_names? Correct its name, or rename
# your own variable
"""

RETURN = r"""
_value:
  description: One line for each name, in the order of the input.
  type: list
  elements: str
  sample:
    - "gpu_host: the collection does not read this variable; did you mean gpu_hosts? Correct its name, or rename your own variable"
"""

import difflib
import functools
import pathlib
import typing as t

from ..module_utils.core.yaml_text import load_yaml_documents

# No argument specification lists the variables of playbooks, the defaults that several roles share, the results of roles, and their statistics.
_OF_NO_ROLE = (
    *("gpu_hosts", "gpu_pool", "gpu_node_count"),
    # A user's own variable is likely to have the name of the inventory group.
    "gpu_clusters",
    *("gpu_helm_binary", "gpu_secure_logging", "gpu_approval_workflow"),
    *(
        "gpu_plan",
        "gpu_autoscaling_result",
        "gpu_nodegroups_result",
        "gpu_vsphere_hosts_result",
        "gpu_vsphere_templates_result",
        "gpu_operator_policy",
    ),
    # The statistics of a run, which AWX passes to the next job of a workflow as extra variables.
    *(
        "gpu_licensing_summary",
        "gpu_report_documents",
        "gpu_report_summary",
        "gpu_validation_summary",
        "gpu_vsphere_hosts_summary",
    ),
)
# The similarity of two names with eight characters that differ in one character.
_SIMILARITY = 0.85
# The ends of variables that select a part of the cluster. If one is ignored, the run changes everything.
_SELECTIONS = ("pool_names", "node_names", "label_selectors", "node_counts")
_SIMILARITY_OF_SELECTIONS = 0.94
# A misspelled required variable is not set, so an unset variable is the most likely of several similar names.
_REQUIRED = ("gpu_cluster", "gpu_pools")
# The variables of the playbooks scale, delete_nodegroups and templates_refresh, which also set the last one. Other playbooks would ignore the others, and
# change all pools.
_OF_ONE_PLAYBOOK = ("gpu_pool", "gpu_node_count")
_IS_READ = "__gpu_pool_is_read"
# The minimum similarity of a suggestion for a reserved name.
_SUGGESTED = 0.6


def misspelled_variables(names: t.Iterable[str]) -> list[str]:
    """Return a line for each name that resembles one of the collection's variables, or begins like the variables of a role, or that the playbook ignores."""
    names = list(map(str, names))
    ignored = [] if _IS_READ in names else [name for name in _OF_ONE_PLAYBOOK if name in names]
    unset = [name for name in _REQUIRED if name not in names]
    meanings = {name: _meant(name, unset) for name in names if name != _IS_READ}
    return [
        f"{name}: only the playbooks scale, delete_nodegroups and templates_refresh read this variable. Select pools with gpu_sharing_pool_names (share, "
        "reset, repair) or gpu_nodegroups_pool_names (nodegroups)."
        for name in ignored
    ] + [
        f"{name}: the collection does not read this variable; {meant} Correct its name, or rename your own variable"
        for name, meant in meanings.items()
        if meant
    ]


def problems_of_variables(variables: t.Iterable[str]) -> list[str]:
    """Return the lines for those of all variables of a host that may be meant for this collection."""
    return misspelled_variables(name for name in variables if name.startswith("gpu_") or name == _IS_READ)


def _meant(name: str, unset: list[str]) -> str:
    """Return a suggestion for a name, preferably one of the required names in `unset`; empty if the name is correct or belongs to the user."""
    known = known_variables()
    if name in known:
        return ""
    # The user omitted the name of the role: gpu_pool_names instead of gpu_sharing_pool_names.
    if shortened := [other for other in known if "_" in name[4:] and other.endswith(name[3:])]:
        return _question(shortened)
    if prefix := next((role for role in _role_prefixes() if name.startswith(role)), ""):
        similar = difflib.get_close_matches(name, known, 1, _SUGGESTED)
        return _question(similar) if similar else f"names with {prefix} belong to a role."
    if end := _selection(name):
        similar = difflib.get_close_matches(name, known, 1, _SIMILARITY)
        return _question(similar or [other for other in known if other.endswith(f"_{end}")])
    if any(name.startswith(f"{other}_") for other in known):
        return ""
    similar = difflib.get_close_matches(name, unset, 1, _SIMILARITY) or difflib.get_close_matches(
        name, known, 1, _SIMILARITY
    )
    return _question(similar) if similar else ""


def _question(names: list[str]) -> str:
    return f"did you mean {' or '.join(names)}?"


@functools.cache
def known_variables() -> tuple[str, ...]:
    """Return the variables in the argument specifications of all roles, and those in _OF_NO_ROLE."""
    known = set(_OF_NO_ROLE)
    for path in pathlib.Path(__file__).parents[2].glob("roles/*/meta/argument_specs.yml"):
        with path.open(encoding="utf-8") as file:
            known.update(load_yaml_documents(file)["argument_specs"]["main"]["options"])
    return tuple(sorted(known))


def _selection(name: str) -> str:
    """Return the ending of the variable that the user probably intended.

    For example, gpu_reset_pool_names ends with pool_names, and gpu_pool_name is similar to that ending.
    """
    if ends := [end for end in _SELECTIONS if name.endswith(f"_{end}")]:
        return ends[0]
    return next(iter(difflib.get_close_matches(name[4:], _SELECTIONS, 1, _SIMILARITY_OF_SELECTIONS)), "")


@functools.cache
def _role_prefixes() -> tuple[str, ...]:
    """Return the common prefix of the variables of each role. The variables of the role pools have no common prefix."""
    roles = {path.name.removeprefix("gpu_") for path in (pathlib.Path(__file__).parents[2] / "roles").iterdir()}
    return tuple(f"gpu_{role}_" for role in sorted(roles - {"pools"}))


class FilterModule:
    """The filter accel.gpu.misspelled_variables."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"misspelled_variables": misspelled_variables}
