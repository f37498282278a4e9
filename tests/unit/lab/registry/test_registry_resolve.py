# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image references, and the logins of pull Secrets that are for them, as Kubernetes selects them."""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import Mock

import pytest

from lab.registry.resolve import Login, Reference, logins

HOST = "127.0.0.1:5000"
DIGEST = "sha256:0123"


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        (f"{HOST}/a/b:1", Reference(HOST, "a/b", "1")),
        (f"{HOST}/a", Reference(HOST, "a", "latest")),
        (f"{HOST}/a@{DIGEST}", Reference(HOST, "a", DIGEST)),
        (f"{HOST}/a:1@{DIGEST}", Reference(HOST, "a", DIGEST)),
    ],
)
def test_reference(image: str, reference: Reference) -> None:
    assert Reference.parse(image) == reference


@pytest.mark.parametrize(
    ("key", "host", "matches"),
    [
        (HOST, HOST, True),
        ("127.0.0.1", HOST, False),
        ("127.0.0.1:5001", HOST, False),
        (f"{HOST}/a", HOST, True),
        (f"{HOST}/a/b", HOST, True),
        (f"{HOST}/b", HOST, False),
        ("*.0.0.1:5000", HOST, True),
        ("*.1:5000", HOST, False),
        ("localhost:5000", HOST, False),
        ("localhost:5000", "localhost:5000", True),
    ],
)
def test_login_matches(key: str, host: str, matches: bool) -> None:
    assert Login(key, "u", "p").matches(Reference(host, "a/b", "1")) is matches


def secret(auths: dict[str, Any], kind: str = "kubernetes.io/dockerconfigjson") -> dict[str, Any]:
    content = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return {"type": kind, "data": {".dockerconfigjson": content}}


def test_logins_of_a_pod() -> None:
    auth = base64.b64encode(b"user:with:colon").decode()
    secrets = {
        "first": secret(
            {f"https://{HOST}/v2/": {"auth": auth}, f"http://{HOST}/v1/a": {"username": "u", "password": "p"}}
        ),
        "opaque": secret({HOST: {"auth": auth}}, "Opaque"),
        "broken": secret({f"{HOST}/z": {"auth": "!", "username": "u", "password": "p"}}),
    }
    api = Mock()
    api.get = lambda path: secrets.get(path.removeprefix("/api/v1/namespaces/ns/secrets/"))
    names = [{"name": name} for name in ("opaque", "absent", "first", "broken")]
    pod = {"metadata": {"namespace": "ns"}, "spec": {"imagePullSecrets": names}}
    assert logins(api, pod) == [
        Login(f"{HOST}/a", "u", "p"),
        Login(HOST, "user", "with:colon"),
    ]
    assert logins(api, {"metadata": {"namespace": "ns"}, "spec": {}}) == []
