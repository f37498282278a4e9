# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for AWX with the example project in a Git repository, and runs of the playbook awx against it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.accel.gpu.plugins.plugin_utils.awx.objects import desired_objects
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.settings import read_settings
from lab.awx.server import PASSWORD, USER, Awx, serve
from lab.awx.store import KINDS, Row
from tests.helpers.awx_contract import Exchange, problems, record
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.programs import BUILD, REPO, VENV_BIN, environment

HOST = "localhost"
# The configuration of a notification.
HOOK = {
    "url": "https://hook.example.com",
    "http_method": "POST",
    "headers": {},
    "disable_ssl_verification": False,
    "username": "",
    "password": "",
}
# An inventory source in which a job fetches the kubeconfigs itself.
_VKS = {
    "plugin": "accel.gpu.clusters",
    "clouds": [{"vks": {}}],
    "write_kubeconfigs": False,
    "kubeconfig_folder": "/runner/kubeconfigs",
}
NO_CLUSTER = "The kubeconfig /nonexistent does not exist"
_AUTHOR = {f"GIT_{role}_{what}": "test@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@dataclass(frozen=True)
class StandIn:
    """A running stand-in. folder: its files, with the Git repository of the project in `repository`. exchanges: the requests, with their answers."""

    awx: Awx
    url: str
    folder: Path
    exchanges: list[Exchange]

    @property
    def repository(self) -> Path:
        """The Git repository that AWX syncs."""
        return self.folder / "repository"

    def commit(self) -> None:
        """Commit the files of the repository."""
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "test"]):
            subprocess.run(["git", "-C", self.repository, *command], check=True, env={**os.environ, **_AUTHOR})

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request as the administrator; return the status and the body."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/api/v2/{path}", data, {"Authorization": f"Basic {login}"}, method=method
        )
        try:
            with urllib.request.urlopen(request) as response:
                content = response.read()
                return response.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def named(self, kind: str, name: str) -> Row:
        """The object with this name, as it is stored."""
        (row,) = [row for row in self.awx.store.tables[kind].values() if row.get("name") == name]
        return row

    def apply(self, settings: Mapping[str, Any], *arguments: str) -> PlaybookRun:
        """Run the playbook awx with these settings, as the page describes it."""
        path = self.folder / "awx.yml"
        path.write_text(yaml.safe_dump({"gpu_awx": dict(settings)}))
        environ = environment(CONTROLLER_HOST=self.url, CONTROLLER_USERNAME=USER, CONTROLLER_PASSWORD=PASSWORD)
        inventory = self.folder / "nothing.yml"
        inventory.write_text("all: {}\n")
        return run_playbook(
            "accel.gpu.awx", environ=environ, inventory=inventory, arguments=["-e", f"@{path}", *arguments]
        )

    def fill(self, settings: Mapping[str, Any]) -> None:
        """Store what the playbook awx creates, without a run; test_objects.py shows that the playbook does."""
        store = self.awx.store
        # AWX's own credential types exist.
        numbers = {("credential_types", row["name"]): row["id"] for row in store.tables["credential_types"].values()}
        organization = 0
        for item in desired_objects(read_settings(dict(settings))):
            options = dict(item.options)
            spec, nodes, prompts = options.pop("survey_spec", {}), options.pop("nodes", []), options.pop("prompts", [])
            # An option of the module, and no field.
            options.pop("update_secrets", None)
            if "extra_vars" in options:
                options["extra_vars"] = json.dumps(options["extra_vars"])
            links = {name: options.pop(name) for name in list(options) if name in KINDS[item.kind].links}
            body = {
                name: value for name, value in options.items() if value != "" or name not in KINDS[item.kind].references
            }
            body |= {f"ask_{prompt}_on_launch": True for prompt in prompts}
            for name, kind in KINDS[item.kind].references.items():
                if name in body:
                    body[name] = next(
                        number
                        for key, number in numbers.items()
                        if key[1] == body[name] and kind in (key[0], "unified_job_templates")
                    )
            if "organization" in KINDS[item.kind].fields:
                body["organization"] = organization
            if item.kind == "inventory_sources":
                source = {"source": "scm", "overwrite": True, "overwrite_vars": True}
                body |= {"inventory": numbers["inventories", item.parent], **source}
            if item.kind == "projects":
                body["scm_type"] = "git"
            if item.kind == "workflow_job_templates":
                body |= {"extra_vars": "{}", **dict.fromkeys(("limit", "job_tags", "skip_tags", "scm_branch"), "")}
            row = store.create(item.kind, {"name": item.name, "description": item.description, **body})
            organization = row["id"] if item.kind == "organizations" else organization
            numbers[item.key] = row["id"]
            if item.kind == "projects":
                self.awx.runs.update_project(row)
            for name, others in links.items():
                for other in others:
                    store.link(item.kind, row["id"], name, {"id": numbers[KINDS[item.kind].links[name], other]})
            if spec:
                store.set_survey(row["id"], spec)
            self._fill_steps(row, nodes, numbers)
        for source in list(store.tables["inventory_sources"].values()):
            update = self.awx.runs.update_inventory(source)
            assert update["status"] == "successful", update["output"]

    def fill_from_vks(self, addresses: Mapping[str, str], account: Mapping[str, str]) -> list[str]:
        """Fill the stand-in with the clusters of a fake of VKS, whose addresses and account are environment variables; return their names."""
        inputs = {"client_id": account["GRN_CLIENT_ID"], "client_secret": account["GRN_CLIENT_SECRET"]}
        self.awx.runs.environment |= addresses
        (self.repository / "inventory" / "vks.clusters.yml").write_text(yaml.safe_dump(_VKS))
        self.commit()
        source = {"name": "vks", "path": "inventory/vks.clusters.yml", "credential": "account"}
        credential = {"name": "account", "type": "vks", "inputs": {**inputs, "region": "", "project_id": ""}}
        self.fill(
            {
                "project": {"url": str(self.repository)},
                "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
                "inventory": {"sources": [source]},
                "credentials": [credential],
            }
        )
        return self.awx.runs.hosts(self.named("inventories", "GPU clusters")["id"])

    def _fill_steps(self, workflow: Row, nodes: list[Row], numbers: Mapping[tuple[str, str], int]) -> None:
        store, kind, steps = self.awx.store, "workflow_job_template_nodes", dict[str, int]()
        for node in nodes:
            template = (
                numbers["job_templates", node["template"]]
                if "template" in node
                else store.create("workflow_approval_templates", node["approval"])["id"]
            )
            body = {
                "identifier": node["identifier"],
                "workflow_job_template": workflow["id"],
                "unified_job_template": template,
                **({"job_slice_count": node["job_slice_count"]} if "job_slice_count" in node else {}),
            }
            steps[node["identifier"]] = store.create(kind, body)["id"]
        for node in nodes:
            for following in node["success"]:
                store.link(kind, steps[node["identifier"]], "success_nodes", {"id": steps[following]})

    def launch(self, template: str, /, kind: str = "job_templates", **body: Any) -> Row:
        """Launch a template, and return the run without waiting for it."""
        status, answer = self.request("POST", f"{kind}/{self.named(kind, template)['id']}/launch/", body)
        assert status == 201, answer
        return self.awx.runs.rows["workflow_jobs" if "workflow_job" in answer else "jobs"][answer["id"]]

    def pending_approval(self, workflow: Row) -> Row:
        """Wait until a workflow waits for an approval, and return it."""
        runs = self.awx.runs

        def of_workflow() -> Row | None:
            rows = runs.rows["workflow_approvals"].values()
            return next((row for row in rows if row["workflow_job"] == workflow["id"]), None)

        approval: Row = runs.wait_for(of_workflow, 600)
        return approval

    def finished(self, template: str, /, **body: Any) -> Row:
        """Launch a template, and return the run after its end."""
        return self.awx.runs.wait(self.launch(template, **body), 600)


@contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    """Start a stand-in whose execution environment contains the collection. All requests and answers must be within the contract of AWX's API."""
    awx = Awx(folder / "awx")
    awx.runs.environment = {"PATH": f"{VENV_BIN}:{os.environ['PATH']}"}
    awx.runs.image_collections = [BUILD]
    server = serve(awx)
    running = StandIn(awx, f"http://127.0.0.1:{server.server_port}", folder, record(awx))
    shutil.copytree(REPO / "examples" / "awx" / "project", running.repository)
    running.commit()
    try:
        yield running
        outside = sorted({line for exchange in running.exchanges for line in problems(exchange)})
        assert not outside, "\n".join(outside)
    finally:
        for number in list(awx.runs.rows["jobs"]):
            awx.runs.answer("POST", "jobs", number, "cancel", {}, {}) if awx.runs.rows["jobs"][number][
                "finished"
            ] is None else None
        server.shutdown()
        server.server_close()


def shows(output: str, text: str) -> bool:
    """Whether the output of a job contains the text, regardless of line breaks and escapes."""
    return "".join(text.split()) in "".join(output.replace("\\", "").split())


def clusters(*names: str, **variables: Any) -> dict[str, Any]:
    """An inventory file with clusters that do not exist: a plan of them succeeds, and a change fails with NO_CLUSTER."""
    hosts = {name: {"gpu_cluster": {"name": name, "kubeconfig": "/nonexistent"}, **variables} for name in names}
    return {"gpu_clusters": {"hosts": hosts}}
