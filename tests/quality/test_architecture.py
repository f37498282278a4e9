# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of docs/architecture.md that a program can check."""

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
# The action plugin that all modules with progress reports use.
PROGRESS = "accel.gpu.gpu_info"
# The shared packages, with the packages that each may import. Every other package is a capability: it may import all shared
# packages and no other capability.
SHARED_PACKAGES: dict[str, set[str]] = {
    "catalog": set(),
    "mig": {"catalog"},
    "sharing_modes": {"catalog", "mig"},
    "nvidia_config": {"catalog", "mig", "sharing_modes"},
    "common": {"catalog"},
    "schema": {"catalog", "common", "mig", "sharing_modes"},
    "nodegroups": {"catalog", "common"},
    "pools": {"catalog", "common", "mig", "sharing_modes", "nvidia_config", "nodegroups", "schema"},
    "kube": {"catalog", "common", "schema", "pools"},
    "cluster_state": {"catalog", "common", "mig", "sharing_modes", "nvidia_config", "schema", "pools"},
    "drain": {"catalog", "common", "schema", "pools", "kube", "cluster_state", "nodegroups"},
    "helm": {"catalog", "common", "schema", "kube", "cluster_state"},
    "report": {"catalog", "mig", "sharing_modes", "schema", "pools", "cluster_state"},
}


# Definitions of providers are data. The schema and the pools import them through the registry.
REGISTRY = f"{MODULE_UTILS}.providers.registry."
REGISTRY_USERS = {"schema", "pools"}


def python_files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py")) if path.stat().st_size]


def imported_names(path: Path) -> Iterator[str]:
    """The absolute dotted names that a file imports; relative imports are resolved from the repository's root."""
    package = path.relative_to(REPO).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def packages() -> list[str]:
    return sorted(path.name for path in UTILS.iterdir() if python_files(path))


@pytest.mark.parametrize("package", packages())
def test_imports_follow_the_order_of_the_packages(package: str) -> None:
    allowed = {package, *SHARED_PACKAGES.get(package, SHARED_PACKAGES.keys())}
    forbidden = {
        f"{path.relative_to(REPO)} imports {name}"
        for path in python_files(UTILS / package)
        for name in imported_names(path)
        if name.startswith(f"{MODULE_UTILS}.") and name.split(".")[2] not in allowed
        if not (package in REGISTRY_USERS and name.startswith((REGISTRY, f"{MODULE_UTILS}.providers.definition.")))
    }
    assert not forbidden


def test_the_registry_of_providers_imports_definitions_only() -> None:
    """Modules that talk to Kubernetes import the schema, and must not import a cloud's client with it."""
    providers = UTILS / "providers"
    definitions = [providers / "registry.py", providers / "definition.py", *providers.glob("*/definition.py")]
    assert len(definitions) > 2
    allowed = ("catalog.", "schema.types.", "schema.validators", "providers.definition.", "providers.registry.")
    assert not {
        f"{path.relative_to(REPO)} imports {name}"
        for path in definitions
        for name in imported_names(path)
        if name.startswith(f"{MODULE_UTILS}.")
        if not name.removeprefix(f"{MODULE_UTILS}.").startswith(allowed)
        and not re.search(r"\.providers\.\w+\.definition\.", name)
    }


def test_only_files_named_module_import_ansible() -> None:
    importers = {
        str(path.relative_to(UTILS))
        for path in python_files(UTILS)
        for name in imported_names(path)
        if name.startswith("ansible.")
    }
    assert {path for path in importers if not path.endswith("/module.py")} == set()


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


def test_every_python_file_has_a_licence_header() -> None:
    missing = [
        str(path.relative_to(REPO))
        for path in python_files(PLUGINS, REPO / "lab", REPO / "tests")
        if "SPDX-License-Identifier: GPL-3.0-or-later" not in path.read_text(encoding="utf-8")[:400]
    ]
    assert not missing


def test_files_have_at_most_400_lines() -> None:
    long = {
        str(path.relative_to(REPO)): lines
        for path in python_files(PLUGINS, REPO / "lab", REPO / "tests")
        # The fragment `variables` is generated by `make docs`.
        if path.name != "variables.py" or path.parent.name != "doc_fragments"
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_every_module_is_in_the_action_group_of_its_service() -> None:
    """The name of a cloud's module begins with the cloud. All other modules except print_lines talk to a cluster."""
    groups = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())["action_groups"]
    modules = {path.stem for path in (PLUGINS / "modules").glob("*.py")}
    clouds = {group: {name for name in modules if name.startswith(f"{group}_")} for group in groups if group != "kube"}
    assert {group: set(names) for group, names in groups.items()} == {
        **clouds,
        "kube": modules - {"print_lines"} - {name for names in clouds.values() for name in names},
    }


def test_every_module_that_takes_a_lease_gets_its_inventory_host() -> None:
    """The action plugin passes the host. Without it, two hosts of one run could not be distinguished."""
    leasing = {
        path.stem
        for path in (PLUGINS / "modules").glob("*.py")
        if re.search(r"accel\.gpu\.(lease|drain)|lease\(", path.read_text(encoding="utf-8"))
    }
    assert {"gpu_sharing", "helm_release", "magnum_nodegroup", "vks_nodegroup"} < leasing
    routing = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())["plugin_routing"]["modules"]
    assert leasing <= {"gpu_info", *(name for name, route in routing.items() if route["action_plugin"] == PROGRESS)}
    assert {path.stem for path in (PLUGINS / "action").glob("*.py")} == {PROGRESS.rpartition(".")[2], "print_lines"}


def test_galaxy_and_requirements_have_the_same_dependencies() -> None:
    galaxy = yaml.safe_load((REPO / "galaxy.yml").read_text())
    required = yaml.safe_load((REPO / "requirements.yml").read_text())
    assert galaxy["dependencies"] == {entry["name"]: entry["version"] for entry in required["collections"]}
