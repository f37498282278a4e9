# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The artifact contains what users call by its full name and nothing of the lab, and works without the repository."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from tests.programs import BUILD, REPO, environment, run

FOLDERS = {"changelogs", "docs", "examples", "meta", "playbooks", "plugins", "roles"}
PAPERS = {
    "CHANGELOG.md",
    "FILES.json",
    "LICENSE",
    "MANIFEST.json",
    "README.md",
    "bindep.txt",
    "requirements.txt",
    "requirements.yml",
}


@pytest.fixture(scope="module")
def artifact(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    run("ansible-galaxy", "collection", "build", "--output-path", folder, tree)
    return next(folder.glob("accel-gpu-*.tar.gz"))


@pytest.mark.usual(3)
def test_contents_are_only_what_users_need(artifact: Path) -> None:
    with tarfile.open(artifact) as archive:
        files = [member.name for member in archive.getmembers() if member.isfile()]
    assert {name.partition("/")[0] for name in files} <= FOLDERS | PAPERS
    assert set(files) >= PAPERS
    assert not [name for name in files if "__pycache__" in name or name.endswith(".pyc")]
    assert {"plugins/modules/node_metadata.py", "roles/pools/tasks/main.yml", "playbooks/plan.yml"} <= set(files)
    assert {str(path.relative_to(REPO)) for path in (REPO / "plugins").rglob("*.*") if path.suffix != ".pyc"} <= set(
        files
    )
    tracked = run("git", "-C", REPO, "ls-files", "docs", "examples").split()
    assert "docs/pools.md" in tracked
    assert set(tracked) <= set(files), "the pages and the examples that READMEs of roles refer to are shipped"


@pytest.mark.usual(15)
def test_plan_runs_from_an_installation(artifact: Path, tmp_path: Path) -> None:
    """The collection is installed into an empty folder, and the playbook plan runs by its name, outside the repository and without a cluster."""
    # Only this path; otherwise the collection of the checkout counts as installed.
    env = environment(ANSIBLE_COLLECTIONS_PATH=str(tmp_path), KUBECONFIG=str(tmp_path / "none"))
    run("ansible-galaxy", "collection", "install", "--no-deps", "-p", tmp_path, artifact, env=env)
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        "gpu_clusters: {hosts: {nowhere: {gpu_cluster: {name: nowhere}, gpu_pools: "
        "[{name: notebooks, match: {model: Tesla-T4}, sharing: {mode: time-slicing, replicas: 4}}]}}}\n"
    )
    written = tmp_path / "written"
    env["ANSIBLE_REMOTE_TEMP"] = str(written)
    message = run("ansible-playbook", "-i", inventory, "accel.gpu.plan", cwd=tmp_path, env=env)
    assert "notebooks" in message
    assert not written.exists(), "no module with its arguments is written to a file"
    assert str(REPO) not in message.replace(str(BUILD), "")


@pytest.mark.soak
@pytest.mark.usual(90)
def test_galaxy_imports_the_artifact() -> None:
    printed = run(REPO / "tools" / "importer")
    assert "Importer processing completed successfully" in printed
    problems = [line for line in printed.splitlines() if line.startswith(("WARNING", "ERROR"))]
    # The importer checks the files without the collection, from which the example project for AWX imports playbooks.
    assert not [line for line in problems if not re.search(r"Failed to find accel\.gpu\.\w+ playbook", line)]
