# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contract as tables of docs/lab-vks.md: `python -m lab.vks.describe` writes them into the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..layout import REPO
from . import contract
from .contract import Contract, Operation
from .schema import Field

PAGE = REPO / "docs" / "lab-vks.md"
BEGIN, END = "<!-- from here on made by python -m lab.vks.describe -->", "<!-- up to here -->"


def tables(found: Contract) -> str:
    """All tables, one after the other."""
    return "\n".join(
        [
            "## Sources",
            "",
            *_table(("tag", "source"), found.sources.items()),
            "## Behaviours",
            "",
            *_table(("what", "sources"), ((one.text, " ".join(one.sources)) for one in found.behaviours.values())),
            "## Guesses",
            "",
            "The first alternative is the default; in brackets the sources.",
            "",
            *_table(("name", "what", "alternatives"), _guesses(found)),
            "## Faults",
            "",
            *_table(("name", "what happens", "on a group"), _faults(found)),
            "## Tuning",
            "",
            *_table(
                ("name", "default", "what"),
                ((f"`{name}`", f"`{one.default}`", one.text) for name, one in contract.TUNING.items()),
            ),
            "## Operations",
            "",
            *_table(
                ("operation", "asked", "body", "answer", "sources"),
                (_operation(one) for one in found.operations.values()),
            ),
            "## Schemas",
            "",
            *_table(("field", "is", "limits", "sources", ""), _schemas(found)),
        ]
    ).rstrip()


def page(text: str) -> str:
    """The page with the tables of now in place of those that it has."""
    before, dummy, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables(contract.load())}\n\n{END}{rest.partition(END)[2]}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in row]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _guesses(found: Contract) -> Iterator[tuple[str, ...]]:
    for name, guess in found.guesses.items():
        told = ", ".join(f"`{value}` ({' '.join(sources)})" for value, sources in guess.alternatives.items())
        yield f"`{name}`", guess.text, told


def _faults(found: Contract) -> Iterator[tuple[str, ...]]:
    for name, fault in found.faults.items():
        yield f"`{name}`", fault.text, "yes" if fault.groups else ""


def _operation(one: Operation) -> tuple[str, ...]:
    answer = one.answer if one.rows is None else f"list of {one.rows}"
    told = f"{one.status}{f' {answer}' if answer else ', empty'}{f': {one.text}' if one.text else ''}"
    asked = f"`{one.method} /{'/'.join(one.path)}`" + (f" ({', '.join(one.query)})" if one.query else "")
    return one.name, asked, one.body or "", told, " ".join(one.sources)


def _schemas(found: Contract) -> Iterator[tuple[str, ...]]:
    for schema, fields in found.schemas.named.items():
        for name, one in fields.items():
            yield f"{schema}.`{name}`", one.kind, _limits(one), " ".join(one.sources), one.text


def _limits(one: Field) -> str:
    told = ["required"] if one.required else []
    told += ["or null"] if one.nullable else []
    told += [f"one of {', '.join(one.choices)}"] if one.choices else []
    told += [f"`{one.pattern}`"] if one.pattern else []
    low, high = ("" if limit is None else str(limit) for limit in (one.low, one.high))
    return ", ".join([*told, f"{low} to {high}".strip()] if low or high else told)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
