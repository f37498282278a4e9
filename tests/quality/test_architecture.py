# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of docs/architecture.md that a program can check."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import PROVIDERS
from tests.programs import REPO

PLUGINS = REPO / "plugins"
UTILS = PLUGINS / "module_utils"
# The rooms in import order: a room may import the rooms before it.
ROOMS = (
    "catalog",
    "core",
    "kube",
    "registry",
    "vsphere",
    "sharing_modes",
    "schema",
    "pools",
    "nodes",
    "nodegroups",
    "clouds",
    "helm",
    "olm",
    "gpu_operator",
    "sharing",
    "validation",
    "licensing",
    "images",
    "report",
    "uninstall",
)


def python_files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py")) if path.stat().st_size]


@functools.cache
def imported_names(path: Path) -> tuple[str, ...]:
    """The absolute dotted names that a file imports; relative imports are resolved from the repository's root."""
    return tuple(_imported_names(path))


def _imported_names(path: Path) -> Iterator[str]:
    package = path.relative_to(REPO).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


@functools.cache
def imported_files(path: Path) -> frozenset[Path]:
    """The files of module_utils that a file imports, also for annotations or within a function."""
    files: set[Path] = set()
    for name in imported_names(path):
        # The last part may be a name in the file.
        paths = [REPO.joinpath(*name.split(".")[:end]).with_suffix(".py") for end in (None, -1)]
        files |= {file for file in paths if file.is_file() and file.is_relative_to(UTILS)}
    return frozenset(files)


def test_every_package_is_a_room() -> None:
    assert sorted(path.name for path in UTILS.iterdir() if path.is_dir() and python_files(path)) == sorted(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_before_it(room: str) -> None:
    allowed = ROOMS[: ROOMS.index(room) + 1]
    forbidden = {
        f"{path.relative_to(REPO)} imports {other.relative_to(UTILS)}"
        for path in python_files(UTILS / room)
        for other in imported_files(path)
        if other.relative_to(UTILS).parts[0] not in allowed
    }
    assert not forbidden


@pytest.mark.parametrize("room", ROOMS)
def test_the_files_of_a_room_import_each_other_in_no_circle(room: str) -> None:
    graph = {path: imported_files(path) - {path} for path in python_files(UTILS / room)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(path.name for path in error.args[1]))


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_defines_each_of_its_names_once(room: str) -> None:
    """A second definition of a constant would silently change the first one's users."""
    repeated = []
    for path in python_files(UTILS / room):
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        names = [node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
        names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        repeated += [f"{path.relative_to(UTILS)}: {name}" for name in set(names) if names.count(name) > 1]
    assert not repeated


def test_only_the_bases_of_modules_import_ansible() -> None:
    importers = {
        str(path.relative_to(UTILS))
        for path in python_files(UTILS)
        for name in imported_names(path)
        if name.startswith("ansible.")
    }
    assert importers == {"clouds/vks_clusters.py", "core/module.py", "kube/module.py", "vsphere/connection.py"}


def test_module_utils_do_not_need_the_controller() -> None:
    assert not {
        f"{path.relative_to(REPO)} imports {name}"
        for path in python_files(UTILS)
        for name in imported_names(path)
        if name.split(".")[0] in {"jinja2", "markupsafe"} or name.startswith("plugins.plugin_utils.")
    }


def test_plugins_do_not_import_the_lab() -> None:
    for path in python_files(PLUGINS):
        assert not [name for name in imported_names(path) if name.split(".")[0] in {"lab", "tests", "subprocess"}], path


def test_every_python_file_has_a_license_header() -> None:
    missing = [
        str(path.relative_to(REPO))
        for path in python_files(PLUGINS, REPO / "lab", REPO / "tests")
        if "SPDX-License-Identifier: GPL-3.0-or-later" not in path.read_text(encoding="utf-8")[:400]
    ]
    assert not missing


# The list of return values of a module, which describes every key.
_RETURN = re.compile(r'^RETURN = r"""\n.*?^"""\n', re.MULTILINE | re.DOTALL)


def test_files_have_at_most_900_lines() -> None:
    long = {
        str(path.relative_to(REPO)): lines
        for path in python_files(PLUGINS, REPO / "lab", REPO / "tests")
        if (lines := len(_RETURN.sub("", path.read_text(encoding="utf-8")).splitlines())) > 900
    }
    assert not long


def documented_fragments() -> dict[str, set[str]]:
    """The documentation fragments of each module."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (PLUGINS / "modules").glob("*.py")}
    lists = {
        name: re.search(r"^extends_documentation_fragment:\n((?:  - .*\n)+)", text, re.M)
        for name, text in texts.items()
    }
    return {name: set(re.findall(r"accel\.gpu\.(.+)", actual[1])) for name, actual in lists.items() if actual}


def test_a_module_is_in_the_action_group_of_each_service_whose_connection_options_it_has() -> None:
    """The attribute `action_group` of a module is that of its first documentation fragment that has one."""
    groups = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())["action_groups"]
    fragments = documented_fragments()
    assert {group: set(names) for group, names in groups.items()} == {
        group: {name for name, extended in fragments.items() if group in extended}
        for group in (
            "kube",
            "registry",
            "vsphere",
            *(key for key, provider in PROVIDERS.items() if not provider.distribution),
        )
    }


def test_every_module_that_takes_a_lease_gets_its_inventory_host() -> None:
    """Its action plugin, which `make docs` writes, passes the host. Without it, two hosts of one run could not be distinguished."""
    leasing = {
        path.stem
        for path in (PLUGINS / "modules").glob("*.py")
        if re.search(r"accel\.gpu\.(lease|drain)(?!\.info)|lease\(", path.read_text(encoding="utf-8"))
    }
    assert {"gpu_sharing", "helm_release", "magnum_nodegroup", "vks_nodegroup"} < leasing
    assert leasing <= {name for name, extended in documented_fragments().items() if "attributes.progress" in extended}


def test_modules_have_no_route() -> None:
    """With a redirect to another action plugin, a module would get the module_defaults of the target, too."""
    assert "plugin_routing" not in yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())


def test_only_action_plugins_import_modules() -> None:
    others = [PLUGINS / "plugin_utils", UTILS, PLUGINS / "filter", PLUGINS / "lookup", PLUGINS / "inventory"]
    assert not [
        f"{path.relative_to(REPO)} imports {name}"
        for path in python_files(*others)
        for name in imported_names(path)
        if name.startswith("plugins.modules")
    ]


def needed_files(module: str) -> set[Path]:
    """The files of module_utils that Ansible packs with a module: all that it imports, and their imports."""
    files: set[Path] = set()
    unread = {PLUGINS / "modules" / f"{module}.py"}
    while unread:
        new = imported_files(unread.pop()) - files
        files |= new
        unread |= new
    return files


@pytest.mark.parametrize("module", ["kube_object", "node_metadata", "helm_release"])
def test_modules_without_pools_do_not_need_the_derivation(module: str) -> None:
    needed = {path.relative_to(UTILS).as_posix() for path in needed_files(module)}
    assert "kube/module.py" in needed
    assert not needed & {"pools/derive.py", "pools/module.py"}


@pytest.mark.parametrize(
    "module", ["magnum_cluster_info", "magnum_kubeconfig", "registry_image", "vks_catalog_info", "vks_cluster_info"]
)
def test_modules_of_clouds_and_registries_need_at_most_20_files(module: str) -> None:
    """A module that lists the clusters of a cloud does not load MIG layouts or an API client."""
    assert len(needed_files(module)) <= 20
