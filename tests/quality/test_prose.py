# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, comments, messages and pages use standard terms: words that the project avoids, and the glossary."""

from __future__ import annotations

import contextlib
import re

import pytest

from tests.programs import REPO, tracked

GLOSSARY = REPO / "docs" / "glossary.md"
# Files that quote other projects, or this list itself.
SKIPPED = re.compile(
    r"(^lab/pins/|^LICENSES?/|^LICENSE$|\.lock$|\.svg$|\.sum$|^tests/quality/test_prose\.py$|^docs/glossary\.md$)"
)
# A word as it may stand in prose or in a name, and what to write in its place.
AVOIDED = {
    "ours": "managed by the collection",
    "oddity|oddities": "unusual, drift, warning",
    "wish|wishes|wished": "spec, desired",
    "stor(y|ies)": "message",
    "victims?": "pods to evict, nodes to remove",
    "born|birth": "registered, at registration",
    "made whole|make whole|whole again": "reset, not partitioned",
    "emptie(s|d)": "drained, drains",
    "send away|sent away|sends away": "evict",
    "minded|mends|mended": "repairs, repaired",
}
# The words of a CamelCase name are separated before the search.
_HUMPS = re.compile(r"([a-z])([A-Z])")
_WORDS = {re.compile(rf"(?<![a-z])({words})(?![a-z])", re.IGNORECASE): instead for words, instead in AVOIDED.items()}


def texts() -> list[str]:
    """The text files of the repository."""
    names = [str(path.relative_to(REPO)) for path in tracked() if path.is_file()]
    return [name for name in names if not SKIPPED.search(name)]


def avoided(text: str) -> list[str]:
    """Each avoided word with its line and what to write in its place."""
    return [
        f"{number}: {actual[0]!r}: {instead}: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in _WORDS.items()
        if (actual := pattern.search(_HUMPS.sub(r"\1 \2", line)))
    ]


@pytest.mark.parametrize("folder", sorted({name.partition("/")[0] for name in texts()}))
def test_avoided_words(folder: str) -> None:
    actual = []
    for name in (name for name in texts() if name.partition("/")[0] == folder):
        with contextlib.suppress(UnicodeDecodeError):
            actual += [f"{name}:{line}" for line in avoided((REPO / name).read_text(encoding="utf-8"))]
    assert not actual, "\n".join(actual)


@pytest.mark.parametrize(
    "line", ["class TimeoutStory:", "the GPUs are made whole", "the wish of a pool", "def emptied(self):"]
)
def test_an_avoided_word_is_found(line: str) -> None:
    assert avoided(line)


def terms() -> list[str]:
    """The first cells of the glossary's table."""
    return re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_glossary_defines_each_term_once_in_order() -> None:
    assert terms() == sorted(set(terms()), key=str.lower)
    assert not [term for term in terms() if avoided(term)]
