# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page as a whole: self-contained, complete, accessible, and small."""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import json
import re
import time
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.plugin_utils.report_page.render import render
from tests.helpers import infos
from tests.helpers.html import Element, parse

TWENTY = infos.fleet(20)
DECLARED = ("model", "mode", "replicas", "resource", "gpus_per_node", "shares_per_gpu", "memory_mib_per_share")
AWAY = {
    "cluster": "prod",
    "reachable": False,
    "reason": "Connection refused",
    "pools": {name: {key: pool[key] for key in DECLARED} for name, pool in TWENTY["pools"].items()},
}


def rare() -> dict[str, t.Any]:
    """A fleet with everything that most fleets do not have."""
    info = infos.fleet(60)
    for row in info["nodes"]:
        row["name"] = f"prod-worker-gpu-{row['name']}.example.org"
    pools = info["pools"]
    device = {"profile": "3g.40gb", "start": 0, "size": 4}
    pools["slices"]["gpu_layouts"] = [
        {"slices": 8, "gpus": 3, "devices": [device, {"profile": "1g.10gb", "start": 4, "size": 1}]},
        {"slices": 8, "gpus": None, "devices": []},
    ]
    pools["train-h100"]["nodegroup"] = {"name": "gpus", "flavor": "h100.8", "size": "1 to 3"}
    pools["train-h200"]["demand"] = {"3g.40gb": 2}
    pools["notebooks"]["drifted_nodes"] = 7
    info["unusual_nodes"] = [{"name": info["nodes"][0]["name"], "reason": "rebooting"}]
    info["models"]["Tesla-T4"]["driver_versions"] = ["1", "2", "3", "4", "5"]
    workloads = info["nodes"][1]["workloads"]
    workloads += [
        {"namespace": f"team-{number}", "pod": "a", "resource": "nvidia.com/gpu", "count": 1} for number in range(230)
    ]
    return info


PAGES: dict[str, dict[str, t.Any]] = {
    "20 nodes": TWENTY,
    "120 nodes": infos.fleet(120),
    "as declared": infos.fleet(20, troubled=False),
    "pods not read": infos.fleet(20, workloads=False),
    "not reachable": AWAY,
    "no pools": {key: value for key, value in TWENTY.items() if key != "pools"},
    "no nodes shown": {**TWENTY, "nodes": [], "nodes_not_shown": 22},
    "an empty cluster": {"reachable": True, "totals": {"nodes": 3, "gpu_nodes": 0, "gpus": 0, "allocatable": {}}},
    "rare": rare(),
    "warnings, not reachable": {**AWAY, "warnings": ["Known issue."]},
    "nothing": {},
}


@pytest.fixture(params=list(PAGES.values()), ids=list(PAGES))
def root(request: pytest.FixtureRequest) -> Element:
    """Each kind of page."""
    return parse(render(request.param))


def test_it_loads_nothing(root: Element) -> None:
    for element in root.walk():
        assert not {"src", "srcset", "action", "data", "style", "ping"} & element.attributes.keys()
        assert not [name for name in element.attributes if name.startswith("on")]
        href = element.attributes.get("href", "#")
        assert (href or "").startswith("#") or (element.name, href) == ("link", "data:,")
    for text in (part.text for name in ("style", "script") for part in root.find(name)):
        assert not re.search(r"//|url\(|@import|fetch|XMLHttp|innerHTML|eval", text)


def test_the_policy_allows_only_this_style_and_this_script(root: Element) -> None:
    (policy,) = root.find("meta", http_equiv="") or root.find("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = dict(rule.strip().partition(" ")[::2] for rule in (policy.attributes["content"] or "").split(";"))
    hashes = {
        name: base64.b64encode(hashlib.sha256(part.text.encode()).digest()).decode()
        for name in ("style", "script")
        for part in root.find(name)
    }
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["style-src"] == f"'sha256-{hashes['style']}'"
    assert rules["script-src"] == f"'sha256-{hashes.get('script')}'" or "script" not in hashes
    assert rules["img-src"] == "data:"
    assert set(rules) == {"default-src", "style-src", "script-src", "img-src", "base-uri", "form-action"}
    before = [element.name for element in root.find("head")[0].walk()]
    assert before.index("meta") < before.index("style")


def test_it_is_accessible(root: Element) -> None:
    assert root.find("html")[0].attributes["lang"] == "en"
    assert len(root.find("h1")) == len(root.find("main")) == 1
    levels = [int(element.name[1]) for element in root.walk() if re.fullmatch("h[1-6]", element.name)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for svg in root.find("svg"):
        titles = svg.find("title")
        assert svg.attributes.get("aria-hidden") == "true" or (svg.attributes["role"] == "img" and titles[0].text)
    assert all(head.attributes["scope"] in {"col", "row"} for head in root.find("th"))
    labeled = [field for label in root.find("label") for field in label.find("input")]
    assert len(labeled) == len(root.find("input"))


def test_ids_are_unique_and_links_lead_to_one(root: Element) -> None:
    ids = [element.attributes["id"] for element in root.walk() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    links = {(element.attributes["href"] or "")[1:] for element in root.walk() if element.name in {"a", "use"}}
    assert links <= set(ids)


PALETTES = re.findall(r":root {(.*?)}", parse(render({})).find("style")[0].text, re.DOTALL)


def brightness(color: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


TEXT = [(text, back) for text in ("text", "muted", "link") for back in ("page", "card")]
TEXT += [("ok", "ok-back"), ("warn", "warn-back"), ("bad", "bad-back"), ("muted", "soft")]
SHAPES = [("used", "soft"), ("used", "card"), ("edge", "card"), ("edge", "soft"), ("bad", "soft"), ("bad", "card")]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("front", "back", "least"), [*((*pair, 4.5) for pair in TEXT), *((*pair, 3.0) for pair in SHAPES)]
)
def test_contrast(theme: int, front: str, back: str, least: float) -> None:
    colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", PALETTES[theme]))
    low, high = sorted((brightness(colors[front]), brightness(colors[back])))
    assert (high + 0.05) / (low + 0.05) >= least


@pytest.mark.parametrize("info", PAGES.values(), ids=PAGES.keys())
def test_the_same_input_gives_the_same_page_and_is_not_changed(info: dict[str, t.Any]) -> None:
    before = copy.deepcopy(info)
    assert render(info) == render(json.loads(json.dumps(info)))
    assert info == before


def text_of(info: t.Mapping[str, t.Any], *, tag: str = "body") -> str:
    (element,) = parse(render(info)).find(tag)
    return " ".join(element.text.split())


TEXTS: list[tuple[str, dict[str, t.Any], list[str]]] = [
    (
        "20 nodes",
        TWENTY,
        [
            "2 of 6 pools are as declared; 4 differ.",
            "86 GPUs on 22 of 26 nodes",
            "t4-6 (pool notebooks): label nvidia.com/gpu.replicas is 1, but 4 is expected",
            "1 node to switch from whole GPUs to time-slicing \u00d74",
            "allocatable21 of 24 expected",
            "not on which GPU they are",
            "NamespacePodsNodes",
            "In no pool 2 nodes",
            "MIG devices: 16 \u00d7 2g.20gb, 8 \u00d7 3g.40gb",
            "Not verified by workloads yet.",
        ],
    ),
    ("as declared", PAGES["as declared"], ["All 6 pools are as declared.", "None: every pool is as declared."]),
    (
        "pods not read",
        PAGES["pods not read"],
        ["allocatable; the pods were not read", "The pods were not read (option include_workloads of gpu_info)."],
    ),
    ("not reachable", AWAY, ["Cannot reach the cluster: Connection refused", "not reachable", "Requested as"]),
    ("no pools", PAGES["no pools"], ["No pools are declared", "GPU nodes"]),
    (
        "no nodes shown",
        PAGES["no nodes shown"],
        ["22 more GPU nodes not on this page; increase the option limit of gpu_info"],
    ),
    (
        "rare",
        PAGES["rare"],
        [
            "8 memory slices: 3g.40gb on slices 0 to 3, 1g.10gb on slices 4 to 4",
            "Each GPU not partitioned",
            "Created by node group gpus of flavor h100.8: 1 to 3",
            "2 \u00d7 3g.40gb in total",
            "6 more nodes of notebooks",
            "Without usable GPUsprod-worker-gpu-t4-1.example.org: rebooting",
            "1, 2, 3 and 2 more",
            "more pods request",
            "more namespaces request less.",
            "names begin with prod-worker-gpu-t4- \u00b7 names end with .example.org",
        ],
    ),
    ("warning", {**TWENTY, "warnings": ["Known issue: <b>x</b>."]}, ["warning Known issue: <b>x</b>."]),
    ("warning without a cluster", {**AWAY, "warnings": ["Known issue."]}, ["Needs attention", "warning Known issue."]),
    (
        "overlap",
        {**TWENTY, "overlaps": {"t4-2": ["a", "b"]}},
        ["t4-2: a, b. The node is not changed.", "several pools"],
    ),
    (
        "released",
        {**TWENTY, "released": ["t4-2"]},
        ["Released: no longer in a pool, and the labels of the pool will be removedt4-2"],
    ),
]


@pytest.mark.parametrize(("info", "words"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_texts(info: dict[str, t.Any], words: list[str]) -> None:
    text = text_of(info)
    assert [word for word in words if " ".join(word.split()) not in text] == []


def test_every_node_lists_its_pods() -> None:
    nodes = {node.find("span", class_="name")[0].text: node for node in parse(render(TWENTY)).find("details")}
    assert set(nodes) == {row["name"] for row in TWENTY["nodes"]}
    for row in TWENTY["nodes"]:
        text = nodes[row["name"]].text
        assert [pod for pod in row["workloads"] if pod["pod"] not in text or pod["namespace"] not in text] == []


def test_few_nodes_are_open_and_many_are_small() -> None:
    few, many = parse(render(TWENTY)), parse(render(infos.fleet(120)))
    assert few.find("details", open="") or [node for node in few.find("details") if "open" in node.attributes]
    assert not [node for node in many.find("details") if "open" in node.attributes]
    assert [body.find("body", class_="dense") != [] for body in (few, many)] == [False, True]


@pytest.mark.usual(2)
def test_five_hundred_full_nodes_are_one_small_page_in_a_second() -> None:
    info = infos.full(500)
    assert sum(len(row["workloads"]) for row in info["nodes"]) == 500 * 8 * 4
    seconds = []
    for _attempt in range(3):
        begun = time.process_time()
        text = render(info)
        seconds.append(time.process_time() - begun)
    assert len(text.encode()) < 1_500_000
    assert min(seconds) < 1
