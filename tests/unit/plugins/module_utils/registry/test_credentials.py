# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins from options, auth files, credential helpers and NGC_API_KEY: which one is used, and what is a secret."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import (
    Credentials,
    InvalidAuthFile,
    Login,
    read_credentials,
)

PATH = "/home/u/auth.json"


def auth(user: str, password: str) -> dict[str, str]:
    """An entry of an auth file."""
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def read(
    document: Any = None,
    *,
    options: tuple[dict[str, Any], ...] = (),
    key: str = "",
    helpers: dict[tuple[str, str], Login] | None = None,
) -> Credentials:
    """The credentials of an auth file, of options, of the environment, and of helpers by the name and the helper that they are asked for."""
    text = None if document is None else json.dumps(document)
    known = helpers or {}
    return read_credentials(
        options, text, PATH, {"NGC_API_KEY": key} if key else {}, lambda name, helper: known.get((name, helper))
    )


def user(actual: Login | None) -> str | None:
    """The user of a login."""
    return actual.username if actual else None


NGC_FILE = {"auths": {"nvcr.io": auth("of-file", "p")}}
NGC_OPTION = ({"registry": "nvcr.io", "username": "of-option", "password": "p"},)
NGC_HELPER = {"credHelpers": {"nvcr.io": "pass"}}
OF_HELPER = {("nvcr.io", "pass"): Login("of-helper", "p", "docker-credential-pass")}


@pytest.mark.parametrize(
    ("actual", "expected", "source"),
    [
        (
            read(NGC_FILE, options=NGC_OPTION, key="k"),
            "of-option",
            "the entry nvcr.io of gpu_registries (option registries of the module)",
        ),
        (read(NGC_FILE, key="k"), "of-file", PATH),
        (read(NGC_HELPER, key="k", helpers=OF_HELPER), "of-helper", "docker-credential-pass"),
        (read(NGC_HELPER, key="k"), "$oauthtoken", "the environment variable NGC_API_KEY"),
        (read({"auths": {}}, key="k"), "$oauthtoken", "the environment variable NGC_API_KEY"),
        (read(key="k"), "$oauthtoken", "the environment variable NGC_API_KEY"),
        (read({**NGC_FILE, **NGC_HELPER}, helpers=OF_HELPER), "of-file", PATH),
        (
            read(NGC_HELPER, options=NGC_OPTION, helpers=OF_HELPER),
            "of-option",
            "the entry nvcr.io of gpu_registries (option registries of the module)",
        ),
    ],
)
def test_precedence(actual: Credentials, expected: str, source: str) -> None:
    login = actual.find("nvcr.io/nvidia/driver")
    assert login is not None
    assert (login.username, login.source) == (expected, source)


def test_no_login() -> None:
    assert read().find("nvcr.io/x") is None
    assert read(key="k").find("quay.io/x") is None
    # A TLS setting without a user is no login.
    assert read(options=({"registry": "quay.io", "username": None, "password": None},)).find("quay.io/x") is None


def test_the_most_specific_name_counts() -> None:
    actual = read(
        {
            "auths": {
                "quay.io": auth("host", "p"),
                "quay.io/org": auth("org", "p"),
                "quay.io/org/repo": auth("repo", "p"),
                "quay.io/other/v1": auth("v1", "p"),
            }
        }
    )
    names = {name: user(actual.find(name)) for name in ("quay.io", "quay.io/x", "quay.io/org/x", "quay.io/org/repo")}
    assert names == {"quay.io": "host", "quay.io/x": "host", "quay.io/org/x": "org", "quay.io/org/repo": "repo"}
    assert user(actual.find("quay.io/organization")) == "host"
    # Not widened to the folder above, although docker appends v1 to addresses.
    assert (user(actual.find("quay.io/other/x")), user(actual.find("quay.io/other/v1"))) == ("host", "v1")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("https://index.docker.io/v1/", "docker.io/library/busybox"),
        ("https://index.docker.io/v2/", "docker.io/library/busybox"),
        ("index.docker.io/v1", "docker.io/library/busybox"),
        ("index.docker.io", "docker.io/library/busybox"),
        ("registry-1.docker.io", "docker.io/library/busybox"),
        ("docker.io", "docker.io/library/busybox"),
        ("docker.io/me", "docker.io/me/x"),
        ("https://registry.example.com/v2/", "registry.example.com/x"),
        ("http://registry.example.com:5000", "registry.example.com:5000/x"),
        ("registry.example.com/", "registry.example.com/x"),
        ("registry.example.com/v2/", "registry.example.com/x"),
    ],
)
def test_names_as_docker_and_podman_write_them(key: str, name: str) -> None:
    assert user(read({"auths": {key: auth("u", "p")}}).find(name)) == "u"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (auth("u", "p:with:colons"), ("u", "p:with:colons", "")),
        ({"username": "u", "password": "p"}, ("u", "p", "")),
        ({**auth("u", "p"), "identitytoken": "t"}, ("u", "p", "t")),
        ({"identitytoken": "t"}, ("", "", "t")),
        ({**auth("u", "p\0\0")}, ("u", "p", "")),
        (auth("ü", "ß"), ("ü", "ß", "")),
        # As base64 of a command line, of JWTs, and manually written files contain it.
        ({"auth": base64.encodebytes(f"u:{'p' * 100}".encode()).decode()}, ("u", "p" * 100, "")),
        ({"auth": base64.b64encode(b"u:p\n").decode()}, ("u", "p", "")),
        ({"auth": "dTpwcA"}, ("u", "pp", "")),
        ({"auth": base64.urlsafe_b64encode("u:ÿ>?~~".encode()).decode()}, ("u", "ÿ>?~~", "")),
        ({}, None),
        (None, None),
        (auth("u", ""), None),
    ],
)
def test_entries_of_an_auth_file(entry: Any, expected: tuple[str, str, str] | None) -> None:
    login = read({"auths": {"quay.io": entry}}).find("quay.io/x")
    assert (login and (login.username, login.password, login.identity_token)) == expected


def test_the_older_format_without_a_key_around_the_entries() -> None:
    file = {"https://registry.example.com/v1/": {**auth("u", "p"), "email": "u@example.com"}, "quay.io": auth("q", "p")}
    actual = read(file)
    assert (user(actual.find("registry.example.com/x")), user(actual.find("quay.io/x"))) == ("u", "q")


def test_helpers_are_asked_by_the_name_in_the_file() -> None:
    hub = "https://index.docker.io/v1/"
    helpers = {
        (hub, "desktop"): Login("hub", "p", "s"),
        ("quay.io", "pass"): Login("quay", "p", "s"),
    }
    file = {
        "auths": {hub: {}, "quay.io": {}, "ghcr.io": {}},
        "credsStore": "desktop",
        "credHelpers": {"quay.io": "pass"},
    }
    actual = read(file, helpers=helpers)
    assert (user(actual.find("docker.io/x")), user(actual.find("quay.io/x")), actual.find("ghcr.io/x")) == (
        "hub",
        "quay",
        None,
    )


def test_only_the_helpers_of_registries_in_use_are_asked_and_once() -> None:
    asked: list[str] = []

    def ask(name: str, dummy_helper: str) -> Login | None:
        asked.append(name)
        return None if name == "ghcr.io" else Login(name, "p", "s")

    file = {
        "auths": {"r.example.com": auth("u", "p")},
        "credHelpers": dict.fromkeys(("quay.io", "ghcr.io", "nvcr.io", "docker.io"), "x"),
    }
    actual = read_credentials((), json.dumps(file), PATH, {"NGC_API_KEY": "k"}, ask)
    assert (asked, actual.secrets) == ([], {"p", "k", auth("u", "p")["auth"], auth("$oauthtoken", "k")["auth"]})
    assert [
        user(actual.find(name)) for name in ("r.example.com/x", "quay.io/x", "quay.io/y", "ghcr.io/x", "ghcr.io/x")
    ] == ["u", "quay.io", "quay.io", None, None]
    assert asked == ["quay.io", "ghcr.io"]
    # Without its helper, a registry has the other login.
    document = json.loads(actual.document("docker://r.example.com/x docker://ghcr.io/x"))["auths"]
    assert (set(document), document["nvcr.io"]) == ({"r.example.com", "quay.io", "nvcr.io"}, auth("$oauthtoken", "k"))
    document = json.loads(actual.document("docker://nvcr.io/x"))["auths"]
    assert document["nvcr.io"] == auth("nvcr.io", "p")
    assert asked == ["quay.io", "ghcr.io", "nvcr.io"]
    assert set(json.loads(actual.document("FROM x", only_named=True))["auths"]) == {"docker.io"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        '"text"',
        '{"auths": ["quay.io"]}',
        '{"auths": {"quay.io": "u:p"}}',
        '{"auths": {"quay.io": {"auth": "***"}}}',
        '{"auths": {"quay.io": {"auth": 7}}}',
        '{"auths": {"quay.io": {"auth": "/////w=="}}}',
        '{"credHelpers": "pass"}',
    ],
)
def test_invalid_files(text: str) -> None:
    with pytest.raises(
        InvalidAuthFile, match=rf"^{PATH} is not an auth file: it must be a JSON object with the key auths$"
    ):
        read_credentials((), text, PATH, {}, lambda dummy_name, dummy_helper: None)


def test_files_without_logins() -> None:
    assert json.loads(read({}).document("")) == {"auths": {}}
    assert json.loads(read({"auths": None}).document("")) == {"auths": {}}


def test_the_document_is_read_as_the_same_logins() -> None:
    first = read(
        {"auths": {"https://index.docker.io/v1/": auth("u", "p"), "quay.io/org": {"identitytoken": "t"}}},
        options=({"registry": "registry.example.com:5000", "username": "a", "password": "b"},),
        key="k",
    )
    document = json.loads(first.document(""))
    assert set(document["auths"]) == {"docker.io", "quay.io/org", "registry.example.com:5000", "nvcr.io"}
    second = read(document)
    for name in document["auths"]:
        one, other = first.find(name), second.find(name)
        assert one is not None
        assert other is not None
        assert (one.basic, one.identity_token) == (other.basic, other.identity_token)


@pytest.mark.parametrize(
    ("dockerfile", "expected"),
    [
        ("FROM quay.io/org/base:1\n", {"docker.io", "quay.io/org"}),
        ("ARG BASE=registry.example.com:5000/base\nFROM $BASE\n", {"docker.io", "registry.example.com:5000"}),
        ("FROM ubuntu:24.04\n", {"docker.io"}),
    ],
)
def test_a_build_gets_only_the_logins_of_its_base_images(dockerfile: str, expected: set[str]) -> None:
    actual = read(
        {"auths": {"https://index.docker.io/v1/": auth("u", "p"), "quay.io/org": auth("u", "q")}},
        options=({"registry": "registry.example.com:5000", "username": "a", "password": "b"},),
        key="k",
    )
    assert set(json.loads(actual.document(dockerfile, only_named=True))["auths"]) == expected


def test_secrets_are_complete_and_not_shown() -> None:
    actual = read(
        {"auths": {"quay.io": auth("u", "hunter2"), "ghcr.io": {"identitytoken": "refresh-me"}}},
        options=({"registry": "docker.io", "username": "a", "password": "swordfish"},),
        key="nvapi-1",
    )
    encoded = {auth(*pair)["auth"] for pair in (("u", "hunter2"), ("a", "swordfish"), ("$oauthtoken", "nvapi-1"))}
    assert actual.secrets == {"hunter2", "swordfish", "nvapi-1", "refresh-me"} | encoded
    shown = repr([actual.find(name) for name in ("quay.io", "ghcr.io", "docker.io", "nvcr.io")])
    assert not [secret for secret in actual.secrets if secret in shown]


@pytest.mark.parametrize(
    "text",
    [
        '{"auths":' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"auths": {"r.example.com": {"username": 5, "password": 6}}}',
        '{"auths": {"r.example.com": {"identitytoken": 7}}}',
        '{"auths": {"r.example.com": {"username": "u", "password": "\\ud800"}}}',
        '{"credHelpers": {"r.example.com": 5}}',
    ],
)
def test_values_of_other_types(text: str) -> None:
    with pytest.raises(InvalidAuthFile):
        read_credentials([], text, "/auth.json", {}, lambda *dummy: None)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("FROM r.example.com/base:1", True),
        ("FROM docker://r.example.com/base:1", True),
        ("ARG REGISTRY=r.example.com\n", True),
        ('ARG REGISTRY="r.example.com"', True),
        ("# From r.example.com.", True),
        ("FROM r.example.com.attacker.invalid/base:1", False),
        ("FROM other.r.example.com/base:1", False),
        ("FROM other-r.example.com/base:1", False),
        ("FROM r.example.com:5000/base:1", False),
        ("FROM r.example.com-x/base:1", False),
    ],
)
def test_a_build_gets_only_logins_of_hosts_that_it_names(text: str, given: bool) -> None:
    credentials = Credentials({"r.example.com/folder": Login("u", "p", "s")})
    assert (json.loads(credentials.document(text, only_named=True))["auths"] != {}) == given
