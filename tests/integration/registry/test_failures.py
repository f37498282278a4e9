# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures of registries, each with its message and remedy; interrupted copies; passwords that appear nowhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lab.registry import layout
from tests.faults.api_proxy import Answer, Proxy, Request
from tests.helpers.planted_secrets import Planted
from tests.helpers.polling import until
from tests.helpers.registries import Object, Registries
from tests.helpers.registry_images import push_image

pytestmark = [pytest.mark.lab, pytest.mark.usual(3), pytest.mark.timeout(300)]

QUOTA = b'{"errors": [{"code": "DENIED", "message": "adding 64 MiB of storage resource, which exceeds the configured quota"}]}'
INVALID = b'{"errors": [{"code": "MANIFEST_INVALID", "message": "manifest invalid"}]}'


def source_of(registries: Registries, **options: Any) -> str:
    push_image(registries.client(), f"{registries.unique}/source", "1", **options)
    return f"{registries.plain}/{registries.unique}/source:1"


@contextmanager
def proxied(registries: Registries, before: Callable[[Request], Answer | None]) -> Iterator[tuple[str, list[Object]]]:
    """The plain registry behind a proxy that answers some requests itself: its address, and the option `registries`."""
    proxy = Proxy(f"http://{registries.plain}")
    proxy.keeps_host, proxy.before = True, before
    with proxy.running():
        address = urlsplit(proxy.url).netloc
        yield address, [*registries.options(), {"registry": address, "plain_http": True}]


LOGINS: list[tuple[str, dict[str, Any], str]] = [
    (
        "none",
        {"username": None, "password": None},
        "Set username and password of the registry in gpu_registries (option registries of the module)",
    ),
    ("wrong", {"password": "planted-wrong"}, "It rejects the credentials from the entry"),
    ("no CA", {"ca_cert": None}, "Set its CA as ca_cert of the registry"),
    ("no TLS", {"plain_http": True}, "Remove plain_http of the registry"),
]


@pytest.mark.parametrize(("tls", "words"), [case[1:] for case in LOGINS], ids=[case[0] for case in LOGINS])
def test_logins_and_certificates(registries: Registries, tls: dict[str, Any], words: str) -> None:
    entry = {"source": source_of(registries), "destination": f"{registries.tls}/{registries.unique}/target:1"}
    with registries.requests(layout.TLS) as sent:
        failed = registries.copy(entry, registries=registries.options(**tls))
    assert failed["failed"]
    assert words in failed["msg"], failed["msg"]
    assert sent.writes == []
    assert "planted-wrong" not in json.dumps(failed)


def test_an_unknown_host_and_a_closed_port(registries: Registries) -> None:
    source = source_of(registries)
    for host, words in (("no-such-host.invalid", "does not resolve"), ("127.0.0.1:1", "Nothing listens there")):
        failed = registries.copy({"source": source, "destination": f"{host}/x/y:1"}, request_timeout=2)
        assert failed["code"] == "unreachable"
        assert words in failed["msg"]


def test_a_login_in_an_auth_file(registries: Registries) -> None:
    entry = {"source": source_of(registries), "destination": f"{registries.tls}/{registries.unique}/target:1"}
    user = registries.lab.env["LAB_REGISTRY_USER"]
    path = registries.folder / "auth.json"
    auth = base64.b64encode(f"{user}:{registries.password}".encode()).decode()
    path.write_text(json.dumps({"auths": {registries.tls: {"auth": auth}}}))
    options = registries.options(username=None, password=None)
    registries.copied(entry, registries=options, env={"REGISTRY_AUTH_FILE": str(path)})
    path.write_text("auths: {}")
    failed = registries.copy(entry, registries=options, auth_file=str(path))
    assert (failed["code"], failed["msg"]) == (
        "connection",
        f"{path} is not an auth file: it must be a JSON object with the key auths.",
    )


def test_an_expired_token(registries: Registries) -> None:
    proxy = Proxy(f"http://{registries.plain}")
    proxy.keeps_host = True

    def before(request: Request) -> Answer | None:
        if request.path.startswith("/token"):
            return Answer(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "the token has expired"}]}')
        return Answer(401, b"{}", {"WWW-Authenticate": f'Bearer realm="{proxy.url}/token",service="registry"'})

    proxy.before = before
    with proxy.running():
        address = urlsplit(proxy.url).netloc
        login = {"registry": address, "plain_http": True, "username": "robot", "password": "planted-token"}
        entry = {"source": source_of(registries), "destination": f"{address}/x/y:1"}
        failed = registries.copy(entry, registries=[*registries.options(), login])
    assert failed["code"] == 401
    assert "have expired: log in again, or create a new token" in failed["msg"]
    assert "planted-token" not in json.dumps(failed)


FAULTS: list[tuple[str, Callable[[Request], Answer | None], str]] = [
    (
        "quota, at the first layer",
        lambda request: Answer(403, QUOTA) if request.method == "POST" else None,
        "Raise the registry's quota or delete images there",
    ),
    (
        "quota, at the manifest",
        lambda request: Answer(413, QUOTA) if request.method == "PUT" and "/manifests/" in request.path else None,
        "Raise the registry's quota or delete images there",
    ),
    (
        "manifest",
        lambda request: Answer(400, INVALID) if request.method == "PUT" and "/manifests/" in request.path else None,
        "set platforms to one platform",
    ),
]


@pytest.mark.parametrize(("before", "words"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS])
def test_refusals(registries: Registries, before: Callable[[Request], Answer | None], words: str) -> None:
    with proxied(registries, before) as (address, options):
        entry = {"source": source_of(registries), "destination": f"{address}/{registries.unique}/target:1"}
        failed = registries.copy(entry, registries=options)
    assert failed["code"] == "tool"
    assert words in failed["msg"], failed["msg"]


@pytest.mark.parametrize("method", ["HEAD", "PATCH"])
def test_registries_with_a_smaller_api(registries: Registries, method: str) -> None:
    """A registry without HEAD, and one that accepts a single PATCH for each upload."""
    patched: set[str] = set()

    def before(request: Request) -> Answer | None:
        if request.method != method:
            return None
        if method == "HEAD" and "/manifests/" in request.path:
            return Answer(405)
        path = request.path.partition("?")[0]
        if method == "PATCH" and path in patched:
            return Answer(416)
        patched.add(path)
        return None

    with proxied(registries, before) as (address, options):
        entry = {
            "source": source_of(registries, size=3_000_000),
            "destination": f"{address}/{registries.unique}/target:1",
        }
        registries.copied(entry, registries=options)


def test_manifests_that_need_their_type_in_accept(registries: Registries) -> None:
    """The registry of version 2.8 returns 404 to a HEAD that does not accept the type of an index, although it exists."""

    def before(request: Request) -> Answer | None:
        is_read = request.method == "HEAD" and "/manifests/" in request.path
        return Answer(404) if is_read and "oci.image.index" not in request.accept else None

    with proxied(registries, before) as (address, options):
        source = source_of(registries).replace(registries.plain, address)
        registries.copied(
            {"source": source, "destination": f"{address}/{registries.unique}/target:1"}, registries=options
        )


def test_an_interrupted_copy_sends_no_finished_layer_again(registries: Registries) -> None:
    platforms = ("amd64", "arm64", "ppc64le", "s390x")
    pushed = push_image(registries.client(), f"{registries.unique}/source", "1", size=6_000_000, platforms=platforms)
    source, layers = f"{registries.plain}/{registries.unique}/source:1", pushed.layers.values()
    target = f"{registries.unique}/target"
    entry = {"source": source, "destination": f"{registries.lab.env['LAB_REGISTRY_TLS_PROXY']}/{target}:1"}
    network, client = registries.network("registry-tls-proxy"), registries.client("LAB_REGISTRY_TLS")
    network.bandwidth(3000, "upstream")
    with registries.requests(layout.TLS) as first, ThreadPoolExecutor(1) as pool:
        copying = pool.submit(registries.copy, entry)
        until(lambda: any(client.has_blob(target, layer) for layer in layers))
        # Longer than skopeo repeats a copy.
        network.cut(15)
        failed = copying.result()
        network.heal()
    assert failed.get("failed"), "the line was cut"
    assert (
        "Run the playbook again: finished layers are not sent again" in failed["msg"]
        or "Nothing listens there" in failed["msg"]
    )
    with registries.requests(layout.TLS) as second:
        result = registries.copy(entry)
    assert not result.get("failed"), result
    print("finished before and after the interruption:", len(first.uploads), len(second.uploads))
    assert first.uploads
    assert not set(first.uploads) & set(second.uploads)


def test_passwords_appear_nowhere(registries: Registries, tmp_path: Path) -> None:
    planted = Planted()
    planted.add("the password", registries.password)
    source = source_of(registries, size=2_000_000)
    entry = {"source": source, "destination": f"{registries.tls}/{registries.unique}/target:1"}
    folder = tmp_path / "files"
    folder.mkdir()
    with planted.watched(folder, Path("/tmp/accel-gpu")) as seen:
        result = registries.copy(entry, env={"TMPDIR": str(folder)})
        failed = registries.copy({**entry, "source": f"{source}-missing"}, env={"TMPDIR": str(folder)})
    assert not result.get("failed"), result
    assert failed["failed"]
    assert seen == []
    # The options of a module are shown at -vvv, and its password as text that replaces it.
    assert planted.found_in(json.dumps([result, failed])) == []
    assert planted.found_below(folder) == []
