# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports of a library that are postponed until their first use."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import postponed_imports

FILES = {
    "library/__init__.py": "from . import rare\nfrom .client import session\n",
    "library/client.py": (
        "from library.rare import Session\nimport library.errors\n\n\ndef session(name):\n    return Session(name)\n"
    ),
    "library/rare.py": "class Session:\n    kind = 'real'\n\n    def __init__(self, name):\n        self.name = name\n",
    "library/errors.py": "class Problem(Exception):\n    pass\n",
}
POSTPONED = ("library.rare", "library.errors")


@pytest.fixture(name="library")
def library_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A library that was imported without its rarely used modules."""
    (tmp_path / "library").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with postponed_imports(*POSTPONED):
        library = importlib.import_module("library")
    yield library
    for name in [name for name in sys.modules if name.partition(".")[0] == "library"]:
        del sys.modules[name]


def test_the_modules_are_not_loaded(library: types.ModuleType) -> None:
    """Neither during the import nor after it."""
    assert not set(POSTPONED) & set(sys.modules)


def test_a_call_loads_them(library: types.ModuleType) -> None:
    """The library works with the names that it imported."""
    session = library.session("a")
    assert session.name == "a"
    assert isinstance(session, sys.modules["library.rare"].Session)
    assert library.client.Session.kind == "real"


def test_later_imports_get_the_modules(library: types.ModuleType) -> None:
    """No other code sees a placeholder."""
    rare = importlib.import_module("library.rare")
    assert rare.Session.kind == "real"
    assert isinstance(rare.Session, type)
    assert library.rare is rare


def test_attributes_of_a_placeholder_are_those_of_the_module(library: types.ModuleType) -> None:
    """A module that the library made available as an attribute can be used without an import."""
    assert isinstance(library.rare.Session, type)
    with pytest.raises(AttributeError):
        dummy = library.rare.missing


def test_a_loaded_module_stays(library: types.ModuleType) -> None:
    """A placeholder never replaces a module."""
    rare = importlib.import_module("library.rare")
    with postponed_imports("library.rare"):
        assert importlib.import_module("library.rare") is rare
    assert sys.modules["library.rare"] is rare
