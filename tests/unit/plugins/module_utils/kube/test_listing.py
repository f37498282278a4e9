# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages that are asked for ahead, each once, and read without what nobody looks at, whatever their text looks like."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.listing import Listing, page_of
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import ApiResponse

TRAP = {"annotations": {"trap": '"metadata":{"continue":"elsewhere"}'}}


def page(names: list[str], token: str | None) -> dict[str, Any]:
    metadata = {"resourceVersion": "7", **({"continue": token} if token else {})}
    return {"kind": "NodeList", "metadata": metadata, "items": [{"metadata": {"name": of, **TRAP}} for of in names]}


PAGES = {None: page(["a", "b"], "t1"), "t1": page(["c"], "t2"), "t2": page(["d"], None)}


def as_go(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def items_first(document: dict[str, Any]) -> str:
    return json.dumps({"items": document["items"], **document}, separators=(",", ":"))


class Server:
    """What a listing needs of a transport."""

    def __init__(self, spell: Any) -> None:
        self.spell = spell
        self.asked: list[str | None] = []
        self.ahead = threading.Event()

    def send(self, method: str, path: str, *, query: dict[str, Any], accept: str) -> ApiResponse:
        token = query["continue"]
        self.asked.append(token)
        if token == "t1":
            self.ahead.set()
        return ApiResponse(200, self.spell(PAGES[token]).encode())


@pytest.mark.parametrize("spell", [as_go, items_first, json.dumps])
def test_each_page_is_asked_for_once(spell: Any) -> None:
    server = Server(spell)
    listing = Listing(server, "/api/v1/nodes", {}, "application/json")  # type: ignore[arg-type]
    assert [found["metadata"]["name"] for found in listing] == ["a", "b", "c", "d"]
    assert server.asked == [None, "t1", "t2"]
    assert listing.resource_version == "7"


def test_the_next_page_is_made_while_one_is_read() -> None:
    server = Server(as_go)
    listing = Listing(server, "/api/v1/nodes", {}, "application/json")  # type: ignore[arg-type]
    assert next(listing)["metadata"]["name"] == "a"
    assert server.ahead.wait(10)
    assert "t2" not in server.asked


FIELDS = [{"manager": "kubelet", "fieldsV1": {"f:status": {'k:{"type":"Ready"}': {}}}}, {"manager": "x"}]
HARMLESS = {"names": ["a@sha256:1", "a:1"], "sizeBytes": 1}


def nodes(*images: list[dict[str, Any]], **metadata: Any) -> dict[str, Any]:
    return {
        "items": [
            {
                "metadata": {"name": f"n{number}", **metadata, "managedFields": FIELDS},
                "status": {"phase": "", "images": of, "volumesInUse": ["v"]},
            }
            for number, of in enumerate(images)
        ]
    }


def bare(page: dict[str, Any]) -> dict[str, Any]:
    for found in page["items"]:
        del found["metadata"]["managedFields"], found["status"]["images"]
    return page


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"annotations": {"applied": json.dumps(nodes([HARMLESS]), separators=(",", ":"))}},
        {"annotations": {"trap": ',"images":[{'}, "labels": {"end": "}]"}},
    ],
    ids=["plain", "json-in-a-text", "traps"],
)
def test_what_is_not_looked_at_is_not_there(metadata: dict[str, Any]) -> None:
    page = nodes([HARMLESS, HARMLESS], [HARMLESS], **metadata)
    text = as_go(page).encode()
    assert page_of(text) == page
    assert page_of(text, ("managedFields", "images")) == bare(page)


@pytest.mark.parametrize(
    "images",
    [
        [{"names": ["odd}]name"], "sizeBytes": 1}, HARMLESS],
        [{"names": [{"deep": 1}], "sizeBytes": 1}],
        [{"names": ['quoted"}]']}],
    ],
)
def test_what_cannot_be_cut_out_is_read(images: list[dict[str, Any]]) -> None:
    page = nodes(images, [HARMLESS])
    assert page_of(as_go(page).encode(), ("images",)) == page


def test_a_page_that_is_spelled_otherwise_is_read_whole() -> None:
    page = nodes([HARMLESS])
    assert page_of(json.dumps(page, indent=1).encode(), ("managedFields", "images")) == page
