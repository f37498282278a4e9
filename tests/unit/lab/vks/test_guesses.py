# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every alternative of every guess of the fake VKS has the effect in the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.vks import contract, seed
from tests.helpers.vks import Account, Answer, until

Observation = Callable[[Account], Any]
SCALE = {"minSize": 1, "maxSize": 3}


def _message(answer: Answer) -> tuple[int, str]:
    return answer.status, "" if answer.status < 400 else str(answer.body["error"]["message"])


def _put(account: Account, body: Any, **more: Any) -> tuple[Answer, str]:
    path = account.created(**more)
    return account.vks("PUT", path, body), path


def _busy(account: Account) -> int:
    account.set("delay", "1")
    account.create()
    return account.vks("PUT", account.path("gpus-1"), {"numNodes": 2}).status


def _search(account: Account) -> list[str]:
    account.created(name="gpus-10")
    account.created(name="gpus-1")
    actual = account.vks("GET", f"{account.cluster}/node-groups?search=gpus-1").body["items"]
    return sorted(group["name"] for group in actual)


def _labels_of_nodes(account: Account) -> list[Any]:
    path = account.created()
    account.vks("PATCH", f"{path}/metadata", {"labels": {"a": "b"}})
    account.settled(path)
    account.vks("PUT", path, {"numNodes": 2})
    account.settled(path)
    group = next(one for one in account.fake.state.groups.values() if one["name"] == "gpus-1")
    return [node["labels"] for node in group["nodes"]]


def _status_after(account: Account, what: str) -> str:
    path = account.created(autoScaleConfig=SCALE)
    account.set("delay", "0.5")
    if what == "patch":
        account.vks("PATCH", f"{path}/metadata", {"labels": {"a": "b"}})
    elif what == "put":
        account.vks("PUT", path, {"numNodes": 2})
    else:
        account.put("autoscaler")
        until(lambda: account.vks("GET", path).body["numNodes"], lambda count: bool(count == 2))
    detail = account.vks("GET", path).body
    return f"{detail['status']} {detail['numNodes']}" if what == "put" else str(detail["status"])


def _shrunk(account: Account) -> list[int]:
    path = account.created(numNodes=4)
    before = [node["id"] for node in account.vks("GET", f"{path}/nodes").body["items"]]
    account.vks("PUT", path, {"numNodes": 2})
    account.settled(path)
    return [before.index(node["id"]) for node in account.vks("GET", f"{path}/nodes").body["items"]]


def _node(account: Account) -> Any:
    return account.vks("GET", f"{account.created()}/nodes").body["items"][0]


def _own_label(account: Account) -> Any:
    account.created()
    return next(one["nodes"][0]["labels"] for one in account.fake.state.groups.values() if one["name"] == "gpus-1")


def _degraded(account: Account) -> str:
    account.put("nodes-pending", group="gpus-1")
    account.create()
    path = account.path("gpus-1")
    expected = "DEGRADED" if account.fake.settings.setting("vks.degraded") == "shown" else "CREATING"
    return str(account.settled(path, expected)["status"])


def _hidden(account: Account) -> int:
    account.create()
    identity = next(one["id"] for one in account.fake.state.groups.values() if one["name"] == "gpus-1")
    return account.vks("GET", f"{account.cluster}/node-groups/{identity}").status


def _sold_out(account: Account) -> tuple[int, str]:
    account.put("sold-out")
    answer = account.create()
    return answer.status, "" if answer.status >= 400 else account.settled(account.path("gpus-1"), "ERROR")["status"]


def _locked_out(account: Account) -> int:
    account.put("locked-out")
    return account.login().status


def _rows(path: str) -> Observation:
    def observe(account: Account) -> str:
        body = account.vserver("GET", path.format(P=seed.PROJECT, N=seed.NETWORK)).body
        return "bare" if isinstance(body, list) else next(key for key in body if isinstance(body[key], list))

    return observe


def _of_put(body: Any, show: str, **more: Any) -> Observation:
    """Return an observation of the status of a PUT and of the value of a field after it."""

    def observe(account: Account) -> Any:
        answer, path = _put(account, body, **more)
        return answer.status, account.settled(path)[show]

    return observe


_FLAVORS = "/v1/{P}/flavors/families/gpu/platforms/skylake/clusters/master/false"
# Guess -> the observation, and its result for each alternative.
CASES: dict[str, tuple[Observation, dict[str, Any]]] = {
    "read-status": (lambda a: a.vks("GET", "/quota").status, {"200": 200, "202": 202}),
    "write-status": (lambda a: a.create().status, {"202": 202, "200": 200, "201": 201}),
    "create-response": (
        lambda a: sorted(a.create().body or ())[-1:],
        {"group": ["updatedAt"], "empty": [], "uid": ["uid"]},
    ),
    "write-response": (lambda a: bool(_put(a, {"numNodes": 2})[0].body), {"group": True, "empty": False}),
    "error-envelope": (
        lambda a: next(iter(a.vks("GET", "/nothing").body.items())),
        {
            "nested": ("error", {"message": "no such operation: GET /v1/nothing"}),
            "message": ("message", "no such operation: GET /v1/nothing"),
            "errors": ("errors", [{"code": "404", "message": "no such operation: GET /v1/nothing"}]),
            "detail": ("detail", "no such operation: GET /v1/nothing"),
            "text": ("error", "no such operation: GET /v1/nothing"),
        },
    ),
    "busy-response": (_busy, {"409": 409, "400": 400, "accepted": 202}),
    "duplicate-names": (
        lambda a: (a.created(), _message(a.create()))[1],
        {"refused": (400, "node group name gpus-1 already exists"), "allowed": (202, "")},
    ),
    "search": (
        _search,
        {"substring": ["gpus-1", "gpus-10"], "exact": ["gpus-1"], "ignored": ["default-worker", "gpus-1", "gpus-10"]},
    ),
    "metadata-nodes": (_labels_of_nodes, {"all": [{"a": "b"}, {"a": "b"}], "new": [{}, {"a": "b"}]}),
    "metadata-status": (lambda a: _status_after(a, "patch"), {"UPDATING": "UPDATING", "ACTIVE": "ACTIVE"}),
    "count-with-autoscale": (
        _of_put({"numNodes": 2}, "numNodes", autoScaleConfig=SCALE),
        {"applied": (202, 2), "ignored": (202, 1)},
    ),
    "autoscale-bounds": (
        _of_put({"autoScaleConfig": {"minSize": 2, "maxSize": 3}}, "numNodes"),
        {"clamped": (202, 2), "refused": (400, 1)},
    ),
    "zero-nodes": (lambda a: a.create(numNodes=0).status, {"accepted": 202, "refused": 400}),
    "zero-min": (
        lambda a: a.create(autoScaleConfig={"minSize": 0, "maxSize": 2}).status,
        {"accepted": 202, "refused": 400},
    ),
    "empty-security-groups": (lambda a: a.create(securityGroups=[]).status, {"accepted": 202, "refused": 400}),
    "security-groups-shown": (
        lambda a: a.vks("GET", a.created()).body["securityGroups"],
        {"as-sent": [], "default-added": [seed.stable_id("secg", "default")]},
    ),
    "system-labels": (lambda a: len(a.vks("GET", a.created()).body["labels"]), {"none": 0, "added": 1}),
    "system-tags": (lambda a: len(a.vks("GET", a.created()).body["tags"]), {"hidden": 0, "shown": 3}),
    "empty-shown": (
        lambda a: a.vks("GET", a.created()).body.get("taints", "omitted"),
        {"empty": [], "null": None, "omitted": "omitted"},
    ),
    "update-shown": (
        lambda a: _status_after(a, "put"),
        {"at-once": "UPDATING 2", "late": "ACTIVE 2", "late-values": "ACTIVE 1"},
    ),
    "create-shown": (_hidden, {"at-once": 200, "late": 404}),
    "degraded": (_degraded, {"hidden": "CREATING", "shown": "DEGRADED"}),
    "autoscaler-status": (lambda a: _status_after(a, "autoscale"), {"ACTIVE": "ACTIVE", "UPDATING": "UPDATING"}),
    "node-status": (lambda a: _node(a)["status"], {"ACTIVE": "ACTIVE", "Running": "Running", "READY": "READY"}),
    "node-names": (lambda a: _node(a)["name"].partition("-")[0], {"cluster-group": "vks", "group-id": "ng"}),
    "node-group-label": (
        _own_label,
        {"none": {}, "vks.vngcloud.vn/nodegroup": {"vks.vngcloud.vn/nodegroup": "gpus-1"}},
    ),
    "node-ip": (lambda a: _node(a)["fixedIp"] is None, {"shown": False, "null": True}),
    "shrink": (_shrunk, {"random": None, "newest": [0, 1], "oldest": [2, 3]}),
    "group-events": (lambda a: a.vks("GET", f"{a.created()}/events").status, {"not-found": 404, "found": 200}),
    "sold-out": (_sold_out, {"refused": (400, ""), "error": (202, "ERROR")}),
    "iam-error-status": (_locked_out, {"401": 401, "400": 400, "403": 403}),
    "projects-response": (_rows("/v1/projects"), {"projects": "projects", "bare": "bare"}),
    "subnets-response": (_rows("/v2/{P}/networks/{N}/subnets"), {"bare": "bare", "listData": "listData"}),
    "flavors-response": (
        _rows(_FLAVORS),
        {"flavors": "flavors", "listData": "listData", "bare": "bare", "data": "data"},
    ),
    "families-response": (
        _rows("/v1/{P}/flavor_zones/families"),
        {"bare": "bare", "data": "data", "listData": "listData"},
    ),
    "unknown-fields": (lambda a: a.create(color="red").status, {"refused": 400, "ignored": 202}),
}


def test_every_guess_is_tested() -> None:
    known = {name: guess.alternatives.keys() for name, guess in contract.load().guesses.items()}
    assert known == {name: expected.keys() for name, (_observe, expected) in CASES.items()}


@pytest.mark.parametrize(
    ("name", "alternative"), [(name, one) for name, (_observe, expected) in CASES.items() for one in expected]
)
def test_alternative(account: Account, name: str, alternative: str) -> None:
    observe, expected = CASES[name]
    account.set(name, alternative)
    actual = observe(account)
    if expected[alternative] is None and name == "shrink":
        assert len(actual) == 2
    else:
        assert actual == expected[alternative]
