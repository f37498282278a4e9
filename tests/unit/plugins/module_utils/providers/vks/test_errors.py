# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the services say when they refuse, in each of their envelopes, and what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.errors import VksError, error_text, is_refusal


@pytest.mark.parametrize(
    ("body", "told"),
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
def test_every_envelope_is_read(body: Any, told: tuple[str, str]) -> None:
    assert error_text(json.dumps(body).encode()) == told


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
    assert error_text(data) == ("", words)


def test_a_refusal_may_come_with_200() -> None:
    assert is_refusal({"success": False, "errorMsg": "no"})
    assert not is_refusal({"success": True})
    assert not is_refusal([])


@pytest.mark.parametrize(
    ("error", "busy", "passing", "ambiguous"),
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
def test_what_an_error_means(error: VksError, busy: bool, passing: bool, ambiguous: bool) -> None:
    assert (error.busy, error.passing, error.ambiguous) == (busy, passing, ambiguous)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            VksError("nobody there", reason="Refused", method="GET", path="https://v/x"),
            ["No answer from VKS (GET https://v/x)", "check the address"],
        ),
        (VksError("self signed", part="IAM", reason="TLS"), ["IAM", "ca_cert"]),
        (VksError("no right", status=403), ["denies", "VKSFullAccess"]),
        (VksError("who?", part="vServer", status=401), ["vServer does not accept the token", "region"]),
        (VksError("slow down", status=429), ["Run again later"]),
        (VksError("Resource is being processed", status=409), ["is at work on it"]),
        (VksError("bad", status=400, method="PUT", path="https://v/y"), ["VKS refused PUT https://v/y with 400: bad"]),
    ],
)
def test_the_message_says_what_was_asked_and_what_to_do(error: VksError, parts: list[str]) -> None:
    assert all(part in str(error) for part in parts), str(error)
    assert error.message == str(error)
