# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages are fetched in advance, each once, whatever their text contains."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.http import HttpResponse
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Listing, parse_page

TRAP = {"annotations": {"trap": '"metadata":{"continue":"elsewhere"}'}}


def page(names: list[str], token: str | None) -> dict[str, Any]:
    metadata = {"resourceVersion": "7", **({"continue": token} if token else {})}
    return {"kind": "NodeList", "metadata": metadata, "items": [{"metadata": {"name": name, **TRAP}} for name in names]}


PAGES = {None: page(["a", "b"], "t1"), "t1": page(["c"], "t2"), "t2": page(["d"], None)}


def as_go(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def items_first(document: dict[str, Any]) -> str:
    return json.dumps({"items": document["items"], **document}, separators=(",", ":"))


class Server:
    """The part of a transport that a listing uses."""

    def __init__(self, spell: Any) -> None:
        self.spell = spell
        self.tokens: list[str | None] = []
        self.ahead = threading.Event()

    def send(self, method: str, path: str, *, query: dict[str, Any], accept: str) -> HttpResponse:
        token = query["continue"]
        self.tokens.append(token)
        if token == "t1":
            self.ahead.set()
        return HttpResponse(200, self.spell(PAGES[token]).encode())


@pytest.mark.parametrize("spell", [as_go, items_first, json.dumps])
def test_each_page_is_fetched_once(spell: Any) -> None:
    server = Server(spell)
    listing = Listing(server, "/api/v1/nodes", {}, "application/json")  # type: ignore[arg-type]
    assert [actual["metadata"]["name"] for actual in listing] == ["a", "b", "c", "d"]
    assert server.tokens == [None, "t1", "t2"]
    assert listing.resource_version == "7"


def test_the_next_page_is_fetched_while_one_is_parsed() -> None:
    server = Server(as_go)
    listing = Listing(server, "/api/v1/nodes", {}, "application/json")  # type: ignore[arg-type]
    assert next(listing)["metadata"]["name"] == "a"
    assert server.ahead.wait(10)
    assert "t2" not in server.tokens


def test_a_reader_of_some_objects_fetches_no_page_that_it_does_not_read() -> None:
    server = Server(as_go)
    listing = Listing(server, "/api/v1/nodes", {}, "application/json", ahead=False)  # type: ignore[arg-type]
    assert [actual["metadata"]["name"] for actual in itertools.islice(listing, 3)] == ["a", "b", "c"]
    assert server.tokens == [None, "t1"]
    assert [actual["metadata"]["name"] for actual in listing] == ["d"]


FIELDS = [{"manager": "kubelet", "fieldsV1": {"f:status": {'k:{"type":"Ready"}': {}}}}, {"manager": "x"}]
IMAGE = {"names": ["a@sha256:1", "a:1"], "sizeBytes": 1}


def nodes(*images: list[dict[str, Any]], **metadata: Any) -> dict[str, Any]:
    return {
        "items": [
            {
                "metadata": {"name": f"n{number}", **metadata, "managedFields": FIELDS},
                "status": {"phase": "", "images": of_node, "volumesInUse": ["v"]},
            }
            for number, of_node in enumerate(images)
        ]
    }


def shortened(page: dict[str, Any]) -> dict[str, Any]:
    for actual in page["items"]:
        del actual["metadata"]["managedFields"], actual["status"]["images"]
    return page


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"annotations": {"applied": json.dumps(nodes([IMAGE]), separators=(",", ":"))}},
        {"annotations": {"trap": ',"images":[{'}, "labels": {"end": "}]"}},
    ],
    ids=["plain", "JSON in text", "text like a list"],
)
def test_unread_lists_are_omitted(metadata: dict[str, Any]) -> None:
    page = nodes([IMAGE, IMAGE], [IMAGE], **metadata)
    text = as_go(page).encode()
    assert parse_page(text) == page
    assert parse_page(text, ("managedFields", "images")) == shortened(page)


@pytest.mark.parametrize(
    "images",
    [
        [{"names": ["odd}]name"], "sizeBytes": 1}, IMAGE],
        [{"names": [{"deep": 1}], "sizeBytes": 1}],
        [{"names": ['quoted"}]']}],
    ],
)
def test_a_page_that_cannot_be_shortened_is_parsed_whole(images: list[dict[str, Any]]) -> None:
    page = nodes(images, [IMAGE])
    assert parse_page(as_go(page).encode(), ("images",)) == page


def test_a_page_with_white_space_is_parsed_whole() -> None:
    page = nodes([IMAGE])
    assert parse_page(json.dumps(page, indent=1).encode(), ("managedFields", "images")) == page
