# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX runs: project updates, inventory updates, jobs with slices, and workflows with approvals.

Sources at tag 24.6.1: awx/main/tasks/jobs.py, awx/main/models/inventory.py (slices), awx/main/models/mixins.py (launch), awx/main/models/workflow.py.
"""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import rules
from .container import Container, Image, Outcome, User
from .injectors import Injected, inject
from .store import Refused, Row, Store, page_of

_DONE = ("successful", "failed", "canceled", "error")
RUNS = {
    "jobs": "job",
    "workflow_jobs": "workflow_job",
    "project_updates": "project_update",
    "inventory_updates": "inventory_update",
    "workflow_approvals": "workflow_approval",
    "workflow_job_nodes": "workflow_job_node",
}
# What a launch may set, and the field of the job template that allows it.
PROMPTED = {
    "limit": "limit",
    "job_type": "job_type",
    "job_tags": "tags",
    "skip_tags": "skip_tags",
    "diff_mode": "diff_mode",
    "verbosity": "verbosity",
}


class Runs:
    """The runs of one AWX."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        # The execution environment; without one, the files of this machine.
        self.image: Image | None = None
        # The execution environment's variables, such as PATH. Tests add those that stand for its contents.
        self.environment: dict[str, str] = {}
        # None: the usual one.
        self.user: User | None = None
        # Where the collections of the image are, besides those that a project installs.
        self.image_collections: list[Path] = []
        # Fills the folder requirements_collections of a project, instead of ansible-galaxy, which would need Galaxy.
        self.install_requirements: Callable[[Path, Path], None] | None = None
        self.rows: dict[str, dict[int, Row]] = {kind: {} for kind in RUNS}
        self.inventories: dict[int, dict[int, Row]] = {}
        self._containers: dict[int, Container] = {}
        self._one_at_a_time: dict[int, threading.Lock] = {}
        self._changed = threading.Condition()

    # Projects

    def checkout(self, project: Row) -> Path:
        """Return the folder of a project's files."""
        return self.folder / "projects" / f"_{project['id']}"

    def requirements(self, project: Row) -> Path:
        """Return the folder of the collections that a project installs."""
        return self.folder / "projects" / f".__awx_cache_{project['id']}"

    def playbooks(self, project: Row) -> list[str]:
        """Return the playbooks that AWX sees in a project: YAML files with hosts or an import."""
        folder = self.checkout(project)
        files = [path for path in sorted(folder.rglob("*.y*ml")) if ".git" not in path.parts]
        texts = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in files}
        return [name for name, text in texts.items() if "hosts:" in text or "import_playbook:" in text]

    def revision(self, project: Row) -> str:
        """Return the commit of a project's files; empty before the first update."""
        folder = self.checkout(project)
        if not folder.exists():
            return ""
        return subprocess.run(
            ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()

    def project_status(self, project: Row) -> str:
        """Return whether the last update of a project was successful."""
        updates = [row for row in self.rows["project_updates"].values() if row["project"] == project["id"]]
        return str(updates[-1]["status"]) if updates else "never updated"

    def update_project(self, project: Row) -> Row:
        """Clone the repository of a project, and install its requirements."""
        row = self._new("project_updates", project=project["id"], scm_revision="", status="running")
        folder = self.checkout(project)
        shutil.rmtree(folder, ignore_errors=True)
        branch = ["--branch", project["scm_branch"]] if project["scm_branch"] else []
        done = subprocess.run(
            ["git", "clone", "-q", *branch, project["scm_url"], folder], capture_output=True, text=True, check=False
        )
        if (
            done.returncode == 0
            and self.install_requirements
            and (folder / "collections" / "requirements.yml").exists()
        ):
            self.install_requirements(folder / "collections" / "requirements.yml", self.requirements(project))
        self._finish(
            row, "failed" if done.returncode else "successful", scm_revision=self.revision(project), output=done.stderr
        )
        return row

    # Requests

    def answer(
        self, method: str, kind: str, number: int, part: str, query: Mapping[str, str], body: Any
    ) -> tuple[int, Any] | None:
        """Return the answer to a request about a run; None for a request about something else."""
        actions: dict[tuple[str, str], Callable[[], Row]] = {
            ("projects", "update"): lambda: self.update_project(self.store.row("projects", number)),
            ("inventory_sources", "update"): lambda: self.update_inventory(self.store.row("inventory_sources", number)),
            ("job_templates", "launch"): lambda: self.launch(self.store.row("job_templates", number), body),
            ("workflow_job_templates", "launch"): lambda: self.launch_workflow(
                self.store.row("workflow_job_templates", number), body
            ),
            ("jobs", "relaunch"): lambda: self.relaunch(self._row("jobs", number)),
        }
        if method == "POST" and (action := actions.get((kind, part))):
            row = action()
            # The answer names the new run by its type, too.
            return (202 if part == "update" else 201), {**self.shown(row), row["type"]: row["id"]}
        if kind not in RUNS:
            return None
        if not number:
            rows = [
                row
                for row in self.rows[kind].values()
                if all(
                    str(row.get(key)) == value
                    for key, value in query.items()
                    if key not in ("page", "page_size", "order_by")
                )
            ]
            return 200, page_of([self.shown(row) for row in rows], f"/api/v2/{kind}/", query)
        row = self._row(kind, number)
        if method == "POST":
            return self._act(kind, row, part)
        if part == "stdout":
            return 200, row.get("output", "")
        if part == "workflow_nodes":
            return 200, page_of(self._nodes(number, query), f"/api/v2/{kind}/{number}/workflow_nodes/", query)
        return 200, self.shown(row)

    def _nodes(self, workflow: int, query: Mapping[str, str]) -> list[Row]:
        """Return the steps of a workflow that have started; `job__name` selects those with the name of a job."""
        nodes = [node for node in self.rows["workflow_job_nodes"].values() if node["workflow_job"] == workflow]
        name = query.get("job__name")
        if name is not None:
            nodes = [node for node in nodes if node["job"] and self.rows[node["job_kind"]][node["job"]]["name"] == name]
        return [self.shown(node) for node in nodes]

    def _act(self, kind: str, row: Row, part: str) -> tuple[int, Any]:
        if kind == "workflow_approvals" and part in ("approve", "deny"):
            if row["status"] != "pending":
                raise Refused(400, {"error": "This workflow step has already been approved or denied."})
            self._finish(row, "successful" if part == "approve" else "failed")
            return 204, None
        if kind == "jobs" and part == "cancel":
            if row["status"] in _DONE:
                raise Refused(405, {"detail": 'Method "POST" not allowed.'})
            row["canceled"] = True
            if container := self._containers.get(row["id"]):
                container.cancel()
            return 202, {}
        raise Refused(404, {"detail": "Not found."})

    def _row(self, kind: str, number: int) -> Row:
        if number not in self.rows[kind]:
            raise Refused(404, {"detail": "Not found."})
        return self.rows[kind][number]

    def _new(self, kind: str, **values: Any) -> Row:
        number = self.store.next_id()
        row = {
            "id": number,
            "type": RUNS[kind],
            "kind": kind,
            "name": "",
            "status": "pending",
            "failed": False,
            "started": None,
            "finished": None,
            "elapsed": 0.0,
            "output": "",
            **values,
        }
        with self._changed:
            self.rows[kind][number] = row
            self._changed.notify_all()
        return row

    def _finish(self, row: Row, status: str, **values: Any) -> None:
        ended = datetime.datetime.now(datetime.UTC)
        with self._changed:
            row.update(values, status=status, failed=status != "successful", finished=ended.isoformat())
            if row["started"]:
                row["elapsed"] = (ended - datetime.datetime.fromisoformat(row["started"])).total_seconds()
            row["event_processing_finished"] = True
            self._changed.notify_all()

    def _begin(self, row: Row) -> None:
        with self._changed:
            row.update(status="running", started=datetime.datetime.now(datetime.UTC).isoformat())
            self._changed.notify_all()

    def container(self, job: Row) -> Container | None:
        """Return the container of a running job."""
        return self._containers.get(job["id"])

    def shown(self, row: Row) -> Row:
        """Return a run as the API shows it."""
        path = f"/api/v2/{row['kind']}/{row['id']}/"
        hidden = {"output", "kind", "answers", "given_artifacts", "canceled", "job_kind", "slices", "workflow"}
        if row["type"] == "workflow_job_node":
            # These belong to the job of the step.
            hidden |= {"name", "status", "failed", "started", "finished", "elapsed"}
        related = {"job": f"/api/v2/{row['job_kind']}/{row['job']}/"} if row.get("job_kind") else {}
        shown = {key: value for key, value in row.items() if key not in hidden}
        return {
            **shown,
            "url": path,
            "related": related,
            "summary_fields": {},
        }

    def wait(self, row: Row, seconds: float) -> Row:
        """Wait until a run has ended; a test calls this instead of polling."""
        self.wait_for(lambda: True if row["status"] in _DONE else None, seconds)
        return row

    def wait_for(self, condition: Callable[[], Any], seconds: float) -> Any:
        """Wait until a condition about the runs has a value."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition() is not None, seconds):
                raise TimeoutError(
                    f"after {seconds} s: {[(row['type'], row['name'], row['status']) for rows in self.rows.values() for row in rows.values()]}"
                )
            return condition()

    # Inventories

    def update_inventory(self, source: Row) -> Row:
        """Read an inventory file of a project with ansible-inventory, in a container of its own."""
        row = self._new("inventory_updates", name=source["name"], inventory_source=source["id"], status="running")
        project = self.store.row("projects", source["source_project"])
        credentials = [source["credential"]] if source["credential"] else []
        container = self._container(row["id"], project, inject(self.store, credentials))
        container.variables |= {
            "INVENTORY_SOURCE_ID": str(source["id"]),
            "INVENTORY_UPDATE_ID": str(row["id"]),
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
        }
        outcome = container.run(
            [
                "ansible-inventory",
                "-i",
                f"/runner/project/{source['source_path']}",
                "--list",
                "--export",
                "--output",
                "/runner/artifacts/list.json",
            ]
        )
        listed = container.folder / "artifacts" / "list.json"
        if outcome.status == "successful" and listed.exists():
            self.inventories.setdefault(source["inventory"], {})[source["id"]] = json.loads(listed.read_text())
        self._finish(row, outcome.status, output=outcome.output)
        return row

    def hosts(self, inventory: int) -> list[str]:
        """Return the hosts of an inventory in the order in which slices count them."""
        return sorted(self._script(inventory, 1, 1)["_meta"]["hostvars"])

    def _script(self, inventory: int, number: int, count: int) -> Row:
        """Return what the inventory script prints. A slice has every count-th host in the order of their names (InventoryManager of AWX)."""
        groups: Row = {}
        variables: Row = {}
        for source in self.inventories.get(inventory, {}).values():
            variables |= source.get("_meta", {}).get("hostvars", {})
            for name, group in source.items():
                if name != "_meta":
                    merged = groups.setdefault(name, {"hosts": [], "children": [], "vars": {}})
                    merged["hosts"] += group.get("hosts", [])
                    merged["children"] += group.get("children", [])
                    merged["vars"] |= group.get("vars", {})
        for host in self.store.tables["hosts"].values():
            if host["inventory"] == inventory:
                variables[host["name"]] = json.loads(host["variables"] or "{}")
                groups.setdefault("gpu_clusters", {"hosts": [], "children": [], "vars": {}})["hosts"].append(
                    host["name"]
                )
        names = {*variables, *(host for group in groups.values() for host in group["hosts"])}
        kept = sorted(names)[number - 1 :: count]
        for group in groups.values():
            group["hosts"] = [host for host in dict.fromkeys(group["hosts"]) if host in kept]
        hostvars = {
            host: {"remote_tower_enabled": "true", "remote_tower_id": index, **variables.get(host, {})}
            for index, host in enumerate(kept, 1)
        }
        return {**groups, "_meta": {"hostvars": hostvars}}

    # Jobs

    def launch(self, template: Row, body: Row) -> Row:
        """Start a job, or a workflow of slices. Prompts that the template does not ask for are ignored, and named in the answer."""
        prompts, ignored = {}, {}
        allowed = {**PROMPTED, "job_slice_count": "job_slice_count"}
        for key, value in body.items():
            if key in allowed and template[f"ask_{allowed[key]}_on_launch"]:
                prompts[key] = value
            elif key != "extra_vars":
                ignored[key] = value
        answers, refused = self._answers(template, body.get("extra_vars") or {})
        row = self._start(template, prompts, answers, {})
        row["ignored_fields"] = {**ignored, **({"extra_vars": refused} if refused else {})}
        threading.Thread(target=self._run, args=(row, template), daemon=True).start()
        return row

    def _start(self, template: Row, prompts: Row, answers: Row, artifacts: Row, workflow: Row | None = None) -> Row:
        """Return a new job, or a new workflow of slices, each of which has its row when the workflow runs (JobTemplate.create_unified_job)."""
        count = min(prompts.pop("job_slice_count", template["job_slice_count"]), len(self.hosts(template["inventory"])))
        if count <= 1:
            return self._job(template, prompts, answers, artifacts, workflow=workflow)
        sliced: Row = {"name": template["name"], "launch_type": "workflow" if workflow else "manual"}
        return self._new(
            "workflow_jobs",
            name=template["name"],
            is_sliced_job=True,
            slices=lambda: [
                self._job(template, prompts, answers, artifacts, number, count, sliced)
                for number in range(1, count + 1)
            ],
        )

    def relaunch(self, previous: Row) -> Row:
        """Start a job with the answers, the artifacts and the slice of an earlier job (Job.copy_unified_job)."""
        template = self.store.row("job_templates", previous["job_template"])
        row = self._job(
            template,
            {key: previous[key] for key in PROMPTED},
            previous["answers"],
            previous["given_artifacts"],
            previous["job_slice_number"],
            previous["job_slice_count"],
            previous["workflow"],
        )
        threading.Thread(target=self._run, args=(row, template), daemon=True).start()
        return row

    def _answers(self, template: Row, given: Row, *, strict: bool = True) -> tuple[Row, Row]:
        """Return the accepted answers with the defaults of the survey, and the variables that nobody asked for; Refused if an answer is invalid."""
        questions = self.store.survey(template["id"]).get("spec", []) if template["survey_enabled"] else []
        problems = [problem for question in questions for problem in rules.answer_problems(question, given)]
        if problems and strict:
            raise Refused(400, {"variables_needed_to_start": problems})
        asked = {question["variable"] for question in questions}
        # The default of a multiselect never reaches the job, and an empty default does only for text.
        defaults = {
            question["variable"]: question["default"]
            for question in questions
            if question["type"] not in ("multiselect", "password")
            and "default" in question
            and (question["default"] != "" or question["type"] in ("text", "textarea"))
        }
        accepted = {name: value for name, value in given.items() if name in asked}
        return {**defaults, **accepted}, {name: value for name, value in given.items() if name not in asked}

    def _job(
        self,
        template: Row,
        prompts: Row,
        answers: Row,
        artifacts: Row,
        slice_number: int = 1,
        slice_count: int = 1,
        workflow: Row | None = None,
    ) -> Row:
        values = {key: prompts.get(key, template[key]) for key in PROMPTED}
        return self._new(
            "jobs",
            name=template["name"],
            job_template=template["id"],
            answers=answers,
            job_slice_number=slice_number,
            job_slice_count=slice_count,
            artifacts={},
            given_artifacts=artifacts,
            workflow=workflow,
            **values,
        )

    def _run_slices(self, sliced: Row, template: Row) -> None:
        self._begin(sliced)
        rows = sliced["slices"]()
        for row in rows:
            self._new(
                "workflow_job_nodes",
                workflow_job=sliced["id"],
                job=row["id"],
                job_kind="jobs",
                identifier=str(row["job_slice_number"]),
            )
        threads = [threading.Thread(target=self._execute, args=(row, template), daemon=True) for row in rows]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._finish(sliced, "failed" if any(row["failed"] for row in rows) else "successful")

    def _run(self, row: Row, template: Row) -> None:
        """Run a job or its slices, after the other jobs of its template unless it allows several. The slices of a job do not wait for each other."""
        execute = self._run_slices if row["kind"] == "workflow_jobs" else self._execute
        if template["allow_simultaneous"]:
            execute(row, template)
            return
        with self._one_at_a_time.setdefault(template["id"], threading.Lock()):
            execute(row, template)

    def _artifacts(self, row: Row) -> Row:
        """Return what a run passes to the next step of its workflow. Of the slices, the one that ended last wins (WorkflowJob.get_effective_artifacts)."""
        if row["kind"] != "workflow_jobs":
            return dict(row.get("artifacts", {}))
        slices = [
            self.rows["jobs"][node["job"]]
            for node in self.rows["workflow_job_nodes"].values()
            if node["workflow_job"] == row["id"]
        ]
        artifacts: Row = {}
        for job in sorted(slices, key=lambda job: (job["finished"], job["id"])):
            if job["status"] in ("successful", "failed"):
                artifacts |= job["artifacts"]
        return artifacts

    def _execute(self, row: Row, template: Row) -> None:
        project = self.store.row("projects", template["project"])
        injected = inject(self.store, self.store.linked("job_templates", template["id"], "credentials"))
        container = self._container(row["id"], project, injected)
        self._containers[row["id"]] = container
        script = self._script(template["inventory"], row["job_slice_number"], row["job_slice_count"])
        container.write(
            "inventory/hosts",
            f"#! /usr/bin/env python3\n# -*- coding: utf-8 -*-\nprint({json.dumps(script)!r})\n",
            0o700,
        )
        trusted = json.loads(template["extra_vars"] or "{}")
        meta = {
            f"{prefix}_{name}": value
            for prefix in ("awx", "tower")
            for name, value in self._meta(row, template, project).items()
        }
        container.write_variables({**trusted, **row["answers"], **row["given_artifacts"], **meta}, trusted)
        container.variables |= {
            "JOB_ID": str(row["id"]),
            "INVENTORY_ID": str(template["inventory"]),
            "PROJECT_REVISION": self.revision(project),
            "AWX_HOST": "https://awx.example.com",
        }
        arguments = [
            *(["--check"] if row["job_type"] == "check" else []),
            "-u",
            "root",
            *(["--diff"] if row["diff_mode"] else []),
        ]
        arguments += [f"--forks={template['forks']}"] if template["forks"] else []
        for option, key in (("-l", "limit"), ("-t", "job_tags"), ("--skip-tags", "skip_tags")):
            arguments += [option, row[key]] if row[key] else []
        arguments += [f"-{'v' * row['verbosity']}"] if row["verbosity"] else []
        self._begin(row)
        outcome = (
            Outcome("canceled", "") if row.get("canceled") else container.run_playbook(template["playbook"], arguments)
        )
        self._containers.pop(row["id"], None)
        self._finish(row, outcome.status, output=outcome.output, artifacts=outcome.artifacts)

    @staticmethod
    def _meta(row: Row, template: Row, project: Row) -> Row:
        workflow = row["workflow"]
        parents = (
            {"workflow_job_name": workflow["name"], "workflow_job_launch_type": workflow["launch_type"]}
            if workflow
            else {}
        )
        return {
            **parents,
            "job_id": row["id"], "job_launch_type": "workflow" if workflow else "manual",
            "job_template_id": template["id"], "job_template_name": template["name"],
            "project_id": project["id"], "inventory_id": template["inventory"], "user_id": 1, "user_name": "admin", "execution_node": "stand-in",
        }  # fmt: skip

    def _container(self, number: int, project: Row, injected: Injected) -> Container:
        folder = self.folder / "jobs" / f"awx_{number}"
        container = Container(folder, self.environment, self.image_collections, self.user, self.image)
        container.copy_project(self.checkout(project), self.requirements(project))
        container.add(injected)
        return container

    # Workflows

    def launch_workflow(self, template: Row, body: Row) -> Row:
        """Start a workflow."""
        answers, refused = self._answers(template, body.get("extra_vars") or {})
        limit = body.get("limit", "") if template["ask_limit_on_launch"] else ""
        row = self._new(
            "workflow_jobs",
            name=template["name"],
            status="running",
            workflow_job_template=template["id"],
            is_sliced_job=False,
        )
        row["ignored_fields"] = {"extra_vars": refused} if refused else {}
        threading.Thread(target=self._run_workflow, args=(row, template, answers, limit), daemon=True).start()
        return row

    def _run_workflow(self, workflow: Row, template: Row, answers: Row, limit: str) -> None:
        nodes = {
            node["id"]: node
            for node in self.store.tables["workflow_job_template_nodes"].values()
            if node["workflow_job_template"] == template["id"]
        }
        children = {
            number: {
                kind: list(self.store.linked("workflow_job_template_nodes", number, f"{kind}_nodes"))
                for kind in ("success", "failure", "always")
            }
            for number in nodes
        }
        started = {
            number
            for number in nodes
            if not any(number in items for links in children.values() for items in links.values())
        }
        ready, failed = sorted(started), False
        # A step gets the artifacts of the steps that lead to it (WorkflowJobNode.get_job_kwargs).
        carried: dict[int, Row] = {number: {} for number in nodes}
        while ready:
            number = ready.pop(0)
            done = self._run_node(workflow, nodes[number], answers, limit, carried[number])
            path = "failure" if done["failed"] else "success"
            following = children[number][path] + children[number]["always"]
            failed = failed or (done["failed"] and not following)
            for each in following:
                carried[each] |= carried[number] | self._artifacts(done)
            ready += [each for each in following if each not in started]
            started |= set(following)
        self._finish(workflow, "failed" if failed else "successful")

    def _run_node(self, workflow: Row, node: Row, answers: Row, limit: str, artifacts: Row) -> Row:
        template = self.store.row("unified_job_templates", node["unified_job_template"])
        shown = self._new(
            "workflow_job_nodes", workflow_job=workflow["id"], identifier=node["identifier"], job=None, job_kind=""
        )
        if template["type"] == "workflow_approval_template":
            approval = self._new(
                "workflow_approvals",
                name=template["name"],
                description=template["description"],
                workflow_job=workflow["id"],
            )
            shown.update(job=approval["id"], job_kind="workflow_approvals")
            return self.wait(approval, 3600)
        # A workflow's limit and answers, and the prompts of a step, reach only templates that ask for them.
        prompts: Row = {"limit": limit} if limit and template["ask_limit_on_launch"] else {}
        if node["job_slice_count"] and template["ask_job_slice_count_on_launch"]:
            prompts["job_slice_count"] = node["job_slice_count"]
        accepted, dummy = self._answers(template, answers, strict=False)
        parent = {"name": workflow["name"], "launch_type": "manual"}
        job = self._start(template, prompts, accepted, dict(artifacts), parent)
        shown.update(job=job["id"], job_kind=job["kind"])
        self._run(job, template)
        return job
