# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the house that a program can see (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.programs import REPO

PLUGINS = REPO / "plugins"
UTILS = PLUGINS / "module_utils"
MODULE_UTILS = "plugins.module_utils"
# The shared rooms, and what each may know; every other room is an area, which knows these and no other area.
SHARED: dict[str, set[str]] = {
    "catalog": set(),
    "mig": {"catalog"},
    "nvidia_config": {"catalog", "mig"},
    "common": {"catalog"},
    "schema": {"catalog", "mig", "nvidia_config"},
    "nodegroups": {"catalog", "common"},
    "pools": {"catalog", "mig", "nvidia_config", "nodegroups", "schema"},
    "kube": {"catalog", "common", "schema", "pools"},
    "cluster_state": {"catalog", "mig", "nvidia_config", "schema", "pools"},
    "drain": {"catalog", "common", "schema", "pools", "kube", "cluster_state", "nodegroups"},
    "helm": {"catalog", "common", "schema", "kube", "cluster_state"},
    "report": {"catalog", "mig", "nvidia_config", "schema", "pools", "cluster_state"},
}


def python_files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py")) if path.stat().st_size]


def imported(path: Path) -> Iterator[str]:
    """The absolute dotted names of what a file imports, with relative imports resolved from the repository's root."""
    package = path.relative_to(REPO).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def rooms() -> list[str]:
    return sorted(path.name for path in UTILS.iterdir() if python_files(path))


@pytest.mark.parametrize("room", rooms())
def test_imports_go_one_way(room: str) -> None:
    allowed = {room, *SHARED.get(room, SHARED.keys())}
    strangers = {
        f"{path.relative_to(REPO)} imports {name}"
        for path in python_files(UTILS / room)
        for name in imported(path)
        if name.startswith(f"{MODULE_UTILS}.") and name.split(".")[2] not in allowed
    }
    assert not strangers


def test_only_files_called_module_know_ansible() -> None:
    knowing = {
        str(path.relative_to(UTILS))
        for path in python_files(UTILS)
        for name in imported(path)
        if name.startswith("ansible.")
    }
    assert {path for path in knowing if not path.endswith("/module.py")} == set()


def test_module_utils_do_not_need_the_controller() -> None:
    assert not {
        f"{path.relative_to(REPO)} imports {name}"
        for path in python_files(UTILS)
        for name in imported(path)
        if name.split(".")[0] in {"jinja2", "markupsafe"} or name.startswith("plugins.plugin_utils.")
    }


def test_plugins_know_no_lab() -> None:
    for path in python_files(PLUGINS):
        assert not [name for name in imported(path) if name.split(".")[0] in {"lab", "tests", "subprocess"}], path


def test_every_python_file_says_its_licence() -> None:
    missing = [
        str(path.relative_to(REPO))
        for path in python_files(PLUGINS, REPO / "lab", REPO / "tests")
        if "SPDX-License-Identifier: GPL-3.0-or-later" not in path.read_text(encoding="utf-8")[:400]
    ]
    assert not missing


def test_files_are_short_enough_to_read() -> None:
    long = {
        str(path.relative_to(REPO)): lines
        for path in python_files(PLUGINS, REPO / "lab", REPO / "tests")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_every_module_is_in_the_action_group_of_what_it_talks_to() -> None:
    """Those of a cloud are called after it; all others but one talk to a cluster."""
    groups = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())["action_groups"]
    modules = {path.stem for path in (PLUGINS / "modules").glob("*.py")}
    clouds = {group: {name for name in modules if name.startswith(f"{group}_")} for group in groups if group != "kube"}
    assert {group: set(names) for group, names in groups.items()} == {
        **clouds,
        "kube": modules - {"print_lines"} - {name for names in clouds.values() for name in names},
    }


def test_every_module_that_takes_a_lease_learns_its_inventory_host() -> None:
    """From its action plugin; without one, two hosts of a run would each be a run of its own, and nobody could tell whose."""
    leasing = {
        path.stem
        for path in (PLUGINS / "modules").glob("*.py")
        if re.search(r"accel\.gpu\.(lease|emptying)|lease\(", path.read_text(encoding="utf-8"))
    }
    assert {"gpu_sharing", "helm_release", "magnum_nodegroup", "vks_nodegroup"} < leasing
    shown = {
        path.stem for path in (PLUGINS / "action").glob("*.py") if "ProgressAction" in path.read_text(encoding="utf-8")
    }
    assert leasing <= shown


def test_dependencies_are_said_once() -> None:
    galaxy = yaml.safe_load((REPO / "galaxy.yml").read_text())
    required = yaml.safe_load((REPO / "requirements.yml").read_text())
    assert galaxy["dependencies"] == {entry["name"]: entry["version"] for entry in required["collections"]}
