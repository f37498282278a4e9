# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports of the collection by Ansible's loader, with and without compiled code in files."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.programs import REPO, environment, run

_IMPORT = """
import sys
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
_AnsibleCollectionFinder(paths=[sys.argv[1]])._install()
from ansible_collections.accel.gpu.plugins.plugin_utils.compiled_imports import import_compiled
print_lines = import_compiled("ansible_collections.accel.gpu.plugins.modules.print_lines")
plan = import_compiled("ansible_collections.accel.gpu.plugins.module_utils.pools.plan")
print(any(type(finder).__name__ == "_CollectionFinder" for finder in sys.meta_path))
from ansible_collections.accel.gpu.plugins import plugin_utils
print(*(type(module.__spec__.loader).__name__ for module in (print_lines, plan, plugin_utils)))
import pkgutil
print(len(pkgutil.get_data("ansible_collections.accel.gpu.plugins.module_utils.pools", "plan.py")) > 0)
"""
_EXPECTED = "False\nSourceFileLoader SourceFileLoader _AnsibleCollectionLoader\nTrue\n"


def imported(folder: Path) -> str:
    """The output of a process that imports modules and has this folder for compiled code."""
    variables = {**environment(), "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    return run(sys.executable, "-c", _IMPORT, REPO / "build", env=variables)


def test_the_code_of_the_collection_is_compiled_once(tmp_path: Path) -> None:
    assert imported(tmp_path) == _EXPECTED
    (compiled,) = tmp_path.rglob("module_utils/pools/plan.*.pyc")
    first = compiled.stat().st_mtime_ns
    assert imported(tmp_path) == _EXPECTED
    assert compiled.stat().st_mtime_ns == first


def test_imports_work_without_a_folder_for_compiled_code(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert imported(tmp_path / "file") == _EXPECTED
