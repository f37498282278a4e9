# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: awx_objects
short_description: List the objects in AWX that settings describe, and what a run does with them
version_added: 0.1.0
description:
  - Converts the variable C(gpu_awx) of the role P(accel.gpu.awx#role) to the objects that the role creates in AWX, such as job templates with surveys.
  - Compares them with the objects that exist. An object whose description does not end with the mark of the role belongs to somebody else, and is left alone.
    What needs such an object is held back, except for organizations, teams, credentials and execution environments, which are used as they are.
  - Fails with all problems of the settings at once.
positional: _input
options:
  _input:
    description: The settings.
    type: dict
    required: true
  existing:
    description: The objects in AWX, by kind in the words of AWX's API, as the lookup C(awx.awx.controller_api) returns them.
    type: dict
    default: {}
  details:
    description: The rows of the list views in RV(_value.queries), by their keys.
    type: dict
    default: {}
  check_mode:
    description: Whether to leave out the objects and grants that need one which the run creates, because AWX cannot be asked about them in check mode.
    type: bool
    default: false
seealso:
  - plugin: awx.awx.controller_api
    plugin_type: lookup
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Show the names of the objects
  ansible.builtin.debug:
    msg: "{{ ({'project': {'url': 'https://git.example.com/gpu.git'}} | accel.gpu.awx_objects).names }}"
"""

RETURN = r"""
_value:
  description: The objects.
  type: dict
  contains:
    installed: {description: Whether the collection C(awx.awx) is installed., type: bool, sample: true}
    organization: {description: The organization of all objects., type: str, sample: GPU clusters}
    names:
      description: The names of the objects, by kind.
      type: dict
      contains:
        KIND: {description: The names of the objects of one kind., type: list, elements: str, sample: [accel.gpu]}
    apply:
      description: The objects to create or change, by kind.
      type: dict
      contains:
        KIND:
          description: The objects of one kind.
          type: list
          elements: dict
          contains:
            name: {description: Name of the object., type: str, sample: GPU owners}
            description: {description: 'Description, which ends with the mark of ownership.', type: str, sample: 'Managed by accel.gpu.awx: teams/GPU owners'}
            options: {description: Options of the module of C(awx.awx)., type: raw, sample: {}}
            parent: {description: The inventory of a source or the template of a schedule., type: str, sample: ''}
    creates: {description: The kinds of which at least one object is created., type: list, elements: str, sample: [teams]}
    waiting:
      description: The objects and grants that need one which the run creates, as C(KIND/NAME).
      type: list
      elements: str
      sample: [roles/approval]
    grants:
      description: The rights of operators and approvers.
      type: list
      elements: dict
      contains:
        role: {description: The right., type: str, sample: approval}
        teams: {description: Teams that get it., type: list, elements: str, sample: [GPU owners]}
        users: {description: Users who get it., type: list, elements: str, sample: []}
        job_templates: {description: Job templates on which they get it., type: list, elements: str, sample: []}
        workflows: {description: Workflows on which they get it., type: list, elements: str, sample: [GPU rollout]}
        waits: {description: Whether the run creates a team or template of the grant., type: bool, sample: true}
    left_alone:
      description: One line for each object that belongs to somebody else, or needs one that does.
      type: list
      elements: str
      sample: ['workflow_job_templates/GPU rollout: needs job_templates/GPU site, which this run leaves alone']
    missing:
      description: One line for each object that the settings only refer to and that does not exist.
      type: list
      elements: str
      sample: []
    unsent:
      description: The credentials with contents in the settings that exist, and whose contents this run does not send again, as C(credentials/NAME).
      type: list
      elements: str
      sample: [credentials/GPU clusters]
    queries:
      description: The list views of AWX that show what others have added to the objects.
      type: list
      elements: dict
      contains:
        key: {description: The key of the rows in O(details)., type: str, sample: steps}
        path: {description: The address below C(/api/v2/)., type: str, sample: workflow_job_template_nodes}
        filters: {description: 'The filters of the list view, by field.', type: raw, sample: {workflow_job_template: 7}}
    steps:
      description: What the run does with the steps of the workflow.
      type: dict
      contains:
        left: {description: 'The steps with wrong links, and the links to keep. The run removes the others first.', type: list, elements: raw, sample: []}
        links: {description: The steps whose links the run sets., type: list, elements: raw, sample: []}
        deleted: {description: The identifiers of the steps that the run deletes before it creates its own., type: list, elements: str, sample: []}
    removed:
      description: One line for each addition or right that leads around the approval, and that the run therefore removes.
      type: list
      elements: str
      sample: []
    revokes:
      description: The rights to withdraw from operators, who had them before there were approvers, with the keys of RV(_value.grants).
      type: list
      elements: raw
      sample: []
    added:
      description: One line for each other addition, which stays.
      type: list
      elements: str
      sample: ['schedules/nightly: runs job_templates/GPU report']
    undeclared:
      description: The role's objects that the settings no longer describe, as C(KIND/NAME).
      type: list
      elements: str
      sample: [job_templates/GPU export]
"""

import importlib.util
import typing as t
from dataclasses import asdict

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import printable
from ..module_utils.schema.variables import plain
from ..plugin_utils.awx.additions import added_members, added_schedules, plan_steps, queries
from ..plugin_utils.awx.objects import (
    CREATE,
    FOREIGN,
    HELD,
    KINDS,
    MISSING,
    UPDATE,
    Verdict,
    assess,
    desired_grants,
    desired_objects,
    undeclared,
)
from ..plugin_utils.awx.operations import READS
from ..plugin_utils.awx.settings import read_settings


def awx_objects(
    declared: t.Any, existing: t.Any = None, details: t.Any = None, check_mode: bool = False
) -> dict[str, t.Any]:
    """Return the objects of the settings, and what a run does with them."""
    try:
        settings = read_settings(plain(declared))
    except InvalidOptions as error:
        raise AnsibleFilterError(printable(str(error))) from None
    present = plain(existing) or {}
    objects = desired_objects(settings)
    verdicts = assess(objects, present, settings["organization"])
    applied = [verdict for verdict in verdicts if verdict.action in (CREATE, UPDATE)]
    grants = _grants(settings, applied)
    waiting = [f"{verdict.item.kind}/{verdict.item.name}" for verdict in applied if verdict.waits]
    waiting += [f"roles/{grant['role']}" for grant in grants if grant["waits"]]
    if check_mode:
        applied = [verdict for verdict in applied if not verdict.waits]
        grants = [grant for grant in grants if not grant["waits"]]
    # Injectors and notifications contain templates of AWX, which Ansible must not render.
    result: dict[str, t.Any] = wrap_var(
        {
            "installed": _is_installed(),
            "organization": settings["organization"],
            "names": {kind: [item.name for item in objects if item.kind == kind] for kind in KINDS},
            "apply": {
                kind: [_as_variable(verdict) for verdict in applied if verdict.item.kind == kind] for kind in KINDS
            },
            "creates": sorted({verdict.item.kind for verdict in verdicts if verdict.action == CREATE}),
            "waiting": waiting,
            "grants": grants,
            "left_alone": _lines(verdicts, FOREIGN, HELD),
            "missing": _lines(verdicts, MISSING),
            "unsent": _unsent(verdicts),
            "queries": [asdict(query) for query in queries(verdicts, grants)],
            **_additions(verdicts, grants, settings["operators"], plain(details) or {}),
            "undeclared": undeclared(objects, present, settings["organization"]),
        }
    )
    return result


def _is_installed() -> bool:
    """Whether the collection awx.awx is installed. Ansible would stop at the first of its modules, without a remedy."""
    try:
        return importlib.util.find_spec("ansible_collections.awx.awx.plugins.modules") is not None
    except ModuleNotFoundError:
        return False


def _as_variable(verdict: Verdict) -> dict[str, t.Any]:
    item = verdict.item
    return {
        "name": item.name,
        "description": item.description,
        "options": item.options,
        "parent": item.parent,
    }


def _additions(
    verdicts: t.Sequence[Verdict],
    grants: t.Sequence[dict[str, t.Any]],
    operators: dict[str, t.Any],
    details: dict[str, t.Any],
) -> dict[str, t.Any]:
    """Return what others have added to the objects that this run creates or changes, and the links of the workflow's steps."""
    templates = {verdict.item.name: verdict for verdict in verdicts if verdict.item.kind == "job_templates"}
    changing = {each.number for each in templates.values() if each.action == UPDATE and each.item.effect != READS}
    numbers = {name: verdict.number for name, verdict in templates.items()}
    approved = any(grant["role"] == "approval" for grant in grants)
    members, removed, revokes = added_members(verdicts, grants, operators, details)
    added = [*added_schedules(verdicts, details.get("schedules", ()), approved=approved), *members]
    steps: dict[str, t.Any] = {"deleted": [], "left": [], "links": []}
    for verdict in verdicts:
        if verdict.item.kind == "workflow_job_templates" and verdict.action in (CREATE, UPDATE):
            plan = plan_steps(verdict.item, details.get("steps", ()), numbers, changing)
            steps = {"deleted": plan.deleted, "left": plan.left, "links": plan.links}
            added, removed = [*plan.kept, *added], [*plan.removed, *removed]
    return {"steps": steps, "added": printable(added), "removed": printable(removed), "revokes": revokes}


def _lines(verdicts: t.Iterable[Verdict], *actions: str) -> list[str]:
    return [
        printable(f"{verdict.item.kind}/{verdict.item.name}: {verdict.reason}")
        for verdict in verdicts
        if verdict.action in actions and verdict.reason
    ]


def _unsent(verdicts: t.Iterable[Verdict]) -> list[str]:
    """The credentials whose contents this run neither compares nor sends."""
    return [
        f"credentials/{verdict.item.name}"
        for verdict in verdicts
        if verdict.action == UPDATE
        and verdict.item.kind == "credentials"
        and not verdict.item.options["update_secrets"]
    ]


def _grants(settings: dict[str, t.Any], applied: t.Sequence[Verdict]) -> list[dict[str, t.Any]]:
    """Return the grants on the templates that this run may change. Those of others keep their rights."""
    names = {kind: {verdict.item.name for verdict in applied if verdict.item.kind == kind} for kind in KINDS}
    created = {verdict.item.key for verdict in applied if verdict.action == CREATE}
    grants = []
    for grant in desired_grants(settings):
        templates = [name for name in grant["job_templates"] if name in names["job_templates"]]
        workflows = [name for name in grant["workflows"] if name in names["workflow_job_templates"]]
        keys = {
            *(("job_templates", name) for name in templates),
            *(("workflow_job_templates", name) for name in workflows),
            *(("teams", name) for name in grant["teams"]),
        }
        if templates or workflows:
            grants.append({**grant, "job_templates": templates, "workflows": workflows, "waits": bool(keys & created)})
    return grants


class FilterModule:
    """The filter accel.gpu.awx_objects."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"awx_objects": awx_objects}
