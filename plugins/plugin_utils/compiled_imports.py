# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets Python store the compiled code of this collection in files, as for every other package.

Ansible's collection loader compiles each file at each import (ansible.utils.collection_loader, get_code()). Compilation took half of the time of
all imports. If the folder for compiled files is not writable, or if PYTHONDONTWRITEBYTECODE is set, files without compiled code are still compiled
at each import.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
import typing as t
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader

_PLUGINS = __name__.rpartition(".plugin_utils.")[0]
_PACKAGES = tuple(f"{_PLUGINS}.{folder}." for folder in ("module_utils", "modules"))


class _CollectionFinder(MetaPathFinder):
    """Finds the modules and module_utils of this collection in the folder of their package. Other finders find everything else."""

    def find_spec(self, fullname: str, path: t.Sequence[str] | None, target: t.Any = None) -> ModuleSpec | None:
        """Return the spec of a module, with Python's loader for source files."""
        if not fullname.startswith(_PACKAGES):
            return None
        specs = (_finder(folder).find_spec(fullname) for folder in path or ())
        return next((spec for spec in specs if spec is not None and spec.loader is not None), None)


@functools.cache
def _finder(folder: str) -> FileFinder:
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


def import_compiled(name: str) -> types.ModuleType:
    """Import a module of this collection and the modules that it imports with Python's loader. Afterwards, sys.meta_path is restored."""
    finder = _CollectionFinder()
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
