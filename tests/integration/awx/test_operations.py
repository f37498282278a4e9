# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each operation with each of its credential types, with a limit, in check mode, in slices, and canceled and relaunched.

Everything behind the credentials refuses them. The secrets thus reach all code that sends them, and the messages of all refusals.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.plugin_utils.awx.credential_types import CREDENTIAL_TYPES
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.operations import ACCESS, OPERATIONS
from lab.awx.injectors import MANAGED
from lab.awx.store import Row
from tests.helpers.awx import StandIn, stand_in
from tests.helpers.planted_secrets import Planted
from tests.helpers.polling import until
from tests.helpers.unauthorized import Unauthorized, unauthorized

CLUSTERS = ("one", "two")
MODES = ("limit", "check", "slices", "relaunch")
SUCCESS = ""
NO_CLUSTER = "The kubeconfig /nonexistent does not exist"
UNKNOWN_USER = "does not know this user (401 Unauthorized"


def modes(operation: str, kind: str) -> Iterator[str]:
    """The modes that AWX offers. The type `kubernetes` is a login for one cluster, so there is nothing to cut."""
    for mode in MODES:
        offered = {"check": "job_type", "slices": "job_slice_count"}.get(mode, "limit") in OPERATIONS[operation].prompts
        if offered and (mode != "slices" or kind != "kubernetes"):
            yield mode


CASES = [
    (operation, kind, mode)
    for operation in OPERATIONS
    for kind in OPERATIONS[operation].credential_types
    for mode in modes(operation, kind)
]
# The answers to required questions. The pool has no node group, since nobody knows where it would be.
ANSWERS = {"gpu_pool": "notebooks", "gpu_node_count": 2}
# What an operation says about clusters that it cannot reach, if this is not the refusal itself.
MESSAGES = {
    "scale": "pool notebooks: it has no node group, so its number of nodes cannot be set",
    "delete_nodegroups": "gpu_nodegroups_pool_names: notebooks is not the name of a declared pool with nodes",
    "templates": SUCCESS,
    "vsphere_hosts": SUCCESS,
    "templates_refresh": "gpu_pool does not select pools with vgpu",
}
# What a credential type other than those that give access changes.
MESSAGES_OF_TYPES = {
    ("plan", "vcenter"): SUCCESS,
    ("license", "nls"): "NLS_CLIENT_TOKEN: the token has 1 part instead of 3",
    ("license_rotate", "nls"): "NLS_CLIENT_TOKEN: the token has 1 part instead of 3",
}


def message(operation: str, kind: str, server: Unauthorized) -> str:
    """The documented end of a job: a message of the failure, or SUCCESS."""
    if kind in ("openstack", "clouds"):
        # Each job first fetches the kubeconfig of its cluster.
        return f"Keystone at {server.url}/v3 does not accept the credentials"
    if kind == "vks":
        return "IAM rejected the login"
    refusal = UNKNOWN_USER if kind in ACCESS else NO_CLUSTER
    return MESSAGES_OF_TYPES.get((operation, kind), MESSAGES.get(operation, refusal))


def secret_fields(kind: str) -> list[str]:
    """The inputs of a credential type that AWX encrypts."""
    fields = CREDENTIAL_TYPES[kind].inputs or MANAGED[CREDENTIAL_TYPES[kind].name].inputs["fields"]
    return [each["id"] for each in fields if each.get("secret")]


def inputs(kind: str, secrets: Mapping[str, str], server: Unauthorized) -> dict[str, Any]:
    """The inputs of a credential with secrets by field. A file contains its secret where its format has one."""
    login = {"username": "gpu", "password": secrets.get("password")}
    project = {"user_domain_name": "Default", "project_domain_name": "Default", "project_name": "gpu"}
    if kind == "kubeconfig":
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"{server.url}/{name}"}} for name in CLUSTERS],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "gpu"}} for name in CLUSTERS],
            "users": [{"name": "gpu", "user": {"token": secrets["kubeconfig"]}}],
        }
        return {"kubeconfig": yaml.safe_dump(document)}
    if kind == "clouds":
        login["password"] = secrets["clouds_yaml_secret"]
        cloud = {"auth": {"auth_url": f"{server.url}/v3", **login, **project}}
        return {"clouds_yaml_secret": yaml.safe_dump({"clouds": {"clouds": cloud}})}
    if kind == "registries":
        entry = base64.b64encode(f"gpu:{secrets['auth_file_secret']}".encode()).decode()
        auths = {f"127.0.0.1:{server.port}": {"auth": entry}}
        return {**secrets, "auth_file_secret": json.dumps({"auths": auths})}
    others: dict[str, dict[str, Any]] = {
        "kubernetes": {"host": f"{server.url}/one", "verify_ssl": True},
        "openstack": {"host": f"{server.url}/v3", "username": "gpu", "project": "gpu", "domain": "Default", "project_domain_name": "Default"},
        "vks": {"client_id": "gpu", "region": "HCM-3"},
        "vcenter": {"host": "127.0.0.1", "username": "gpu"},
    }  # fmt: skip
    return {**others.get(kind, {}), **secrets}


def cluster(name: str, kind: str, server: Unauthorized) -> dict[str, Any]:
    """The variable gpu_cluster of a cluster that a credential type gives access to."""
    fetched = {"kubeconfig": f"/runner/kubeconfigs/{name}"}
    connections: dict[str, dict[str, Any]] = {
        "kubeconfig": {"context": name},
        "kubernetes": {},
        "openstack": {"cloud": {"magnum": {"cloud": "devstack"}}, **fetched},
        "clouds": {"cloud": {"magnum": {"cloud": "clouds"}}, **fetched},
        "vks": {"cloud": {"vks": {"iam_url": f"{server.url}/iam"}}, **fetched},
    }
    return {"name": name, **connections.get(kind, {"kubeconfig": "/nonexistent"})}


@dataclass
class Table:
    """A stand-in with an organization for each credential type, which is filled when a test first needs it."""

    running: StandIn
    server: Unauthorized
    planted: Planted = field(default_factory=Planted)
    filled: set[str] = field(default_factory=set)

    def template(self, operation: str, kind: str) -> str:
        """The name of the job template of an operation with a credential of this type."""
        if kind not in self.filled:
            self.filled.add(kind)
            self._fill(kind)
        return f"{kind} {OPERATIONS[operation].title}"

    def _fill(self, kind: str) -> None:
        hosts = {
            name: {"gpu_cluster": cluster(name, kind, self.server)}
            for name in (CLUSTERS[:1] if kind == "kubernetes" else CLUSTERS)
        }
        groups = {"gpu_clusters": {"hosts": hosts, "vars": {"gpu_mirror_registry": f"127.0.0.1:{self.server.port}"}}}
        (self.running.repository / "inventory" / f"{kind}.yml").write_text(yaml.safe_dump(groups))
        self.running.commit()
        secrets = {name: self.planted.new(f"{kind}.{name}") for name in secret_fields(kind)}
        self.running.fill(
            {
                "organization": kind,
                "prefix": f"{kind} ",
                "operations": list(OPERATIONS),
                "execution_environment": {"name": kind, "image": "registry.example.com/accel-gpu:1"},
                "project": {"name": kind, "url": str(self.running.repository)},
                "inventory": {"name": kind, "sources": [{"name": kind, "path": f"inventory/{kind}.yml"}]},
                "credentials": [{"name": kind, "type": kind, "inputs": inputs(kind, secrets, self.server)}],
            }
        )

    def folder(self, job: Row) -> Path:
        """The folder of a job's container."""
        return self.running.awx.folder / "jobs" / f"awx_{job['id']}"

    def hosts(self, job: Row) -> set[str]:
        """The clusters on which a job ran a task."""
        events = [json.loads(path.read_text()) for path in (self.folder(job) / "artifacts").rglob("*-*.json")]
        hosts = {event["event_data"]["host"] for event in events if event.get("event_data", {}).get("host")}
        # The check of the inventory and the limit runs once, on localhost if there is no limit.
        return hosts - {"localhost"}

    def require_no_secret(self, job: Row) -> None:
        """Search everything that AWX keeps of a job or shows, and all files in its container except the credential's own.

        ansible-runner's record of its environment (artifacts/N/command) stays in the container.
        """
        folder = self.folder(job)
        own = {folder / "env", folder / "artifacts" / str(job["id"]) / "command"}
        actual = [
            f"{what} in {path}"
            for path in folder.rglob("*")
            if path.is_file() and not own & {path, *path.parents}
            for what in self.planted.found_in(path.read_bytes())
        ]
        actual += [
            f"{what} in {name}"
            for name in ("cmdline", "extravars", "settings")
            for what in self.planted.found_in((folder / "env" / name).read_bytes())
        ]
        kept = {**self.running.awx.runs.shown(job), "output": job["output"]}
        assert actual + self.planted.found_in(json.dumps(kept)) == []


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with unauthorized() as server, stand_in(tmp_path_factory.mktemp("awx")) as running:
        yield Table(running, server)


def shows(output: str, text: str) -> bool:
    """Whether the output contains the text, regardless of line breaks and escapes."""
    return "".join(text.split()) in "".join(output.replace("\\", "").split())


@pytest.mark.sampled(5)
@pytest.mark.usual(12)
@pytest.mark.parametrize(("operation", "kind", "mode"), CASES, ids=[" ".join(case) for case in CASES])
def test_an_operation_with_a_credential(table: Table, operation: str, kind: str, mode: str) -> None:
    template, runs = table.template(operation, kind), table.running.awx.runs
    expected = message(operation, kind, table.server)
    required = {name: value for name, value in ANSWERS.items() if name in OPERATIONS[operation].required}
    options: dict[str, Any] = {"extra_vars": required, "verbosity": 3}
    if mode != "slices":
        options["limit"] = "one"
    if mode == "check":
        options["job_type"] = "check"
    if mode == "slices":
        options["job_slice_count"] = len(CLUSTERS)
    table.server.requests.clear()
    before = set(runs.rows["jobs"])
    with table.planted.watched() as seen:
        if mode == "relaunch":
            sends = expected not in (*MESSAGES.values(), *MESSAGES_OF_TYPES.values(), NO_CLUSTER)
            _relaunched(table, table.running.launch(template, **options), sends=sends)
        else:
            table.running.finished(template, **options)
    jobs = [row for number, row in runs.rows["jobs"].items() if number not in before]
    assert seen == []
    for job in jobs:
        table.require_no_secret(job)
        # A refused login may have changed nothing, and nothing else is sent before it.
        assert not any(f"changed={number}" in job["output"] for number in range(1, 10))
    assert table.server.writes() == []
    done = [job for job in jobs if job["status"] != "canceled"]
    for job in done:
        assert job["status"] == ("failed" if expected else "successful"), job["output"][-3000:]
        assert shows(job["output"], expected), job["output"][-3000:]
        assert "Traceback" not in job["output"]
    handled = [table.hosts(job) for job in done]
    assert handled == ([{"one"}, {"two"}] if mode == "slices" else [{"one"}])
    if kind == "kubeconfig" and mode != "slices":
        assert not [path for _method, path in table.server.requests if path.startswith("/two")]


def _relaunched(table: Table, job: Row, *, sends: bool) -> None:
    """Cancel a job while it waits for an answer, or after its first task if it sends nothing. Start it again, and wait for the end."""
    table.server.answers.clear()
    try:
        until(lambda: job["finished"] or (table.server.requests if sends else table.hosts(job)), 300)
        assert job["finished"] is None, job["output"][-3000:]
        assert table.running.request("POST", f"jobs/{job['id']}/cancel/")[0] == 202
        assert table.running.awx.runs.wait(job, 60)["status"] == "canceled"
    finally:
        table.server.answers.set()
    status, again = table.running.request("POST", f"jobs/{job['id']}/relaunch/")
    assert status == 201
    table.running.awx.runs.wait(table.running.awx.runs.rows["jobs"][again["id"]], 300)


@pytest.mark.usual(20)
def test_a_launch_adds_no_credential(table: Table) -> None:
    """A job template has credentials of the types that its operation uses, and does not ask for others."""
    template = table.running.named("job_templates", table.template("export", "vks"))
    (other,) = table.running.awx.store.linked("job_templates", template["id"], "credentials")
    status, job = table.running.request("POST", f"job_templates/{template['id']}/launch/", {"credentials": [other]})
    assert status == 201
    assert job["ignored_fields"] == {"credentials": [other]}
    table.running.awx.runs.wait(table.running.awx.runs.rows["jobs"][job["id"]], 300)


def test_the_table_has_every_operation_and_type() -> None:
    assert {operation for operation, _kind, _mode in CASES} == set(OPERATIONS)
    assert {kind for _operation, kind, _mode in CASES} == set(CREDENTIAL_TYPES)
    for kind in CREDENTIAL_TYPES:
        assert secret_fields(kind), kind
