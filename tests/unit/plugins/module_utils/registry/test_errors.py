# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Error bodies of registries, and the message and remedy for each.

Sources of the bodies: opencontainers/distribution-spec ("Error Codes"); the threads goharbor/harbor 8802 and 17390 (quota); the documentation of Docker
Hub's limits (429) and of its token service (`details`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import DNS, REFUSED, TIMEOUT, TLS
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import (
    MISSING_PROJECT,
    RegistryError,
    error_text,
)

HOST = "registry.example.com"


def coded(code: str, message: str, detail: Any = None) -> dict[str, Any]:
    """A body as the specification has it."""
    return {"errors": [{"code": code, "message": message, "detail": detail}]}


# Google Artifact Registry, whose limit on requests is a quota, too.
GOOGLE_LIMIT = "Quota exceeded for quota metric 'Requests per project per region' and limit 'Requests per project per region per minute per region'"
HUB_LIMIT = "You have reached your pull rate limit. You may increase the limit by authenticating and upgrading"
HARBOR_QUOTA = "adding 29.0 MiB of storage resource, which when updated to current usage of 152.4 MiB will exceed the configured upper limit of 10.0 MiB."


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (coded("MANIFEST_UNKNOWN", "manifest unknown", {"Tag": "1"}), ("MANIFEST_UNKNOWN", "manifest unknown")),
        (coded("TOOMANYREQUESTS", HUB_LIMIT), ("TOOMANYREQUESTS", HUB_LIMIT)),
        (coded("DENIED", HARBOR_QUOTA), ("DENIED", HARBOR_QUOTA)),
        (
            coded("UNAUTHORIZED", "access to the requested resource is not authorized", {}),
            ("UNAUTHORIZED", "access to the requested resource is not authorized"),
        ),
        (coded("NAME_UNKNOWN", "", "no such project"), ("NAME_UNKNOWN", "NAME_UNKNOWN (no such project)")),
        (coded("DENIED", "denied", "token expired"), ("DENIED", "denied (token expired)")),
        (coded("DENIED", "denied: token expired", "token expired"), ("DENIED", "denied: token expired")),
        (
            {"errors": [{"code": "A", "message": "one"}, {"code": "B", "message": "two"}]},
            ("A", "one; two"),
        ),
        # Without a code, as Artifactory's own API writes errors.
        ({"errors": [{"status": 404, "message": "Repository not found"}]}, ("", "Repository not found")),
        # Docker Hub's token service.
        ({"details": "incorrect username or password"}, ("", "incorrect username or password")),
        ({"message": "Bad credentials"}, ("", "Bad credentials")),
        ({"error": "invalid_grant"}, ("", "invalid_grant")),
        ({"errors": []}, ("", "")),
        ({"errors": ["text"]}, ("", "")),
        ({}, ("", "")),
        ([], ("", "")),
        ("text", ("", "")),
    ],
)
def test_bodies(body: Any, expected: tuple[str, str]) -> None:
    assert error_text(json.dumps(body).encode()) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ""),
        (b"<html><body>502</body></html>", ""),
        (b"<html><head><title>429 Too\n Many Requests</title></head></html>", "429 Too Many Requests"),
        (b"404 page\n not found", "404 page not found"),
        (b"x" * 1000, "x" * 300),
        (b"\xff", "\ufffd"),
    ],
)
def test_bodies_without_json(data: bytes, expected: str) -> None:
    assert error_text(data) == ("", expected)


def error(
    status: int | None, body: Any = None, *, method: str = "GET", login: str = "", **fields: Any
) -> RegistryError:
    """The error for a response."""
    code, text = error_text(json.dumps(body or {}).encode())
    fields = {"reason": code, **fields}
    return RegistryError(
        text or "no reason was given",
        registry=HOST,
        login=login,
        status=status,
        method=method,
        path="/v2/a/manifests/1",
        **fields,
    )


LIMIT = "limits the number of requests (GET /v2/a/manifests/1): "


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (
            error(401, coded("UNAUTHORIZED", "authentication required")),
            f"Registry {HOST} requires other credentials (GET /v2/a/manifests/1): authentication required. Set username and password of the "
            "registry in gpu_registries (option registries of the module), or auth_file.",
        ),
        (
            error(401, {"details": "incorrect username or password"}, login="the option for x"),
            f"Registry {HOST} requires other credentials (GET /v2/a/manifests/1): incorrect username or password. It rejects the credentials "
            f"from the option for x: check user and password. If `skopeo login {HOST}` accepts them, they are right. {MISSING_PROJECT}",
        ),
        (
            error(
                401,
                coded("UNAUTHORIZED", "unauthorized to access repository: a/b, action: push"),
                login="x",
                accepted=True,
            ),
            f"Registry {HOST} requires other credentials (GET /v2/a/manifests/1): unauthorized to access repository: a/b, action: push. It accepts the "
            f"credentials from x, but not for this repository. {MISSING_PROJECT}",
        ),
        (
            error(401, coded("UNAUTHORIZED", "The access token has expired."), login="/a.json"),
            f"Registry {HOST} requires other credentials (GET /v2/a/manifests/1): The access token has expired. The credentials from /a.json "
            "have expired: log in again, or create a new token.",
        ),
        (
            error(403, coded("DENIED", "requested access to the resource is denied"), method="PUT", login="x"),
            f"Registry {HOST} denies the request (PUT /v2/a/manifests/1): requested access to the resource is denied. The user needs permission to "
            f"write to this repository. {MISSING_PROJECT}",
        ),
        (
            error(403, coded("DENIED", HARBOR_QUOTA), method="PUT"),
            f"Registry {HOST} has no space for the image (PUT /v2/a/manifests/1): {HARBOR_QUOTA.rstrip('.')}. Raise its quota or delete images "
            "there, and run the playbook again.",
        ),
        (
            error(400, coded("MANIFEST_INVALID", "manifest invalid"), method="PUT"),
            f"Registry {HOST} rejects the manifest (PUT /v2/a/manifests/1): manifest invalid. It may not support this type of image (OCI index, "
            "several platforms): set platforms to one platform, or check the documentation of the registry.",
        ),
        (
            error(405, coded("UNSUPPORTED_METHOD", "not allowed"), method="PUT"),
            f"Registry {HOST} does not allow the request (PUT /v2/a/manifests/1): not allowed. A pull-through cache does not accept pushed images: use a "
            "repository that stores images.",
        ),
        (
            error(429, coded("TOOMANYREQUESTS", HUB_LIMIT)),
            f"Registry {HOST} {LIMIT}{HUB_LIMIT}. Run the playbook again later, or log in: the limits for authenticated users are higher.",
        ),
        (
            error(403, coded("DENIED", "Rate exceeded")),
            f"Registry {HOST} {LIMIT}Rate exceeded. Run the playbook again later, or log in: the limits for authenticated users are higher.",
        ),
        (
            error(404, coded("NAME_UNKNOWN", "repository name not known to registry"), method="PUT"),
            f"Registry {HOST} does not have the repository or the image (PUT /v2/a/manifests/1): repository name not known to registry. {MISSING_PROJECT}",
        ),
        (error(500), f"Registry {HOST} rejected GET /v2/a/manifests/1 with 500: no reason was given"),
        (
            error(200),
            f"Registry {HOST} returns no manifest (GET /v2/a/manifests/1): no reason was given. Check its name: a proxy or a login page may have "
            "responded.",
        ),
    ],
)
def test_messages(actual: RegistryError, message: str) -> None:
    assert str(actual) == actual.message == message


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (REFUSED, "Check that the service is running, and check the name of the registry."),
        (DNS, "Check the name of the registry and the network."),
        (
            TIMEOUT,
            "or raise request_timeout of the module (for a role: in module_defaults of group/accel.gpu.registry in your own play).",
        ),
        (TLS, "Set its CA as ca_cert of the registry in gpu_registries (option registries of the module);"),
    ],
)
def test_no_answer(reason: str, remedy: str) -> None:
    actual = error(None, reason=reason)
    assert str(actual).startswith(f"Registry {HOST} did not respond (GET /v2/a/manifests/1): ")
    assert remedy in str(actual)
    assert actual.code == "unreachable"


@pytest.mark.parametrize(
    ("status", "body", "declined"),
    [
        (429, {}, True),
        (429, coded("DENIED", HARBOR_QUOTA), False),
        (429, coded("TOOMANYREQUESTS", "Quota exceeded"), True),
        (429, coded("DENIED", GOOGLE_LIMIT), True),
        (403, coded("TOOMANYREQUESTS", "toomanyrequests: Rate exceeded"), True),
        (400, {"message": "Too Many Requests"}, True),
        (200, coded("TOOMANYREQUESTS", "slow down"), True),
        (200, coded("", "rate limit"), False),
        (503, coded("UNAVAILABLE", "rate limit exceeded"), True),
        (403, coded("DENIED", "requested access to the resource is denied"), False),
        (404, coded("NAME_UNKNOWN", "repository name not known to registry"), False),
    ],
)
def test_limits_on_requests_are_waited_for_whatever_the_status(status: int, body: Any, declined: bool) -> None:
    assert error(status, body).declined is declined


def test_a_long_wait_that_a_registry_asks_for_is_in_the_message() -> None:
    fields: Any = {"registry": HOST, "status": 429, "method": "GET", "path": "/token"}
    assert "(GET /token): slow down. It asks to wait 3600 seconds. Run the" in str(
        RegistryError("slow down", retry_after=3599.2, **fields)
    )
    assert "asks to wait" not in str(RegistryError("slow down", retry_after=60.0, **fields))


def test_a_registry_without_tls_gets_another_remedy_than_an_unknown_ca() -> None:
    actual = RegistryError("wrong version number", registry=HOST, status=None, reason=TLS, method="GET", path="/v2/")
    assert str(actual) == (
        f"Registry {HOST} did not respond (GET /v2/): wrong version number. If the registry has no TLS, set plain_http of the registry in gpu_registries "
        "(option registries of the module)."
    )


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (403, HARBOR_QUOTA, True),
        (403, "Quota exceeded when processing the request of adding 1.3 MiB", True),
        (403, "Quota has been exceeded on namespace", True),
        (413, "Storage quota exceeded", True),
        (507, "Insufficient Storage", True),
        (507, "", True),
        (429, HUB_LIMIT, False),
        (429, GOOGLE_LIMIT, False),
        (403, "requested access to the resource is denied", False),
        (413, "request entity too large", False),
        (500, "no space left on device", False),
    ],
)
def test_a_full_quota_is_not_repeated(status: int, text: str, expected: bool) -> None:
    actual = error(status, coded("X", text), method="PUT")
    assert actual.over_quota == expected
    assert actual.declined == (status == 429)
    assert error(429, coded("X", "Quota exceeded")).declined is False
