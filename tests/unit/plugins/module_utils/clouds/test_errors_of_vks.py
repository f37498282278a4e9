# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Error bodies of the services in all their forms, and the meaning of an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_client import VksError, is_rejected, vks_error_text
from ansible_collections.accel.gpu.plugins.module_utils.core.http import HttpResponse


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "Cluster not found"}}, ("", "Cluster not found")),
        ({"error": {"code": "E1", "message": "no"}}, ("E1", "no")),
        ({"error": json.dumps({"error": {"message": "inner"}})}, ("", "inner")),
        ({"message": "Resource is being processed"}, ("", "Resource is being processed")),
        ({"message": json.dumps({"errors": [{"code": "A", "message": "b"}]})}, ("A", "b")),
        ({"errors": [{"code": "AUTHENTICATION_FAILED", "message": "bad"}]}, ("AUTHENTICATION_FAILED", "bad")),
        ({"errors": [{"message": "one"}, {"message": "two"}]}, ("", "one; two")),
        ({"errors": ["one", "two"]}, ("", "one; two")),
        ({"detail": "gone"}, ("", "gone")),
        ({"errorCode": 7, "errorMsg": "no such flavor", "success": False}, ("7", "no such flavor")),
        ({"error": "invalid_client", "error_description": "who?"}, ("", "who?")),
        ({"errors": [{"code": "LOCKED"}]}, ("LOCKED", "LOCKED")),
        ({"other": 1}, ("", "")),
        ([], ("", "")),
    ],
)
def test_each_form_of_an_error_body_is_read(body: Any, expected: tuple[str, str]) -> None:
    assert vks_error_text(json.dumps(body).encode()) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ""),
        (b"upstream\n request timeout", "upstream request timeout"),
        (b"<html>502</html>", ""),
        (b'{"message": "cut', ""),
    ],
)
def test_what_is_no_json(data: bytes, words: str) -> None:
    assert vks_error_text(data) == ("", words)


def test_an_answer_of_200_may_report_an_error() -> None:
    assert is_rejected(HttpResponse(200, b'{"success": false, "errorMsg": "no"}'))
    assert not is_rejected(HttpResponse(200, b'{"success": true}'))
    assert not is_rejected(HttpResponse(200, b"[]"))
    assert not is_rejected(HttpResponse(200, b"no JSON"))


@pytest.mark.parametrize(
    ("error", "busy", "transient", "outcome_unknown"),
    [
        (VksError("Resource is being processed", status=409), True, True, False),
        (VksError("The node group is being processed", status=400), True, True, False),
        (VksError("minSize is wrong", status=400), False, False, False),
        (VksError("slow down", status=429), False, True, False),
        (VksError("oops", status=500), False, True, True),
        (VksError("broke", reason="Broken"), False, True, True),
        (VksError("refused", reason="Refused", sent=False), False, True, False),
        (VksError("who?", status=401), False, False, False),
    ],
)
def test_what_an_error_means(error: VksError, busy: bool, transient: bool, outcome_unknown: bool) -> None:
    assert (error.busy, error.transient, error.outcome_unknown) == (busy, transient, outcome_unknown)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            VksError("no server", reason="Refused", method="GET", path="https://v/x"),
            ["No response from VKS (GET https://v/x)", "check the address"],
        ),
        (VksError("self signed", service="IAM", reason="TLS"), ["IAM", "ca_cert"]),
        (VksError("no right", status=403), ["denies", "VKSFullAccess"]),
        (VksError("who?", service="vServer", status=401), ["vServer does not accept the token", "region"]),
        (VksError("slow down", status=429), ["Try again later"]),
        (VksError("Resource is being processed", status=409), ["still processing the object"]),
        (VksError("bad", status=400, method="PUT", path="https://v/y"), ["VKS rejected PUT https://v/y with 400: bad"]),
    ],
)
def test_the_message_has_the_request_and_the_remedy(error: VksError, parts: list[str]) -> None:
    assert all(part in str(error) for part in parts), str(error)
    assert error.message == str(error)
