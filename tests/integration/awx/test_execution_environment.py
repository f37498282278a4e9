# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment of the example, built on Debian, and a job of AWX in it.

tools/execution-environment replaces the base image, pip's installation and the source of the collections, because machines of the tests reach neither a registry
nor Galaxy. The test replaces the downloads of helm and kubectl by the lab's programs, which are built from the sources of the same versions. All steps of
ansible-builder's Dockerfile run as in any build.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from lab import build
from lab.awx.container import Container, Image
from tests.helpers.awx import NO_CLUSTER, clusters, shows, stand_in
from tests.helpers.execution_environment import HELM, KUBECTL, Dockerfile, pinned_package
from tests.programs import BUILD, REPO, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3000)]

COLLECTIONS = Path("/usr/share/ansible/collections")
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
SETTINGS = {
    "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
    "inventory": {"sources": [{"name": "clusters", "path": "inventory/hosts.yml"}]},
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The built execution environment, with its entry point."""
    programs = tmp_path_factory.mktemp("programs")
    built = build.ensure(["helm", "kubernetes"])
    for tool, program in (("helm", "helm"), ("kubernetes", "kubectl")):
        (programs / program).symlink_to(built[tool] / "bin" / program)
    *_progress, root = run(REPO / "tools" / "execution-environment", "--programs", programs).splitlines()
    dockerfile = Dockerfile(BUILD / "execution-environment" / "context")
    return Image(Path(root), tuple(dockerfile.entrypoint))


def output(image: Image, folder: Path, *program: str) -> str:
    """What a program in a container of the image prints; it must succeed."""
    outcome = Container(folder / "awx_1", ENVIRONMENT, [COLLECTIONS], image=image).run(list(program))
    assert outcome.status == "successful", outcome.output
    return outcome.output


# The first test builds the image.
@pytest.mark.usual(600)
@pytest.mark.parametrize(
    ("program", "version"),
    [
        (["ansible-playbook", "--version"], f"[core {pinned_package('ansible-core')}]"),
        (["ansible-runner", "--version"], pinned_package("ansible-runner")),
        # The lab builds helm without the flag that sets the patch number.
        (["helm", "version", "--short"], HELM.rpartition(".")[0]),
        (["kubectl", "version", "--client"], f"Client Version: {KUBECTL}\n"),
        (["skopeo", "--version"], "skopeo version "),
        (["buildah", "--version"], "buildah version "),
        (["sh", "-c", "command -v newuidmap"], "/usr/bin/newuidmap\n"),
        # The entry point of the image has added the user.
        (["sh", "-c", "echo $(id -u) $(id -un) $HOME"], "1000 1000 /runner\n"),
    ],
)
def test_programs(image: Image, tmp_path: Path, program: list[str], version: str) -> None:
    printed = output(image, tmp_path, *program)
    assert version in printed
    assert "EP_WARN" not in printed


def imported_libraries() -> set[str]:
    """The modules outside of Python and Ansible that the files of the plugins import."""
    names: set[str] = set()
    for path in (REPO / "plugins").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    own = {"ansible", "ansible_collections", *sys.stdlib_module_names}
    return {name for name in names if name.partition(".")[0] not in own}


@pytest.mark.usual(10)
def test_libraries(image: Image, tmp_path: Path) -> None:
    names = imported_libraries()
    assert {"kubernetes", "openstack", "yaml"} <= {name.partition(".")[0] for name in names}
    script = (
        "import importlib, json, sys\n"
        "missing = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError as error: missing[name] = str(error)\n"
        "print(json.dumps(missing))"
    )
    assert json.loads(output(image, tmp_path, "python3", "-c", script, *sorted(names))) == {}


@pytest.mark.usual(10)
def test_collections(image: Image, tmp_path: Path) -> None:
    listed = json.loads(output(image, tmp_path, "ansible-galaxy", "collection", "list", "--format", "json"))
    version = yaml.safe_load((REPO / "galaxy.yml").read_text())["version"]
    assert listed[str(COLLECTIONS / "ansible_collections")]["accel.gpu"] == {"version": version}
    assert "kubernetes.core" in listed[str(COLLECTIONS / "ansible_collections")]


@pytest.mark.usual(60)
def test_a_job(image: Image, tmp_path: Path) -> None:
    """A user without a name, HOME and terminal, and a read-only project."""
    with stand_in(tmp_path) as running:
        runs = running.awx.runs
        runs.image, runs.environment, runs.image_collections = image, ENVIRONMENT, [COLLECTIONS]
        (running.repository / "inventory" / "hosts.yml").write_text(yaml.safe_dump(clusters("one")))
        running.commit()
        running.fill({**SETTINGS, "project": {"url": str(running.repository)}})
        planned, changed = running.finished("GPU plan"), running.finished("GPU site")
    assert planned["status"] == "successful", planned["output"][-3000:]
    assert planned["artifacts"]["gpu_report_summary"].keys() == {"one"}
    # The cluster does not exist: the modules of a change have reached the check of its kubeconfig.
    assert changed["status"] == "failed"
    assert shows(changed["output"], NO_CLUSTER), changed["output"][-3000:]
    assert "WARNING" not in planned["output"] + changed["output"]


@pytest.mark.usual(20)
def test_the_cronjob_of_new_nodes_needs_no_entry_point(image: Image, tmp_path: Path) -> None:
    """Its command replaces the entry point, and its environment has what Ansible needs instead."""
    template = (REPO / "roles" / "new_nodes" / "templates" / "objects.yaml.j2").read_text(encoding="utf-8")
    template = template.replace("{{ __new_nodes_name }}", "accel-gpu-new-nodes")
    variables = [yaml.safe_load(line) for line in re.findall(r"- (\{name: \w+, value: .*\})$", template, re.MULTILINE)]
    environ = {variable["name"]: variable["value"] for variable in variables}
    assert environ.keys() >= {"HOME", "USER"}
    container = Container(tmp_path / "awx_1", {**ENVIRONMENT, **environ}, [COLLECTIONS], image=Image(image.root))
    container.write("inventory/hosts.yml", yaml.safe_dump(clusters("one", gpu_pools=[])))
    outcome = container.run(["ansible-playbook", "accel.gpu.plan", "--inventory", "/runner/inventory/hosts.yml"])
    assert outcome.status == "successful", outcome.output
    assert "one" in outcome.output
