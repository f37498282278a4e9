# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks, roles, plugins, action groups, labels and annotations that texts of the collection name exist; variables say what they hold."""

from __future__ import annotations

import ast
import contextlib
import re

import pytest
import yaml

from tests.programs import REPO, tracked

# A first part `group/` marks an action group; other text before the name belongs to an address, a path or another name.
FULL_NAME = re.compile(r"(?:(?<![\w./-])|(?<![\w./-])(group/))accel\.gpu\.([a-z]\w*)")
MARK = re.compile(r"(?<![\w./-])accel\.gpu/[a-z]+(?:-[a-z]+)*")
# Names that say nothing about the value.
VAGUE = frozenset({"found", "wanted", "there", "said", "its", "of", "thing", "things"})
FRAGMENTS = re.compile(r"^extends_documentation_fragment:(?:\n  - .*)+", re.MULTILINE)


def named(text: str) -> set[str]:
    """The playbooks, roles and plugins, action groups (as group/NAME), labels and annotations that a text names."""
    text = FRAGMENTS.sub("", text)
    names = {f"{group}{name}" for group, name in FULL_NAME.findall(text)}
    return names | set(MARK.findall(text))


def existing() -> set[str]:
    """All that may be named; labels and annotations are constants of the code."""
    plugins = [
        path for kind in ("modules", "filter", "lookup", "inventory") for path in (REPO / "plugins" / kind).glob("*.py")
    ]
    groups = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]
    code = "".join(path.read_text(encoding="utf-8") for path in (REPO / "plugins" / "module_utils").rglob("*.py"))
    return {
        *(path.stem for path in [*plugins, *(REPO / "playbooks").glob("*.yml"), *(REPO / "roles").iterdir()]),
        *(f"group/{group}" for group in groups),
        *re.findall(r'"(accel\.gpu/[a-z-]+)"', code),
    }


@pytest.mark.parametrize("folder", ["README.md", "docs", "examples", "playbooks", "plugins", "roles"])
def test_the_names_of_the_collection_exist(folder: str) -> None:
    known, wrong = existing(), []
    for path in tracked(folder):
        # Fragments of documentation name one another and the action groups.
        if path.is_file() and path.parent != REPO / "plugins" / "doc_fragments":
            with contextlib.suppress(UnicodeDecodeError):
                text = path.read_text(encoding="utf-8")
                wrong += [f"{path.relative_to(REPO)}: {missing}" for missing in sorted(named(text) - known)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["Run accel.gpu.nodes or", "the label `accel.gpu/pol`", "group/accel.gpu.cube:"])
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    assert named(text) - existing()


def vague_names(code: str) -> set[str]:
    """The vague names among the variables and parameters of a file."""
    nodes = list(ast.walk(ast.parse(code)))
    variables = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (variables | {node.arg for node in nodes if isinstance(node, ast.arg)}) & VAGUE


def test_variables_say_what_they_hold() -> None:
    files = {str(path.relative_to(REPO)): path.read_text(encoding="utf-8") for path in tracked("*.py")}
    vague = {name: sorted(names) for name, code in files.items() if (names := vague_names(code))}
    assert not vague


@pytest.mark.parametrize("code", ["found = 1", "for of in (): pass", "def f(wanted): pass", "lambda there: 0"])
def test_a_vague_name_is_reported(code: str) -> None:
    assert vague_names(code)
