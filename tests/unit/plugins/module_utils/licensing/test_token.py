# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a client configuration token, and text that is not one."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import (
    CLS,
    CONSISTENT,
    DLS,
    INCONSISTENT,
    UNKNOWN,
    InvalidToken,
    TokenInfo,
    normalize_token,
    parse_token,
)
from tests.helpers.license_tokens import CLS_HOST, DLS_HOST, sign_token, token_claims

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def claims(*hosts: str, expires_in: float = 30 * 86400, starts_in: float = -3600, **changes: Any) -> dict[str, Any]:
    """The claims of a token that was created at NOW; a change to None removes a claim."""
    now = int(NOW.timestamp())
    times = {"iat": now, "nbf": now + int(starts_in), "exp": now + int(expires_in)}
    actual = token_claims(hosts=hosts or (DLS_HOST,)) | times | changes
    return {name: value for name, value in actual.items() if value is not None}


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def parsed(*hosts: str, **options: Any) -> TokenInfo:
    return parse_token(sign_token(claims(*hosts, **options)))


def test_a_complete_token() -> None:
    text = sign_token(claims("dls-a.example.com", "DLS-B.example.com", expires_in=10.5 * 86400))
    actual = parse_token(f"{text}\n")
    assert actual.as_dict(NOW) == {
        "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16],
        "algorithm": "RS256",
        "expires": "2026-03-12T00:00:00Z",
        "not_before": "2026-03-01T11:00:00Z",
        "issued": "2026-03-01T12:00:00Z",
        "days_left": 10,
        "valid": True,
        "server_type": DLS,
        "services": [
            {"host": host, "port": 443, "service": service}
            for host in ("dls-a.example.com", "dls-b.example.com")
            for service in ("auth", "lease")
        ],
        "license_classes": [],
        "signature": CONSISTENT,
        "warnings": [],
    }
    assert normalize_token(f" {text}\r\n") == text


@pytest.mark.parametrize(
    ("host", "kind", "expected"),
    [
        (CLS_HOST, CLS, CLS_HOST),
        ("https://dls.example.com:8443/x", DLS, "dls.example.com"),
        ("https://[2001:db8::1]:443", DLS, "2001:db8::1"),
        ("2001:db8::1", DLS, "2001:db8::1"),
        ("10.0.0.7", DLS, "10.0.0.7"),
        ("licensing.nvidia.com.example.com", DLS, "licensing.nvidia.com.example.com"),
    ],
)
def test_license_servers(host: str, kind: str, expected: str) -> None:
    actual = parsed(host)
    assert (actual.server_type, {service.host for service in actual.services}) == (kind, {expected})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, ""),
        ({"expires_in": -60}, "expired at 2026-03-01T11:59:00Z. Create a new client configuration token in the license system, and set it."),
        ({"expires_in": 0}, "expired at 2026-03-01T12:00:00Z."),
        ({"starts_in": 120}, "is not valid before 2026-03-01T12:02:00Z. Wait until then, or check the clocks of this machine and of the license server."),
        ({"exp": None, "nbf": None}, ""),
    ],
)  # fmt: skip
def test_the_time(options: dict[str, Any], problem: str) -> None:
    actual = parsed(**options)
    invalid = actual.problem(NOW)
    shown = f"{invalid.reason}. {invalid.remedy_with('set it')}" if invalid else ""
    assert shown.startswith(problem) if problem else shown == ""
    assert actual.as_dict(NOW)["valid"] == (not problem)


def test_missing_claims_are_unknown() -> None:
    actual = parse_token(sign_token({}))
    assert actual.as_dict(NOW) == {
        "fingerprint": actual.fingerprint[:16],
        "algorithm": "RS256",
        **dict.fromkeys(("expires", "not_before", "issued", "days_left", "server_type")),
        "valid": True,
        "services": [],
        "license_classes": [],
        "signature": UNKNOWN,
        "warnings": ["it has no expiry", "it names no license server"],
    }


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"iss": "kubernetes/serviceaccount"},
            'its claim iss is "kubernetes/serviceaccount", not "NLS Service Instance"',
        ),
        ({"aud": ["x"]}, "its claim aud is a list"),
        ({"exp": "tomorrow"}, "its claim exp is not a time"),
        ({"exp": 10**30}, "its claim exp is not a time"),
        ({"exp": float("nan")}, "its claim exp is not a time"),
        ({"exp": True}, "its claim exp is not a time"),
        ({"service_instance_configuration": {"node_url_list": [{"url": "bad host"}, {}, 7]}}, "no valid host"),
        ({"service_instance_configuration": ["x"]}, "it names no license server"),
    ],
)
def test_odd_claims_are_warnings(changes: dict[str, Any], warning: str) -> None:
    assert any(warning in text for text in parsed(**changes).warnings)


@pytest.mark.parametrize(
    "keys",
    [
        None,
        {"mod": "zz", "exp": 65537},
        {"mod": "ff", "exp": 65537},
        {"mod": "f" * 20_000, "exp": 65537},
        {"mod": f"{(1 << 2047) + 1:x}", "exp": 10**12},
        {"mod": f"{(1 << 2047) + 1:x}", "exp": None},
    ],
)
def test_a_signature_without_a_usable_key_is_unknown(keys: Any) -> None:
    actual = parsed(service_instance_public_key_configuration={"service_instance_public_key_me": keys})
    assert actual.signature == UNKNOWN


def test_a_changed_token_is_inconsistent() -> None:
    head, dummy, signature = sign_token(claims()).split(".")
    changed = f"{head}.{encode(json.dumps(claims(expires_in=10**8)).encode())}.{signature}"
    actual = parse_token(changed)
    assert actual.signature == INCONSISTENT
    assert "its signature does not match the key in it" in actual.warnings[-1]
    assert parse_token(f"{head}.{changed.split('.')[1]}.{signature[:-8]}").signature == INCONSISTENT


def test_another_algorithm_is_not_verified() -> None:
    actual = parse_token(sign_token(claims(), header={"alg": "HS256"}))
    assert (actual.algorithm, actual.signature) == ("HS256", UNKNOWN)
    assert 'its algorithm is "HS256", not RS256' in actual.warnings[0]


HEADER, CLAIMS = encode(b'{"alg":"RS256"}'), encode(b"{}")


def with_header(header: bytes) -> str:
    return f"{encode(header)}.{CLAIMS}.c2ln"


def with_claims(payload: bytes) -> str:
    return f"{HEADER}.{encode(payload)}.c2ln"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("abc", "has 1 part instead of 3"),
        ("a.b", "has 2 parts instead of 3"),
        (f"{HEADER}.{CLAIMS}.", "is not signed"),
        (with_header(b"{}"), "has no algorithm in its header"),
        (with_header(b'{"alg":7}'), "has no algorithm in its header"),
        (with_header(b'{"alg":"none"}'), "is not signed"),
        (with_claims(b"[]"), "has a part (claims) that is not a JSON object"),
        (with_claims(b"{]"), "has a part (claims) that is not JSON"),
        (with_claims(b"[" * 30_000), "has a part (claims) that is not JSON"),
        (with_claims(b'{"exp":' + b"9" * 10_000 + b"}"), "has a part (claims) that is not JSON"),
        (with_claims(bytes([0xFF, 0xFE])), "has a part (claims) that is not JSON"),
        (f"{HEADER}.x.c2ln", "has a part (claims) that is not base64url"),
        (f"{HEADER}.{CLAIMS}.c2l\nuZw", "contains characters that no token has"),
        (f'"{HEADER}.{CLAIMS}.c2ln"', "contains characters that no token has"),
        (f"{HEADER}.{CLAIMS}.c2ln\u00e9", "contains characters that are not ASCII"),
        (b"\xff\xfea\x00", "contains bytes that are not ASCII"),
        ("x" * 70_000, "has 70000 bytes"),
    ],
)
def test_what_is_not_a_token(text: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidToken) as error:
        parse_token(text)
    assert str(error.value).startswith(reason)


@given(st.one_of(st.text(), st.binary(), st.text(alphabet="ab.=-_ \n")))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_token_or_refused(text: str | bytes) -> None:
    shown = ""
    try:
        parse_token(text)
    except InvalidToken as error:
        shown = str(error)
    assert "\n" not in shown


# With lone surrogates, control characters and digits of other scripts.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(["\ud800", "a\0", "²"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(sorted(claims())), JSON),
    st.dictionaries(st.sampled_from(["svc_port_set_list", "node_url_list", "nls_service_instance_ref"]), JSON),
)
@example({"fulfillment_class_ref_list": ["\ud800"]}, {"nls_service_instance_ref": "\ud800"})
@settings(max_examples=200, deadline=None)
def test_claims_of_any_type_are_read(changes: dict[str, Any], server: dict[str, Any]) -> None:
    payload = {**claims(), "service_instance_configuration": server, **changes}
    parts = [HEADER, encode(json.dumps(payload).encode()), encode(b"signature")]
    actual = parse_token(".".join(parts))
    json.dumps(actual.as_dict(NOW), allow_nan=False, ensure_ascii=False).encode()
    actual.description.encode()
    assert actual.not_a_renewal_of(actual) == []


@given(st.dictionaries(st.sampled_from(["alg", "typ"]), JSON))
@example({"alg": "\ud800"})
@settings(max_examples=100, deadline=None)
def test_headers_of_any_type_are_read(changes: dict[str, Any]) -> None:
    text = f"{encode(json.dumps({'alg': 'RS256', **changes}).encode())}.{CLAIMS}.c2ln"
    try:
        shown = json.dumps(parse_token(text).as_dict(NOW), ensure_ascii=False)
    except InvalidToken as error:
        shown = str(error)
    shown.encode()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"node_url_list": [{"url": "a.example.com:²"}]}, [{"host": "a.example.com", "port": None, "service": ""}]),
        ({"node_url_list": [{"url": f"a.example.com:{'9' * 200}"}]}, [{"host": "a.example.com", "port": None, "service": ""}]),
        ({"node_url_list": [{"url": "a\0.example.com"}]}, []),
        ({"node_url_list": [{"url": "\ud800"}]}, []),
        (
            {"node_url_list": [{"url": "a", "svc_port_set_idx": 0}], "svc_port_set_list": [{"idx": 0, "svc_port_map": [{"service": "\ud800", "port": 10**300}]}]},
            [{"host": "a", "port": None, "service": "\\ud800"}],
        ),
    ],
)  # fmt: skip
def test_odd_license_servers(changes: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    actual = parsed(service_instance_configuration=changes)
    assert [service.as_dict() for service in actual.services] == expected


@pytest.mark.parametrize("depth", [100, 900, 5000, 20_000])
@pytest.mark.parametrize("claim", ["iss", "exp", "scope_ref_list", "service_instance_configuration"])
def test_deep_claims_are_read_or_refused(depth: int, claim: str) -> None:
    text = with_claims(f'{{"{claim}": {"[" * depth}{"]" * depth}}}'.encode())
    shown = "is not JSON"
    try:
        json.dumps(parse_token(text).as_dict(NOW))
    except InvalidToken as error:
        shown = str(error)
    assert "is not JSON" in shown


@given(st.integers(0, 2000), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_a_changed_or_truncated_token_never_shows_its_text(position: int, byte: int) -> None:
    text = sign_token(claims()).encode()
    for changed in (text[:position], text[:position] + bytes([byte]) + text[position + 1 :]):
        try:
            shown = json.dumps(parse_token(changed).as_dict(NOW))
        except InvalidToken as error:
            shown = str(error)
        signature = text.rpartition(b".")[2].decode()
        assert signature[:20] not in shown
        assert base64.b64encode(text)[:20].decode() not in shown
