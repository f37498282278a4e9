# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No name changes the markup of the page, and every result of gpu_info has a page."""

from __future__ import annotations

import functools
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.report.view_model import common_domain
from ansible_collections.accel.gpu.plugins.plugin_utils.report_page.render import render
from tests.helpers import infos
from tests.helpers.html import Element, parse

SMALL = infos.fleet(6)
# The page depends on these values of Kubernetes and of gpu_info; users name everything else.
KEPT = {"mode", "state"}

NASTY = [
    "</title></svg></style><script>alert(1)</script>",
    "\"' onload=alert(1) x='",
    "<!-- <![CDATA[ ]]> -->",
    "{{ lookup('pipe', 'id') }}{% raw %}{# #}",
    "javascript:alert(1)",
    "&lt;b&gt;&#x3c;",
    "\u202etxt.exe\u2066\x00\ud800\ufeff",
    " " * 300,
    "a" * 5000,
    "(pool ",
    "; ",
    ".example.org",
]


def renamed(value: t.Any, more: str) -> t.Any:
    """The value with more text after every name, including the keys that are names in the cluster."""
    if isinstance(value, str):
        return value + more
    if isinstance(value, list):
        return [renamed(one, more) for one in value]
    if isinstance(value, dict):
        named = any("/" in key or "-" in key or "." in key for key in value)
        return {
            key + more if named else key: inner if key in KEPT else renamed(inner, more) for key, inner in value.items()
        }
    return value


def outline(root: Element) -> list[str]:
    return [element.name for element in root.walk()]


@functools.cache
def usual(with_domain: bool) -> list[str]:
    return outline(parse(render(renamed(SMALL, "x.y" if with_domain else "x"))))


def check(more: str) -> None:
    text = render(renamed(SMALL, more))
    text.encode()
    root = parse(text)
    # A common domain adds a sentence.
    assert outline(root) == usual(bool(common_domain([row["name"] + more for row in SMALL["nodes"]])))
    allowed = {"href", "class", "id", "title", "open", "role", "aria-hidden", "aria-label", "aria-labeledby", "scope"}
    for element in root.find("body")[0].walk():
        if element.name in {"details", "span", "a", "section", "td", "th", "p", "dd", "bdi", "title"}:
            assert element.attributes.keys() <= allowed | {"data-search", "aria-hidden", "hidden"}
        assert (element.attributes.get("href") or "#").startswith("#")
    for part in (*root.find("style"), *root.find("script")):
        text = text.replace(part.text, "")
    assert not {"{", "}"} & set(text)


@pytest.mark.parametrize("more", NASTY)
def test_nasty_names(more: str) -> None:
    check(more)


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(codec=None, categories=None), min_size=1, max_size=60))
def test_any_names(more: str) -> None:
    check(more)


def test_style_and_script_contain_no_jinja() -> None:
    root = parse(render(SMALL))
    text = "".join(part.text for name in ("style", "script") for part in root.find(name))
    assert not [sign for sign in ("{{", "{%", "{#", "</") if sign in text]


names = st.text(max_size=8)
numbers = st.integers(-3, 70) | st.integers(-(10**20), 10**20)
maybe = functools.partial(st.one_of, st.none())
resources = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "x"]), numbers, max_size=3)
pods = st.fixed_dictionaries({}, optional={"namespace": names, "pod": names, "resource": names, "count": numbers})
rows = st.fixed_dictionaries(
    {"name": names},
    optional={
        "pool": maybe(st.sampled_from("abc")),
        "model": maybe(names),
        "gpus": maybe(numbers),
        "memory_mib": maybe(numbers),
        "driver": maybe(names),
        "mode": maybe(names),
        "replicas": maybe(numbers),
        "allocatable": maybe(resources),
        "capacity": maybe(resources),
        "ready": st.booleans(),
        "schedulable": st.booleans(),
        "mig": maybe(
            st.fixed_dictionaries(
                {}, optional={"config": maybe(names), "state": maybe(names), "devices": maybe(resources)}
            )
        ),
        "workloads": maybe(st.lists(pods, max_size=3)),
    },
)
pools = st.fixed_dictionaries(
    {},
    optional={
        "mode": names,
        "replicas": maybe(numbers),
        "resource": maybe(names),
        "shares_per_gpu": maybe(numbers),
        "gpus_per_node": maybe(numbers),
        "memory_mib_per_share": maybe(numbers),
        "models": st.lists(names, max_size=5),
        "nodes": numbers,
        "gpus": numbers,
        "expected": maybe(numbers),
        "allocatable": maybe(numbers),
        "drifted_nodes": numbers,
        "drift": st.lists(names, max_size=2),
        "as_declared": st.booleans(),
        "changes": st.fixed_dictionaries(
            {}, optional={"nodes": numbers, "joining": numbers, "labels": st.lists(names)}
        ),
        "validation": maybe(
            st.fixed_dictionaries({}, optional={"node": names, "devices": maybe(resources), "current": st.booleans()})
        ),
    },
)
results = st.fixed_dictionaries(
    {},
    optional={
        "cluster": maybe(names),
        "reachable": st.booleans(),
        "reason": names,
        "totals": st.fixed_dictionaries({}, optional={"nodes": numbers, "gpus": numbers, "allocatable": resources}),
        "models": st.dictionaries(
            names, st.fixed_dictionaries({}, optional={"nodes": numbers, "driver_versions": st.lists(names)})
        ),
        "nodes": maybe(st.lists(rows, max_size=6)),
        "pools": maybe(st.dictionaries(st.sampled_from("ab"), pools, max_size=2)),
        "overlaps": maybe(st.dictionaries(names, st.lists(names), max_size=2)),
        "undiscovered": st.lists(names, max_size=2),
        "released": st.lists(names, max_size=2),
        "unclaimed": st.lists(names, max_size=2),
        "warnings": st.lists(names, max_size=2),
        "nodes_not_shown": numbers,
    },
)


@settings(max_examples=150, deadline=None)
@given(results)
def test_any_result_has_a_page(info: dict[str, t.Any]) -> None:
    root = parse(render(info))
    assert len(root.find("details")) == len(info.get("nodes") or [])
