# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Challenges of registries, and the requests for tokens that follow from them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from ansible_collections.accel.gpu.plugins.module_utils.core.http import HttpResponse
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import (
    PULL,
    PUSH,
    Authorization,
    Challenge,
    RegistryError,
    parse_challenge,
)
from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import Login

HOST = "registry.example.com"
REALM = "https://auth.example.com/token"
BEARER = f'Bearer realm="{REALM}",service="{HOST}"'
USER = Login("u", "p", "the option")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('Basic realm="Registry"', Challenge("basic", {"realm": "Registry"})),
        ("basic", Challenge("basic", {})),
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"',
            Challenge(
                "bearer",
                {
                    "realm": "https://auth.docker.io/token",
                    "service": "registry.docker.io",
                    "scope": "repository:a/b:pull,push",
                },
            ),
        ),
        ('BEARER Realm="https://x/t", Service="x"', Challenge("bearer", {"realm": "https://x/t", "service": "x"})),
        ("", Challenge("", {})),
    ],
)
def test_challenges(value: str, expected: Challenge) -> None:
    assert parse_challenge(value) == expected


@dataclass
class TokenService:
    """The requests to a registry and its token service, which numbers its tokens."""

    challenge: str = BEARER
    key: str = "token"
    pings: int = 0
    sent: list[tuple[str, str, dict[str, str], bytes | None]] = field(default_factory=list)

    def ping(self) -> str:
        """The challenge of the registry."""
        self.pings += 1
        return self.challenge

    def send(self, method: str, url: str, headers: Mapping[str, str], data: bytes | None) -> HttpResponse:
        """A new token for each request."""
        self.sent.append((method, url, dict(headers), data))
        return HttpResponse(200, json.dumps({self.key: f"t{len(self.sent)}"}).encode())

    def header(self, authorization: Authorization, repository: str, actions: str = PULL) -> str | None:
        """The header for a repository."""
        return authorization.header(repository, actions, self.send, self.ping)


def authorization(login: Login | None = USER, *, plain_http: bool = False) -> Authorization:
    """The authorization for a registry with one login."""
    return Authorization(HOST, lambda dummy: login, plain_http=plain_http)


def test_a_registry_that_asks_for_nothing() -> None:
    service, actual = TokenService(challenge=""), authorization()
    assert [service.header(actual, name) for name in ("a", "b", "a")] == [None, None, None]
    assert (service.pings, service.sent) == (1, [])


def test_basic() -> None:
    service, actual = TokenService(challenge='Basic realm="r"'), authorization()
    # echo -n u:p | base64
    assert [service.header(actual, name) for name in ("a", "b", "a")] == ["Basic dTpw"] * 3
    assert (service.pings, service.sent) == (1, [])
    # The same password again would be rejected again.
    assert actual.renew(parse_challenge(service.challenge), "a", PULL, service.send, "Basic dTpw") is None
    assert TokenService(challenge="Basic").header(authorization(None), "a") is None


def test_one_token_for_each_repository_and_its_actions() -> None:
    service, actual = TokenService(), authorization()
    assert [service.header(actual, name) for name in ("a/b", "c", "a/b", "c")] == [
        "Bearer t1",
        "Bearer t2",
        "Bearer t1",
        "Bearer t2",
    ]
    assert service.header(actual, "c", PUSH) == "Bearer t3"
    assert service.pings == 1
    queries = [parse_qs(urlsplit(url).query) for dummy_method, url, dummy_headers, dummy_data in service.sent]
    assert queries == [
        {"service": [HOST], "scope": [f"repository:{scope}"]} for scope in ("a/b:pull", "c:pull", "c:pull,push")
    ]
    assert {(method, url.partition("?")[0], data) for method, url, dummy, data in service.sent} == {
        ("GET", REALM, None)
    }
    assert {headers["Authorization"] for dummy_method, dummy_url, headers, dummy_data in service.sent} == {"Basic dTpw"}


def test_an_anonymous_token() -> None:
    service = TokenService()
    assert service.header(authorization(None), "a") == "Bearer t1"
    assert service.sent[0][2] == {}


def test_a_challenge_without_a_service() -> None:
    service = TokenService(challenge='Bearer realm="https://nvcr.io/proxy_auth"', key="access_token")
    assert service.header(authorization(), "a") == "Bearer t1"
    assert parse_qs(urlsplit(service.sent[0][1]).query) == {"scope": ["repository:a:pull"]}


def test_an_identity_token_is_sent_in_the_body() -> None:
    service = TokenService(key="access_token")
    assert service.header(authorization(Login("", "", "file", identity_token="refresh")), "a") == "Bearer t1"
    ((method, url, headers, data),) = service.sent
    assert (method, url) == ("POST", REALM)
    assert "Authorization" not in headers
    assert parse_qs((data or b"").decode()) == {
        "grant_type": ["refresh_token"],
        "client_id": ["accel.gpu"],
        "refresh_token": ["refresh"],
        "service": [HOST],
        "scope": ["repository:a:pull"],
    }


def test_a_rejected_token_is_renewed_once() -> None:
    service, actual = TokenService(), authorization()
    first = service.header(actual, "a")
    challenge = parse_challenge(BEARER)
    renewed = actual.renew(challenge, "a", PULL, service.send, first)
    assert (first, renewed) == ("Bearer t1", "Bearer t2")
    # A request that was sent with the first token finds the second.
    assert actual.renew(challenge, "a", PULL, service.send, first) == "Bearer t2"
    assert service.header(actual, "a") == "Bearer t2"
    assert len(service.sent) == 2


@pytest.mark.parametrize("challenge", ["", "Negotiate", 'Digest realm="r"', "Bearer", 'Bearer service="s"'])
def test_an_unknown_challenge_has_no_answer(challenge: str) -> None:
    service = TokenService()
    assert authorization().renew(parse_challenge(challenge), "a", PULL, service.send, None) is None
    assert service.sent == []


def test_threads_fetch_one_token() -> None:
    """All threads ask while the request for the token is under way."""
    service, actual, waiting, asked = (
        TokenService(),
        authorization(),
        threading.Event(),
        threading.Barrier(9, timeout=60),
    )

    def send(method: str, url: str, headers: Mapping[str, str], data: bytes | None) -> HttpResponse:
        assert waiting.wait(60)
        return service.send(method, url, headers, data)

    def header() -> str | None:
        asked.wait()
        return actual.header("a", PULL, send, service.ping)

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(header) for dummy in range(8)]
        asked.wait()
        waiting.set()
        assert {future.result() for future in running} == {"Bearer t1"}
    assert (service.pings, len(service.sent)) == (1, 1)


def test_tokens_of_several_repositories_are_fetched_at_the_same_time() -> None:
    both, service, actual = threading.Barrier(2, timeout=60), TokenService(), authorization()

    def send(method: str, url: str, headers: Mapping[str, str], data: bytes | None) -> HttpResponse:
        both.wait()
        return service.send(method, url, headers, data)

    with ThreadPoolExecutor(2) as pool:
        headers = list(pool.map(lambda name: actual.header(name, PULL, send, service.ping), ("a", "b")))
    assert sorted(filter(None, headers)) == ["Bearer t1", "Bearer t2"]


@pytest.mark.parametrize(
    ("realm", "login", "plain_http", "sent"),
    [
        ("http://auth.example.com/token", USER, False, False),
        ("http://auth.example.com/token", Login("", "", "the file", identity_token="t"), False, False),
        ("http://auth.example.com/token", USER, True, True),
        ("http://auth.example.com/token", None, False, True),
        ("http://127.0.0.1:5001/token", USER, False, True),
        ("http://localhost:5001/token", USER, False, True),
        ("https://auth.example.com/token", USER, False, True),
    ],
)
def test_no_password_without_tls(realm: str, login: Login | None, plain_http: bool, sent: bool) -> None:
    service, actual = TokenService(challenge=f'Bearer realm="{realm}"'), authorization(login, plain_http=plain_http)
    if sent:
        assert service.header(actual, "a") == "Bearer t1"
        return
    assert login is not None
    with pytest.raises(ConnectionProblem, match=r"has no TLS, so the credentials from the .* are not sent") as raised:
        service.header(actual, "a")
    assert service.sent == []
    assert all(secret not in str(raised.value) for secret in login.secrets if len(secret) > 1)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b'{"token": ""}', b"null"])
def test_a_response_without_a_token(body: bytes) -> None:
    with pytest.raises(RegistryError, match="its token service returns no token") as raised:
        authorization().header("a", PULL, lambda *dummy: HttpResponse(200, body), lambda: BEARER)
    assert (raised.value.code, raised.value.path) == (401, REALM)


def test_the_source_of_a_login() -> None:
    asked: list[str] = []

    def find(name: str) -> Login:
        asked.append(name)
        return USER

    assert Authorization(HOST, find, plain_http=False).source("a/b") == "the option"
    assert asked == [f"{HOST}/a/b"]
    assert authorization(None).source("a") == ""
