# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects in AWX that settings describe, and what a run does with each of them (pure).

An object belongs to the playbook awx if its description ends with a mark that names the organization, its kind and its own name. A copy has another name,
so its mark names another object; somebody who deletes the mark takes the object over. Objects of others, also those of another organization, are never
changed.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace

from .credential_types import CREDENTIAL_TYPES
from .operations import APPROVAL, CHANGES, OPERATIONS, READS, STEPS, WORKFLOW, WORKFLOW_TITLE, Operation
from .settings import credentials_of
from .surveys import survey

# The kinds in the words of AWX's API, in the order in which they are created.
KINDS: t.Final = (
    "organizations",
    "teams",
    "credential_types",
    "credentials",
    "execution_environments",
    "notification_templates",
    "projects",
    "inventories",
    "inventory_sources",
    "job_templates",
    "workflow_job_templates",
    "schedules",
)
# An object of another owner with the name of one of these kinds is used as it is. The settings refer to it, and it does not decide what a job runs.
_SHARED = frozenset({"organizations", "teams", "credentials", "execution_environments"})
# What all organizations of one AWX share, with the same contents.
_GLOBAL = frozenset({"credential_types"})
# awx.awx finds these only by their name.
_UNIQUE = frozenset({"inventories", "credentials", "notification_templates"})
_CACHE_SECONDS = 300

Needs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AwxObject:
    """An object that the settings describe.

    options: those of its module of awx.awx, except name, description, organization and state. needs: the objects that must exist before it.
    parent: the template of a schedule and the inventory of a source, which their names are unique in. `exists`: it must exist, because the settings only
    refer to it. effect: what a job template does to clusters (operations.py). organization: the one of the settings.
    """

    kind: str
    name: str
    purpose: str = ""
    options: dict[str, t.Any] = field(default_factory=dict)
    needs: Needs = ()
    parent: str = ""
    exists: bool = False
    effect: str = ""
    organization: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What the needs of other objects name."""
        return self.kind, self.name

    @property
    def description(self) -> str:
        """Return the purpose with the mark of ownership."""
        return f"{self.purpose} {mark(self.kind, self.name, self.organization)}".strip()


def mark(kind: str, name: str, organization: str) -> str:
    """Return the end of the description of an object that belongs to the playbook awx."""
    owner = "" if kind in _GLOBAL else f" for {organization}"
    return f"Managed by accel.gpu.awx{owner}: {kind}/{name}"


def is_marked(kind: str, name: str, organization: str, description: t.Any) -> bool:
    """Whether the description says that the playbook awx created the object with this name for this organization."""
    return str(description or "").strip().endswith(mark(kind, name, organization))


def desired_objects(settings: dict[str, t.Any]) -> list[AwxObject]:
    """Return the objects of these settings (settings.py), in the order in which they can be created."""
    return [replace(item, organization=settings["organization"]) for item in _Kit(settings).objects()]


class _Kit:
    """The objects of one organization."""

    def __init__(self, settings: dict[str, t.Any]) -> None:
        self._settings = settings
        self._operations = [OPERATIONS[name] for name in settings["operations"]]
        self._organization: Needs = (("organizations", settings["organization"]),)
        self._environment = settings["execution_environment"]
        self._project = settings["project"]["name"]
        self._inventory = settings["inventory"]["name"]
        self._notifications = settings["notifications"]

    def objects(self) -> t.Iterator[AwxObject]:
        """All objects, in the order of KINDS."""
        settings = self._settings
        # Without any in the settings, those that somebody has added stay.
        galaxy = settings["galaxy_credentials"]
        options = {"galaxy_credentials": galaxy} if galaxy else {}
        yield AwxObject("organizations", settings["organization"], "The GPU clusters.", options)
        teams = [team for people in ("operators", "approvers") for team in settings[people]["teams"]]
        for team in dict.fromkeys(teams):
            yield AwxObject("teams", team, "Runs or approves changes of GPU clusters.", needs=self._organization)
        used = [*(entry["type"] for entry in settings["credentials"])]
        for kind in dict.fromkeys(used):
            if CREDENTIAL_TYPES[kind].is_custom:
                yield self._credential_type(kind)
        for entry in settings["credentials"]:
            yield self._credential(entry)
        for name in self._referenced_credentials():
            yield AwxObject("credentials", name, exists=True)
        yield AwxObject(
            "execution_environments",
            self._environment["name"],
            "ansible-core, the collection accel.gpu, and the programs that it runs.",
            {"image": self._environment.get("image", ""), "pull": self._environment["pull"], "credential": self._environment.get("credential", "")},
            (*self._organization, *self._credential_needs(self._environment.get("credential"))),
            exists="image" not in self._environment,
        )  # fmt: skip
        for entry in self._notifications:
            options = {"notification_type": entry["type"], "notification_configuration": entry["configuration"]}
            yield AwxObject(
                "notification_templates", entry["name"], "Messages about GPU clusters.", options, self._organization
            )
        yield from self._sources_of_jobs()
        templates = [self._job_template(operation) for operation in self._operations]
        yield from templates
        if self._has_workflow():
            yield self._workflow()
        for name, schedule in settings["schedules"].items():
            yield self._schedule(OPERATIONS[name], schedule)

    def _has_workflow(self) -> bool:
        return set(STEPS) <= set(self._operations)

    def _is_approved(self, operation: Operation) -> bool:
        return self._has_workflow() and operation in STEPS and operation.effect != READS

    def _credential_type(self, kind: str) -> AwxObject:
        custom = CREDENTIAL_TYPES[kind]
        inputs: dict[str, t.Any] = {"fields": [dict(each) for each in custom.inputs]}
        if custom.required:
            inputs["required"] = list(custom.required)
        return AwxObject(
            "credential_types",
            custom.name,
            custom.purpose,
            {"kind": "cloud", "inputs": inputs, "injectors": custom.injectors},
        )

    def _credential(self, entry: dict[str, t.Any]) -> AwxObject:
        kind = CREDENTIAL_TYPES[entry["type"]]
        needs = (*self._organization, *((("credential_types", kind.name),) if kind.is_custom else ()))
        inputs = entry.get("inputs")
        options = {"credential_type": kind.name, "inputs": inputs, "update_secrets": self._settings["update_secrets"]}
        return AwxObject("credentials", entry["name"], kind.purpose, options, needs, exists=inputs is None)

    def _referenced_credentials(self) -> list[str]:
        """The credentials that only other settings name: those of the image's registry, of the Git repository, and of inventory sources."""
        settings = self._settings
        parts = (self._environment, settings["project"], *settings["inventory"]["sources"])
        names = [*(part.get("credential") for part in parts), *settings["galaxy_credentials"]]
        declared = {entry["name"] for entry in settings["credentials"]}
        return [name for name in dict.fromkeys(names) if name and name not in declared]

    @staticmethod
    def _credential_needs(*names: str | None) -> Needs:
        return tuple(("credentials", name) for name in names if name)

    def _sources_of_jobs(self) -> t.Iterator[AwxObject]:
        project, inventory = self._settings["project"], self._settings["inventory"]
        yield AwxObject(
            "projects",
            self._project,
            "The playbooks and the pools of the GPU clusters.",
            {
                "scm_url": project["url"],
                "scm_branch": project["branch"],
                "scm_update_on_launch": project["update_on_launch"],
                "credential": project.get("credential", ""),
            },
            (*self._organization, *self._credential_needs(project.get("credential"))),
        )
        yield AwxObject("inventories", self._inventory, "Each host is a cluster.", needs=self._organization)
        for source in inventory["sources"]:
            yield AwxObject(
                "inventory_sources",
                source["name"],
                "The clusters in a file of the project.",
                {
                    "source_project": self._project,
                    "source_path": source["path"],
                    "credential": source.get("credential", ""),
                    "execution_environment": self._environment["name"],
                    "update_on_launch": inventory["update_on_launch"],
                    "update_cache_timeout": _CACHE_SECONDS if inventory["update_on_launch"] else 0,
                },
                (("inventories", self._inventory), ("projects", self._project), *self._environment_needs(), *self._credential_needs(source.get("credential"))),
                parent=self._inventory,
            )  # fmt: skip

    def _environment_needs(self) -> Needs:
        return (("execution_environments", self._environment["name"]),)

    def _template_name(self, title: str) -> str:
        return f"{self._settings['prefix']}{title}".strip()

    def _events(self, event: str) -> list[str]:
        return [entry["name"] for entry in self._notifications if event in entry["events"]]

    def _notification_options(self, *events: str) -> dict[str, t.Any]:
        """The notifications of a template. Without any in the settings, those that somebody has added stay."""
        return (
            {f"notification_templates_{event}": self._events(event) for event in events} if self._notifications else {}
        )

    def _notification_needs(self) -> Needs:
        return tuple(("notification_templates", entry["name"]) for entry in self._notifications)

    def _job_template(self, operation: Operation) -> AwxObject:
        credentials = [entry["name"] for entry in credentials_of(self._settings, operation)]
        spec = survey(self._template_name(operation.title), operation)
        reads = operation.effect == READS
        return AwxObject(
            "job_templates",
            self._template_name(operation.title),
            operation.purpose,
            {
                "playbook": f"{operation.playbook}.yml",
                "project": self._project,
                "inventory": self._inventory,
                "execution_environment": self._environment["name"],
                "credentials": credentials,
                "forks": self._settings["forks"],
                "job_slice_count": self._settings["slices"] if operation.slices else 1,
                # A second job that changes clusters waits. Two reports do not disturb each other.
                "allow_simultaneous": reads,
                "prompts": list(operation.prompts),
                "survey_enabled": bool(spec),
                "survey_spec": spec,
                # In this workflow, playbooks/require_approval.yml requires a plan.
                "extra_vars": {"gpu_approval_workflow": self._template_name(WORKFLOW_TITLE)}
                if self._is_approved(operation)
                else {},
                **self._notification_options("started", "success", "error"),
            },
            (
                *self._organization,
                ("projects", self._project),
                ("inventories", self._inventory),
                *self._environment_needs(),
                *self._credential_needs(*credentials),
                *self._notification_needs(),
            ),
            effect=operation.effect,
        )

    def _workflow(self) -> AwxObject:
        name = self._template_name(WORKFLOW_TITLE)
        templates = {step.playbook: self._template_name(step.title) for step in STEPS}
        approval = {
            "name": f"{name}: approve the plan",
            "description": f"The job {templates['plan']} of this workflow lists every change. Its artifact gpu_report_summary has the impact on each cluster.",
            "timeout": self._settings["approval_timeout"],
        }
        nodes = [
            {
                "identifier": step,
                # A launch has a limit more often than not, and AWX fails a slice in which it leaves no cluster. A workflow cannot ask for the number of slices.
                **({"approval": approval} if step == APPROVAL else {"template": templates[step], "job_slice_count": 1}),
                "success": list(WORKFLOW[index : index + 1]),
            }
            for index, step in enumerate(WORKFLOW, 1)
        ]
        return AwxObject(
            "workflow_job_templates",
            name,
            "Shows the plan, waits for an approval, applies the plan, and reports the result.",
            {
                "prompts": ["limit"],
                "survey_enabled": True,
                "survey_spec": survey(name, *STEPS),
                "nodes": nodes,
                **self._notification_options("started", "success", "error", "approvals"),
            },
            (*self._organization, *(("job_templates", template) for template in templates.values()), *self._notification_needs()),
        )  # fmt: skip

    def grants(self) -> t.Iterator[dict[str, t.Any]]:
        """The rights of operators and approvers, also those without people or templates."""
        operators, approvers = self._settings["operators"], self._settings["approvers"]
        controlled = any(approvers.values())
        workflows = [self._template_name(WORKFLOW_TITLE)] if self._has_workflow() else []
        every = [self._template_name(operation.title) for operation in self._operations]
        allowed = (READS,) if controlled else (READS, CHANGES)
        offered = [
            self._template_name(operation.title) for operation in self._operations if operation.effect in allowed
        ]
        yield {"role": "execute", **operators, "job_templates": offered, "workflows": workflows}
        yield {"role": "execute", **approvers, "job_templates": every, "workflows": workflows}
        yield {"role": "approval", **approvers, "job_templates": [], "workflows": workflows}

    def _schedule(self, operation: Operation, schedule: dict[str, t.Any]) -> AwxObject:
        template = self._template_name(operation.title)
        start = re.sub(r"[- :]", "", schedule["start"])
        rule = (
            f"DTSTART;TZID={schedule['timezone']}:{start[:8]}T{start[8:]}00 "
            f"RRULE:FREQ={schedule['frequency'].upper()};INTERVAL={schedule['interval']}"
        )
        return AwxObject(
            "schedules",
            f"{template} {schedule['frequency']}",
            operation.purpose,
            {"unified_job_template": template, "rrule": rule, "extra_data": dict(schedule["answers"])},
            (("job_templates", template),),
            parent=template,
        )


def desired_grants(settings: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the rights of operators and approvers: a role, who gets it, and on which templates.

    With approvers, operators run what changes nothing, and the workflow. Nobody but approvers can then apply a change that nobody has approved, or remove
    something.
    """
    kit = _Kit(settings)
    return [
        grant
        for grant in kit.grants()
        if (grant["teams"] or grant["users"]) and (grant["job_templates"] or grant["workflows"])
    ]


# What a run does with an object. FOREIGN belongs to somebody else, HELD needs something foreign, MISSING is only referred to and does not exist.
CREATE: t.Final = "create"
UPDATE: t.Final = "update"
FOREIGN: t.Final = "foreign"
HELD: t.Final = "held"
MISSING: t.Final = "missing"


@dataclass(frozen=True)
class Verdict:
    """What a run does with an object, and why it leaves it alone. `waits`: it needs something that this run creates, so check mode cannot ask AWX.

    number: its id in AWX, 0 if it does not exist. roles: the ids of its roles by name.
    """

    item: AwxObject
    action: str
    reason: str = ""
    waits: bool = False
    number: int = 0
    roles: t.Mapping[str, int] = field(default_factory=dict)


def assess(
    objects: t.Sequence[AwxObject], existing: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]], organization: str
) -> list[Verdict]:
    """Return what a run does with each object. `existing`: by kind, the objects in AWX with these names, as its API returns them."""
    verdicts: dict[tuple[str, str], Verdict] = {}
    for item in objects:
        candidates = existing.get(item.kind, ())
        named = [row for row in candidates if row.get("name") == item.name and _owner(row) != organization]
        if named and item.kind in _UNIQUE and not (item.exists and len(named) == 1):
            reason = "another owner has one with this name, and awx.awx would not know which one; choose another name"
            verdicts[item.key] = Verdict(item, MISSING, reason)
        else:
            verdicts[item.key] = _verdict(item, _match(item, candidates, organization), verdicts)
    return list(verdicts.values())


def _owner(row: t.Mapping[str, t.Any]) -> str | None:
    """The name of the organization of an object in AWX; None if it belongs to none."""
    return ((row.get("summary_fields") or {}).get("organization") or {}).get("name")


def _verdict(
    item: AwxObject, match: t.Mapping[str, t.Any] | None, others: t.Mapping[tuple[str, str], Verdict]
) -> Verdict:
    if item.exists:
        if match is None:
            return Verdict(item, MISSING, "does not exist; create it in AWX, or declare its contents in gpu_awx")
        return Verdict(item, FOREIGN)
    if match is not None and not is_marked(item.kind, item.name, item.organization, match.get("description")):
        return Verdict(
            item, FOREIGN, "belongs to somebody else: its description does not end with the mark of this playbook"
        )
    needs = [others[need] for need in item.needs if need in others]
    blocked = [
        need for need in needs if need.action == HELD or (need.action == FOREIGN and need.item.kind not in _SHARED)
    ]
    if blocked:
        reasons = ", ".join(f"{need.item.kind}/{need.item.name}" for need in blocked)
        return Verdict(item, HELD, f"needs {reasons}, which this run leaves alone")
    waits = any(need.action == CREATE for need in needs)
    if match is None:
        return Verdict(item, CREATE, waits=waits)
    roles = (match.get("summary_fields") or {}).get("object_roles") or {}
    numbers = {name.removesuffix("_role"): int(role["id"]) for name, role in roles.items()}
    return Verdict(item, UPDATE, waits=waits, number=int(match.get("id") or 0), roles=numbers)


def _match(
    item: AwxObject, candidates: t.Iterable[t.Mapping[str, t.Any]], organization: str
) -> t.Mapping[str, t.Any] | None:
    """Return the existing object of this name: of this organization, if it belongs to one, and of the same parent."""
    for candidate in candidates:
        summary = candidate.get("summary_fields") or {}
        owner = _owner(candidate)
        above = (
            (summary.get("inventory") or {}).get("name")
            if item.kind == "inventory_sources"
            else (summary.get("unified_job_template") or {}).get("name")
        )
        if candidate.get("name") != item.name or (item.parent and above != item.parent):
            continue
        # awx.awx looks for execution environments and referenced credentials in all organizations.
        if owner in (None, organization) or item.exists or item.kind in ("execution_environments", "credential_types"):
            return candidate
    return None


def undeclared(
    objects: t.Iterable[AwxObject], existing: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]], organization: str
) -> list[str]:
    """Return the marked objects of this organization that the settings no longer describe. They stay; their names are for the report."""
    declared = {item.key for item in objects}
    return sorted(
        f"{kind}/{candidate['name']}"
        for kind, candidates in existing.items()
        for candidate in candidates
        if kind not in _GLOBAL
        and (kind, candidate.get("name")) not in declared
        and is_marked(kind, str(candidate.get("name")), organization, candidate.get("description"))
    )
