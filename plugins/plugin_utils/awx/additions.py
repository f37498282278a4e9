# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others have added to the objects of the playbook awx, and what a run does with it (pure).

Everything stays and is listed, except for what leads a workflow around its approval: a step that runs a template which changes clusters, and a link to the
step site. README of the role awx: a table.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from .objects import UPDATE, AwxObject, Verdict, is_marked
from .operations import APPROVAL, READS

_PATHS = ("success", "failure", "always")
# What a step may override, besides its template. AWX returns null or an empty value if nothing is set.
_OVERRIDES = (
    "extra_data",
    "inventory",
    "scm_branch",
    "job_type",
    "job_tags",
    "skip_tags",
    "limit",
    "diff_mode",
    "verbosity",
    "execution_environment",
    "forks",
    "job_slice_count",
    "timeout",
    "all_parents_must_converge",
)

Row = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Query:
    """A list view of AWX that a run must read: its address below /api/v2/, its filters, and under which key the caller returns the rows."""

    key: str
    path: str
    filters: t.Mapping[str, t.Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """A step of a workflow. template: the id of its template, 0 if none. links: the identifiers of the following steps, by path."""

    identifier: str
    template: int
    title: str
    own: bool
    links: t.Mapping[str, tuple[str, ...]]
    # It starts only after all steps that lead to it.
    converges: bool = False


@dataclass(frozen=True)
class StepPlan:
    """What a run does with the steps of a workflow, in this order: the identifiers to delete, the links to leave, and the links to set.

    AWX refuses a second link between two steps, and a circle, so all wrong links are removed before a link is added. removed, kept: one line for each step or
    link of others.
    """

    left: list[dict[str, t.Any]]
    links: list[dict[str, t.Any]]
    deleted: list[str]
    removed: list[str]
    kept: list[str]


def queries(verdicts: t.Iterable[Verdict], grants: t.Iterable[Row]) -> list[Query]:
    """Return what to read about the objects that this run updates. Members are read only if somebody approves, because otherwise everybody may run all."""
    updated = [verdict for verdict in verdicts if verdict.action == UPDATE]
    templates = [verdict for verdict in updated if verdict.item.kind in ("job_templates", "workflow_job_templates")]
    needed: list[Query] = []
    if templates:
        ids = ",".join(str(verdict.number) for verdict in templates)
        needed.append(Query("schedules", "schedules", {"unified_job_template__in": ids}))
    for verdict in templates:
        if verdict.item.kind == "workflow_job_templates":
            needed.append(Query("steps", "workflow_job_template_nodes", {"workflow_job_template": verdict.number}))
    if any(grant["role"] == APPROVAL for grant in grants):
        for verdict in templates:
            if role := _guarded_role(verdict.item):
                number = verdict.roles.get(role)
                needed += [
                    Query(f"{verdict.item.name}/{people}", f"roles/{number}/{people}")
                    for people in ("teams", "users")
                    if number
                ]
    return needed


def _guarded_role(item: AwxObject) -> str:
    """The role of a template that only approvers should have; empty if there is none."""
    if item.kind == "workflow_job_templates":
        return APPROVAL
    return "" if item.effect in ("", READS) else "execute"


def added_schedules(verdicts: t.Iterable[Verdict], rows: t.Iterable[Row], *, approved: bool) -> list[str]:
    """Return one line for each schedule of others that runs a template of the playbook."""
    by_number = {verdict.number: verdict.item for verdict in verdicts if verdict.action == UPDATE}
    lines = []
    for row in rows:
        template = by_number.get(int(row.get("unified_job_template") or 0))
        name = str(row.get("name"))
        if template is None or is_marked("schedules", name, template.organization, row.get("description")):
            continue
        around = " without an approval" if approved and _guarded_role(template) == "execute" else ""
        off = "" if row.get("enabled", True) else ", but is disabled"
        lines.append(f"schedules/{name}: runs {template.kind}/{template.name}{around}{off}")
    return sorted(lines)


def added_members(
    verdicts: t.Iterable[Verdict], grants: t.Sequence[Row], operators: Row, details: t.Mapping[str, t.Sequence[Row]]
) -> tuple[list[str], list[str], list[dict[str, t.Any]]]:
    """Return what to do with the teams and users who have a role that the settings give only to approvers.

    Operators got it when there were no approvers, and lose it: one line each, and the options of awx.awx.role. All others keep it: the first lines.
    """
    kept, withdrawn, revokes = [], [], []
    for verdict in verdicts:
        item, role = verdict.item, _guarded_role(verdict.item)
        listed = "workflows" if item.kind == "workflow_job_templates" else "job_templates"
        for people in ("teams", "users") if role else ():
            granted = {
                name
                for grant in grants
                if grant["role"] == role and item.name in grant[listed]
                for name in grant[people]
            }
            for row in details.get(f"{item.name}/{people}", ()):
                name = str(row.get("username" if people == "users" else "name"))
                if name in granted:
                    continue
                may = "may approve" if role == APPROVAL else "may run it without an approval"
                line = f"{item.kind}/{item.name}: the {people.removesuffix('s')} {name} {may}"
                if name not in operators[people]:
                    kept.append(line)
                    continue
                withdrawn.append(line)
                revoke = {"role": role, "teams": [], "users": [], "job_templates": [], "workflows": []}
                revokes.append({**revoke, people: [name], listed: [item.name]})
    return sorted(kept), sorted(withdrawn), revokes


def plan_steps(
    workflow: AwxObject, rows: t.Sequence[Row], templates: t.Mapping[str, int], changing: t.Container[int]
) -> StepPlan:
    """Return what a run does with the steps of a workflow.

    rows: its steps in AWX. templates: the ids of the job templates by name. changing: the ids of the templates that change clusters.
    """
    declared = {node["identifier"]: node for node in workflow.options["nodes"]}
    actual = _actual_steps(rows, declared)
    own = [row for row in rows if row["identifier"] in declared]
    others = {row["identifier"] for row in own if _runs_another(row, declared[row["identifier"]], templates)}
    overridden = {row["identifier"] for row in own if _has_overrides(row, declared[row["identifier"]])}
    reset = sorted(others | overridden)
    steps = {step.identifier: step for step in actual.values() if not step.own}
    for identifier, node in declared.items():
        before = actual[identifier].links if identifier in actual else {}
        foreign = {path: tuple(name for name in before.get(path, ()) if name not in declared) for path in _PATHS}
        number = templates.get(node.get("template", ""), 0)
        following = {**foreign, "success": (*node["success"], *foreign["success"])}
        steps[identifier] = Step(identifier, number, node.get("template", ""), own=True, links=following)
    deleted: list[str] = []
    removed = _break_circles(workflow, steps)
    while True:
        early = _without_approval(steps)
        around = [step for step in early if step.template and step.template in changing]
        if strangers := sorted((step for step in around if not step.own), key=lambda step: step.identifier):
            for step in strangers:
                del steps[step.identifier]
                deleted.append(step.identifier)
                removed.append(f"{_named(workflow, step)} changes clusters without an approval")
            gone = {step.identifier for step in strangers}
            steps = {name: _without_links(step, gone) for name, step in steps.items()}
            continue
        guarded = {step.identifier for step in around}
        ways = [
            (step, name)
            for step in early
            if not step.own
            for names in step.links.values()
            for name in names
            if name in guarded
        ]
        if not ways:
            break
        for step, name in ways:
            removed.append(f"{_named(workflow, step)} leads to {name} without an approval")
            steps[step.identifier] = _without_links(step, guarded)
    kept = [
        f"{_named(workflow, step)} {_position(step, steps, early)}"
        for name, step in sorted(steps.items())
        if not step.own
    ]
    # A step that is deleted and created again has lost the links to it.
    touched = [
        name
        for name, step in steps.items()
        if step.own or step.links != actual[name].links or _targets(step) & {*reset}
    ]
    links = [_as_options(name, steps[name].links) for name in touched]
    removed += [
        f"{workflow.kind}/{workflow.name}: the step {name} "
        + (f"runs {actual[name].title}" if name in others else "has answers or prompts of its own")
        for name in reset
    ]
    return StepPlan(_links_to_leave(actual, steps, {*deleted, *reset}), links, [*deleted, *reset], removed, kept)


def _has_overrides(row: Row, node: Row) -> bool:
    return any(row.get(name) and row[name] != node.get(name) for name in _OVERRIDES)


def _runs_another(row: Row, node: Row, templates: t.Mapping[str, int]) -> bool:
    """Whether a step of the role runs something else than declared. The module would rename the template that stands in place of the approval."""
    number = row.get("unified_job_template")
    if "approval" in node:
        address = str((row.get("related") or {}).get("unified_job_template") or "")
        return bool(number) and "/workflow_approval_templates/" not in address
    return bool(number) and number != templates.get(node["template"], 0)


def _links_to_leave(
    actual: t.Mapping[str, Step], steps: t.Mapping[str, Step], deleted: t.Container[str]
) -> list[dict[str, t.Any]]:
    """Return the links without those that a run removes, of the steps that have such links."""
    left = []
    for name, step in actual.items():
        if name in deleted:
            continue
        links = {path: tuple(each for each in names if each not in deleted) for path, names in step.links.items()}
        common = {
            path: tuple(each for each in names if each in steps[name].links[path]) for path, names in links.items()
        }
        if common != links:
            left.append(_as_options(name, common))
    return left


def _as_options(name: str, links: t.Mapping[str, tuple[str, ...]]) -> dict[str, t.Any]:
    return {"identifier": name, **{path: list(names) for path, names in links.items()}}


def _targets(step: Step) -> set[str]:
    return {name for names in step.links.values() for name in names}


def _break_circles(workflow: AwxObject, steps: dict[str, Step]) -> list[str]:
    """Remove the links of others that lead back to an earlier step of the role, because AWX refuses circles; return one line for each."""
    lines = []
    for name in sorted(name for name, step in steps.items() if not step.own):
        for target in sorted(each for each in _targets(steps[name]) if steps[each].own):
            following = [target]
            for each in following:
                following += [other for other in sorted(_targets(steps[each])) if other not in following]
            if name in following:
                lines.append(f"{_named(workflow, steps[name])} leads back to {target}")
                steps[name] = _without_links(steps[name], {target})
    return lines


def _actual_steps(rows: t.Sequence[Row], declared: t.Container[str]) -> dict[str, Step]:
    names = {row["id"]: str(row["identifier"]) for row in rows}
    return {
        names[row["id"]]: Step(
            names[row["id"]],
            int(row.get("unified_job_template") or 0),
            str(((row.get("summary_fields") or {}).get("unified_job_template") or {}).get("name") or "no template"),
            own=names[row["id"]] in declared,
            links={
                path: tuple(names[number] for number in row.get(f"{path}_nodes", ()) if number in names)
                for path in _PATHS
            },
            converges=bool(row.get("all_parents_must_converge")),
        )
        for row in rows
    }


def _without_links(step: Step, targets: t.Container[str]) -> Step:
    return replace(
        step, links={path: tuple(name for name in names if name not in targets) for path, names in step.links.items()}
    )


def _parents(steps: t.Mapping[str, Step]) -> dict[str, list[tuple[Step, str]]]:
    parents: dict[str, list[tuple[Step, str]]] = {name: [] for name in steps}
    for step in steps.values():
        for path, names in step.links.items():
            for name in names:
                parents[name].append((step, path))
    return parents


def _without_approval(steps: t.Mapping[str, Step]) -> list[Step]:
    """Return the steps that can run although nobody has approved the plan."""
    parents, reached = _parents(steps), set[str]()
    while True:
        more = set()
        for name in steps.keys() - reached:
            opens = [
                parent.identifier in reached and (parent.identifier, path) != (APPROVAL, "success")
                for parent, path in parents[name]
            ]
            if all(opens) if steps[name].converges or not opens else any(opens):
                more.add(name)
        if not more:
            return [steps[name] for name in steps if name in reached]
        reached |= more


def _position(step: Step, steps: t.Mapping[str, Step], early: t.Container[Step]) -> str:
    """When a step of others runs."""
    failures = sorted(
        parent.identifier for parent, path in _parents(steps)[step.identifier] if parent.own and path != "success"
    )
    if failures:
        return f"runs even if {', '.join(failures)} fails, so that the workflow is successful nevertheless"
    return "runs without an approval" if step in early else "runs after the approval"


def _named(workflow: AwxObject, step: Step) -> str:
    return f"{workflow.kind}/{workflow.name}: the step {step.identifier} ({step.title})"
