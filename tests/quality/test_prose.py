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
    "nobody|somebody|anybody|everybody|whoever": "name the thing: no pod, another tool, every node, the user",
    "anew": "again, or new",
    "ours": "managed by the collection",
    "told|tells": "reported, reports, returns; or shown, shows",
    "so many": "the number",
    "oddity|oddities": "unusual, drift, warning",
    "by (it|them)sel(f|ves)": "automatically, alone",
    "proven|proves|proving": "verified, verifies",
    "believed|believes": "counts as, verified",
    "wish|wishes|wished": "spec, desired",
    "stor(y|ies)": "message",
    "victims?": "pods to evict, nodes to remove",
    "born|birth": "registered, at registration",
    "made whole|make whole|whole again": "reset, not partitioned",
    "emptie(s|d)": "drained, drains",
    "send away|sent away|sends away": "evict",
    "is not to be had|to be had": "cannot be fetched",
    "is said|are said": "is set",
    "of (us|ours)": "of the collection",
    "whom": "rewrite the sentence",
    "what there is": "the actual state",
    "heeded|lest|hence|thereby|therein|whereby": "plain words",
    "minded|mends|mended": "repairs, repaired",
    "foretold|foretell|foresight|forecast": "predicted, preview",
}
# Constructions that read like a translation, and what to write in their place.
STILTED = {
    r'"""(What|Those|That) ': "name the thing: the fields that, the nodes that; or a sentence with a verb",
    r"\b(none|None|[Ee]mpty) where\b": "if",
    r"\b(is|are) to be [a-z]+ed\b": "will be, must be",
    r"[a-z] any more\b": "no longer, any longer",
    r"\bone after the other\b": "one after another",
    r"\b(is|are) (not|neither) waited for\b": "does not wait for",
    r"(?<![-_\w\"'])rights\b(?![.:\"'])": "permissions (of a user), RBAC rules, RBAC objects",
    r"\bvariables? of the environment\b": "environment variable",
    r"\bexactly if\b": "if and only if",
    r"\b[Aa]nother ([A-Za-z'-]+ ){1,4}than\b": "a different X than, an X other than",
    r", with a (warning|message)\b(?!\")": "and a warning is shown",
    r"\b[Oo]n (the|a) lab\b(?!'s)": "in the lab",
    r"\bpods (that )?have ended\b": "terminated (pods), finished (jobs, kernels), exited (processes)",
    r"\b[Pp]ath of (helm|the file)\b": "path to",
    r"\b[Tt]akes? the [Ll]ease\b": "acquires the Lease",
    r"\bnevertheless\b": "still, anyway",
    r"\bon the way to\b": "on the upgrade path to, intermediate",
    r"\bneed not be\b": "is optional, does not have to be",
    r"\b(is|are) no (version|name|error|mistake|problem)\b": "is not a",
    r"\b[Oo]perators? of OLM\b": "OLM operator",
    r"\bMachineSets? of OpenShift\b": "OpenShift MachineSet",
    r"\b[Rr]eplaces? [^.|,]* by (an?|the|its|their|that|those) ": "replaces ... with",
    r"\btolerations? of ([a-z'`]+ ){0,2}taints?\b": "toleration for a taint",
    r"\b[Rr]un again, which\b": "run the playbook again, which",
    r"(?<!\) )\b(is|are) refused\b": "a value is rejected, a run fails",
    r"\bby hand\b": "manually",
    r"\b(fails?|failed) with the (name|reason)\b": "fails and names, fails and reports why",
    r"\b[Dd]iscovered inventory\b": "dynamic inventory",
    r"\b(Application of Argo CD|HelmRelease of Flux|Kustomization of Flux|[Ww]orkers of NFD)\b": "Argo CD Application",
    r"^> .*\w > \w": "one paragraph of a block quote, wrapped wrongly",
    r"\b(Recorded|Refused|Counted|Returned|Reported|Released|Managed|Kept|Listed|Needed) (are|is) (?!not\b)": "begin with the subject",
    r"\bAs C\(": "same as",
    r"\b[Nn]eeds? the (permission|right) to\b": "requires permission to",
    r"\bthe right (to|C\()(?! (evict|write|delete))": "permission to",
    r"\b([Tt]his|[Tt]he) (user|account) may not (read|list|send|run|write)\b(?! (its|it|them))": "is not allowed to",
    r"; ([Ss]o )?[Gg]ive (a|an|the|one|it|0|1|more|less|fewer|its|names|numbers)\b": "set, use, specify, list",
    r"\b[Rr]easons? of the (failure|operator)\b": "reason for",
    r", or in check mode (would|its|the)\b": "or, in check mode, ...",
    r"\bby this clock\b|\bAn example:|\bonly needs more time\b": "for example; needs more time",
}
# The same in prose for users: pages and READMEs, outside of code and quoted messages.
STILTED_PAGES = {
    r", too[.;),]": "also, before the verb",
    r"\b[Aa]lthough\b": "even though, even if",
    r"\bbeside\b": "next to, in addition to, alongside",
    r"\bprocessors?\b": "CPU",
    r"\bin this time\b": "during this time",
    r"[,;] else\b": "otherwise",
    r"[^,] also (if|when)\b": "even if, even when",
    r"\b([Ii]s|[Aa]re) never touched\b": "is never changed",
    r"\b(is|are) offered (as|to|by|under)\b": "advertised, exposed, provided",
    r"\b[Cc]hanges? of (the|a|an|these|its|this) ": "a change to, changing",
    r"\b[Rr]epeat(s|ed)? (a|the|this) (request|call)\b": "retries",
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
    "line", ["def _told(self):", "# Nobody uses it", "class TimeoutStory:", "the GPUs are made whole", 'x = "so many"']
)
def test_an_avoided_word_is_found(line: str) -> None:
    assert avoided(line)


def stilted(text: str, patterns: dict[str, str] = STILTED) -> list[str]:
    """Each stilted construction with its line and what to write in its place."""
    return [
        f"{number}: {match[0]!r}: {instead}: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in patterns.items()
        if (match := re.search(pattern, line))
    ]


def test_stilted_constructions() -> None:
    actual = []
    for name in texts():
        with contextlib.suppress(UnicodeDecodeError):
            actual += [f"{name}:{line}" for line in stilted((REPO / name).read_text(encoding="utf-8"))]
    assert not actual, "\n".join(actual)


def prose(text: str) -> str:
    """The lines of a page, with empty lines in place of fenced blocks, and without code spans."""
    parts = re.split(r"^\s*```.*$", text, flags=re.MULTILINE)
    kept = [part if number % 2 == 0 else re.sub(r"[^\n]", "", part) for number, part in enumerate(parts)]
    return re.sub(r"`[^`\n]*`", "``", "".join(kept))


@pytest.mark.parametrize("page", [name for name in texts() if name.endswith(".md") and name != "CHANGELOG.md"])
def test_stilted_prose_of_pages(page: str) -> None:
    actual = stilted(prose((REPO / page).read_text(encoding="utf-8")), STILTED_PAGES)
    assert not actual, "\n".join(actual)


def test_code_is_not_prose() -> None:
    text = "a, `b, too.`\n```text\nc, too.\n```\nd, too.\n"
    assert [line.partition(":")[0] for line in stilted(prose(text), STILTED_PAGES)] == ["5"]


@pytest.mark.parametrize(
    "line",
    [
        '    """What a wait still waits for."""',
        '    """The policy; None where there is none."""',
        "label a=b is to be removed",
        "which no label names any more",
        "Recorded are the labels",
        "a user without rights",
        "the value is refused",
        "leads to another cluster than the run names",
        "is kept, with a warning",
        "the second run fails with the name of the first",
        "a version on the way to the declared one",
        "the template is replaced; OpenShift replaces the template by its own image",
        "it gets the tolerations of the pools' taints",
        "'x' is no version",
    ],
)
def test_a_stilted_construction_is_found(line: str) -> None:
    assert stilted(line)


def terms() -> list[str]:
    """The first cells of the glossary's table."""
    return re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_glossary_defines_each_term_once_in_order() -> None:
    assert terms() == sorted(set(terms()), key=str.lower)
    assert not [term for term in terms() if avoided(term)]
