# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Postpones imports that a library makes for features that are rarely used.

Python 3.15 has lazy imports (PEP 810). importlib.util.LazyLoader does not help, because `from X import Y` executes X immediately.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import typing as t


class _Postponed:
    """Stands for an attribute of a module; the module is imported when the placeholder is called, or one of its attributes is read."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def _import(self) -> t.Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *args: t.Any, **options: t.Any) -> t.Any:
        return self._import()(*args, **options)

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._import(), name)


class _Placeholder(types.ModuleType):
    def __getattr__(self, name: str) -> t.Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            return _Postponed(self.__name__, name)
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def postponed_imports(*names: str) -> t.Iterator[None]:
    """Imports of these modules within the context get placeholders; modules that are already loaded are not affected.

    `from X import Y` gets an object that can be called and whose attributes can be read, but that is not a class. After the context, code that imports
    these modules, or reads an attribute of a placeholder, gets the real modules and attributes.
    """
    placeholders = {name: _Placeholder(name) for name in names if name not in sys.modules}
    sys.modules.update(placeholders)
    try:
        yield
    finally:
        for name, placeholder in placeholders.items():
            if sys.modules.get(name) is placeholder:
                del sys.modules[name]
