# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of AWX: kinds with their fields, the rules for each, lists with filters, and links between objects.

Fields and defaults: awx/api/serializers.py at tag 24.6.1. A request that AWX ignores in part, such as one with an unknown field, is refused here, unless
awx.awx is known to send it.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import rules

Row = dict[str, Any]
ENCRYPTED = "$encrypted$"
_PAGE = 25
_MAX_PAGE = 200


class Refused(Exception):
    """A request that AWX refuses, with its status and body."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(str(body))
        self.status, self.body = status, body


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    type: its name in the field `type`. fields: writable fields with their defaults. references: fields with the id of an object of a kind. required: fields
    that a new object needs. unique: fields whose values no two objects share. links: lists of other objects, by kind. ignored: fields that awx.awx sends
    and AWX ignores. roles: its object roles. read_only: fields that only AWX itself sets.
    """

    type: str
    fields: Mapping[str, Any]
    references: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ("name",)
    unique: tuple[str, ...] = ("name",)
    links: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    read_only: Mapping[str, Any] = field(default_factory=dict)


_NAMED = {"name": "", "description": ""}
_NOTIFIED = {f"notification_templates_{event}": "notification_templates" for event in ("started", "success", "error")}
_APPROVED = {**_NOTIFIED, "notification_templates_approvals": "notification_templates"}
_PROMPTS = (
    "scm_branch", "diff_mode", "variables", "limit", "tags", "skip_tags", "job_type", "verbosity", "inventory", "credential", "execution_environment",
    "labels", "forks", "job_slice_count", "timeout", "instance_groups",
)  # fmt: skip
_NODE = dict.fromkeys(
    (
        "scm_branch",
        "job_type",
        "job_tags",
        "limit",
        "skip_tags",
        "diff_mode",
        "verbosity",
        "forks",
        "job_slice_count",
        "timeout",
    )
)
_NODE_LINKS = ("success_nodes", "failure_nodes", "always_nodes")
_TEMPLATES = ("job_templates", "workflow_job_templates", "projects", "inventory_sources", "workflow_approval_templates")
KINDS: dict[str, Kind] = {
    "organizations": Kind(
        "organization",
        {**_NAMED, "max_hosts": 0, "default_environment": None},
        {"default_environment": "execution_environments"},
        links={"galaxy_credentials": "credentials", **_APPROVED},
        roles=("admin", "execute", "read", "approval"),
    ),
    "teams": Kind(
        "team",
        {**_NAMED, "organization": None},
        {"organization": "organizations"},
        ("name", "organization"),
        ("name", "organization"),
        roles=("member", "admin"),
    ),
    "users": Kind("user", {"username": "", "password": "", "email": ""}, required=("username",), unique=("username",)),
    "credential_types": Kind(
        "credential_type",
        {**_NAMED, "kind": "", "inputs": {}, "injectors": {}},
        required=("name", "kind"),
        unique=("name", "kind"),
        ignored=("managed",),
        read_only={"managed": False},
    ),
    "credentials": Kind(
        "credential",
        {**_NAMED, "organization": None, "credential_type": None, "inputs": {}},
        {"organization": "organizations", "credential_type": "credential_types"},
        ("name", "credential_type"),
        ("name", "organization", "credential_type"),
        roles=("admin", "use", "read"),
    ),
    "execution_environments": Kind(
        "execution_environment",
        {**_NAMED, "organization": None, "image": "", "credential": None, "pull": ""},
        {"organization": "organizations", "credential": "credentials"},
        ("name", "image"),
    ),
    "notification_templates": Kind(
        "notification_template",
        {**_NAMED, "organization": None, "notification_type": "", "notification_configuration": {}, "messages": None},
        {"organization": "organizations"},
        ("name", "organization", "notification_type", "notification_configuration"),
        ("name", "organization"),
    ),
    "projects": Kind(
        "project",
        {
            **_NAMED, "organization": None, "scm_type": "", "scm_url": "", "scm_branch": "", "scm_refspec": "", "scm_clean": False,
            "scm_track_submodules": False, "scm_delete_on_update": False, "credential": None, "timeout": 0, "local_path": "",
            "scm_update_on_launch": False, "scm_update_cache_timeout": 0, "allow_override": False, "default_environment": None,
        },
        {"organization": "organizations", "credential": "credentials", "default_environment": "execution_environments"},
        unique=("name", "organization"),
        links=_NOTIFIED,
        roles=("admin", "use", "update", "read"),
    ),
    "inventories": Kind(
        "inventory",
        {**_NAMED, "organization": None, "kind": "", "host_filter": None, "variables": "", "prevent_instance_group_fallback": False},
        {"organization": "organizations"},
        ("name", "organization"),
        ("name", "organization"),
        roles=("admin", "use", "update", "read"),
    ),
    "inventory_sources": Kind(
        "inventory_source",
        {
            **_NAMED, "inventory": None, "source": "", "source_path": "", "source_vars": "", "credential": None, "execution_environment": None,
            "source_project": None, "scm_branch": "", "overwrite": False, "overwrite_vars": False, "update_on_launch": False,
            "update_cache_timeout": 0, "timeout": 0, "verbosity": 1, "limit": "", "enabled_var": "", "enabled_value": "", "host_filter": "",
        },
        {"inventory": "inventories", "credential": "credentials", "execution_environment": "execution_environments", "source_project": "projects"},
        ("name", "inventory", "source"),
        ("name", "inventory"),
        links=_NOTIFIED,
    ),
    "hosts": Kind(
        "host",
        {**_NAMED, "inventory": None, "enabled": True, "variables": ""},
        {"inventory": "inventories"},
        ("name", "inventory"),
        ("name", "inventory"),
    ),
    "job_templates": Kind(
        "job_template",
        {
            **_NAMED, "job_type": "run", "inventory": None, "project": None, "playbook": "", "scm_branch": "", "forks": 0, "limit": "", "verbosity": 0,
            "extra_vars": "", "job_tags": "", "force_handlers": False, "skip_tags": "", "start_at_task": "", "timeout": 0, "use_fact_cache": False,
            "execution_environment": None, "host_config_key": "", **{f"ask_{prompt}_on_launch": False for prompt in _PROMPTS}, "survey_enabled": False,
            "become_enabled": False, "diff_mode": False, "allow_simultaneous": False, "job_slice_count": 1, "webhook_service": "",
            "webhook_credential": None, "prevent_instance_group_fallback": False,
        },
        {"inventory": "inventories", "project": "projects", "execution_environment": "execution_environments", "webhook_credential": "credentials"},
        ("name", "project", "playbook"),
        ("name", "organization"),
        {"credentials": "credentials", **_NOTIFIED},
        # The organization is that of the project.
        ("organization",),
        ("admin", "execute", "read"),
    ),
    "workflow_job_templates": Kind(
        "workflow_job_template",
        {
            **_NAMED, "organization": None, "extra_vars": "", "survey_enabled": False, "allow_simultaneous": False, "inventory": None, "limit": None,
            "scm_branch": None, "job_tags": None, "skip_tags": None, "webhook_service": "", "webhook_credential": None,
            **{f"ask_{prompt}_on_launch": False for prompt in ("variables", "inventory", "limit", "scm_branch", "labels", "skip_tags", "tags")},
        },
        {"organization": "organizations", "inventory": "inventories"},
        unique=("name", "organization"),
        links=_APPROVED,
        roles=("admin", "execute", "read", "approval"),
    ),
    "workflow_approval_templates": Kind("workflow_approval_template", {**_NAMED, "timeout": 0}),
    "workflow_job_template_nodes": Kind(
        "workflow_job_template_node",
        {
            "identifier": "", "workflow_job_template": None, "unified_job_template": None, "extra_data": {}, "inventory": None,
            "all_parents_must_converge": False, "execution_environment": None, **_NODE,
        },
        {"workflow_job_template": "workflow_job_templates", "unified_job_template": "unified_job_templates", "inventory": "inventories"},
        ("workflow_job_template",),
        ("identifier", "workflow_job_template"),
        dict.fromkeys(_NODE_LINKS, "workflow_job_template_nodes"),
        ("type",),
    ),
    "schedules": Kind(
        "schedule",
        {**_NAMED, "unified_job_template": None, "rrule": "", "enabled": True, "extra_data": {}, "inventory": None, **_NODE},
        {"unified_job_template": "unified_job_templates", "inventory": "inventories"},
        ("name", "unified_job_template", "rrule"),
        ("name", "unified_job_template"),
    ),
}  # fmt: skip
# The objects that are deleted with the object to which this field refers.
_OWNERS = {
    "schedules": "unified_job_template",
    "workflow_job_template_nodes": "workflow_job_template",
    "inventory_sources": "inventory",
    "hosts": "inventory",
}
# awx/main/models/base.py and workflow.py (max_length), jobs.py (choices), and the minimum of each number that counts something.
_LONGEST = {"name": 512, "identifier": 512}
_CHOICES: dict[str, tuple[Any, ...]] = {"job_type": ("run", "check", "", None), "verbosity": (*range(6), None)}
_COUNTS = ("forks", "job_slice_count", "update_cache_timeout", "scm_update_cache_timeout")
# Fields that list views accept as filters, and the kinds that have them as references to others.
_LOOKUPS = ("name", "id", "description", "username", "identifier", "type", "organization")


class Store:
    """All objects. `playbooks`: the playbooks of a project that was synced, which AWX knows."""

    def __init__(self, playbooks: Callable[[Row], list[str]]) -> None:
        self.tables: dict[str, dict[int, Row]] = {kind: {} for kind in KINDS}
        self.links: dict[tuple[str, int, str], list[int]] = {}
        self.surveys: dict[int, Row] = {}
        self.members: dict[int, dict[str, list[int]]] = {}
        self.lock = threading.RLock()
        self._roles: dict[tuple[str, int, str], int] = {}
        self._last = 0
        self._playbooks = playbooks

    def next_id(self) -> int:
        """Return an id that no object has."""
        with self.lock:
            self._last += 1
            return self._last

    def row(self, kind: str, number: int) -> Row:
        """Return an object as it is stored; Refused if it does not exist."""
        table = self.templates() if kind == "unified_job_templates" else self.tables[kind]
        if number not in table:
            raise Refused(404, {"detail": "Not found."})
        return table[number]

    def templates(self) -> dict[int, Row]:
        """Return what workflows and schedules can run."""
        return {number: row for kind in _TEMPLATES for number, row in self.tables[kind].items()}

    def kind_of(self, row: Row) -> str:
        """Return the kind of an object."""
        return next(name for name, kind in KINDS.items() if kind.type == row["type"])

    def create(self, kind: str, body: Row) -> Row:
        """Store a new object."""
        with self.lock:
            row = {
                "id": self.next_id(),
                "type": KINDS[kind].type,
                **copy.deepcopy({**KINDS[kind].fields, **KINDS[kind].read_only}),
            }
            if kind == "workflow_job_template_nodes" and not body.get("identifier"):
                row["identifier"] = f"node-{row['id']}"
            self._apply(kind, row, body, set(KINDS[kind].required) - body.keys())
            self.tables[kind][row["id"]] = row
            return row

    def change(self, kind: str, number: int, body: Row) -> Row:
        """Change an object."""
        with self.lock:
            row = copy.deepcopy(self.row(kind, number))
            self._apply(kind, row, body, set())
            self.tables[kind][number] = row
            return row

    def delete(self, kind: str, number: int) -> None:
        """Delete an object and what belongs to it."""
        with self.lock:
            self.row(kind, number)
            del self.tables[kind][number]
            self.links = {
                key: [item for item in items if item != number] for key, items in self.links.items() if key[1] != number
            }
            self.surveys.pop(number, None)
            for other, definition in KINDS.items():
                for name in definition.references:
                    self._forget(other, name, number)

    def _forget(self, kind: str, name: str, number: int) -> None:
        """Delete what belongs to a deleted object; other references to it become null."""
        for row in [row for row in self.tables[kind].values() if row[name] == number]:
            if _OWNERS.get(kind) == name:
                self.delete(kind, row["id"])
            else:
                row[name] = None

    def _apply(self, kind: str, row: Row, body: Row, missing: set[str]) -> None:
        definition = KINDS[kind]
        errors: dict[str, Any] = {name: ["This field is required."] for name in missing}
        for name, value in body.items():
            if name in definition.ignored:
                continue
            if name not in definition.fields:
                errors[name] = ["is not a field (AWX ignores it, the stand-in does not)"]
            elif name in definition.references and value not in (None, ""):
                try:
                    self.row(definition.references[name], int(value))
                except (Refused, ValueError, TypeError):
                    errors[name] = [f'Invalid pk "{value}" - object does not exist.']
                row[name] = value
            else:
                default = definition.fields[name]
                if isinstance(default, (bool, int)) and (
                    not isinstance(value, (bool, int)) or isinstance(default, bool) != isinstance(value, bool)
                ):
                    errors[name] = ["A valid value of the field's type is required."]
                elif name in _CHOICES and value not in _CHOICES[name]:
                    errors[name] = [f'"{value}" is not a valid choice.']
                elif name in _LONGEST and len(str(value)) > _LONGEST[name]:
                    errors[name] = [f"Ensure this field has no more than {_LONGEST[name]} characters."]
                elif name in _COUNTS and value and value < 0:
                    errors[name] = ["Ensure this value is greater than or equal to 0."]
                row[name] = None if name in definition.references else value
        if not errors:
            errors = dict(self._problems(kind, row, body))
        if errors:
            raise Refused(400, errors)

    def _problems(self, kind: str, row: Row, body: Row) -> Iterator[tuple[str, Any]]:
        if kind == "job_templates":
            project = self.row("projects", row["project"])
            row["organization"] = project["organization"]
            if row["playbook"] not in self._playbooks(project):
                yield "playbook", ["Playbook not found for project."]
            if row["inventory"] is None and not row["ask_inventory_on_launch"]:
                yield "inventory", ["You must either set a default value or ask to prompt on launch."]
        if kind == "credential_types":
            for problem in rules.credential_type_problems(row["kind"], row["inputs"], row["injectors"]):
                yield "injectors", problem
        if kind == "credentials":
            declared = self.row("credential_types", row["credential_type"])["inputs"].get("fields", [])
            names = {each["id"] for each in declared}
            if unknown := row["inputs"].keys() - names:
                yield (
                    "inputs",
                    {
                        name: [f"Additional properties are not allowed ({name} was unexpected)"]
                        for name in sorted(unknown)
                    },
                )
            secret = {each["id"] for each in declared if each.get("secret")}
            previous = self.tables[kind].get(row["id"], {}).get("inputs", {})
            row["inputs"] = {
                name: previous.get(name, value) if name in secret and value == ENCRYPTED else value
                for name, value in row["inputs"].items()
            }
        if kind == "schedules" and (problems := rules.schedule_problems(row["rrule"])):
            yield "rrule", problems
        if kind in ("job_templates", "workflow_job_templates") and "extra_vars" in body and body["extra_vars"]:
            try:
                json.loads(body["extra_vars"])
            except ValueError:
                yield "extra_vars", ["Cannot parse as JSON"]
        definition = KINDS[kind]
        for other in self.tables[kind].values():
            if other["id"] != row["id"] and all(other.get(name) == row.get(name) for name in definition.unique):
                yield "__all__", [f"{definition.type} with this {' and '.join(definition.unique)} already exists."]

    def listed(self, kind: str, query: Mapping[str, str]) -> list[Row]:
        """Return the objects that match the filters of a list view; Refused for a filter that AWX does not have."""
        table = self.templates() if kind == "unified_job_templates" else self.tables[kind]
        all_of: list[tuple[str, str, str]] = []
        any_of: list[tuple[str, str, str]] = []
        for key, value in query.items():
            if key in ("page", "page_size", "order_by"):
                continue
            name, _, lookup = key.removeprefix("or__").partition("__")
            references = set(KINDS[kind].references) if kind in KINDS else set()
            if name not in {*_LOOKUPS, *references, "inventory", "kind", "managed"} or lookup not in (
                "",
                "in",
                "contains",
                "icontains",
            ):
                raise Refused(400, {"detail": f"{key} is not a filter"})
            if lookup == "in" and not value:
                raise Refused(400, {"detail": "cannot provide empty value for __in"})
            (any_of if key.startswith("or__") else all_of).append((name, lookup, value))
        rows = [row for row in table.values() if all(_matches(row, *test) for test in all_of)]
        return [row for row in rows if not any_of or any(_matches(row, *test) for test in any_of)]

    def linked(self, kind: str, number: int, name: str) -> list[int]:
        """Return the ids in a list of other objects."""
        self.row(kind, number)
        return self.links.setdefault((kind, number, name), [])

    def link(self, kind: str, number: int, name: str, body: Row) -> None:
        """Add an object to a list, or remove it."""
        with self.lock:
            target, items = KINDS[kind].links[name], self.linked(kind, number, name)
            other = self.row(target, body["id"])
            if body.get("disassociate"):
                items[:] = [item for item in items if item != body["id"]]
                return
            if name in _NODE_LINKS:
                self._require_order(number, name, other)
            if name == "credentials":
                kinds = {self.row("credentials", item)["credential_type"] for item in items}
                if other["credential_type"] in kinds:
                    raise Refused(400, {"error": "Cannot assign multiple credentials of the same type."})
            if body["id"] not in items:
                items.append(body["id"])

    def _require_order(self, number: int, name: str, other: Row) -> None:
        """AWX refuses a second link between two steps, and a circle (WorkflowJobTemplateNodeChildrenBaseList in awx/api/views/__init__.py)."""
        kind, following = "workflow_job_template_nodes", [other["id"]]
        if any(other["id"] in self.linked(kind, number, each) for each in _NODE_LINKS if each != name):
            raise Refused(400, {"Error": "Relationship not allowed."})
        for each in following:
            if each == number:
                raise Refused(400, {"Error": "Cycle detected."})
            following += [
                next_ for links in _NODE_LINKS for next_ in self.linked(kind, each, links) if next_ not in following
            ]

    def survey(self, number: int) -> Row:
        """Return the survey of a template as AWX shows it."""
        return self.surveys.get(number, {})

    def set_survey(self, number: int, spec: Any) -> None:
        """Store a survey that AWX accepts and handles correctly."""
        if problems := rules.survey_problems(spec):
            raise Refused(400, {"error": "; ".join(problems)})
        self.surveys[number] = copy.deepcopy(spec)

    def role(self, kind: str, number: int, name: str) -> int:
        """Return the id of a role of an object."""
        with self.lock:
            key = (kind, number, name)
            if key not in self._roles:
                self._roles[key] = self.next_id()
                self.members[self._roles[key]] = {"users": [], "teams": []}
            return self._roles[key]

    def shown(self, row: Row) -> Row:
        """Return an object as the API shows it: without secrets, with related addresses and summaries."""
        kind = self.kind_of(row)
        definition, path = KINDS[kind], f"/api/v2/{kind}/{row['id']}/"
        related = {name: f"{path}{name}/" for name in definition.links}
        if kind in ("job_templates", "workflow_job_templates"):
            related |= {name: f"{path}{name}/" for name in ("survey_spec", "launch", "schedules")}
        if kind in ("projects", "inventory_sources"):
            related["update"] = f"{path}update/"
        if kind == "workflow_job_template_nodes" and row["unified_job_template"]:
            template = self.row("unified_job_templates", row["unified_job_template"])
            related["unified_job_template"] = f"/api/v2/{self.kind_of(template)}/{template['id']}/"
        summary: Row = {}
        for name in [*definition.references, *(["organization"] if kind == "job_templates" else [])]:
            if row.get(name):
                other = self.row(definition.references.get(name, "organizations"), row[name])
                summary[name] = {"id": other["id"], "name": other.get("name", other.get("username", ""))}
        if definition.roles:
            roles = {name: self.role(kind, row["id"], name) for name in definition.roles}
            summary["object_roles"] = {f"{name}_role": {"id": number, "name": name} for name, number in roles.items()}
        shown = {**copy.deepcopy(row), "url": path, "related": related, "summary_fields": summary}
        if kind == "credentials":
            declared = self.row("credential_types", row["credential_type"])["inputs"].get("fields", [])
            secret = {each["id"] for each in declared if each.get("secret")}
            shown["inputs"] = {
                name: ENCRYPTED if name in secret and value else value for name, value in row["inputs"].items()
            }
        shown.pop("password", None)
        return shown


def _matches(row: Row, name: str, lookup: str, value: str) -> bool:
    actual = row.get(name)
    if lookup == "in":
        return str(actual) in value.split(",")
    if lookup in ("contains", "icontains"):
        return value.lower() in str(actual or "").lower()
    return str(actual) == str(value)


def page_of(rows: list[Row], path: str, query: Mapping[str, str]) -> Row:
    """Return one page of a list view."""
    size = min(int(query.get("page_size", _PAGE)), _MAX_PAGE)
    number = int(query.get("page", 1))
    rest = "&".join(f"{key}={value}" for key, value in query.items() if key != "page")
    following = f"{path}?{rest}{'&' if rest else ''}page={number + 1}" if len(rows) > number * size else None
    return {
        "count": len(rows),
        "next": following,
        "previous": None,
        "results": rows[(number - 1) * size : number * size],
    }
